"""A strict decoder of SNMPv1 and v2c traps and informs; pure.

It keeps the station's address, the access point, the sender's uptime, and the fields that a response needs. User names,
IP addresses, network names and session numbers are in no field of ``Trap``. Variable bindings are read by identifier,
never by position (``variables``). Collectors' metrics and lines are converted to notifications first
(``notification_of``). RFC 1157 section 4.1.6 (v1), RFC 3416 section 4.2 (v2c), RFC 3584 section 3.1 (v1 identifiers as
v2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from connectors.sources.ingest.addresses import LONGEST_NAME, NOWHERE, address_and_name, mac
from connectors.sources.ingest.sighting import OBSERVATIONS, Kind, Sighting
from connectors.sources.snmp.ber import (
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
    TOO_MANY_VARBINDS,
    TRAP_V1,
    TRAP_V2,
    TRUNCATED,
    UNSUPPORTED_PDU,
    UNSUPPORTED_VERSION,
    VALUE_TAGS,
    MalformedTrap,
    check_oid,
    encode_integer,
    encode_oid,
    encode_sub_identifier,
    header,
    integer,
    length,
    sub_identifiers,
    tlv,
    unsigned,
)
from connectors.sources.snmp.profiles import (
    COLUMN_SIZES,
    COLUMNS,
    SCALARS,
    SKIP,
    SNMP_TRAP_OID,
    STANDARD,
    SYS_UP_TIME,
    TABLES,
    TRAPS,
    Meaning,
    Profile,
)

# --- variable bindings ------------------------------------------------------------------------------

MAX_VARBINDS = 160
LONGEST_INDEX = 5 + 6 * 2
"""Octets of a column and six sub-identifiers below 256."""
INDEX = "index"
"""Key under which the walk stores a station's address from a table's index."""
_TAGS = {SYS_UP_TIME: TIME_TICKS, SNMP_TRAP_OID: OBJECT_IDENTIFIER}
_NUMBER_OR_TEXT = frozenset({INTEGER, OCTET_STRING})


def variables(data: bytes, pos: int, end: int) -> dict[str, bytes]:
    """Walk the variable bindings once; return the content of the columns that a profile names.

    Names, addresses and sessions are dropped here: a column outside the profiles is skipped, and its content is never
    copied. Raises ``MalformedTrap``; an ``IndexError`` means that the data ended early.
    """
    pos, stop = header(data, pos, end, SEQUENCE)
    if stop != end:
        raise MalformedTrap(MALFORMED)
    found: dict[str, bytes] = {}
    for _ in range(MAX_VARBINDS + 1):
        if pos >= end:
            return found
        # 30 n 06 m <oid> tag k <value>, all lengths in one octet: the form of nearly every binding.
        size, oid_size = data[pos + 1], data[pos + 3]
        oid, stop = pos + 4, pos + 2 + size
        value = oid + oid_size
        content = value + 2
        if (
            stop > end
            or content > stop
            or content + (value_size := data[value + 1]) != stop
            or data[pos] != SEQUENCE
            or data[pos + 2] != OBJECT_IDENTIFIER
            or size > 127
            or oid_size > 127
            or value_size > 127
        ):
            oid, value, content, stop = _long_binding(data, pos, end)
        tag = data[value]
        if tag not in VALUE_TAGS:
            raise MalformedTrap(MALFORMED)
        column = SCALARS.get(data[oid:value])
        if column is None:
            column = _locate(data[oid:value], found)
        if column:
            if column in found or tag != _TAGS.get(column, OCTET_STRING):
                _keep(found, column, tag, data[content:stop])
            else:
                found[column] = data[content:stop]
        pos = stop
    raise MalformedTrap(TOO_MANY_VARBINDS)


def _long_binding(data: bytes, pos: int, end: int) -> tuple[int, int, int, int]:
    """Read a binding with any definite lengths.

    Return where identifier, value and content start, and where it stops.
    """
    start, stop = header(data, pos, end, SEQUENCE)
    oid, value = header(data, start, stop, OBJECT_IDENTIFIER)
    if value >= stop:
        raise MalformedTrap(TRUNCATED)
    content, value_stop = length(data, value + 1, stop)
    if value_stop != stop:
        raise MalformedTrap(MALFORMED)
    return oid, value, content, stop


def _keep(found: dict[str, bytes], column: str, tag: int, content: bytes) -> None:
    """Keep a named column; two copies with different values contradict each other."""
    expected = _TAGS.get(column)
    if tag != expected and (expected is not None or tag not in _NUMBER_OR_TEXT):
        raise MalformedTrap(MALFORMED)
    if found.setdefault(column, content) != content:
        raise MalformedTrap(MALFORMED)


def _locate(oid: bytes, found: dict[str, bytes]) -> str:
    """Return the column of an identifier with another instance than .0; read a station's address from its index."""
    check_oid(oid)
    for entry in TABLES:
        if oid.startswith(entry) and len(oid) <= len(entry) + LONGEST_INDEX:
            index = sub_identifiers(oid[len(entry) :])[1:]
            if len(index) == 6 and max(index) < 256:
                _keep(found, INDEX, OCTET_STRING, bytes(index))
    for size in COLUMN_SIZES:
        column = COLUMNS.get(oid[:size])
        if column is not None:
            return column
    return SKIP


