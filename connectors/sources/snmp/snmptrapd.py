"""A strict reader of the trap lines that net-snmp's ``snmptrapd`` writes; pure, no I/O.

    snmptrapd -f -n -On -Ox -m '' -Lo -F 'T|%b|%t|%a|%N|%w|%q|%v\\n'

with ``hexOutputLength 0`` in its configuration: one line per trap, with all text in hexadecimal, so that no text can
imitate a line. A line is converted to the SNMPv2c notification that it describes (RFC 3584 section 3.1 for version 1),
and that goes through the decoder of all traps. Its time is used if it is read from a log, later than it arrived.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from connectors.sources.snmp.ber import (
    INTEGER,
    IP_ADDRESS,
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
from connectors.sources.snmp.profiles import SNMP_TRAP_OID
from connectors.sources.snmp.traps import bound, notification_of
from stream.records import SECOND, Micros

NO_TRAP_LINE = "no_trap_line"
"""Reason for skipping a line of snmptrapd that is not a trap, such as its greeting."""
LONGEST = 65_536
"""Octets of a line."""
_SNMP_TRAPS = ".1.3.6.1.6.3.1.1.5"
_SENDER = re.compile(r"[A-Za-z0-9/]+: \[([0-9A-Fa-f:.]+)(?:%\w+)?\]:\d{1,5}->.*")
_OID = re.compile(r"\.[0-2]\.\d{1,2}(?:\.\d{1,10}){0,126}")
_HEX = re.compile(r"(?:[0-9A-F]{2} ?)+")
_SECONDS = re.compile(rb"\d{1,12}")
_WHOLE = re.compile(r"-?\d{1,10}")
_TICKS = re.compile(r"\((\d{1,10})\) .*")


def written_at(line: bytes) -> Micros | None:
    """Return when the line of a trap was written, to the second; None if it has no time."""
    if not line.startswith(b"T|"):
        return None
    _, _, seconds, *_ = (*line.split(b"|", 3), b"", b"")
    return int(seconds) * SECOND if _SECONDS.fullmatch(seconds) else None


def notification(line: bytes) -> tuple[str, bytes]:
    """Return the address of a trap's sender, and the trap as a datagram of SNMPv2c without a community.

    Raises ``MalformedTrap`` for a line of another form: its reason is ``NO_TRAP_LINE`` if the line does not begin like
    a trap's.
    """
    if not line.startswith(b"T|"):
        raise MalformedTrap(NO_TRAP_LINE)
    try:
        return _notification(line.decode("ascii"))
    except ValueError:
        raise MalformedTrap(MALFORMED) from None


def _notification(line: str) -> tuple[str, bytes]:
    _, sent, _, _, enterprise, generic, specific, variables = line.split("|", 7)
    found = _SENDER.fullmatch(sent)
    if found is None:
        raise ValueError
    bindings = [_binding(part) for part in variables.split("\t")] if variables else []
    if enterprise != ".":
        trap = tlv(OBJECT_IDENTIFIER, _oid(_v1(enterprise, generic, specific)))
        bindings.insert(0, bound(_oid(f".{SNMP_TRAP_OID}.0"), trap))
    return str(ipaddress.ip_address(found[1])), notification_of(bindings)


def _v1(enterprise: str, generic: str, specific: str) -> str:
    """Return the identifier of a version 1 trap in version 2."""
    number = int(generic)
    if not 0 <= number <= 6:
        raise ValueError
    return f"{enterprise}.0{specific}" if number == 6 else f"{_SNMP_TRAPS}.{number + 1}"


def _binding(part: str) -> bytes:
    oid, equals, value = part.partition(" = ")
    if not equals:
        raise ValueError
    return bound(_oid(oid), _value(value))


def _oid(text: str) -> bytes:
    if _OID.fullmatch(text) is None:
        raise ValueError
    return encode_oid(text[1:])


def _value(text: str) -> bytes:
    """Return a value in SNMP's encoding; types that no profile reads are empty."""
    if text == '""':
        return tlv(OCTET_STRING, b"")
    kind, colon, content = text.partition(": ")
    if kind == "STRING":  # free text, which could contain a tab or the end of a line
        raise ValueError
    read = _KINDS.get(kind) if colon else None
    return tlv(NULL, b"") if read is None else read(content)


def _octets(content: str) -> bytes:
    if _HEX.fullmatch(content) is None:
        raise ValueError
    return tlv(OCTET_STRING, bytes.fromhex(content))


def _whole(content: str) -> bytes:
    if _WHOLE.fullmatch(content) is None:
        raise ValueError
    return encode_integer(int(content), INTEGER)


def _ticks(content: str) -> bytes:
    found = _TICKS.fullmatch(content)
    if found is None:
        raise ValueError
    return encode_integer(int(found[1]), TIME_TICKS)


_KINDS: dict[str, Callable[[str], bytes]] = {
    "Hex-STRING": _octets,
    "INTEGER": _whole,
    "OID": lambda content: tlv(OBJECT_IDENTIFIER, _oid(content)),
    "Timeticks": _ticks,
    "IpAddress": lambda content: tlv(IP_ADDRESS, ipaddress.IPv4Address(content).packed),
}
