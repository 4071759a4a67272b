"""From a datagram to a trap: a strict decoder of SNMPv1 traps, SNMPv2c traps and informs; pure, no I/O.

What it keeps: who (the station's address), where (the access point), the sender's uptime, and what an answer
needs. User names, IP addresses, network names and session numbers are in no field of ``Trap``.
RFC 1157 section 4.1.6 (v1), RFC 3416 section 4.2 (v2c), RFC 3584 section 3.1 (v1 identifiers as v2).
"""

from __future__ import annotations

from typing import NamedTuple

from connectors.intake.addresses import LONGEST_NAME, NOWHERE, address_and_name, mac
from connectors.intake.sighting import OBSERVATIONS, Kind, Sighting
from connectors.snmp.ber import (
    INFORM,
    INTEGER,
    IP_ADDRESS,
    MALFORMED,
    NO_TRAP_OID,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    RESPONSE,
    SEQUENCE,
    TIME_TICKS,
    TRAP_V1,
    TRAP_V2,
    TRUNCATED,
    UNSUPPORTED_PDU,
    UNSUPPORTED_VERSION,
    MalformedTrap,
    check_oid,
    encode_integer,
    encode_oid,
    encode_sub_identifier,
    header,
    integer,
    length,
    unsigned,
)
from connectors.snmp.profiles import SNMP_TRAP_OID, STANDARD, SYS_UP_TIME, TRAPS, Meaning, Profile
from connectors.snmp.variables import INDEX, variables

UNKNOWN_TRAP, NOT_AN_OBSERVATION = "unknown_trap", "not_an_observation"
NO_CLIENT, NO_ACCESS_POINT = "no_client", "no_access_point"
IGNORED_REASONS = (UNKNOWN_TRAP, NOT_AN_OBSERVATION, NO_CLIENT, NO_ACCESS_POINT)

_SNMP_TRAPS = encode_oid("1.3.6.1.6.3.1.1.5")


class Trap(NamedTuple):
    """One well-formed notification; shown without addresses or names."""

    kind: Kind
    vendor: str
    """Name of the profile, or empty."""
    reason: str
    """For ``Kind.IGNORED`` one of ``IGNORED_REASONS``, else empty."""
    client: bytes
    """The station's address, six octets; empty unless the trap is an observation."""
    access_point: bytes
    """The radio's address, six octets, or empty where the vendor gives only a name or the sender."""
    name: bytes
    """The access point's name as sent; empty if the trap carries none."""
    at_sender: bool
    """The access point is the sender itself."""
    uptime: int | None
    """Hundredths of a second since the sender started, modulo 2**32."""
    version: int
    """1, 2 (for 2c) or 3."""
    inform: bool
    """Waits for an answer."""
    request_id: int
    """As sent; 0 in version 1, which has none."""

    @property
    def sighting(self) -> Sighting:
        """What it says of a device."""
        return Sighting(self.kind, self.client, self.access_point, self.name, self.at_sender, self.uptime)

    @property
    def tells_of_refusal(self) -> bool:
        """The sender was asked with a wrong community (authenticationFailure)."""
        return self.kind is Kind.IGNORED and self.vendor == STANDARD

    def __repr__(self) -> str:
        """Name what it is, never who or where."""
        pdu = "inform" if self.inform else "trap"
        return f"Trap({self.kind} {self.reason}, {self.vendor or 'no profile'}, v{self.version} {pdu})"


class Envelope(NamedTuple):
    """What is around a notification: whose community it bears, and where in the datagram it lies."""

    version: int
    """1, 2 (for 2c) or 3."""
    community: bytes
    tag: int
    """Of the PDU."""
    start: int
    stop: int

    def __repr__(self) -> str:
        """Show nothing."""
        return "Envelope()"


_NO_ERROR = encode_integer(0) * 2
_V2C = encode_integer(1)
"""How nearly everybody writes the version."""
_PDUS = (frozenset({TRAP_V1}), frozenset({TRAP_V2, INFORM}))
"""Notifications of version 1, and of 2c."""


def envelope(datagram: bytes) -> Envelope:
    """Return what is around the trap in ``datagram``, for a few microseconds whatever is in it.

    Raises ``MalformedTrap`` for what is no notification of SNMPv1 or v2c.
    """
    try:
        return _envelope(datagram)
    except IndexError:
        raise MalformedTrap(TRUNCATED) from None


def decode(datagram: bytes, around: Envelope | None = None) -> Trap:
    """Return the trap in ``datagram``; the whole of it must be consumed.

    ``around`` is the datagram's envelope, where it has been read. A well-formed notification that places nobody
    comes back as ``Kind.IGNORED`` with a reason, because an inform wants its answer all the same. Raises
    ``MalformedTrap`` for everything else.
    """
    try:
        around = _envelope(datagram) if around is None else around
        read = _v1 if around.tag == TRAP_V1 else _v2
        return read(datagram, around)
    except IndexError:
        raise MalformedTrap(TRUNCATED) from None


def respond(datagram: bytes) -> bytes:
    """Return the answer to an inform: the same message as a Response without error (RFC 3416, 4.2.7).

    It repeats what the sender wrote, so it goes to the sender and nowhere else.
    Raises ``MalformedTrap`` for a datagram that is no inform.
    """
    _, _, tag, start, stop = _envelope(datagram)
    if tag != INFORM:
        raise MalformedTrap(UNSUPPORTED_PDU)
    return bytes(answered(datagram, _pdu_position(datagram), start, stop))


