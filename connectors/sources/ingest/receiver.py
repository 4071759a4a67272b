"""The receiver: listeners, one bounded queue, and a worker that awaits the sink.

1. A listener checks a message and enqueues its sighting. A full queue drops the newest and counts it; a sender that
   waits for an acknowledgement gets none, so it repeats the message. There is no other back-pressure.
2. The worker runs the pure ingest and appends its messages to the sink in order.
3. An acknowledgement is sent only when the batch with its message is durable.

While it runs, the receiver reports each minute which messages it drops (``report_drops``), not only at its end: an
operator who has forgotten an access point, a controller or a community would otherwise learn of it too late. Only
reasons that indicate a fault are reported, and their counts as ranges ("between 10 and 99"): sightings are people, and
an exact number would count them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import structlog

from connectors.runtime.clock import AnchoredClock, ClockStepError
from connectors.sources.ingest.ingest import GRID, HARMLESS, INGEST_REASONS, SITE_SHUT, Ingest
from connectors.sources.ingest.listeners import Listener
from connectors.sources.ingest.queue import (
    CHUNK,
    QUEUE_FULL,
    ROOM,
    STOPPING,
    Acknowledgement,
    Counters,
    IngestQueue,
    PendingAcknowledgements,
    QueuedSighting,
)
from connectors.sources.ingest.sighting import Sink
from connectors.sources.ingest.state import IngestState, most_unknown
from stream.records import SECOND, Heartbeat, Micros, ObservationBatch

LAST: Micros = 5 * SECOND
"""For so long a receiver that is stopped still processes its queue."""


class Receiver:
    """An asynchronous context manager: entering opens the listeners, leaving drains and closes them.

    No accepted sighting is lost on a clean end. Sightings that are not processed within ``LAST`` are counted as dropped
    and not acknowledged. ``wait`` ends with the failure that stopped the receiver: the sink's, a listener's, or
    ``ClockStepError``. ``counters`` returns the result of everything that was received.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        ingest: Ingest,
        sink: Sink,
        clock: AnchoredClock,
        newest: Micros = -1,
        capacity: int = ROOM,
    ) -> None:
        """``newest`` is the latest session of any source so far, this one is later.

        ``capacity``: maximum length of the queue.
        """
        self.state: IngestState = ingest.initial(clock.now(), newest)
        self.listeners = tuple(listeners)
        self._ingest, self._sink, self._clock = ingest, sink, clock
        reasons = (reason for each in self.listeners for reason in each.reasons)
        self._queue = IngestQueue(clock, (*reasons, QUEUE_FULL, STOPPING, *INGEST_REASONS), capacity, self._left_out)
        self._acknowledgements = PendingAcknowledgements()
        self._stopping, self._until, self._busy = False, 0, False
        self._reported_suspended: set[str] = set()
        self.appended = 0
        """Messages that the sink has accepted."""

    async def __aenter__(self) -> Receiver:
        try:
            for listener in self.listeners:
                await listener.open(self._queue)
        except BaseException:
            await self._close()
            raise
        self.state.listened_since = self._clock.now()
        self._worker = asyncio.create_task(self._work())
        self._awake = asyncio.create_task(self._record_running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Process what has arrived, as far as there is time, and close; raise the worker's failure, if any."""
        for listener in self.listeners:
            await listener.finish()
        self._stopping = True
        self._queue.wake()
        try:
            await self._worker
        except Exception:
            if error is None:
                raise
        finally:
            self._awake.cancel()
            await self._close()

    async def _close(self) -> None:
        for listener in self.listeners:
            await listener.close()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener."""
        return self.listeners[0].address

    @property
    def counters(self) -> Counters:
        """The results of everything that was received so far."""
        counters = self._queue.counters
        counters.kernel_drops = sum(listener.kernel_drops for listener in self.listeners)
        counters.receive_buffer = sum(listener.receive_buffer for listener in self.listeners)
        counters.waiting = len(self._queue.sightings)
        return counters

    @property
    def idle(self) -> bool:
        """Whether every queued sighting has been observed and appended, except for a batch that is still open."""
        return not self._busy and not self._queue.sightings

    @property
    def harmless(self) -> frozenset[str]:
        """Reasons for drops that indicate no fault."""
        return HARMLESS.union(*(listener.harmless for listener in self.listeners))

    @property
    def clock(self) -> AnchoredClock:
        """The clock of receive times."""
        return self._clock

    def last_refusal(self, source: str) -> Micros | None:
        """Return when a source last reported a query that it refused; None: never."""
        return self._queue.refusals.get(source)

    def run_beside(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Start work beside the receiver; its failure ends the receiver, as a listener's does."""

        def on_end(task: asyncio.Task[object]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self._queue.fail(error)
                self._queue.call_worker()

        task = asyncio.create_task(work)
        task.add_done_callback(on_end)
        return task

    async def wait(self) -> None:
        """Run until an error stops the receiver, and raise it."""
        await asyncio.shield(self._worker)

    async def _record_running(self) -> None:
        """Record in each interval of the clock's grid that this loop runs, whether or not messages come."""
        while self._queue.failure is None:
            try:
                now = self._clock.now()
            except ClockStepError:
                return  # the next reader of the clock reports it
            can_receive = all(listener.can_receive for listener in self.listeners)
            self._ingest.record_running(self.state, now, can_receive=can_receive)
            await asyncio.sleep((GRID - now % GRID) / SECOND)

    async def _work(self) -> None:
        try:
            while True:
                self._busy = False
                await self._sleep()
                self._busy = True
                while await self._chunk() and not self._late():
                    await asyncio.sleep(0)
                if self._queue.failure is not None:
                    raise self._queue.failure
                if self._stopping:
                    break
        finally:
            for listener in self.listeners:
                listener.stop()
        for message in self._ingest.drain(self.state):
            await self._append(message)
        self._acknowledge_durable()
        self._drop_queue()

    def _late(self) -> bool:
        """Return whether the stop was noticed more than ``LAST`` ago."""
        if not self._stopping:
            return False
        now = self._clock.now()
        self._until = self._until or now + LAST
        return now >= self._until

    def _drop_queue(self) -> None:
        """Drop the rest of the queue: earlier messages are acknowledged, and no heartbeat has covered the rest."""
        while self._queue.sightings:
            answer = self._queue.sightings.popleft().acknowledgement
            self._queue.drop(STOPPING)
            if answer is not None:
                answer.withhold()

    async def _sleep(self) -> None:
        """Wait for sightings, the next due message or the end."""
        due = self._ingest.next_due(self.state)
        await self._queue.called(None if due is None else max(0.0, (due - self._clock.now()) / SECOND))

    async def _chunk(self) -> bool:
        """Observe a part of the queue, append the due messages; return whether sightings are left."""
        done, self._queue.settled = self._queue.settled, []
        self._ingest.record_running(self.state, self._clock.now())  # before any heartbeat confirms coverage
        for _ in range(min(CHUNK, len(self._queue.sightings))):
            self._observe(self._queue.sightings.popleft(), done)
        # A heartbeat covers everything received before it, so it must not overtake the queue.
        now = self._queue.sightings[0].time if self._queue.sightings else self._clock.now()
        for message in self._ingest.poll(self.state, now):
            if isinstance(message, ObservationBatch) or not self._late():  # a heartbeat is dispensable
                await self._append(message)
        self._report_suspended()
        for answer in done:
            answer.acknowledge()
        self._acknowledge_durable()
        return bool(self._queue.sightings)

    def _left_out(self, arrival: QueuedSighting) -> str | None:
        return self._ingest.screen(self.state, arrival.time, arrival.host, arrival.sighting)

    async def _append(self, message: ObservationBatch | Heartbeat) -> None:
        await self._sink.append(message)
        self.appended += 1

    def _observe(self, arrival: QueuedSighting, done: list[Acknowledgement]) -> None:
        time, source, host, sighting, answer = arrival
        dropped, batch = self._ingest.observe(self.state, time, source, host, sighting)
        if dropped is None:
            self._queue.counters.accepted += 1
        else:
            self._queue.drop(dropped)
        if answer is None:
            return
        if dropped == SITE_SHUT:  # the sender repeats it: nothing is stored
            answer.withhold()
        elif batch is None:
            done.append(answer)
        else:
            self._acknowledgements.add(answer, batch)

    def _report_suspended(self) -> None:
        """Log once that a site was suspended."""
        for site in sorted(self.state.suspended - self._reported_suspended):
            self._reported_suspended.add(site)
            structlog.get_logger("tacet.snmp").error(
                "site_shut",
                site=site,
                reason="more devices than max_devices: its observations are no longer sent. Restart this process, and "
                "resume the site with 'tacet recover --reopen' (Kafka: 'tacet worker --reopen') if it is suspended",
            )

    def _acknowledge_durable(self) -> None:
        """Send the acknowledgements whose batch is no longer open: all earlier messages have been appended."""
        for answer in self._acknowledgements.due(self.state.open):
            answer.acknowledge()


# --- reports of drops -------------------------------------------------------------------------------

EVERY = 60.0
"""Seconds."""
KERNEL = "kernel_queue_full"

log = structlog.get_logger("tacet.run")


class DropReport:
    """Remembers which drops have been reported."""

    def __init__(self, harmless: frozenset[str] = frozenset(), event: str = "traps_dropped") -> None:
        """Set the reasons that indicate no fault, and the name of the log event."""
        self._harmless, self._event = harmless, event
        self._dropped: dict[str, int] = {}
        self._unknown: set[str] = set()

    def new_drops(self, dropped: Mapping[str, int], unknown: Mapping[str, int]) -> Iterator[dict[str, str | int]]:
        """Yield the fields of a log line for each reason with new drops, and for each new unknown access point.

        ``dropped`` contains the drops since the start, by reason. A count is reported as the powers of ten that it lies
        between.
        """
        for reason, number in dropped.items():
            new = number - self._dropped.get(reason, 0)
            if reason not in self._harmless and new > 0:
                self._dropped[reason] = number
                yield {"event": self._event, "reason": reason, "count": _between(new)}
        for address in unknown:
            if address not in self._unknown:
                self._unknown.add(address)
                yield {"event": "unknown_access_point", "address": address}


def _between(number: int) -> str:
    """Return the range of numbers with as many digits: ``between 10 and 99``."""
    least = 10 ** (len(str(number)) - 1)
    return f"between {least} and {10 * least - 1}"


async def report_drops(receiver: Receiver, every: float | None = None) -> None:
    """Log new drops of a receiver at intervals until cancelled."""
    report = DropReport(receiver.harmless)
    while True:
        await asyncio.sleep(EVERY if every is None else every)
        for line in _new_drops(report, receiver, receiver.state):
            log.warning(**line)


def _new_drops(report: DropReport, receiver: Receiver, state: IngestState) -> Iterator[dict[str, str | int]]:
    counters = receiver.counters
    return report.new_drops({**counters.dropped, KERNEL: counters.kernel_drops}, most_unknown(state))
