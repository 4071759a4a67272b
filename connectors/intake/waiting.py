"""What has been heard and not yet observed: entrances put it in, the receiver takes it out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from connectors.intake.admission import QUEUE_FULL, Counters
from connectors.intake.answers import Answer
from connectors.intake.clock import AnchoredClock
from connectors.intake.sighting import Sighting
from stream.records import Micros

CHUNK = 512
PATIENCE = 0.02
"""Batching delay in seconds: how long a sighting waits for others before the worker is called."""
ROOM = 20_000
"""Sightings that may wait."""


class Arrival(NamedTuple):
    """A sighting between entrance and worker."""

    time: Micros
    """When it was received."""
    source: str
    """Its source, as the policy lists it."""
    host: str
    """The sender's numeric address, in its one form."""
    sighting: Sighting
    answer: Answer | None = None
    """What the sender waits for; None: nothing."""


class WaitingRoom:
    """A bounded queue, the clock that stamps what comes in, and the count of all that was turned away."""

    def __init__(self, clock: AnchoredClock, reasons: Iterable[str], size: int = ROOM) -> None:
        """Take the clock, every reason for which anything may be dropped, and how many sightings may wait."""
        self.clock, self.counters = clock, Counters(dropped=dict.fromkeys(reasons, 0))
        self.queue: deque[Arrival] = deque()
        self.failure: Exception | None = None
        self.refusals: dict[str, Micros] = {}
        """When each source last told that it was asked by somebody whom it refused."""
        self._size = size
        self._wake = asyncio.Event()
        self._nudge: asyncio.TimerHandle | None = None

    @property
    def free(self) -> int:
        """How many more may wait."""
        return self._size - len(self.queue)

    def take(self, arrival: Arrival) -> bool:
        """Queue a sighting; where there is no room, count it as dropped and return False."""
        if len(self.queue) >= self._size:
            self.counters.dropped[QUEUE_FULL] += 1
            return False
        self.queue.append(arrival)
        return True

    def drop(self, reason: str) -> None:
        """Count something that was heard and is not taken."""
        self.counters.dropped[reason] += 1

    def turn_back(self, waiting: int) -> None:
        """Drop what was queued behind the first ``waiting``: what had to be done for it first has failed."""
        while len(self.queue) > waiting:
            self.queue.pop()
            self.counters.dropped[QUEUE_FULL] += 1

    def fail(self, error: Exception) -> None:
        """End the receiver with an error: an entrance that is deaf must not be vouched for."""
        self.failure = error

    def call_worker(self) -> None:
        """Call the worker at once for a full chunk or a failure, else soon: it then has more to do."""
        if self.failure is not None or len(self.queue) >= CHUNK:
            self._wake.set()
        elif self.queue and self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(PATIENCE, self._wake.set)

    def wake(self) -> None:
        """Call the worker now."""
        self._wake.set()

    async def called(self, delay: float | None) -> None:
        """Wait until the worker is called, or for so many seconds."""
        alarm = None if delay is None else asyncio.get_running_loop().call_later(delay, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        for timer in (alarm, self._nudge):
            if timer is not None:
                timer.cancel()
        self._nudge = None