def answered(data: bytes, pdu: int, start: int, stop: int) -> bytearray:
    """Return ``data`` with the PDU whose tag is at ``pdu`` made a Response without error; nothing else changes."""
    answer = bytearray(data)
    _, pos = integer(data, start, stop)
    for _ in range(2):  # error-status, error-index
        start, pos = header(data, pos, stop, INTEGER)
        answer[start:pos] = bytes(pos - start)
    answer[pdu] = RESPONSE
    return answer


def _pdu_position(data: bytes) -> int:
    start, end = header(data, 0, len(data), SEQUENCE)
    _, pos = integer(data, start, end)
    return header(data, pos, end, OCTET_STRING)[1]


def _envelope(data: bytes) -> Envelope:
    size = len(data)
    start, end = header(data, 0, size, SEQUENCE)
    if end != size:
        raise MalformedTrap(MALFORMED)
    if data[start : start + 3] == _V2C:
        version, pos = 1, start + 3
    else:
        version, pos = integer(data, start, end)
    if version not in {0, 1}:
        raise MalformedTrap(UNSUPPORTED_VERSION)
    start, pos = header(data, pos, end, OCTET_STRING)
    tag = data[pos]
    if tag not in _PDUS[version]:
        raise MalformedTrap(UNSUPPORTED_PDU)
    pdu_start, pdu_stop = length(data, pos + 1, end)
    if pdu_stop != end:
        raise MalformedTrap(MALFORMED)
    return Envelope(version + 1, data[start:pos], tag, pdu_start, pdu_stop)


def _v2(data: bytes, around: Envelope) -> Trap:
    start, end = around.start, around.stop
    request_id, pos = integer(data, start, end)
    if data[pos : pos + 6] == _NO_ERROR:
        pos += 6
    else:  # RFC 3416 lets a notification carry anything here
        _, pos = integer(data, pos, end)
        _, pos = integer(data, pos, end)
    found = variables(data, pos, end)
    trap_oid = found.get(SNMP_TRAP_OID)
    if trap_oid is None:
        raise MalformedTrap(NO_TRAP_OID)
    ticks = found.get(SYS_UP_TIME)
    uptime = None if ticks is None else unsigned(ticks)
    return _interpret(trap_oid, found, uptime, around, request_id)


def _v1(data: bytes, around: Envelope) -> Trap:
    start, end = around.start, around.stop
    start, pos = header(data, start, end, OBJECT_IDENTIFIER)
    enterprise = data[start:pos]
    check_oid(enterprise)
    start, pos = header(data, pos, end, IP_ADDRESS)
    if pos - start != 4:
        raise MalformedTrap(MALFORMED)
    generic, pos = integer(data, pos, end)
    specific, pos = integer(data, pos, end)
    if not 0 <= generic <= 6 or specific < 0:
        raise MalformedTrap(MALFORMED)
    start, pos = header(data, pos, end, TIME_TICKS)
    uptime = unsigned(data[start:pos])
    found = variables(data, pos, end)
    if generic == 6:
        trap_oid = enterprise + b"\x00" + encode_sub_identifier(specific)
    else:
        trap_oid = _SNMP_TRAPS + bytes((generic + 1,))
    return _interpret(trap_oid, found, uptime, around, 0)


def _interpret(trap_oid: bytes, found: dict[str, bytes], uptime: int | None, around: Envelope, request_id: int) -> Trap:
    known = TRAPS.get(trap_oid)
    kind, vendor, reason = Kind.IGNORED, "", UNKNOWN_TRAP
    client, access_point, name, at_sender = b"", b"", b"", False
    if known is not None:
        profile, meanings = known
        vendor = profile.vendor
        kind, reason = _meaning(meanings, found)
        if kind in OBSERVATIONS:
            at_sender = profile.at_sender
            client = _client(profile, found)
            access_point, name = _access_point(profile, found)
            if not client:
                kind, reason = Kind.IGNORED, NO_CLIENT
            elif not (access_point or name or at_sender):
                kind, reason, client = Kind.IGNORED, NO_ACCESS_POINT, b""
    return Trap(
        kind, vendor, reason, client, access_point, name, at_sender, uptime,
        around.version, around.tag == INFORM, request_id,
    )  # fmt: skip


def _meaning(meanings: tuple[Meaning, ...], found: dict[str, bytes]) -> tuple[Kind, str]:
    for kind, when in meanings:
        if not when or all(_number(found.get(column)) == number for column, number in when):
            return kind, NOT_AN_OBSERVATION if kind is Kind.IGNORED else ""
    return Kind.IGNORED, NOT_AN_OBSERVATION


def _number(content: bytes | None) -> int | None:
    return None if content is None else int.from_bytes(content, "big")


def _client(profile: Profile, found: dict[str, bytes]) -> bytes:
    """Return the station's own address, or nothing: zeros and group addresses are no station."""
    for column in profile.client:
        content = found.get(column)
        if content is not None:
            address = mac(content)
            break
    else:
        address = found.get(INDEX) if profile.tables else None
    if address is None or address[0] & 0x01 or address == NOWHERE:
        return b""
    return address


def _access_point(profile: Profile, found: dict[str, bytes]) -> tuple[bytes, bytes]:
    """Return the access point's address and name, as far as the trap gives them."""
    address, name = b"", b""
    for column in profile.name:
        given = found.get(column, b"")
        name = given if len(given) <= LONGEST_NAME else b""
    for column in profile.access_point:
        content = found.get(column)
        if content and not address:
            radio, beside = address_and_name(content)
            name = name or beside
            if radio is not None and radio != NOWHERE:
                address = radio
    return address, name
