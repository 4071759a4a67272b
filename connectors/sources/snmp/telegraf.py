"""A strict reader of telegraf's ``snmp_trap``, JSON or InfluxDB lines; pure.

    {"name": "snmp_trap", "tags": {"source": "10.2.0.5", "oid": ".1.3.6.1.4.1…", "version": "2c", "community": "…"},
     "fields": {"iso.3.6.1.4.1.14179.2.6.2.34.0": "a45e60112233", …}, "timestamp": …}

    snmp_trap,source=10.2.0.5,version=2c iso.3.6.1…="…",iso.3.6.1…=5i 1795361212415182396

In the line protocol a quoted text may contain anything, including line ends; only quotes and backslashes are escaped in
it. Outside of quotes, commas, blanks and equals signs are escaped, and octets that would end a line.

A metric is converted to the SNMPv2c notification that it describes, and that goes through the decoder of all traps.
Variables are recognised by number: those that a MIB has given a name are dropped. Octets that are UTF-8 come as text,
others as hexadecimal digits; the variable's type determines which of both a text was. The metric's time is not read:
the time of the Kafka message is used.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

import orjson

from connectors.sources.snmp.ber import (
    INTEGER,
    MALFORMED,
    NULL,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    MalformedTrap,
    encode_integer,
    encode_oid,
    tlv,
)
from connectors.sources.snmp.profiles import PROFILES, SNMP_TRAP_OID, SYS_UP_TIME
from connectors.sources.snmp.traps import bound, notification_of
from stream.records import JsonObject

# --- line protocol ----------------------------------------------------------------------------------

_WORD = r"((?:[^\\,= \n]|\\.)+)"
_NAME = re.compile(r"((?:[^\\, \n]|\\.)+)")
_TAG = re.compile(rf",{_WORD}={_WORD}")
_FIELD = re.compile(rf'[ ,]{_WORD}=(?:"((?:[^"\\]|\\.)*)"|(-?\d{{1,20}})[iu]|([-+.0-9eE]+|t|f|true|false))', re.DOTALL)
_END = re.compile(r"(?: -?\d{1,20})?\n?")
_ESCAPED_WORD, _ESCAPED_TEXT = re.compile(r"\\([,= tnfr])"), re.compile(r'\\(["\\])')
_OCTETS = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class LineProtocolMetric(NamedTuple):
    """A metric; its repr hides the content."""

    name: str
    tags: dict[str, str]
    fields: dict[str, str | int | None]
    """Texts and whole numbers; None for values of other types."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "LineProtocolMetric()"


def line(text: str) -> LineProtocolMetric:
    """Return the metric in a text; ``ValueError`` if there is none, or more than one."""
    begin = _NAME.match(text)
    if begin is None:
        raise ValueError
    place, tags, fields = begin.end(), dict[str, str](), dict[str, str | int | None]()
    while (found := _TAG.match(text, place)) is not None:
        tags[_word(found[1])] = _word(found[2])
        place = found.end()
    while (found := _FIELD.match(text, place)) is not None:
        if (text[place] == " ") is bool(fields):
            break  # a blank precedes the first field, a comma any other
        quoted, whole = found[2], found[3]
        number = None if whole is None else int(whole)
        fields[_word(found[1])] = number if quoted is None else _ESCAPED_TEXT.sub(r"\1", quoted)
        place = found.end()
    if not fields or _END.fullmatch(text, place) is None:
        raise ValueError
    return LineProtocolMetric(_word(begin[1]), tags, fields)


def _word(text: str) -> str:
    return _ESCAPED_WORD.sub(lambda found: _OCTETS.get(found[1], found[1]), text)


NO_TRAP_METRIC = "no_trap_metric"
"""Reason for skipping a message that is not a metric of ``snmp_trap``."""
MEASURED = b"snmp_trap,"
"""The beginning of a line."""
LONGEST = 65_536
"""Octets of a message."""
ROOTS = {
    "": "", "iso": "1", "org": "1.3", "dod": "1.3.6", "internet": "1.3.6.1", "mgmt": "1.3.6.1.2",
    "mib-2": "1.3.6.1.2.1", "private": "1.3.6.1.4", "enterprises": "1.3.6.1.4.1", "snmpV2": "1.3.6.1.6",
}  # fmt: skip
"""Possible beginnings of a variable's number: names that telegraf knows without any vendor's MIB."""
NAMES = tuple(f"{column}." for profile in PROFILES for column in profile.name)
"""Columns with an access point's name, which is text in any case."""
_OID = re.compile(r"[0-2]\.\d{1,2}(?:\.\d{1,10}){0,126}")
_NUMBERS = re.compile(r"(?:\.\d{1,10})+")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_LEAST, _MOST = -(2**31), 2**32


class Metric(NamedTuple):
    """A collected trap; its repr hides the content."""

    address: str
    """The sender's address."""
    datagram: bytes
    """The trap, as a datagram of SNMPv2c without a community."""
    community: bytes | None
    """None: it came over SNMPv3, and telegraf has authenticated its user."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Metric()"


def metric(content: bytes) -> Metric:
    """Return the trap in a message; ``MalformedTrap`` if there is none, or it is invalid."""
    if len(content) > LONGEST:
        raise MalformedTrap(MALFORMED)
    try:
        document = line(content.decode())._asdict() if content.startswith(MEASURED) else orjson.loads(content)
    except ValueError:
        raise MalformedTrap(MALFORMED if content.startswith(MEASURED) else NO_TRAP_METRIC) from None
    if not isinstance(document, dict) or document.get("name") != "snmp_trap":
        raise MalformedTrap(NO_TRAP_METRIC)
    try:
        return _metric(document["tags"], document["fields"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise MalformedTrap(MALFORMED) from None


def _metric(tags: JsonObject, fields: JsonObject) -> Metric:
    version, trap, source = tags["version"], tags["oid"], tags["source"]
    if version not in {"1", "2c", "3"} or not trap.startswith(".") or not isinstance(source, str):
        raise ValueError
    bindings = [bound(_oid(f"{SNMP_TRAP_OID}.0"), tlv(OBJECT_IDENTIFIER, _oid(trap[1:])))]
    bindings += [bound(_oid(oid), _value(oid, value)) for name, value in fields.items() if (oid := _numbered(name))]
    community = None if version == "3" else tags.get("community", "").encode()
    return Metric(str(ipaddress.ip_address(source)), notification_of(bindings), community)


def _numbered(name: str) -> str:
    """Return a variable's number; empty for one that has a name."""
    root, dot, rest = name.partition(".")
    if root not in ROOTS or not dot or _NUMBERS.fullmatch(f".{rest}") is None:
        return ""
    return f"{ROOTS[root]}.{rest}".lstrip(".")


def _oid(text: str) -> bytes:
    if _OID.fullmatch(text) is None:
        raise ValueError
    return encode_oid(text)


def _value(oid: str, value: object) -> bytes:
    """Return a value in SNMP's encoding; types that no profile reads are empty."""
    if isinstance(value, str):
        return tlv(OCTET_STRING, value.encode() if oid.startswith(NAMES) else _octets(value))
    if isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value < _MOST:
        return encode_integer(value, TIME_TICKS if oid == f"{SYS_UP_TIME}.0" else INTEGER)
    return tlv(NULL, b"")


def _octets(text: str) -> bytes:
    """Return the octets of a text: hexadecimal digits stand for octets that are not text."""
    if _HEX.fullmatch(text) is not None:
        octets = bytes.fromhex(text)
        try:
            octets.decode()
        except UnicodeDecodeError:
            return octets
    return text.encode()
