"""One metric in InfluxDB's line protocol, as telegraf writes it; pure, no I/O.

    snmp_trap,source=10.2.0.5,version=2c iso.3.6.1…="…",iso.3.6.1…=5i 1795361212415182396

A text in quotes may hold anything, ends of lines too; only quotes and backslashes are escaped in it. Outside of them it
is commas, blanks and equals signs that are, and octets that would end a line.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_WORD = r"((?:[^\\,= \n]|\\.)+)"
_NAME = re.compile(r"((?:[^\\, \n]|\\.)+)")
_TAG = re.compile(rf",{_WORD}={_WORD}")
_FIELD = re.compile(rf'[ ,]{_WORD}=(?:"((?:[^"\\]|\\.)*)"|(-?\d{{1,20}})[iu]|([-+.0-9eE]+|t|f|true|false))', re.DOTALL)
_END = re.compile(r"(?: -?\d{1,20})?\n?")
_ESCAPED_WORD, _ESCAPED_TEXT = re.compile(r"\\([,= tnfr])"), re.compile(r'\\(["\\])')
_OCTETS = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class Line(NamedTuple):
    """A metric; shown without what it says."""

    name: str
    tags: dict[str, str]
    fields: dict[str, Any]
    """Texts and whole numbers; None for values of other kinds."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Line()"


def line(text: str) -> Line:
    """Return the one metric that a text is; ``ValueError`` where it is none, or more."""
    begin = _NAME.match(text)
    if begin is None:
        raise ValueError
    place, tags, fields = begin.end(), dict[str, str](), dict[str, Any]()
    while (found := _TAG.match(text, place)) is not None:
        tags[_word(found[1])] = _word(found[2])
        place = found.end()
    while (found := _FIELD.match(text, place)) is not None:
        if (text[place] == " ") is bool(fields):
            break  # a blank before the first field, a comma before any other
        quoted, whole = found[2], found[3]
        number = None if whole is None else int(whole)
        fields[_word(found[1])] = number if quoted is None else _ESCAPED_TEXT.sub(r"\1", quoted)
        place = found.end()
    if not fields or _END.fullmatch(text, place) is None:
        raise ValueError
    return Line(_word(begin[1]), tags, fields)


def _word(text: str) -> str:
    return _ESCAPED_WORD.sub(lambda found: _OCTETS.get(found[1], found[1]), text)
