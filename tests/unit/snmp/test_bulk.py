"""GETBULK: the request as RFC 3416 has it, and only a well-formed response to this very request is read."""

from __future__ import annotations

import random

from connectors.sources.snmp.ber import INTEGER, OCTET_STRING, RESPONSE, SEQUENCE, encode_integer, encode_oid, tlv
from connectors.sources.snmp.polling import Binding, Pdu, bulk_response, get_bulk, request, response

NAME, OTHER = encode_oid("1.3.6.1.4.1.9.9.599.1.3.1.1.8"), encode_oid("1.3.6.1.4.1.9.9.599.1.3.1.1.2.60.255")


def bindings(*pairs: tuple[bytes, bytes]) -> bytes:
    return tlv(SEQUENCE, b"".join(tlv(SEQUENCE, tlv(6, name) + value) for name, value in pairs))


def answer(listed: bytes, number: int = 7, error: int = 0, tag: int = RESPONSE) -> bytes:
    return tlv(tag, encode_integer(number) + encode_integer(error) + encode_integer(0) + listed)


def pdu(octets: bytes) -> Pdu:
    found = response(request(b"c", octets), b"c")
    assert found is not None
    return found


GOOD = bindings((NAME + b"\x01", tlv(OCTET_STRING, b"abcdef")), (OTHER, encode_integer(3)))


def test_the_request_asks_for_the_rows_after_each_column() -> None:
    query = pdu(get_bulk(7, [NAME, OTHER], 20))
    head = encode_integer(7) + encode_integer(0) + encode_integer(20)
    assert (query.tag, repr(query)) == (0xA5, "Pdu()")
    assert query.data[query.start : query.stop] == head + bindings((NAME, b"\x05\x00"), (OTHER, b"\x05\x00"))


def test_a_response_gives_its_bindings_in_order() -> None:
    found = bulk_response(pdu(answer(GOOD)), 7)
    assert found is not None
    assert found.error == 0
    assert found.bindings == (Binding(NAME + b"\x01", OCTET_STRING, b"abcdef"), Binding(OTHER, INTEGER, b"\x03"))
    assert repr(found) + repr(found.bindings[0]) == "BulkResponse()Binding()"


def test_an_error_is_told() -> None:
    found = bulk_response(pdu(answer(bindings(), error=16)), 7)
    assert found is not None
    assert found.error == 16


def test_anything_else_is_no_response() -> None:
    wrong = [
        answer(GOOD, number=8), answer(GOOD, tag=0xA0), answer(GOOD + b"\x05\x00"),
        answer(bindings((b"\x80\x01", encode_integer(1)))), answer(bindings((NAME, b"\x30\x00"))),
        answer(bindings((NAME, b""))), answer(bindings((NAME, encode_integer(1) * 2))), answer(b""),
    ]  # fmt: skip
    assert [bulk_response(pdu(each), 7) for each in wrong] == [None] * len(wrong)


def test_no_octets_raise() -> None:
    draw, whole = random.Random(1), answer(GOOD)
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        found = response(request(b"c", bytes(changed)), b"c")
        if found is not None:
            bulk_response(found, 7)
