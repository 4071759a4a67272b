"""What one row of one poll may change, as printed and as attained: from net-snmp's table to true counts.

The table is read by the product's walk from net-snmp's own agent, and goes through the service of polls, the ingest's
socket, the receiver and the pipeline. Their time is virtual and stands still during a walk, so that hours are over
soon. Two worlds differ in what the agent answers to one poll, or to two. The worst case is a row that moves a device
just before a tick, with no complete poll after it: nothing ends the stay before its limit.

Debian: ``apt-get install snmpd``. ``TACET_REQUIRE_SNMPTRAP=1`` makes a missing program a failure.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest import ingest, receiver
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.sighting import Message
from connectors.sources.ingest_socket.listener import SocketListener
from connectors.sources.polls import service, snmp_walk
from connectors.sources.polls.client_tables import TABLES
from connectors.sources.polls.config import PolledSource
from connectors.sources.polls.schedule import PollGrid
from connectors.sources.polls.service import COMPLETE, PollService
from connectors.sources.polls.snmp_walk import CommunityReader, PollError, Table
from stream.pipeline import Options, Pipeline
from stream.records import MINUTE, SECOND, Micros, Published
from stream.release.count_guarantees import count_guarantees
from stream.release.validation import Policy, load_policy
from stream.schemas import OCCUPANCY, parse_record, parse_time
from tests.integration import client_tables
from tests.integration.client_tables import CISCO, cisco, write
from tests.support.net_snmp import HOST, snmpd
from tests.support.patience import waiting_for
from tests.support.ports import free_port
from tests.support.small_building import SITE, access_point, laboratory, policy_text
from tests.support.virtual_loop import run_virtually

pytestmark = pytest.mark.snmptrap
TABLE, COMMUNITY = TABLES["cisco-lwapp"], "read-only"
TICK, EVERY = 30 * MINUTE, 5 * MINUTE
HALF = EVERY // 2
BEGINS = parse_time("2026-03-03T01:00:00Z")
"""A tick; no UTC day begins in the hours after it."""
ANNE, BERT = (bytes((0x3C, 0, 0, 0, 0, number)) for number in (1, 2))
FIRST, SECOND_TICK = BEGINS + TICK, BEGINS + 10 * TICK
"""Ticks right before which the worlds differ."""
LASTS = 15 * TICK
Rows = dict[bytes, str]
"""Device -> zone."""
Answers = Callable[[Micros, bool], "Rows | None"]
"""What the agent answers to a poll with this hand-over, and whether it is the last before a tick; None: it is away."""
Cells = Counter[tuple[str, str]]
"""(Window, zone) -> devices."""


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snmp_walk, "PACE", 0.0)
    monkeypatch.setattr(service, "STEP", 60.0)
    for module in (ingest, receiver):
        monkeypatch.setattr(module, "GRID", MINUTE)  # heartbeats every five seconds would take long
    monkeypatch.setattr(ingest, "OUTAGE", MINUTE)


class Agent(NamedTuple):
    """net-snmp's agent, and the loop in which real time passes."""

    rows: Path
    port: int
    loop: asyncio.AbstractEventLoop

    def read(self, rows: Rows | None) -> Table:
        """Walk a table with these rows, or one of an agent that is away; for a thread with another loop."""
        if rows is not None:
            at = {device: bytes.fromhex(access_point(zone).replace(":", "")) for device, zone in rows.items()}
            write(self.rows, cisco((device, radio, 3) for device, radio in at.items()))
        port = free_port(socket.SOCK_DGRAM) if rows is None else self.port
        reader = CommunityReader(HOST, port, TABLE, COMMUNITY.encode)
        return asyncio.run_coroutine_threadsafe(reader.read(), self.loop).result()


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[Agent]:
    """Run net-snmp's agent, and wait until it answers."""
    path = folder / "rows"
    write(path, [])
    program = f"{sys.executable} {Path(client_tables.__file__).resolve()} {path}"
    async with snmpd(folder, f"rocommunity {COMMUNITY} {HOST}\npass_persist .{CISCO} {program}\n") as port:
        found = Agent(path, port, asyncio.get_running_loop())
        async with waiting_for("the agent"):
            while True:
                try:
                    await asyncio.to_thread(found.read, {})
                    break
                except PollError:
                    await asyncio.sleep(0.05)
        yield found


def sessions(limit: str) -> Policy:
    release = '[[release]]\nname = "plain"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
    text = policy_text(release, tick="30min", site=f'presence = "sessions"\nsession_limit = "{limit}"\n')
    return load_policy(text.replace('validity = "10min"\n', "").replace('"127.0.0.2"', '"127.0.0.9"'))


