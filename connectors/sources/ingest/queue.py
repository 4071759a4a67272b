"""The queue between listeners and the receiver, its counts, and acknowledgements that wait for durability.

Listeners enqueue sightings, the receiver dequeues them. A screen comes before the queue's limit: a sighting that must
not be counted takes no place, and one of a device that opted out is counted nowhere. No acknowledgement is sent before
its message is durable. A repeated request is answered but not stored twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import OPTED_OUT
from connectors.sources.ingest.sighting import OBSERVATIONS, Sighting
from connectors.sources.ingest.state import BatchKey
from stream.pseudonyms.derivation import is_locally_administered
from stream.records import SECOND, Micros

MEMORY: Micros = 60 * SECOND
LIMIT = 65_536
"""Number of requests that are remembered; beyond it the oldest is forgotten, and its copy would count as new."""
ANSWER_OCTETS = 64 * 1024 * 1024
"""Octets of buffered replies for requests that are not durable yet; at most one datagram more."""

RequestKey = tuple[Any, ...]
"""The identity of a request: its sender and its content."""


class Acknowledgement(Protocol):
    """An acknowledgement that one sender waits for; exactly one of the two methods is called, once."""

    def acknowledge(self) -> None:
        """Send it: the message is durable, or there was nothing to store."""

    def withhold(self) -> None:
        """Drop it: the message is not stored and will not be, and the sender repeats it."""


class PendingAcknowledgements:
    """Acknowledgements that wait for their batch."""

    def __init__(self) -> None:
        self._by_batch: dict[BatchKey, list[Acknowledgement]] = {}

    def add(self, acknowledgement: Acknowledgement, batch: BatchKey) -> None:
        """Buffer an acknowledgement until the batch with its message is no longer open."""
        self._by_batch.setdefault(batch, []).append(acknowledgement)

    def due(self, still_open: Container[BatchKey]) -> Iterator[Acknowledgement]:
        """Remove and yield the acknowledgements of all batches that are no longer open."""
        for batch in [batch for batch in self._by_batch if batch not in still_open]:
            yield from self._by_batch.pop(batch)


class Reply:
    """One datagram to send when its request is durable; it may repeat the sender's content, so its repr is empty."""

    __slots__ = ("address", "datagram", "key", "requests")

    def __init__(self, requests: Requests, key: RequestKey, address: Any, datagram: bytes) -> None:
        self.requests, self.key, self.address, self.datagram = requests, key, address, datagram

    def __repr__(self) -> str:
        """Show nothing."""
        return "Reply()"

    def acknowledge(self) -> None:
        """Send it and forget it."""
        self.requests.complete(self)

    def withhold(self) -> None:
        """Forget it."""
        self.requests.drop(self)


class Requests:
    """The recent requests at one listener, whether they are durable, and their buffered replies."""

    def __init__(self, send: Callable[[bytes, Any], None], memory: Micros = MEMORY, limit: int = LIMIT) -> None:
        """Set the function that sends a datagram, how long a request is remembered, and how many are."""
        self._send, self._memory, self._limit = send, memory, limit
        self._seen: OrderedDict[RequestKey, tuple[Micros, bool]] = OrderedDict()
        self._buffered = 0

    def earlier_is_durable(self, key: RequestKey, now: Micros) -> bool | None:
        """Return None for a new request, else whether the first of its kind is durable."""
        while self._seen and next(iter(self._seen.values()))[0] < now - self._memory:
            self._seen.popitem(last=False)
        seen = self._seen.get(key)
        return None if seen is None else seen[1]

    @property
    def full(self) -> bool:
        """Whether no further reply may be buffered."""
        return self._buffered > ANSWER_OCTETS

    def remember(self, reply: Reply, now: Micros) -> None:
        """Record an accepted request and buffer its reply."""
        self._buffered += len(reply.datagram)
        self._seen[reply.key] = (now, False)
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def complete(self, reply: Reply) -> None:
        """Record that a request is durable, and send its reply."""
        self.drop(reply)
        seen = self._seen.get(reply.key)
        if seen is not None:
            self._seen[reply.key] = (seen[0], True)
        self._send(reply.datagram, reply.address)

    def drop(self, reply: Reply) -> None:
        """Forget a reply."""
        self._buffered -= len(reply.datagram)


GLOBAL, LOCAL = "global", "local"
"""Administration of a device's address: by its maker, or by the device itself."""
QUEUE_FULL, STOPPING = "queue_full", "stopping"


