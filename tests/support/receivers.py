"""A sink that records messages and a clock that a test sets, for receivers of every source."""

from __future__ import annotations

import asyncio
import time
from itertools import zip_longest

from connectors.runtime.clock import AnchoredClock, wall_clock
from connectors.sources.ingest.sighting import Message
from stream.records import SECOND, Heartbeat, Micros, ObservationBatch, Row


class Log:
    """A sink that remembers, and waits when told to."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, message: Message) -> None:
        await self.gate.wait()
        self.messages.append(message)

    @property
    def batches(self) -> list[ObservationBatch]:
        return [message for message in self.messages if isinstance(message, ObservationBatch)]

    @property
    def rows(self) -> list[Row]:
        """All rows, but for the ends of yesterday's pseudonyms: for some minutes after midnight one precedes a device's
        first row."""
        return [
            row
            for batch in self.batches
            for row, following in zip_longest(batch.rows, batch.rows[1:])
            if following is None or not _is_yesterdays(row, following)
        ]

    @property
    def beats(self) -> list[Heartbeat]:
        return [message for message in self.messages if isinstance(message, Heartbeat)]


def _is_yesterdays(row: Row, following: Row) -> bool:
    return row.access_point is None and following.access_point is not None and row.time == following.time


class Hands(AnchoredClock):
    """The clock, and what a test adds to it."""

    def __init__(self) -> None:
        super().__init__(wall_clock, lambda: time.monotonic_ns() // 1000)
        self.added: Micros = 0

    def now(self) -> Micros:
        return super().now() + self.added


class SlowLog(Log):
    """A sink for which each message takes seconds of the receiver's own clock, and none of the machine's."""

    def __init__(self, hands: Hands, each: Micros = 3 * SECOND) -> None:
        super().__init__()
        self.hands, self.each = hands, each

    async def append(self, message: Message) -> None:
        await super().append(message)
        self.hands.added += self.each
