"""The receiver: entrances, one bounded queue, and a worker that awaits the sink.

An entrance checks what it hears and queues it. A full queue drops the newest and counts it; who waits for an answer
gets none, so that it sends again: the only brake there is. The worker runs the pure ingest, appends what it gives in
its order, and lets an answer be given only when the batch that holds what was said is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

import structlog

from connectors.intake.admission import QUEUE_FULL, STOPPING, Counters
from connectors.intake.answers import Answer, Owed
from connectors.intake.clock import AnchoredClock, ClockStepError
from connectors.intake.entrance import Entrance
from connectors.intake.ingest import COLLAPSED, GRID, INGEST_REASONS, NO_STAY, SITE_SHUT, Ingest
from connectors.intake.ingest_state import IngestState
from connectors.intake.waiting import CHUNK, ROOM, Arrival, WaitingRoom
from connectors.sink import Sink
from stream.records import SECOND, Micros, ObservationBatch

LAST: Micros = 5 * SECOND
"""A receiver that is told to stop takes in for so long what waits."""


class Receiver:
    """An asynchronous context manager: entering opens the entrances, leaving drains and closes them.

    Nothing accepted is lost on a clean end; what could not be taken in within ``LAST`` is counted as dropped, and
    nobody is answered for it. ``wait`` ends with the failure that stopped the receiver: the sink's, an entrance's, or
    ``ClockStepError``. ``counters`` says what became of everything that was heard.
    """

    def __init__(
        self,
        entrances: Sequence[Entrance],
        *,
        ingest: Ingest,
        sink: Sink,
        clock: AnchoredClock,
        newest: Micros = -1,
        room: int = ROOM,
    ) -> None:
        """``newest`` is the latest session of any source so far, this one is later; ``room``: how many may wait."""
        self.state: IngestState = ingest.initial(clock.now(), newest)
        self.entrances = tuple(entrances)
        self._ingest, self._sink, self._clock = ingest, sink, clock
        reasons = (reason for each in self.entrances for reason in each.reasons)
        self._room = WaitingRoom(clock, (*reasons, QUEUE_FULL, STOPPING, *INGEST_REASONS), room)
        self._queue, self._owed = self._room.queue, Owed()
        self._stopping, self._until = False, 0
        self._told_shut: set[str] = set()

    async def __aenter__(self) -> Receiver:
        try:
            for entrance in self.entrances:
                await entrance.open(self._room)
        except BaseException:
            await self._close()
            raise
        self.state.listened_since = self._clock.now()
        self._worker = asyncio.create_task(self._work())
        self._awake = asyncio.create_task(self._run_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take in what has arrived, as far as there is time, and close; raise the worker's failure, if any."""
        for entrance in self.entrances:
            await entrance.finish()
        self._stopping = True
        self._room.wake()
        try:
            await self._worker
        except Exception:
            if error is None:
                raise
        finally:
            self._awake.cancel()
            await self._close()

    async def _close(self) -> None:
        for entrance in self.entrances:
            await entrance.close()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first entrance."""
        return self.entrances[0].address

    @property
    def counters(self) -> Counters:
        """What became of everything that was heard so far."""
        counters = self._room.counters
        counters.kernel_drops = sum(entrance.kernel_drops for entrance in self.entrances)
        counters.receive_buffer = sum(entrance.receive_buffer for entrance in self.entrances)
        counters.waiting = len(self._queue)
        return counters

    @property
    def everyday(self) -> frozenset[str]:
        """Reasons for which something is dropped where all is well."""
        return frozenset({COLLAPSED, NO_STAY}).union(*(entrance.everyday for entrance in self.entrances))

    @property
    def clock(self) -> AnchoredClock:
        """What stamps arrivals."""
        return self._clock

    def refused(self, source: str) -> Micros | None:
        """Return when a source last told that it was asked by somebody whom it refused; None: never."""
        return self._room.refusals.get(source)

    async def wait(self) -> None:
        """Run until something stops the receiver, and raise it."""
        await asyncio.shield(self._worker)

    async def _run_on(self) -> None:
        """Note in each interval of the clock's grid that this loop runs, whether or not anything was heard."""
        while self._room.failure is None:
            try:
                now = self._clock.now()
            except ClockStepError:
                return  # whoever reads the clock next reports it
            hearing = all(entrance.hearing for entrance in self.entrances)
            self._ingest.run_on(self.state, now, hearing=hearing)
            await asyncio.sleep((GRID - now % GRID) / SECOND)

    async def _work(self) -> None:
        try:
            while True:
                await self._sleep()
                while await self._chunk() and not self._late():
                    await asyncio.sleep(0)
                if self._room.failure is not None:
                    raise self._room.failure
                if self._stopping:
                    break
        finally:
            for entrance in self.entrances:
                entrance.stop()
        for message in self._ingest.drain(self.state):
            await self._sink.append(message)
        self._answer_durable()
        self._turn_away()

    def _late(self) -> bool:
        """Whether it was seen ``LAST`` ago that the receiver is to stop."""
        if not self._stopping:
            return False
        now = self._clock.now()
        self._until = self._until or now + LAST
        return now >= self._until

    def _turn_away(self) -> None:
        """Drop what still waits: what came before it has its answers, and nothing behind it has been vouched for."""
        while self._queue:
            answer = self._queue.popleft().answer
            self._room.drop(STOPPING)
            if answer is not None:
                answer.withhold()

    async def _sleep(self) -> None:
        """Wait for sightings, the next due message or the end."""
        due = self._ingest.next_due(self.state)
        await self._room.called(None if due is None else max(0.0, (due - self._clock.now()) / SECOND))

    async def _chunk(self) -> bool:
        """Observe some of the queue, append what is due; return whether sightings are left."""
        done: list[Answer] = []
        self._ingest.run_on(self.state, self._clock.now())  # before anything is vouched for
        for _ in range(min(CHUNK, len(self._queue))):
            self._observe(self._queue.popleft(), done)
        # A heartbeat speaks for everything received before it, so it must not overtake the queue.
        now = self._queue[0].time if self._queue else self._clock.now()
        for message in self._ingest.poll(self.state, now):
            if isinstance(message, ObservationBatch) or not self._late():  # a heartbeat can be done without
                await self._sink.append(message)
        self._report_shut()
        for answer in done:
            answer.give()
        self._answer_durable()
        return bool(self._queue)

    def _observe(self, arrival: Arrival, done: list[Answer]) -> None:
        time, source, host, sighting, answer = arrival
        dropped, batch = self._ingest.observe(self.state, time, source, host, sighting)
        if dropped is None:
            self._room.counters.accepted += 1
        else:
            self._room.drop(dropped)
        if answer is None:
            return
        if dropped == SITE_SHUT:  # the sender goes on asking: nothing is stored
            answer.withhold()
        elif batch is None:
            done.append(answer)
        else:
            self._owed.owe(answer, batch)

    def _report_shut(self) -> None:
        """Raise the alarm for a site that had to be shut, once."""
        for site in sorted(self.state.shut - self._told_shut):
            self._told_shut.add(site)
            structlog.get_logger("tacet.snmp").error(
                "site_shut",
                site=site,
                reason="more devices than max_devices: nothing more is sent for it until this is started again",
            )

    def _answer_durable(self) -> None:
        """Give the answers whose batch is no longer open: all before it has been appended."""
        for answer in self._owed.due(self.state.open):
            answer.give()