UNKNOWN_TRAP, NOT_AN_OBSERVATION = "unknown_trap", "not_an_observation"
NO_CLIENT, NO_ACCESS_POINT = "no_client", "no_access_point"
IGNORED_REASONS = (UNKNOWN_TRAP, NOT_AN_OBSERVATION, NO_CLIENT, NO_ACCESS_POINT)

_SNMP_TRAPS = encode_oid("1.3.6.1.6.3.1.1.5")


class Trap(NamedTuple):
    """One well-formed notification; its repr hides addresses and names."""

    kind: Kind
    vendor: str
    """Name of the profile, or empty."""
    reason: str
    """For ``Kind.IGNORED`` one of ``IGNORED_REASONS``, else empty."""
    client: bytes
    """The station's address, six octets; empty unless the trap is an observation."""
    access_point: bytes
    """The radio's address, six octets, or empty where the vendor sends only a name or the sender."""
    name: bytes
    """The access point's name as sent; empty if the trap carries none."""
    at_sender: bool
    """The access point is the sender itself."""
    uptime: int | None
    """Hundredths of a second since the sender started, modulo 2**32."""
    version: int
    """1, 2 (for 2c) or 3."""
    inform: bool
    """Whether it waits for a response (an inform)."""
    request_id: int
    """As sent; 0 in version 1, which has none."""

    @property
    def sighting(self) -> Sighting:
        """The sighting in the trap."""
        return Sighting(self.kind, self.client, self.access_point, self.name, self.at_sender, self.uptime)

    @property
    def reports_refusal(self) -> bool:
        """Whether the sender reports a query with a wrong community (authenticationFailure)."""
        return self.kind is Kind.IGNORED and self.vendor == STANDARD

    def __repr__(self) -> str:
        """Show the kind, never device or place."""
        pdu = "inform" if self.inform else "trap"
        return f"Trap({self.kind} {self.reason}, {self.vendor or 'no profile'}, v{self.version} {pdu})"


class Envelope(NamedTuple):
    """The envelope of a notification: its version and community, and the position of its PDU in the datagram."""

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
"""The usual encoding of the version."""
_PDUS = (frozenset({TRAP_V1}), frozenset({TRAP_V2, INFORM}))
"""Notifications of version 1, and of 2c."""


def envelope(datagram: bytes) -> Envelope:
    """Return the envelope of the trap in ``datagram``; takes a few microseconds for any content.

    Raises ``MalformedTrap`` for a datagram that is not a notification of SNMPv1 or v2c.
    """
    try:
        return _envelope(datagram)
    except IndexError:
        raise MalformedTrap(TRUNCATED) from None


def decode(datagram: bytes, around: Envelope | None = None) -> Trap:
    """Return the trap in ``datagram``; the whole of it must be consumed.

    ``around`` is the datagram's envelope, if it has already been read. A well-formed notification without an
    observation is returned as ``Kind.IGNORED`` with a reason, because an inform must be acknowledged all the same.
    Raises ``MalformedTrap`` for everything else.
    """
    try:
        around = _envelope(datagram) if around is None else around
        read = _v1 if around.tag == TRAP_V1 else _v2
        return read(datagram, around)
    except IndexError:
        raise MalformedTrap(TRUNCATED) from None


def respond(datagram: bytes) -> bytes:
    """Return the response to an inform: the same message as a Response without error (RFC 3416, 4.2.7).

    It repeats the sender's content, so it must go to the sender only. Raises ``MalformedTrap`` for a datagram that is
    not an inform.
    """
    _, _, tag, start, stop = _envelope(datagram)
    if tag != INFORM:
        raise MalformedTrap(UNSUPPORTED_PDU)
    return bytes(answered(datagram, _pdu_position(datagram), start, stop))


def answered(data: bytes, pdu: int, start: int, stop: int) -> bytearray:
    """Return ``data`` with the PDU whose tag is at ``pdu`` changed to a Response without error.

    Nothing else changes.
    """
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
    else:  # RFC 3416 allows any value here in a notification
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
    """Return the station's own address, or nothing: zeros and group addresses are not stations."""
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
    """Return the access point's address and name, as far as the trap contains them."""
    address, name = b"", b""
    for column in profile.name:
        sent = found.get(column, b"")
        name = sent if len(sent) <= LONGEST_NAME else b""
    for column in profile.access_point:
        content = found.get(column)
        if content and not address:
            radio, beside = address_and_name(content)
            name = name or beside
            if radio is not None and radio != NOWHERE:
                address = radio
    return address, name


# --- notifications from collectors ------------------------------------------------------------------


def bound(oid: bytes, value: bytes) -> bytes:
    """Return a variable binding of an identifier's content octets and an encoded value."""
    return tlv(SEQUENCE, tlv(OBJECT_IDENTIFIER, oid) + value)


def notification_of(bindings: Sequence[bytes]) -> bytes:
    """Return a datagram of SNMPv2c without a community."""
    pdu = tlv(TRAP_V2, encode_integer(0) * 3 + tlv(SEQUENCE, b"".join(bindings)))
    return tlv(SEQUENCE, encode_integer(1) + tlv(OCTET_STRING, b"") + pdu)
