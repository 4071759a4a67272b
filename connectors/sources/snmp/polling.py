"""Requests to an agent and their responses, in SNMPv2c and v3; pure.

RFC 3416 section 4.2.1 (GetRequest), RFC 3418 (sysUpTime), RFC 3414 section 4 (discovery of an agent and its time).
RFC 3416 sections 4.2.3 (GetBulkRequest) and 4.2.4 (Response): an agent may return fewer bindings than were requested,
and cut them anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from connectors.sources.snmp.ber import (
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    REPORT,
    RESPONSE,
    SEQUENCE,
    TIME_TICKS,
    VALUE_TAGS,
    MalformedTrap,
    check_oid,
    encode_integer,
    encode_oid,
    header,
    integer,
    length,
    tlv,
    unsigned,
)
from connectors.sources.snmp.usm.messages import (
    AUTHENTICATED,
    PRIVATE,
    REPORTABLE,
    Claim,
    Scoped,
    Secured,
    encode_context,
    encode_scoped,
    scoped,
    secured,
)
from connectors.sources.snmp.usm.protocols import Keys, decrypted, is_genuine, sealed

GET = 0xA0
_SYS_UP_TIME = encode_oid("1.3.6.1.2.1.1.3.0")
_NAMED = tlv(SEQUENCE, tlv(OBJECT_IDENTIFIER, _SYS_UP_TIME) + b"\x05\x00")


class Agent(NamedTuple):
    """An agent's identity over SNMPv3: its engine, its boots, and the seconds since the last one."""

    engine: bytes
    boots: int
    time: int


class Pdu(NamedTuple):
    """A PDU within plain octets; its repr hides them."""

    data: bytes
    tag: int
    start: int
    stop: int
    """Its content: ``data[start:stop]``."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Pdu()"


def request(community: bytes, pdu: bytes) -> bytes:
    """Return a request in SNMPv2c."""
    return tlv(SEQUENCE, encode_integer(1) + tlv(OCTET_STRING, community) + pdu)


def response(datagram: bytes, community: bytes) -> Pdu | None:
    """Return the PDU of a response in SNMPv2c; None if the datagram is none of this community."""
    try:
        start, end = header(datagram, 0, len(datagram), SEQUENCE)
        version, pos = integer(datagram, start, end)
        start, pos = header(datagram, pos, end, OCTET_STRING)
        if version != 1 or datagram[start:pos] != community or end != len(datagram):
            return None
        begin, stop = length(datagram, pos + 1, end)
        return Pdu(datagram, datagram[pos], begin, stop) if stop == end else None
    except (MalformedTrap, IndexError):
        return None


def question(community: bytes, number: int) -> bytes:
    """Return the request in SNMPv2c; ``number`` is from 0 to 2**31 - 1 and comes back in the response."""
    return request(community, _get(number))


def uptime(datagram: bytes, community: bytes, number: int) -> int | None:
    """Return the uptime in a response in SNMPv2c, in hundredths of a second.

    None if it does not answer this request.
    """
    pdu = response(datagram, community)
    return None if pdu is None else _uptime(pdu, number)


def discovery_request(number: int) -> bytes:
    """Return the first request of SNMPv3 discovery: any engine answers with a report that names it."""
    body = encode_scoped(encode_context(b""), _get(number))
    return sealed(None, Claim(number, REPORTABLE, b"", 0, 0, b""), b"", body)


def secured_request(keys: Keys, agent: Agent, user: bytes, number: int, salt: bytes, pdu: bytes) -> bytes:
    """Return a request over SNMPv3, secured with the user's keys; ``salt`` must differ for each."""
    claim = Claim(number, REPORTABLE, agent.engine, agent.boots, agent.time, user)
    return sealed(keys, claim, salt, encode_scoped(encode_context(agent.engine), pdu))


def secured_question(keys: Keys, agent: Agent, user: bytes, number: int, salt: bytes) -> bytes:
    """Return the request over SNMPv3, secured with the user's keys."""
    return secured_request(keys, agent, user, number, salt, _get(number))


def discovered_agent(datagram: bytes, number: int) -> Agent | None:
    """Return the agent that reports itself in answer to ``discovery_request``; only its name is trusted."""
    head = _head(datagram, number)
    return None if head is None or not head.engine else Agent(head.engine, head.boots, head.time)


def secured_answer(keys: Keys, agent: Agent, datagram: bytes, number: int) -> int | Agent | None:
    """Return the uptime in a genuine response, the agent's time if it reports that ours was wrong, or None."""
    answer = secured_response(keys, agent, datagram, number)
    return _uptime(answer, number) if isinstance(answer, Pdu) else answer