@dataclass(slots=True)
class Counters:
    """The results of all datagrams that were read from the socket; labels come from a fixed set."""

    datagrams: int = 0
    accepted: int = 0
    """Processed by the ingest: kept sightings, keep-alives, restarts."""
    waiting: int = 0
    """In the queue."""
    dropped: dict[str, int] = field(default_factory=dict)
    """All reasons are present from the start."""
    sightings: dict[str, int] = field(default_factory=lambda: {GLOBAL: 0, LOCAL: 0})
    """Messages about devices, by who administers the address; whether or not they are dropped afterwards."""
    kernel_drops: int = 0
    """Datagrams that the kernel dropped for lack of space; not part of ``datagrams``."""
    informs_answered: int = 0
    requests_answered: int = 0
    """Of RADIUS."""
    answers_unsent: int = 0
    receive_buffer: int = 0
    """The socket's buffer in octets, as the kernel granted it."""

    def check(self) -> bool:
        """Return whether every datagram is counted exactly once."""
        return self.datagrams == self.accepted + self.waiting + sum(self.dropped.values())


CHUNK = 512
PATIENCE = 0.02
"""Batching delay in seconds: how long a sighting waits for others before the worker is called."""
ROOM = 20_000
"""Maximum number of queued sightings."""


class QueuedSighting(NamedTuple):
    """A sighting between listener and worker."""

    time: Micros
    """Receive time."""
    source: str
    """Its source, as listed in the policy."""
    host: str
    """The sender's numeric address in canonical form."""
    sighting: Sighting
    acknowledgement: Acknowledgement | None = None
    """The acknowledgement that the sender waits for; None: none."""


Screen = Callable[[QueuedSighting], str | None]
"""Returns why a sighting must be left out, ``OPTED_OUT`` or a reason for drops; None: it may be queued."""


class IngestQueue:
    """A bounded queue, the clock for receive times, and the counts of all dropped messages."""

    def __init__(
        self, clock: AnchoredClock, reasons: Iterable[str], size: int = ROOM, screen: Screen | None = None
    ) -> None:
        """Set the clock, all reasons for drops, the maximum number of sightings, and which of them must not wait."""
        self._screen = screen
        self.settled: list[Acknowledgement] = []
        """Of sightings that were left out: there is nothing to store. The worker sends them."""
        self.clock, self.counters = clock, Counters(dropped=dict.fromkeys(reasons, 0))
        self.sightings: deque[QueuedSighting] = deque()
        self.failure: Exception | None = None
        self.refusals: dict[str, Micros] = {}
        """When each source last reported a query that it refused."""
        self._size = size
        self._wake = asyncio.Event()
        self._nudge: asyncio.TimerHandle | None = None

    @property
    def free(self) -> int:
        """Number of free places."""
        return self._size - len(self.sightings)

    def put(self, sighting: QueuedSighting) -> bool:
        """Enqueue a sighting, or leave it out; without a free place, count it as dropped and return False."""
        left_out = None if self._screen is None else self._screen(sighting)
        if left_out == OPTED_OUT:
            self.counters.datagrams -= 1
        elif sighting.sighting.kind in OBSERVATIONS:
            local = is_locally_administered(sighting.sighting.client)
            self.counters.sightings[LOCAL if local else GLOBAL] += 1
        if left_out is not None:
            if left_out != OPTED_OUT:
                self.drop(left_out)
            if sighting.acknowledgement is not None:
                self.settled.append(sighting.acknowledgement)
            return True
        if len(self.sightings) >= self._size:
            self.counters.dropped[QUEUE_FULL] += 1
            return False
        self.sightings.append(sighting)
        return True

    def drop(self, reason: str) -> None:
        """Count a message that was received and is not accepted."""
        self.counters.dropped[reason] += 1

    def drop_after(self, count: int) -> None:
        """Drop all queued sightings after the first ``count``: a step that must precede them has failed."""
        self.settled.clear()
        while len(self.sightings) > count:
            self.sightings.pop()
            self.counters.dropped[QUEUE_FULL] += 1

    def fail(self, error: Exception) -> None:
        """End the receiver with an error: heartbeats must not confirm coverage of a listener that fails."""
        self.failure = error

    def call_worker(self) -> None:
        """Call the worker at once for a full chunk or a failure, otherwise after the batching delay."""
        if self.failure is not None or len(self.sightings) >= CHUNK:
            self._wake.set()
        elif (self.sightings or self.settled) and self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(PATIENCE, self._wake.set)

    def wake(self) -> None:
        """Call the worker now."""
        self._wake.set()

    async def called(self, delay: float | None) -> None:
        """Wait until the worker is called, or until the delay (in seconds) is over."""
        alarm = None if delay is None else asyncio.get_running_loop().call_later(delay, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        for timer in (alarm, self._nudge):
            if timer is not None:
                timer.cancel()
        self._nudge = None
