"""What receivers of every source are tried with: a sink that remembers, and a clock that a test moves on."""

from __future__ import annotations

import asyncio
import time

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
        return [row for batch in self.batches for row in batch.rows]

    @property
    def beats(self) -> list[Heartbeat]:
        return [message for message in self.messages if isinstance(message, Heartbeat)]


class Hands(AnchoredClock):
    """The clock, and what a test adds to it."""

    def __init__(self) -> None:
        super().__init__(wall_clock, lambda: time.monotonic_ns() // 1000)
        self.added: Micros = 0

    def now(self) -> Micros:
        return super().now() + self.added


class SlowLog(Log):
    """A sink for which each message takes three seconds of the receiver's own clock, and none of the machine's."""

    def __init__(self, hands: Hands) -> None:
        super().__init__()
        self.hands = hands

    async def append(self, message: Message) -> None:
        await super().append(message)
        self.hands.added += 3 * SECOND