def secured_response(keys: Keys, agent: Agent, datagram: bytes, number: int) -> Pdu | Agent | None:
    """Return the PDU of a genuine response, the agent's time if it reports that ours was wrong, or None.

    A response has the same security level as its request; a report on the time is at least authenticated (RFC 3414,
    section 3.2, 7).
    """
    head = _head(datagram, number)
    if head is None or head.engine != agent.engine or not head.flags & AUTHENTICATED:
        return None
    if not is_genuine(keys, datagram, head):
        return None
    try:
        if not head.flags & PRIVATE:
            parts, plain = scoped(datagram, head.start, head.stop), datagram
        elif keys.cipher and head.salt:
            plain = decrypted(keys, datagram, head)
            parts = scoped(plain, 0, len(plain))
        else:
            return None
        return _checked_answer(keys, agent, head, plain, parts)
    except (MalformedTrap, IndexError):
        return None


def _checked_answer(keys: Keys, agent: Agent, head: Secured, plain: bytes, parts: Scoped) -> Pdu | Agent | None:
    if plain[parts.pdu] == REPORT:
        now = Agent(head.engine, head.boots, head.time)
        return now if now != agent else None
    if bool(keys.cipher) != bool(head.flags & PRIVATE):
        return None  # its time need not be checked either: no recording can answer this number
    return Pdu(plain, plain[parts.pdu], parts.start, parts.stop)


def _head(datagram: bytes, number: int) -> Secured | None:
    try:
        head = secured(datagram)
    except MalformedTrap:
        return None
    return head if head.message_id == number else None


def _get(number: int) -> bytes:
    return tlv(GET, encode_integer(number) + encode_integer(0) * 2 + tlv(SEQUENCE, _NAMED))


def _uptime(pdu: Pdu, number: int) -> int | None:
    """Read a Response without error that contains sysUpTime and nothing else; None: the PDU is another one."""
    try:
        return _read_uptime(pdu, number)
    except (MalformedTrap, IndexError):
        return None


def _read_uptime(pdu: Pdu, number: int) -> int | None:
    data, tag, pos, end = pdu
    request_id, pos = integer(data, pos, end)
    status, pos = integer(data, pos, end)
    _, pos = header(data, pos, end, INTEGER)
    start, stop = header(data, pos, end, SEQUENCE)
    start, within = header(data, start, stop, SEQUENCE)
    name, pos = header(data, start, within, OBJECT_IDENTIFIER)
    value, last = header(data, pos, within, TIME_TICKS)
    whole = last == within == stop == end and data[name:pos] == _SYS_UP_TIME
    if tag != RESPONSE or request_id != number or status != 0 or not whole:
        return None
    return unsigned(data[value:last])


# --- tables -----------------------------------------------------------------------------------------

GET_BULK = 0xA5
END_OF_MIB_VIEW = 0x82


class Binding(NamedTuple):
    """One variable binding of a response; its repr hides it."""

    name: bytes
    """The encoded object identifier."""
    tag: int
    value: bytes
    """The content of the value, without tag and length."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Binding()"


class BulkResponse(NamedTuple):
    """A well-formed response to one request; its repr hides the bindings."""

    error: int
    """RFC 3416's error-status; 0: none."""
    bindings: tuple[Binding, ...]

    def __repr__(self) -> str:
        """Show nothing."""
        return "BulkResponse()"


def get_bulk(number: int, names: Sequence[bytes], repetitions: int) -> bytes:
    """Return the PDU that requests the next ``repetitions`` bindings after each of ``names`` (encoded)."""
    named = b"".join(tlv(SEQUENCE, tlv(OBJECT_IDENTIFIER, name) + b"\x05\x00") for name in names)
    head = encode_integer(number) + encode_integer(0) + encode_integer(repetitions)
    return tlv(GET_BULK, head + tlv(SEQUENCE, named))


def bulk_response(pdu: Pdu, number: int) -> BulkResponse | None:
    """Return the bindings of a response to request ``number``; None if the PDU is not its well-formed response."""
    try:
        return _read_bindings(pdu, number)
    except (MalformedTrap, IndexError):
        return None


def _read_bindings(pdu: Pdu, number: int) -> BulkResponse | None:
    data, tag, pos, end = pdu
    if tag != RESPONSE:
        return None
    request_id, pos = integer(data, pos, end)
    if request_id != number:
        return None
    error, pos = integer(data, pos, end)
    _, pos = header(data, pos, end, INTEGER)
    pos, stop = header(data, pos, end, SEQUENCE)
    if stop != end:
        return None
    bindings = []
    while pos < end:
        start, pos = header(data, pos, end, SEQUENCE)
        name, after = header(data, start, pos, OBJECT_IDENTIFIER)
        check_oid(data[name:after])
        if after >= pos or data[after] not in VALUE_TAGS:
            return None
        value, last = length(data, after + 1, pos)
        if last != pos:
            return None
        bindings.append(Binding(data[name:after], data[after], data[value:last]))
    return BulkResponse(error, tuple(bindings))
