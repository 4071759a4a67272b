"""The Basic Encoding Rules (X.690) that SNMP uses (RFC 3416, RFC 1157).

Definite lengths of at most four octets, single-octet tags, no recursion: SNMP nests exactly four deep, so every level
has its own line of code and no attack by depth exists.
"""

from __future__ import annotations

import re

from stream.errors import DataError

INTEGER, OCTET_STRING, NULL, OBJECT_IDENTIFIER, SEQUENCE = 0x02, 0x04, 0x05, 0x06, 0x30
IP_ADDRESS, TIME_TICKS = 0x40, 0x43
RESPONSE, TRAP_V1, INFORM, TRAP_V2, REPORT = 0xA2, 0xA4, 0xA6, 0xA7, 0xA8
VALUE_TAGS = frozenset({INTEGER, OCTET_STRING, NULL, OBJECT_IDENTIFIER, *range(0x40, 0x48), 0x80, 0x81, 0x82})
"""Allowed tags of a variable's value: the simple and application types, and the three exceptions of RFC 3416."""

TRUNCATED, MALFORMED = "truncated", "malformed"
UNSUPPORTED_VERSION, UNSUPPORTED_PDU = "unsupported_version", "unsupported_pdu"
TOO_MANY_VARBINDS, NO_TRAP_OID = "too_many_varbinds", "no_trap_oid"
MALFORMED_REASONS = (
    TRUNCATED, MALFORMED, UNSUPPORTED_VERSION, UNSUPPORTED_PDU, TOO_MANY_VARBINDS, NO_TRAP_OID,
)  # fmt: skip

_SUB_IDENTIFIER = rb"(?:[\x81-\x8f][\x80-\xff]{3}|[\x81-\xff][\x80-\xff]{0,2})?[\x00-\x7f]"
_OID = re.compile(rb"(?:" + _SUB_IDENTIFIER + rb"){1,127}", re.DOTALL)


class MalformedTrap(DataError):  # noqa: N818 - it names what arrived
    """A datagram that is not an SNMP trap; ``reason`` is one of ``MALFORMED_REASONS``."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"datagram refused: {reason}")
        self.reason = reason


def length(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read the length octets at ``pos``; return where the content starts and stops (at most ``end``)."""
    first = data[pos]
    start = pos + 1
    size = first
    if first == 0x81:  # as in nearly every message
        start += 1
        if start > end:
            raise MalformedTrap(TRUNCATED)
        size = data[pos + 1]
    elif first >= 0x80:
        octets = first & 0x7F
        if not 1 <= octets <= 4:
            raise MalformedTrap(MALFORMED)
        start += octets
        if start > end:
            raise MalformedTrap(TRUNCATED)
        size = int.from_bytes(data[pos + 1 : start], "big")
    if start + size > end:
        raise MalformedTrap(TRUNCATED)
    return start, start + size


def header(data: bytes, pos: int, end: int, tag: int) -> tuple[int, int]:
    """Read one header that must have ``tag``; return where the content starts and stops."""
    if pos >= end:
        raise MalformedTrap(TRUNCATED)
    if data[pos] != tag:
        raise MalformedTrap(MALFORMED)
    start = pos + 2
    stop = start + data[pos + 1]
    if stop <= end and stop < start + 0x80:  # the length is one octet, as nearly always
        return start, stop
    return length(data, pos + 1, end)


def integer(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read an Integer32; return its value and where it stops."""
    start, stop = header(data, pos, end, INTEGER)
    if not 1 <= stop - start <= 4:
        raise MalformedTrap(MALFORMED)
    return int.from_bytes(data[start:stop], "big", signed=True), stop


def unsigned(content: bytes) -> int:
    """Return an Unsigned32 or TimeTicks from its content; four octets without a sign octet are accepted."""
    if not 1 <= len(content) <= 5 or (len(content) == 5 and content[0]):
        raise MalformedTrap(MALFORMED)
    return int.from_bytes(content, "big")


def check_oid(oid: bytes) -> None:
    """Refuse an object identifier with padded, oversized or unfinished sub-identifiers."""
    if _OID.fullmatch(oid) is None:
        raise MalformedTrap(MALFORMED)


def sub_identifiers(oid: bytes) -> list[int]:
    """Return the sub-identifiers of a checked fragment that starts at a sub-identifier's first octet."""
    numbers, number = [], 0
    for octet in oid:
        number = number << 7 | octet & 0x7F
        if octet < 0x80:
            numbers.append(number)
            number = 0
    return numbers


def encode_sub_identifier(number: int) -> bytes:
    """Return one sub-identifier, base 128, most significant first."""
    octets = [number & 0x7F]
    while number := number >> 7:
        octets.append(number & 0x7F | 0x80)
    return bytes(reversed(octets))


def encode_oid(text: str) -> bytes:
    """Return the content octets of a dotted object identifier such as ``1.3.6.1``."""
    first, second, *rest = map(int, text.split("."))
    return b"".join(map(encode_sub_identifier, [first * 40 + second, *rest]))


def tlv(tag: int, content: bytes) -> bytes:
    """Return tag, shortest definite length and content."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def encode_integer(value: int, tag: int = INTEGER) -> bytes:
    """Return an INTEGER (or, with another tag, TimeTicks and the like) in its shortest form."""
    return tlv(tag, value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True))
