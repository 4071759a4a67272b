"""A strict decoder and an encoder of SNMPv3 messages; pure.

RFC 3412 section 6 (the message), RFC 3414 section 2.4 (the parameters of the user-based security model). Nothing is
trusted here: the verifier decides whether a message is genuine and new.
"""

from __future__ import annotations

from typing import NamedTuple

from connectors.sources.snmp.ber import (
    INTEGER,
    MALFORMED,
    OCTET_STRING,
    SEQUENCE,
    TRUNCATED,
    UNSUPPORTED_VERSION,
    MalformedTrap,
    encode_integer,
    header,
    integer,
    length,
    tlv,
)

VERSION = 3
AUTHENTICATED, PRIVATE, REPORTABLE = 0x01, 0x02, 0x04
"""Bits of the flags."""
USER_BASED = 3
"""The number of this security model."""
LONGEST_NAME, LONGEST_TAG, SALT = 32, 48, 8
"""Octets of a user's name and of an engine's identifier; of the longest tag (SHA-512's); of a salt."""
SHORTEST_ENGINE = 5
PDUS = 0xA0, 0xA8
"""First and last tag of a PDU (RFC 3416, section 3)."""
LEAST_SIZE = 484
"""Minimum message size in octets that every engine accepts."""
LARGEST = 65_507
"""Maximum octets of one UDP datagram."""


class Secured(NamedTuple):
    """The claims of a message's header, and the positions of its parts in the datagram; its repr hides them."""

    message_id: int
    flags: int
    engine: bytes
    """The authoritative engine: a trap's sender, an inform's receiver; empty: any engine that receives it."""
    boots: int
    time: int
    """That engine's boots, and the seconds since the last one."""
    user: bytes
    tag: int
    """Where the tag begins."""
    tag_size: int
    salt: bytes
    start: int
    stop: int
    """The scoped PDU, plain or encrypted."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Secured()"


class Scoped(NamedTuple):
    """A scoped PDU: the encoded context, and the position of the PDU in the plain octets."""

    context: bytes
    """Both fields, still encoded: a response repeats them."""
    pdu: int
    """Where the PDU begins, with its tag."""
    start: int
    stop: int
    """Its content."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Scoped()"


def is_v3(datagram: bytes) -> bool:
    """Return whether a datagram claims version 3; all others belong to another decoder."""
    try:
        start, end = header(datagram, 0, len(datagram), SEQUENCE)
        return integer(datagram, start, end)[0] == VERSION
    except (MalformedTrap, IndexError):
        return False


def secured(datagram: bytes) -> Secured:
    """Return a message's header; the whole datagram must be consumed.

    Raises ``MalformedTrap`` for a datagram that is not an SNMPv3 message under the user-based security model.
    """
    try:
        return _secured(datagram)
    except IndexError:
        raise MalformedTrap(TRUNCATED) from None


def scoped(plain: bytes, start: int, stop: int) -> Scoped:
    """Return the parts of the scoped PDU that fills ``plain[start:stop]``; raises ``MalformedTrap``."""
    try:
        inside, end = header(plain, start, stop, SEQUENCE)
        if end != stop:
            raise MalformedTrap(MALFORMED)
        _, pos = _octets(plain, inside, end, least=0, most=LONGEST_NAME)
        _, pos = header(plain, pos, end, OCTET_STRING)
        if not PDUS[0] <= plain[pos] <= PDUS[1]:
            raise MalformedTrap(MALFORMED)
        pdu_start, pdu_stop = length(plain, pos + 1, end)
        if pdu_stop != end:
            raise MalformedTrap(MALFORMED)
        return Scoped(plain[inside:pos], pos, pdu_start, pdu_stop)
    except IndexError:
        raise MalformedTrap(TRUNCATED) from None


def _secured(data: bytes) -> Secured:
    start, end = header(data, 0, len(data), SEQUENCE)
    if end != len(data):
        raise MalformedTrap(MALFORMED)
    version, pos = integer(data, start, end)
    if version != VERSION:
        raise MalformedTrap(UNSUPPORTED_VERSION)
    message_id, flags, pos = _globals(data, pos, end)
    start, pos = header(data, pos, end, OCTET_STRING)
    parameters = _parameters(data, start, pos)
    expected = OCTET_STRING if flags & PRIVATE else SEQUENCE
    inside, stop = header(data, pos, end, expected)
    if stop != end:
        raise MalformedTrap(MALFORMED)
    return Secured(message_id, flags, *parameters, inside if flags & PRIVATE else pos, stop)


