"""Encoded traps of a simulated controller: what the decoder reads of them, and when they are sent."""

from __future__ import annotations

import asyncio
import socket

import pytest

from connectors.sources.ingest.sighting import Kind
from connectors.sources.snmp.ber import OBJECT_IDENTIFIER, encode_oid, tlv
from connectors.sources.snmp.sender import (
    Association,
    _v1_head,
    encode_associate,
    encode_cold_start,
    encode_disassociate,
    encode_keepalive,
    send,
)
from connectors.sources.snmp.traps import decode, envelope

CLIENT, RADIO = bytes.fromhex("3c22fb000001"), bytes.fromhex("020000000e10")
SEEN = Association(CLIENT, RADIO, user=b"anne", name=b"hall")


@pytest.mark.parametrize("version", [1, 2])
def test_every_kind_is_read_back_in_both_versions(version: int) -> None:
    common = {"community": b"c", "uptime": 2**32 + 7, "request_id": 9}
    seen, left, alive, cold = (
        decode(each)
        for each in (
            encode_associate(SEEN, version=version, **common),  # type: ignore[arg-type]
            encode_disassociate(CLIENT, RADIO, slot=1, version=version, **common),  # type: ignore[arg-type]
            encode_keepalive(version=version, **common),  # type: ignore[arg-type]
            encode_cold_start(version=version, **common),  # type: ignore[arg-type]
        )
    )
    assert [each.kind for each in (seen, left, alive, cold)] == [
        Kind.ASSOCIATE, Kind.LEAVE, Kind.KEEPALIVE, Kind.RESTART
    ]  # fmt: skip
    for each in (seen, left):
        assert (each.client, each.access_point, each.uptime) == (CLIENT, RADIO, 7)
    assert {each.version for each in (seen, left, alive, cold)} == {version}
    assert not alive.client


def test_version_1_has_the_enterprise_and_the_numbers_of_rfc_3584() -> None:
    generic_0 = bytes.fromhex("020100020100")
    assert generic_0 in encode_cold_start(community=b"c", version=1)
    enterprise = tlv(OBJECT_IDENTIFIER, encode_oid("1.3.6.1.4.1.9.9.599"))
    assert _v1_head("1.3.6.1.4.1.9.9.599.0.4") == enterprise + bytes.fromhex("400400000000020106020104")


def test_an_inform_wants_an_answer_and_a_trap_none() -> None:
    inform, trap = (encode_associate(SEEN, community=b"c", uptime=1, inform=inform) for inform in (True, False))
    assert (decode(inform).inform, decode(trap).inform) == (True, False)
    assert envelope(trap).community == b"c"


def test_datagrams_are_sent_in_order_and_not_before_their_time() -> None:
    async def sent() -> tuple[int, float, list[bytes]]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(5)
            loop = asyncio.get_running_loop()
            began = loop.time()
            planned = [(0, b"a"), (20_000, b"b"), (40_000, b"c")]
            number = await send(planned, receiver.getsockname(), 2.0, source="127.0.0.1")
            return number, loop.time() - began, [receiver.recv(9) for _ in planned]

    number, seconds, received = asyncio.run(sent())
    assert (number, received) == (3, [b"a", b"b", b"c"])
    assert seconds >= 0.018, "40 ms of simulated time at twice the speed"


def test_as_fast_as_possible_has_a_largest_rate() -> None:
    async def seconds() -> float:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            loop = asyncio.get_running_loop()
            began = loop.time()
            await send([(0, b"x")] * 65, receiver.getsockname(), None, max_rate=2_000)
            return loop.time() - began

    assert asyncio.run(seconds()) >= 64 / 2_000 - 0.002
