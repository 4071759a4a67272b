"""What collectors of traps have read, as the notification that they tell of, for the decoder of all traps; pure."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.snmp.ber import OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, TRAP_V2, encode_integer, tlv


def bound(oid: bytes, value: bytes) -> bytes:
    """Return a variable binding of an identifier's content octets and an encoded value."""
    return tlv(SEQUENCE, tlv(OBJECT_IDENTIFIER, oid) + value)


def notification_of(bindings: Sequence[bytes]) -> bytes:
    """Return a datagram of SNMPv2c without a community."""
    pdu = tlv(TRAP_V2, encode_integer(0) * 3 + tlv(SEQUENCE, b"".join(bindings)))
    return tlv(SEQUENCE, encode_integer(1) + tlv(OCTET_STRING, b"") + pdu)