def counts(known: Policy, polled: Agent, answers: Answers, folder: Path) -> Cells:
    """Return every true count of what the agent answers."""

    async def work() -> Cells:
        loop, stop, cells = asyncio.get_running_loop(), asyncio.Event(), Cells()
        offset = BEGINS - round(loop.time() * SECOND)
        clock = AnchoredClock(*[lambda: round(loop.time() * SECOND) + offset] * 2)
        pipeline = Pipeline(known, SITE, laboratory(), Options(occupancy=True))
        grid = PollGrid.of_source(SITE, HOST, EVERY)

        class Reader:
            async def read(self) -> Table:
                hand_over = clock.now() // SECOND * SECOND + HALF
                return polled.read(answers(hand_over, -hand_over % TICK < EVERY))

        class Counting:
            state = pipeline.initial()

            async def append(self, message: Message) -> None:
                self.state, out = pipeline.step(self.state, message)
                for record in out:
                    if isinstance(record, Published) and record.topic == OCCUPANCY:
                        body = parse_record(record.value)
                        cells.update({(body["window_end"], zone): n for zone, n in body["counts"].items()})

        listener = SocketListener(folder / "polls", [HOST], "--polls")
        core = Ingest.of_policy(known, bytes(32))
        async with Receiver([listener], ingest=core, sink=Counting(), clock=clock) as received:
            polls = PollService([PolledSource(SITE, HOST, grid, Reader())], folder / "polls", clock)
            loop.call_later(LASTS / SECOND, stop.set)
            await polls.run(stop)
        [state] = polls.states.values()
        assert state.outcomes[COMPLETE] > 2
        assert received.counters.accepted > 0
        assert not {reason for reason, n in received.counters.dropped.items() if n} - received.harmless
        return cells

    return run_virtually(work())


def differing(one: Cells, other: Cells) -> int:
    assert one.keys() == other.keys()
    return sum(abs(one[cell] - other[cell]) for cell in one)


def printed(known: Policy, unit: str) -> int:
    [units] = [each.units for each in count_guarantees(known) if each.reader == "public"]
    return int(units[unit])


def moving(before: Sequence[Micros]) -> Answers:
    """A device that is in zone a while the agent answers, and in zone b in the last polls before some ticks."""

    def rows(hand_over: Micros, is_last: bool) -> Rows | None:
        ticks = [tick for tick in (FIRST, SECOND_TICK) if tick - TICK < hand_over <= tick]
        if not ticks:
            return None
        if not is_last:
            return {ANNE: "a", BERT: "c"}
        return {BERT: "c"} | ({ANNE: "b"} if ticks[0] in before else {})

    return rows


@pytest.mark.parametrize(("limit", "most"), [("2h", 8), ("100min", 8)])
async def test_one_row_of_one_poll_attains_what_is_printed_for_a_message(limit: str, most: int, tmp_path: Path) -> None:
    """2 ceil(session_limit / tick): one less in the zone where the device was, one more where the row says it is."""
    known = sessions(limit)
    async with agent(tmp_path) as polled:
        with_it, without = [
            await asyncio.to_thread(counts, known, polled, moving(ticks), tmp_path) for ticks in ([FIRST], [])
        ]
    assert differing(with_it, without) == printed(known, "observation") == most


async def test_one_row_in_another_poll_instead_attains_twice_as_many(tmp_path: Path) -> None:
    known = sessions("2h")
    async with agent(tmp_path) as polled:
        here, there = [
            await asyncio.to_thread(counts, known, polled, moving([tick]), tmp_path) for tick in (FIRST, SECOND_TICK)
        ]
    assert differing(here, there) == printed(known, "observation_moved") == 16


def drawn(rng: random.Random) -> tuple[Answers, Answers]:
    """Draw a table of two devices over some hours, and the same with another row of one device in one poll."""
    polls = range(int(LASTS // EVERY))
    away = {number for number in polls if rng.random() < 0.2}
    rows = [{who: rng.choice("abcd") for who in (ANNE, BERT) if rng.random() < 0.7} for _ in polls]
    changed = rng.choice([number for number in polls if number not in away])
    other = [dict(each) for each in rows]
    if other[changed].pop(ANNE, None) is None:
        other[changed][ANNE] = rng.choice("abcd")

    def answers(of: Sequence[Rows]) -> Answers:
        def answered(hand_over: Micros, is_last: bool) -> Rows | None:
            number = min((hand_over - BEGINS) // EVERY, len(polls) - 1)
            return None if number in away else of[number]

        return answered

    return answers(rows), answers(other)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
async def test_no_row_of_one_poll_changes_more_than_is_printed(seed: int, tmp_path: Path) -> None:
    known, (one, other) = sessions("2h"), drawn(random.Random(seed))
    async with agent(tmp_path) as polled:
        worlds = [await asyncio.to_thread(counts, known, polled, answers, tmp_path) for answers in (one, other)]
    assert differing(*worlds) <= printed(known, "observation")
