"""What telegraf's ``snmp_trap`` writes of a trap, as JSON or as a line, read as strictly as a datagram; pure, no I/O.

    {"name": "snmp_trap", "tags": {"source": "10.2.0.5", "oid": ".1.3.6.1.4.1…", "version": "2c", "community": "…"},
     "fields": {"iso.3.6.1.4.1.14179.2.6.2.34.0": "a45e60112233", …}, "timestamp": …}

A metric becomes the SNMPv2c notification that it tells of, and that goes through the decoder of all traps. Variables
are known by number: what a MIB has given a name stays here. Octets that are UTF-8 come as that text, others as
hexadecimal digits; which of both a text was follows from what it stands for. The time in it is not read: the message's
own is what counts.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, NamedTuple

import orjson

from connectors.snmp.ber import (
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
from connectors.snmp.collected import bound, notification_of
from connectors.snmp.line_protocol import line
from connectors.snmp.profiles import PROFILES, SNMP_TRAP_OID, SYS_UP_TIME

NO_TRAP_METRIC = "no_trap_metric"
"""The reason for which a message that is no metric of ``snmp_trap`` is passed over."""
MEASURED = b"snmp_trap,"
"""What a line begins with."""
LONGEST = 65_536
"""Octets of a message."""
ROOTS = {
    "": "", "iso": "1", "org": "1.3", "dod": "1.3.6", "internet": "1.3.6.1", "mgmt": "1.3.6.1.2",
    "mib-2": "1.3.6.1.2.1", "private": "1.3.6.1.4", "enterprises": "1.3.6.1.4.1", "snmpV2": "1.3.6.1.6",
}  # fmt: skip
"""What a variable's number may begin with: names that telegraf knows without any vendor's MIB."""
NAMES = tuple(f"{column}." for profile in PROFILES for column in profile.name)
"""Columns that hold an access point's name, which is text whatever it looks like."""
_OID = re.compile(r"[0-2]\.\d{1,2}(?:\.\d{1,10}){0,126}")
_NUMBERS = re.compile(r"(?:\.\d{1,10})+")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_LEAST, _MOST = -(2**31), 2**32


class Metric(NamedTuple):
    """A trap as it was collected; shown without what it says."""

    address: str
    """The sender's."""
    datagram: bytes
    """The trap, as a datagram of SNMPv2c without a community."""
    community: bytes | None
    """None: it came over SNMPv3, and telegraf has checked its user."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Metric()"


def metric(content: bytes) -> Metric:
    """Return the trap that a message tells of; ``MalformedTrap`` where it tells of none, or not as it must."""
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


def _metric(tags: dict[str, Any], fields: dict[str, Any]) -> Metric:
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
    """Return a value as SNMP encodes it; kinds that no profile reads are empty."""
    if isinstance(value, str):
        return tlv(OCTET_STRING, value.encode() if oid.startswith(NAMES) else _octets(value))
    if isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value < _MOST:
        return encode_integer(value, TIME_TICKS if oid == f"{SYS_UP_TIME}.0" else INTEGER)
    return tlv(NULL, b"")


def _octets(text: str) -> bytes:
    """Return the octets that a text stands for: digits do for those that are no text themselves."""
    if _HEX.fullmatch(text) is not None:
        octets = bytes.fromhex(text)
        try:
            octets.decode()
        except UnicodeDecodeError:
            return octets
    return text.encode()
