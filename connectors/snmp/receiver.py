"""The trap receiver: one UDP port, a bounded queue, and a worker that awaits the sink.

The port's side checks, cheapest first: sender listed, an SNMP notification, its community, well-formed,
something to observe, room in the queue. A full queue drops the newest trap and counts it; an inform is then
left unanswered, so that the controller sends it again: the only brake SNMP has. The worker's side runs the pure
ingest, appends what it gives in its order, and answers an inform only when the batch that holds it is durable.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import structlog

from connectors.sink import Sink
from connectors.snmp.addresses import sender
from connectors.snmp.admission import (
    BAD_COMMUNITY,
    DUPLICATE_INFORM,
    QUEUE_FULL,
    UNKNOWN_SOURCE,
    Counters,
    Senders,
)
from connectors.snmp.ber import MalformedTrap
from connectors.snmp.clock import AnchoredClock, ClockStepError
from connectors.snmp.informs import Answer, Informs
from connectors.snmp.ingest import GRID, SITE_SHUT, Ingest
from connectors.snmp.ingest_state import IngestState
from connectors.snmp.port import Port
from connectors.snmp.profiles import Kind
from connectors.snmp.traps import Trap, decode, envelope, respond
from stream.records import SECOND, Micros

CHUNK = 512
PATIENCE = 0.02
"""Batching delay in seconds: how long a trap waits for others before the worker is called."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much may wait: in the kernel and in the queue."""

    queue: int = 20_000
    """Traps."""
    receive_buffer: int = 4 * 1024 * 1024
    """Octets, as the kernel is asked for them."""


class _Waiting(NamedTuple):
    """A trap between port and worker."""

    time: Micros
    source: str
    host: str
    trap: Trap
    answer: Answer | None


