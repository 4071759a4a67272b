"""The service of polls: a table shows in the rows of its devices, and in nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest_socket.frames import TimedSighting
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.config import PolledSource
from connectors.sources.polls.schedule import PollGrid
from connectors.sources.polls.service import PollService
from connectors.sources.polls.snmp_walk import NO_ANSWER, TOO_LONG, PollError, Table
from stream.records import MINUTE, SECOND, Micros
from stream.schemas import rfc3339
from tests.support.virtual_loop import run_virtually

HERE = bytes.fromhex("020000000001")
SOURCE, OTHER = "10.2.0.5", "10.2.0.6"
Reading = Callable[[int], tuple[float, "list[AssociatedClient] | PollError"]]
"""The seconds that the nth walk takes, and what comes of it."""


def device(number: int) -> AssociatedClient:
    return AssociatedClient(bytes((0x3C, 0, 0, 0, 0, number)), HERE)


class Controller:
    """A table reader that a test plays."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self.reads = reading, 0

    async def read(self) -> Table:
        self.reads += 1
        seconds, found = self._reading(self.reads - 1)
        await asyncio.sleep(seconds)
        if isinstance(found, PollError):
            raise found
        return Table(found, 1)


class HandOver(NamedTuple):
    """Rows that came to the ingest, and when."""

    at: Micros
    source: str
    rows: tuple[tuple[Kind, int, Micros], ...]


class Ingest:
    """The other end of the socket."""

    def __init__(self, now: Callable[[], Micros], is_there: Callable[[Micros], bool]) -> None:
        self._now, self._is_there = now, is_there
        self.taken: list[HandOver] = []
        self.connected = True
        self.can_receive: list[bool] = []

    def report_can_receive(self, *, can_receive: bool) -> None:
        self.can_receive.append(can_receive)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def hand_over(self, source: str, rows: Sequence[TimedSighting]) -> bool:
        now = self._now()
        if not self._is_there(now):
            return False
        output = tuple((row.sighting.kind, row.sighting.client[5], row.at) for row in rows)
        self.taken.append(HandOver(now, source, output))
        return True


class Played(NamedTuple):
    taken: list[HandOver]
    outcomes: list[dict[str, int]]
    reads: list[int]
    lines: list[Any]
    can_receive: list[bool]


def play(
    *readings: Reading,
    minutes: int = 30,
    is_there: Callable[[Micros], bool] = lambda now: True,
    check: Callable[[], Awaitable[bool]] | None = None,
) -> Played:
    """Poll for so long; the nth source has the nth reading, each on a grid of its own."""

    async def work() -> Played:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        clock = AnchoredClock(lambda: round(loop.time() * SECOND), lambda: round(loop.time() * SECOND))
        ends = [Controller(reading) for reading in readings]
        sources = [
            PolledSource("dbh", name, PollGrid(5 * MINUTE, 7 * SECOND), end, check)
            for name, end in zip((SOURCE, OTHER), ends, strict=False)
        ]
        service = PollService(sources, Path("unused"), clock)
        ingest = Ingest(clock.now, is_there)
        vars(service)["_client"] = ingest
        loop.call_later(minutes * 60, stop.set)
        with structlog.testing.capture_logs() as lines:
            await service.run(stop)
        outcomes = [dict(state.outcomes) for state in service.states.values()]
        return Played(ingest.taken, outcomes, [end.reads for end in ends], lines, ingest.can_receive)

    return run_virtually(work())


def steady(*devices: int, seconds: float = 1.0) -> Reading:
    return lambda _: (seconds, [device(number) for number in devices])


def test_a_table_arrives_at_the_hand_over_and_bears_its_time_however_long_the_walk_took() -> None:
    quick, slow = play(steady(1, 2, seconds=0.1)), play(steady(1, 2, seconds=149.0))
    assert quick == slow
    assert len(quick.taken) == 5
    for each in quick.taken:
        assert each.at % (5 * MINUTE) == 157 * SECOND
        assert {at for _, _, at in each.rows} == {each.at}


def test_one_row_more_changes_the_rows_of_its_device_and_nothing_else() -> None:
    def reading(with_it: bool) -> Reading:
        return lambda number: (
            3.0 + 20 * with_it * (number == 1),
            [device(1), *([device(9)] if with_it and number == 1 else []), *([device(2)] if number % 3 else [])],
        )

    plain, other = play(reading(False)), play(reading(True))
    assert plain != other
    assert (plain.outcomes, plain.reads, plain.lines) == (other.outcomes, other.reads, other.lines)

    def of_others(played: Played) -> list[HandOver]:
        return [each._replace(rows=tuple(row for row in each.rows if row[1] != 9)) for each in played.taken]

    assert of_others(plain) == of_others(other)


