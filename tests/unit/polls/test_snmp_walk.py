"""Walks: a table is read whole, whatever an agent cuts, or not at all."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from connectors.sources.polls import snmp_walk
from connectors.sources.polls.client_tables import TABLES, AssociatedClient
from connectors.sources.polls.snmp_walk import MALFORMED, NO_ANSWER, REFUSED, REPETITIONS, TOO_LONG, PollError, walked
from connectors.sources.snmp.ber import (
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    RESPONSE,
    SEQUENCE,
    encode_integer,
    encode_oid,
    integer,
    sub_identifiers,
    tlv,
)
from connectors.sources.snmp.polling import END_OF_MIB_VIEW, Binding, BulkResponse, request, response

TABLE, PLAIN = TABLES["cisco-lwapp"], TABLES["ruckus-zonedirector"]
PLACE, STATUS = TABLE.columns
RADIO = bytes.fromhex("020000000001")
Cut = Callable[[list[Binding]], list[Binding]]


def named(column: bytes, client: bytes) -> bytes:
    return column + encode_oid("1.3." + ".".join(map(str, client)))[1:]


class Agent:
    """An agent's values, and the requests that it has seen."""

    def __init__(self, clients: Sequence[bytes], cut: Cut = lambda all_: all_, *, beyond: bool = True) -> None:
        values = [Binding(named(PLACE, client), OCTET_STRING, RADIO) for client in clients]
        values += [Binding(named(STATUS, client), INTEGER, b"\x03") for client in clients]
        if beyond:
            values.append(Binding(encode_oid("1.3.6.1.4.1.9.9.599.1.3.9.1"), INTEGER, b"\x03"))
        self._values = sorted(values, key=lambda value: sub_identifiers(value.name))
        self._cut, self.requests = cut, 0

    async def ask(self, names: Sequence[bytes]) -> BulkResponse:
        self.requests += 1
        rows, cursors = [], list(names)
        for _ in range(REPETITIONS):
            for place, name in enumerate(cursors):
                rows.append(self._after(name))
                cursors[place] = rows[-1].name
        return BulkResponse(0, tuple(self._cut(rows)))

    def _after(self, name: bytes) -> Binding:
        numbers = sub_identifiers(name)
        later = (value for value in self._values if sub_identifiers(value.name) > numbers)
        return next(later, Binding(name, END_OF_MIB_VIEW, b""))


def clients(number: int) -> list[bytes]:
    draw = random.Random(3)
    return [draw.randbytes(6) for _ in range(number)]


def rows(of: Sequence[bytes]) -> set[AssociatedClient]:
    return {AssociatedClient(client, RADIO) for client in of}


@pytest.mark.parametrize("number", [0, 1, 19, 20, 21, 95])
@pytest.mark.parametrize("beyond", [True, False])
async def test_a_table_is_read_whole(number: int, beyond: bool) -> None:
    agent = Agent(clients(number), beyond=beyond)
    assert set(await walked(agent.ask, TABLE)) == rows(clients(number))
    assert agent.requests == number // REPETITIONS + 1


async def test_an_agent_may_cut_its_responses_anywhere() -> None:
    draw = random.Random(5)
    agent = Agent(clients(95), lambda all_: all_[: draw.randint(1, len(all_))])
    assert set(await walked(agent.ask, TABLE)) == rows(clients(95))


async def test_a_row_that_comes_or_goes_during_the_walk_takes_no_other_with_it() -> None:
    before, draw = clients(60), random.Random(9)

    async def ask(names: Sequence[bytes]) -> BulkResponse:
        return await Agent([*before[:-1], *([draw.randbytes(6)] if draw.random() < 0.5 else [])]).ask(names)

    assert set(await walked(ask, TABLE)) >= rows(before[:-1])


def answering(*bindings: Binding, error: int = 0) -> snmp_walk.Ask:
    query = iter(range(10))

    async def ask(names: Sequence[bytes]) -> BulkResponse:
        del names
        assert next(query, None) is not None, "the walk goes on for ever"
        return BulkResponse(error, bindings)

    return ask


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (answering(), MALFORMED),
        (answering(error=5), REFUSED),
        (answering(Binding(named(PLACE, RADIO), OCTET_STRING, RADIO)), MALFORMED),  # over and over
    ],
)
async def test_an_answer_that_leads_nowhere_ends_the_walk(ask: snmp_walk.Ask, reason: str) -> None:
    with pytest.raises(PollError) as reported:
        await walked(ask, TABLE)
    assert reported.value.reason == reason


async def test_a_table_beyond_any_real_site_is_refused_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snmp_walk, "MOST_ROWS", 60)
    assert len(await walked(Agent(clients(60)).ask, TABLE)) == 60
    with pytest.raises(PollError) as reported:
        await walked(Agent(clients(61)).ask, TABLE)
    assert reported.value.reason == TOO_LONG


async def test_forged_datagrams_leave_the_event_loop_its_turns() -> None:
    """Otherwise a flood of them would hold up every other poll, and the time limit of this one."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.setblocking(False)
        for _ in range(5):
            there.send(b"forged")
        turns, seen = 0, list[int]()

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def read(_: bytes) -> int | None:
            seen.append(turns)
            return 1 if len(seen) == 5 else None

        counting = asyncio.create_task(count())
        assert await snmp_walk.Exchange(here).ask(b"question", read) == 1
        counting.cancel()
    assert len(set(seen)) == 5


async def test_an_agent_has_time_between_two_requests_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, slept = list[float](), asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await slept(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(snmp_walk, "PACE", 3600.0)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.setblocking(False)
        exchange = snmp_walk.Exchange(here)
        for answer in (b"first", b"second"):
            there.send(answer)
            assert await exchange.ask(b"question", lambda datagram: datagram) == answer
    assert exchange.sent == 2
    assert waits[0] == 0.0
    assert 0.0 < waits[1] <= 3600.0


async def test_an_agent_that_does_not_answer_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snmp_walk, "WAIT", 0.0)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.setblocking(False)
        exchange = snmp_walk.Exchange(here)
        with pytest.raises(PollError) as reported:
            await exchange.ask(b"question", lambda datagram: datagram)
    assert (reported.value.reason, exchange.sent) == (NO_ANSWER, 2)


class SmallAgent(asyncio.DatagramProtocol):
    """Answers each request of its community with a table of one device, which ends there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        query = response(data, b"a community")
        assert query is not None
        number, _ = integer(query.data, query.start, query.stop)
        values = ((named(PLAIN.columns[0], RADIO), tlv(OCTET_STRING, RADIO)), (STATUS, tlv(END_OF_MIB_VIEW, b"")))
        listed = tlv(SEQUENCE, b"".join(tlv(SEQUENCE, tlv(OBJECT_IDENTIFIER, name) + value) for name, value in values))
        head = encode_integer(number) + encode_integer(0) + encode_integer(0)
        self._transport.sendto(request(b"a community", tlv(RESPONSE, head + listed)), address)


async def test_a_table_is_read_with_the_community_of_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snmp_walk, "WAIT", 30.0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(SmallAgent, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    found = await snmp_walk.CommunityReader("127.0.0.1", port, PLAIN, lambda: b"a community").read()
    transport.close()
    assert (found.rows, found.requests) == ([AssociatedClient(RADIO, RADIO)], 1)


def test_nothing_shows_a_table() -> None:
    assert repr(snmp_walk.Table([AssociatedClient(RADIO, RADIO)], 1)) == "Table()"