class Receiver:
    """An asynchronous context manager: entering binds the socket, leaving drains and closes it.

    Nothing accepted is lost on a clean end. ``wait`` ends with the failure that stopped the receiver: the
    sink's, the port's, or ``ClockStepError``. ``counters`` says what became of every datagram.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        ingest: Ingest,
        sink: Sink,
        senders: Senders,
        clock: AnchoredClock,
        newest: Micros = -1,
        room: Room = Room(),
    ) -> None:
        """``newest`` is the latest session of any source so far; this one is later."""
        self.state: IngestState = ingest.initial(clock.now(), newest)
        self._wanted, self._senders, self._room = address, senders, room
        self._ingest, self._sink, self._clock = ingest, sink, clock
        self._queue: deque[_Waiting] = deque()
        self._informs = Informs()
        self._wake, self._stopping = asyncio.Event(), False
        self._nudge: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._counters = Counters()
        self._told_shut: set[str] = set()

    async def __aenter__(self) -> Receiver:
        self._port = Port(self._wanted, self._room.receive_buffer, self._turn)
        self._port.open()
        self.state.listened_since = self._clock.now()
        self._worker = asyncio.create_task(self._work())
        self._awake = asyncio.create_task(self._run_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read what the kernel holds, let the worker finish, close; raise the worker's failure, if any."""
        await self._port.finish()
        self._stopping = True
        self._wake.set()
        try:
            await self._worker
        except Exception:
            if error is None:
                raise
        finally:
            self._awake.cancel()
            self._port.close()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the socket is bound to."""
        return self._port.address

    @property
    def counters(self) -> Counters:
        """What became of every datagram so far."""
        self._counters.kernel_drops = self._port.kernel_drops
        self._counters.receive_buffer = self._port.receive_buffer
        self._counters.waiting = len(self._queue)
        return self._counters

    async def wait(self) -> None:
        """Run until something stops the receiver, and raise it."""
        await asyncio.shield(self._worker)

    # The port's side: called by the event loop, never waits.

    def _turn(self) -> int:
        before = self._counters.datagrams
        try:
            self._port.read(functools.partial(self._take, self._clock.now()))
        except Exception as error:  # else the event loop would only log it, and never look at the port again
            self._failure = error
            self._port.stop()
        self._call_worker()
        return self._counters.datagrams - before

    async def _run_on(self) -> None:
        """Note in each interval of the clock's grid that this loop runs, whether or not anything was heard."""
        while self._failure is None:
            try:
                now = self._clock.now()
            except ClockStepError:
                return  # whoever reads the clock next reports it
            self._ingest.run_on(self.state, now)
            await asyncio.sleep((GRID - now % GRID) / SECOND)

    def _call_worker(self) -> None:
        """Call the worker at once for a full chunk or a failure, else soon: it then has more to do."""
        if self._failure is not None or len(self._queue) >= CHUNK:
            self._wake.set()
        elif self._queue and self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(PATIENCE, self._wake.set)

    def _take(self, now: Micros, datagram: bytes, address: Any) -> None:
        counters = self._counters
        counters.datagrams += 1
        host = sender(address[0])
        source = self._senders.listed(host)
        if source is None:
            counters.dropped[UNKNOWN_SOURCE] += 1
            return
        try:
            around = envelope(datagram)
            if not self._senders.share(around.community):
                counters.dropped[BAD_COMMUNITY] += 1
                return
            trap = decode(datagram, around)
        except MalformedTrap as error:
            counters.dropped[error.reason] += 1
            return
        if trap.kind is Kind.IGNORED:
            counters.dropped[trap.reason] += 1
            if trap.inform:
                self._send(respond(datagram), address)
        elif trap.inform:
            self._take_inform(_Waiting(now, source, host, trap, None), datagram, address)
        else:
            self._enqueue(_Waiting(now, source, host, trap, None))

    def _enqueue(self, waiting: _Waiting) -> bool:
        if len(self._queue) >= self._room.queue:
            self._counters.dropped[QUEUE_FULL] += 1
            return False
        self._queue.append(waiting)
        return True

    def _take_inform(self, waiting: _Waiting, datagram: bytes, address: Any) -> None:
        """Queue an inform once; a copy is answered once the first is durable."""
        now, _, host, trap, _ = waiting
        key = (host, trap.request_id, trap.kind, trap.client, trap.access_point, trap.name)
        answer = Answer(key, address, respond(datagram))
        durable = self._informs.earlier(key, now)
        if durable is not None:
            self._counters.dropped[DUPLICATE_INFORM] += 1
            if durable:
                self._send(answer.datagram, address)
        elif self._informs.full:
            self._counters.dropped[QUEUE_FULL] += 1
        elif self._enqueue(waiting._replace(answer=answer)):
            self._informs.remember(answer, now)

    # The worker's side: waits for the sink.

    async def _work(self) -> None:
        try:
            while True:
                await self._sleep()
                while await self._chunk():
                    await asyncio.sleep(0)
                if self._failure is not None:
                    raise self._failure
                if self._stopping:
                    break
        finally:
            self._port.stop()
        for message in self._ingest.drain(self.state):
            await self._sink.append(message)
        self._answer_durable()

    async def _sleep(self) -> None:
        """Wait for traps, the next due message or the end."""
        due, alarm = self._ingest.next_due(self.state), None
        if due is not None:
            delay = max(0.0, (due - self._clock.now()) / SECOND)
            alarm = asyncio.get_running_loop().call_later(delay, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        for timer in (alarm, self._nudge):
            if timer is not None:
                timer.cancel()
        self._nudge = None

    async def _chunk(self) -> bool:
        """Observe some of the queue, append what is due; return whether traps are left."""
        done: list[Answer] = []
        self._ingest.run_on(self.state, self._clock.now())  # before anything is vouched for
        for _ in range(min(CHUNK, len(self._queue))):
            self._observe(self._queue.popleft(), done)
        # A heartbeat speaks for every trap received before it, so it must not overtake the queue.
        now = self._queue[0].time if self._queue else self._clock.now()
        for message in self._ingest.poll(self.state, now):
            await self._sink.append(message)
        self._report_shut()
        for answer in done:
            self._answer(answer)
        self._answer_durable()
        return bool(self._queue)

    def _observe(self, waiting: _Waiting, done: list[Answer]) -> None:
        time, source, host, trap, answer = waiting
        dropped, batch = self._ingest.observe(self.state, time, source, host, trap)
        if dropped is None:
            self._counters.accepted += 1
        else:
            self._counters.dropped[dropped] += 1
        if answer is None:
            return
        if dropped == SITE_SHUT:  # the controller goes on asking: nothing is stored
            self._informs.drop(answer)
        elif batch is None:
            done.append(answer)
        else:
            self._informs.owe(answer, batch)

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
        """Answer the informs whose batch is no longer open: all before it has been appended."""
        for answer in self._informs.due(self.state.open):
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self._informs.settle(answer)
        self._send(answer.datagram, answer.address)

    def _send(self, datagram: bytes, address: Any) -> None:
        if self._port.send(datagram, address):
            self._counters.informs_answered += 1
        else:
            self._counters.answers_unsent += 1
