"""What building systems call a zone: Brick and RealEstateCore classes, a BACnet object, a name for people.

It changes no guarantee and no released value, so it is no part of a policy's version, and it is never an address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from stream.policy.fields import worded

LAST_INSTANCE = 4_194_302
"""Of a BACnet object; the one above it stands for none (ASHRAE 135, 12.1)."""
MOST_ENTRIES = 16
_CLASS = "[A-Z][A-Za-z0-9_]{0,99}"
_FORMS = {
    "brick": (re.compile(f"brick:{_CLASS}"), "must be a class such as 'brick:Conference_Room'"),
    "rec": (re.compile(f"rec:{_CLASS}"), "must be a class such as 'rec:ConferenceRoom'"),
    "bacnet": (
        re.compile("(?:AI|AO|AV|BI|BO|BV|MI|MO|MV|IV|PIV)-(?:0|[1-9][0-9]{0,6})"),
        "must be an object such as 'AV-2011'",
    ),
}
_MAC = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}[:.-]?){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])")


def _plain(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isprintable():
        msg = "must be 1 to 200 printable characters"
        raise ValueError(msg)
    if _MAC.search(text) or any(map(_is_address, re.split(r"[\s,;/\[\]()]", text))):
        msg = "must hold no address of a device or of the network"
        raise ValueError(msg)
    return text


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word.rpartition(":")[0] if word.count(":") == 1 else word)
    except ValueError:
        return False
    return True


def _known(entries: dict[str, str]) -> dict[str, str]:
    for name, (form, rule) in _FORMS.items():
        if name in entries and not form.fullmatch(entries[name]):
            msg = f"{name} {rule}, got {entries[name]!r}"
            raise ValueError(msg)
    instance = int(entries.get("bacnet", "AV-0").rpartition("-")[2])
    if instance > LAST_INSTANCE:
        msg = f"bacnet must have an instance of at most {LAST_INSTANCE}, got {instance}"
        raise ValueError(msg)
    return entries


_Key = Annotated[
    str,
    AfterValidator(worded("[a-z][a-z0-9_-]{0,31}", "must be 1 to 32 lower-case letters, digits, hyphens, underscores")),
]
ZoneMetadata = Annotated[
    dict[_Key, Annotated[str, AfterValidator(_plain)]], Field(max_length=MOST_ENTRIES), AfterValidator(_known)
]
"""Names by system: ``brick``, ``rec``, ``bacnet``, ``name``, or others of one's own."""
