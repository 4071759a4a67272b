"""GetBulkRequests and the variable bindings of their responses; pure.

RFC 3416, sections 4.2.3 (GetBulkRequest) and 4.2.4 (Response): an agent may return fewer bindings than were requested,
and cut them anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from connectors.sources.snmp.ber import (
    INTEGER,
    OBJECT_IDENTIFIER,
    RESPONSE,
    SEQUENCE,
    VALUE_TAGS,
    MalformedTrap,
    check_oid,
    encode_integer,
    header,
    integer,
    length,
    tlv,
)
from connectors.sources.snmp.polling import Pdu

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
        return _read(pdu, number)
    except (MalformedTrap, IndexError):
        return None


def _read(pdu: Pdu, number: int) -> BulkResponse | None:
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