def _globals(data: bytes, pos: int, end: int) -> tuple[int, int, int]:
    """Return message id, flags and where the header data ends."""
    start, stop = header(data, pos, end, SEQUENCE)
    message_id, pos = _natural(data, start, stop)
    most, pos = _natural(data, pos, stop)
    at, pos = header(data, pos, stop, OCTET_STRING)
    model, last = _natural(data, pos, stop)
    if most < LEAST_SIZE or pos - at != 1 or last != stop or model == 0:
        raise MalformedTrap(MALFORMED)
    if model != USER_BASED:
        raise MalformedTrap(UNSUPPORTED_VERSION)
    flags = data[at]
    if flags & PRIVATE and not flags & AUTHENTICATED:  # RFC 3412, 7.2, 5 d
        raise MalformedTrap(MALFORMED)
    return message_id, flags, stop


def _parameters(data: bytes, start: int, end: int) -> tuple[bytes, int, int, bytes, int, int, bytes]:
    """Return engine, boots, time, user, place and size of the tag, and salt."""
    start, stop = header(data, start, end, SEQUENCE)
    if stop != end:
        raise MalformedTrap(MALFORMED)
    engine, pos = _octets(data, start, end, least=0, most=LONGEST_NAME)
    boots, pos = _natural(data, pos, end)
    time, pos = _natural(data, pos, end)
    user, pos = _octets(data, pos, end, least=0, most=LONGEST_NAME)
    tag, pos = _octets(data, pos, end, least=0, most=LONGEST_TAG)
    place = pos - len(tag)
    salt, pos = _octets(data, pos, end, least=0, most=SALT)
    if pos != end or 0 < len(engine) < SHORTEST_ENGINE or len(salt) not in {0, SALT}:
        raise MalformedTrap(MALFORMED)
    return engine, boots, time, user, place, len(tag), salt


def _natural(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read an INTEGER from 0 to 2**31 - 1."""
    value, stop = integer(data, pos, end)
    if value < 0:
        raise MalformedTrap(MALFORMED)
    return value, stop


def _octets(data: bytes, pos: int, end: int, *, least: int, most: int) -> tuple[bytes, int]:
    """Read an OCTET STRING of so many octets."""
    start, stop = header(data, pos, end, OCTET_STRING)
    if not least <= stop - start <= most:
        raise MalformedTrap(MALFORMED)
    return data[start:stop], stop


class Claim(NamedTuple):
    """The header of a message to be sent."""

    message_id: int
    flags: int
    engine: bytes
    boots: int
    time: int
    user: bytes


def encoded(claim: Claim, tag_size: int, salt: bytes, body: bytes) -> tuple[bytearray, int]:
    """Return a message with a tag of zeros, and where that tag begins.

    ``body`` is the scoped PDU, plain, or encrypted and then wrapped as an octet string.
    """
    head = tlv(
        SEQUENCE,
        encode_integer(claim.message_id)
        + encode_integer(LARGEST)
        + tlv(OCTET_STRING, bytes((claim.flags,)))
        + encode_integer(USER_BASED),
    )
    tail = tlv(OCTET_STRING, salt)
    parameters = tlv(
        SEQUENCE,
        tlv(OCTET_STRING, claim.engine)
        + encode_integer(claim.boots, INTEGER)
        + encode_integer(claim.time, INTEGER)
        + tlv(OCTET_STRING, claim.user)
        + tlv(OCTET_STRING, bytes(tag_size))
        + tail,
    )
    whole = tlv(SEQUENCE, encode_integer(VERSION) + head + tlv(OCTET_STRING, parameters) + body)
    return bytearray(whole), len(whole) - len(body) - len(tail) - tag_size


def encode_scoped(context: bytes, pdu: bytes) -> bytes:
    """Return a scoped PDU; ``context`` is both of its fields, encoded."""
    return tlv(SEQUENCE, context + pdu)


def encode_context(engine: bytes, name: bytes = b"") -> bytes:
    """Return both fields of a context, encoded."""
    return tlv(OCTET_STRING, engine) + tlv(OCTET_STRING, name)