def test_a_poll_that_is_late_or_fails_says_nothing_and_ends_no_stay() -> None:
    def good_then(seconds: float, found: list[AssociatedClient] | PollError) -> Reading:
        return lambda number: (seconds, found) if number else (1.0, [device(1), device(2)])

    for bad in (good_then(150.5, [device(1)]), good_then(1.0, PollError(NO_ANSWER))):
        played = play(bad, minutes=60)
        assert len(played.taken) == 1
        assert played.outcomes[0]["complete"] == 1


def test_a_device_is_gone_after_two_complete_polls_whatever_failed_between() -> None:
    answers: list[tuple[float, Any]] = [
        (1.0, [device(1), device(2)]), (1.0, [device(2)]), (1.0, PollError(NO_ANSWER)), (1.0, [device(2)]),
    ]  # fmt: skip
    played = play(lambda number: answers[min(number, 3)], minutes=40)
    output = [[(kind, number) for kind, number, _ in each.rows] for each in played.taken]
    assert output[:3] == [
        [(Kind.RUN, 1), (Kind.RUN, 2)], [(Kind.RUN, 2)], [(Kind.RUN, 2), (Kind.LEAVE, 1)],
    ]  # fmt: skip
    assert all(each == [(Kind.RUN, 2)] for each in output[3:])


def test_failures_make_polls_rarer_until_one_is_complete() -> None:
    failing = play(lambda _: (1.0, PollError(NO_ANSWER)), minutes=300)
    assert failing.reads[0] < 300 / 5 / 4
    healed = play(lambda number: (1.0, PollError(NO_ANSWER) if number < 3 else [device(1)]), minutes=300)
    assert healed.outcomes[0]["complete"] > 40
    events = [line["event"] for line in healed.lines]
    assert events == ["poll_planned", *["poll_failed"] * 3, "poll_complete_again"]


def test_while_all_is_well_a_source_has_a_line_at_the_start_and_at_its_first_table() -> None:
    played = play(steady(1, 2), minutes=300)
    planned, complete = played.lines
    first = rfc3339(played.taken[0].at)
    assert planned["event"] == "poll_planned"
    assert planned["reason"] == f"the first table is read at {first}, then one every 5min"
    assert (complete["event"], complete["site"], complete["address"]) == ("poll_complete", "dbh", SOURCE)


def test_a_table_beyond_any_real_site_closes_its_source_loudly_and_no_other() -> None:
    played = play(lambda _: (1.0, PollError(TOO_LONG)), steady(1), minutes=120)
    assert played.reads[0] == 1
    assert played.outcomes[1] == {"complete": played.reads[1] - 1}
    assert [line["address"] for line in played.lines if line["event"] == "poll_closed"] == [SOURCE]
    assert [line["event"] for line in played.lines if line["log_level"] == "error"] == ["poll_closed"]


def test_a_leave_that_the_ingest_did_not_take_is_passed_on_again() -> None:
    answers = [[device(1)], [], [], []]
    began: list[Micros] = []

    def is_there(now: Micros) -> bool:
        began.append(now)
        return not 11 * MINUTE < now - began[0] + 5 * MINUTE < 17 * MINUTE

    played = play(lambda number: (1.0, answers[min(number, 3)]), minutes=60, is_there=is_there)
    assert played.outcomes[0]["ingest_away"] == 1
    assert [kind for each in played.taken for kind, _, _ in each.rows] == [Kind.RUN, Kind.LEAVE]


def test_a_source_that_asks_for_time_gets_it() -> None:
    played = play(lambda _: (1.0, PollError(NO_ANSWER, retry_after=3600.0)), minutes=90)
    assert played.reads == [2]


def test_coverage_of_a_cloud_follows_from_a_request_of_fixed_size_and_never_from_its_table() -> None:
    def reported(reading: Reading) -> list[bool]:
        answers = iter([True, False])

        async def check() -> bool:
            return next(answers, True)

        return play(reading, check=check, minutes=12).can_receive

    whole, slow = reported(steady(1)), reported(steady(1, 2, 3, seconds=149.0))
    assert whole == slow == [True, False, True]
    assert reported(lambda _: (1.0, PollError(NO_ANSWER)))[:2] == [True, False]


def test_no_line_of_the_log_tells_a_device_or_a_number() -> None:
    """Tables of one and of a hundred rows, some of which fail, leave the same lines."""

    def lines(rows: int) -> list[Any]:
        table = [device(number) for number in range(rows)]
        return play(lambda number: (1.0, PollError(NO_ANSWER) if number % 2 else table)).lines

    assert lines(1) == lines(100)
    assert {name for line in lines(1) for name in line} == {"event", "log_level", "site", "address", "reason"}
