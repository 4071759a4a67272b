"""What people call a place, as a policy can name it."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 63
_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae", "ø": "o", "ł": "l"}
)
_OTHERS = re.compile(r"[^A-Za-z0-9._]+")
_HIERARCHY = re.compile(r"\s*[>|/\\]\s*")


def name_of(text: str) -> str:
    """Return a text as a name: ``Hörsaal 1 (Süd)`` is ``Hoersaal-1-Sued``; empty where nothing can be left."""
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode()
    return _OTHERS.sub("-", plain).strip("._-")[:LONGEST].rstrip("._-")


def kind_of(text: str) -> str:
    """Return a text as the kind of a zone, in lower case: ``Lecture Hall`` is ``lecture-hall``."""
    return re.sub(r"[._-]+", "-", name_of(text).lower())


def last_part(text: str) -> str:
    """Return the last part of a place that is written as a way to it: of ``Campus > Library > Floor 2`` the floor."""
    return _HIERARCHY.split(text.strip())[-1]


def stem(name: str) -> str:
    """Return an access point's name without its last part: ``lib-2-reading-ap03`` stands in ``lib-2-reading``."""
    head = re.split(r"[-_. ][^-_. ]*$", name.strip())[0]
    return head if head != name else name
