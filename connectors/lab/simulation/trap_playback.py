"""A simulated controller that sends a day's traps no faster than a receiver accepts them.

It counts how many traps were accepted, not how long that took, so that nothing is lost on a slow machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from connectors.lab.simulation.traps import TrapSchedule
from connectors.sources.ingest.receiver import Receiver
from stream.records import SECOND

MOST_IN_FLIGHT = 128
"""The maximal number of traps in flight; the smallest receive buffer in use has space for twice as many."""
MOST_QUEUED = 10_000
"""The number of traps in the receiver's queue at which the controller waits: half of the queue's capacity."""
POLL_SECONDS = 0.005
STALL_SECONDS = 300.0
"""Seconds without progress after which the receiver is considered stalled."""


class TrapPlayback:
    """A simulated controller that sends a day's traps, and waits until the receiver has accepted all of them."""

    def __init__(
        self, traps: TrapSchedule, listening: Receiver, speed: float, tick: Callable[[], object],
        patience: float = STALL_SECONDS,
    ) -> None:  # fmt: skip
        """Store traps, destination, speed, and the callback that runs while it waits."""
        self._traps, self._listening, self._speed = traps, listening, speed
        self._tick, self._timeout = tick, patience
        self.sent = 0

    async def run(self) -> None:
        """Send each trap when it is due and the receiver has space for it; return when all have been accepted.

        A real controller would not wait. Here a day takes seconds, and a busy machine must not lose part of it. If
        nothing progresses for ``patience`` seconds, the rest is skipped; the summary then lists what is missing.
        """
        started_at, start = asyncio.get_running_loop().time(), self._traps.simulation.start
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as controller:
            for trap in self._traps:
                due = started_at + (trap.time - start) / SECOND / self._speed
                if not await self._wait(lambda due=due: self._is_due(due) and self._has_room()):  # type: ignore[misc]
                    return
                controller.sendto(trap.data, self._listening.address)
                self.sent += 1
        await self._wait(self._is_done)

    async def _wait(self, ready: Callable[[], bool]) -> bool:
        """Wait until a condition holds; False if nothing has progressed for too long."""
        if ready():
            return True
        loop = asyncio.get_running_loop()
        moved, before = loop.time(), self._progress()
        while not ready():
            await asyncio.sleep(POLL_SECONDS)
            self._tick()
            now = self._progress()
            if now != before:
                moved, before = loop.time(), now
            elif loop.time() - moved > self._timeout:
                return False
        return True

    def _progress(self) -> tuple[int, int, int]:
        """Return the counters that progress while a receiver accepts traps."""
        counters = self._listening.counters
        return counters.datagrams, counters.waiting, self._listening.appended

    @staticmethod
    def _is_due(due: float) -> bool:
        return asyncio.get_running_loop().time() >= due - POLL_SECONDS

    def _has_room(self) -> bool:
        """Whether few traps are in flight to the receiver and few are in its queue."""
        counters = self._listening.counters
        return (
            self.sent - counters.datagrams - counters.kernel_drops < MOST_IN_FLIGHT and counters.waiting < MOST_QUEUED
        )

    def _is_done(self) -> bool:
        counters = self._listening.counters
        return self.sent <= counters.datagrams + counters.kernel_drops and self._listening.idle
