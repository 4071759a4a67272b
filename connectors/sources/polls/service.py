"""The service of ``tacet poll``: every source on its own grid.

Each source goes through these states:

| state | event | next |
|---|---|---|
| waiting | its start comes | reading |
| reading | the table is whole before its limit | holding |
| reading | it is late, or an answer is missing or wrong | waiting, after a pause that grows |
| reading | the table has more rows than ``MOST_ROWS`` | closed, until the process is started again |
| holding | its hand-over comes, and all rows are durable | waiting |
| holding | its hand-over comes, and the ingest is away | waiting, as after a failure |

One row more or less changes the sightings of its own device, or of its login there, and nothing else: all rows bear the
time of the hand-over and arrive then, however long the walk took; a poll that is not whole passes on nothing; coverage
follows from a probe. What remains is the limit: a table that takes nearly all of it may be late because of one row. So
a poll should need a small part of its limit, which ``tacet poll --dry-run`` shows.

The log has a line for each source at the start (``poll_planned``, with the time of its first table), at its first
complete poll (``poll_complete``), at each failure, and at the first complete poll after failures. No line has a number
of rows, which is a true count.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from connectors.runtime.clock import AnchoredClock, wall_clock
from connectors.runtime.signals import first_to_end
from connectors.sources.ingest_socket.client import IngestClient
from connectors.sources.ingest_socket.frames import TimedSighting
from connectors.sources.polls.config import PolledSource
from connectors.sources.polls.departures import Departures
from connectors.sources.polls.schedule import PollTimes
from connectors.sources.polls.snmp_walk import TOO_LONG, PollError, Table
from stream.policy.fields import duration_text
from stream.records import SECOND, Micros
from stream.schemas import rfc3339

COMPLETE, LATE, NOT_TAKEN = "complete", "late", "ingest_away"
AGAIN = 1.0
"""Seconds after which rows are handed over once more if the ingest was away."""
STEP = 1.0
"""Seconds after which the clock is read again while a moment is waited for."""
log = structlog.get_logger("tacet.poll")


class PollState:
    """What is known of the polls of one source."""

    def __init__(self, source: PolledSource) -> None:
        """Start without a poll."""
        self.failures = 0
        """In a row."""
        self.is_closed = False
        self.not_before: Micros = 0
        """Until when the source asked not to be queried."""
        self.is_reachable = True
        """Of a source without a probe: whether it answered the last request of fixed size."""
        self.last_complete: Micros | None = None
        """The hand-over of the last complete poll."""
        self.outcomes: Counter[str] = Counter()
        self.departures = Departures(source.login_of)


class PollService:
    """The service; ``states`` has an entry for each source."""

    def __init__(self, sources: Sequence[PolledSource], to: Path, clock: AnchoredClock | None = None) -> None:
        """Set the sources, and the ingest's socket; the clock is the wall clock by default."""
        self.clock = clock or AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
        self.states = {source: PollState(source) for source in sources}
        self._client = IngestClient(to)
        for source, state in self.states.items():
            state.is_reachable = source.check is None
        self._client.report_can_receive(can_receive=all(state.is_reachable for state in self.states.values()))

    @property
    def is_connected(self) -> bool:
        """Whether the ingest is connected."""
        return self._client.connected

    @property
    def closed(self) -> list[PolledSource]:
        """The sources whose tables were too long."""
        return [source for source, state in self.states.items() if state.is_closed]

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until ``stop`` is set."""
        for source in self.states:
            first = source.grid.next_poll(self.clock.now())
            when = f"the first table is read at {rfc3339(first.hand_over)}, then one every"
            reason = f"{when} {duration_text(source.grid.interval)}"
            log.info("poll_planned", reason=reason, site=source.site, address=source.source)
        polls = (self._follow(source, state) for source, state in self.states.items())
        await first_to_end(self._client.run(), stop.wait(), self._check_clock(), *polls)

    async def _check_clock(self) -> None:
        """End the service if the clock was set: rows would get wrong times."""
        while True:
            self.clock.now()
            await asyncio.sleep(1)

    async def _follow(self, source: PolledSource, state: PollState) -> None:
        while True:
            times = source.grid.next_poll(max(self.clock.now(), state.not_before), state.failures)
            if state.is_closed:
                await asyncio.Event().wait()
            await self._check(source, state)
            await self._until(times.start)
            self._note(source, state, times, await self._poll(source, state, times))

    async def _poll(self, source: PolledSource, state: PollState, times: PollTimes) -> str:
        """Read and hand over one table; return the outcome."""
        table = await self._read(source, state, times)
        if not isinstance(table, Table):
            return table
        rows, known = state.departures.follow(table.rows, times.hand_over)
        await self._until(times.hand_over)
        if not await self._handed_over(source.source, rows):
            return NOT_TAKEN
        state.departures.accept(known)
        return COMPLETE

    async def _check(self, source: PolledSource, state: PollState) -> None:
        """Query a source without a probe once between two polls; the ingest confirms no coverage while one is away."""
        if source.check is not None:
            state.is_reachable = await source.check()
            self._client.report_can_receive(can_receive=all(each.is_reachable for each in self.states.values()))

    async def _read(self, source: PolledSource, state: PollState, times: PollTimes) -> Table | str:
        try:
            async with asyncio.timeout(max(0.0, (times.limit - self.clock.now()) / SECOND)):
                return await source.reader.read()
        except TimeoutError:
            return LATE
        except PollError as error:
            state.not_before = self.clock.now() + round(error.retry_after * SECOND)
            return error.reason

    async def _handed_over(self, source: str, rows: Sequence[TimedSighting]) -> bool:
        """Pass rows on, with a second attempt; copies of rows change nothing, because they bear the same time."""
        if await self._client.hand_over(source, rows):
            return True
        await asyncio.sleep(AGAIN)
        return await self._client.hand_over(source, rows)

    async def _until(self, at: Micros) -> None:
        while (wait := at - self.clock.now()) > 0:
            await asyncio.sleep(min(wait / SECOND, STEP))

    def _note(self, source: PolledSource, state: PollState, times: PollTimes, outcome: str) -> None:
        state.outcomes[outcome] += 1
        where = {"site": source.site, "address": source.source}
        if outcome == COMPLETE:
            if state.failures:
                log.info("poll_complete_again", **where)
            elif state.last_complete is None:
                log.info("poll_complete", **where)
            state.last_complete, state.failures = times.hand_over, 0
            return
        state.failures += 1
        if outcome == TOO_LONG:
            state.is_closed = True
            log.error(
                "poll_closed", reason="more rows than any real site has: this source is no longer polled", **where
            )
            return
        log.warning("poll_failed", reason=outcome, **where)


class DryRun(NamedTuple):
    """What one poll of a source took; for its operator only."""

    source: PolledSource
    outcome: str
    seconds: float
    table: Table | None


async def read_once(source: PolledSource) -> DryRun:
    """Read a table once, now, and hand nothing over."""
    began, table, outcome = time.monotonic(), None, COMPLETE
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(source.grid.interval / 2 / SECOND):
                table = await source.reader.read()
        outcome = LATE if table is None else COMPLETE
    except PollError as error:
        outcome = error.reason
    return DryRun(source, outcome, time.monotonic() - began, table)
