"""An entrance that follows a log which another program writes, and knows on its next start how far it was read.

What was read counts as read when what it said is durable, and not before: whoever starts again reads the rest once
more. What comes twice in this way has the time that the log gives it, so it changes nothing. The log waits where there
is no room, so nothing is dropped for that.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from connectors.intake.sighting import Sighting
from connectors.intake.waiting import Arrival, WaitingRoom
from stream.records import SECOND, Micros

AT_ONCE = 500
BREATH = 0.05
"""Seconds to wait for room."""
LONGEST_AGE: Micros = 1_000_000 * SECOND
"""Beyond it, an age is only old."""
BEHIND = 15.0
"""Seconds since everything there is was last read: after that, nothing is vouched for."""


class Piece(NamedTuple):
    """A line, or a message, of one part of a log; shown without what it says."""

    part: Hashable
    end: int
    """Where its part goes on behind it."""
    content: bytes | None
    """None: one that was too long."""
    at: Micros | None = None
    """When it was written, where the log says so."""

    def __repr__(self) -> str:
        """Show where it is and nothing else."""
        return f"Piece({self.part}, {self.end})"


class FollowedLog(Protocol):
    """What is followed."""

    @property
    def name(self) -> str:
        """What it is called, for operators."""

    async def open(self) -> None:
        """Begin where it was left, or at its end; ``OSError`` or ``TacetError`` where that is impossible."""

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return what comes next, waiting a moment for it, and whether that was all there is."""

    async def keep(self, reached: Mapping[Hashable, int]) -> bool:
        """Make durable how far each part was read; False where that is to be tried again."""

    async def close(self) -> None:
        """Let it go; harmless on one that was never open."""


class Told(NamedTuple):
    """What a piece says."""

    source: str
    host: str
    sighting: Sighting
    at: Micros | None = None
    """When it happened, as the log says; None: now."""


class Mark:
    """The answer that one piece waits for."""

    __slots__ = ("done", "end", "part")

    def __init__(self, part: Part, end: int) -> None:
        self.part, self.end, self.done = part, end, False

    def give(self) -> None:
        """What it said is durable, or there was nothing to store."""
        self.done = True
        self.part.settle()

    def withhold(self) -> None:
        """It will not be stored: nothing from here on counts as read, so that it is read again."""
        self.part.broken = True


class Part:
    """How far one part was read, and how far that is durable."""

    def __init__(self) -> None:
        self.reached: int | None = None
        """Before this everything is durable; None: nothing has been read."""
        self.broken = False
        self._under_way: deque[Mark] = deque()

    def begin(self, end: int) -> Mark:
        """Note that a piece was read which ends there."""
        mark = Mark(self, end)
        if not self.broken:
            self._under_way.append(mark)
        return mark

    def settle(self) -> None:
        """Go on behind all that are done at the beginning."""
        while self._under_way and self._under_way[0].done and not self.broken:
            self.reached = self._under_way.popleft().end


class FollowedEntrance(ABC):
    """One log; ``hear`` is what a protocol adds."""

    reasons: ClassVar[tuple[str, ...]]
    everyday: ClassVar[frozenset[str]]
    kernel_drops = 0
    receive_buffer = 0

    def __init__(self, log: FollowedLog) -> None:
        """Take what is followed."""
        self._log = log
        self._parts: dict[Hashable, Part] = {}
        self._kept: dict[Hashable, int] = {}
        self._following: asyncio.Task[None] | None = None
        self._all_read = -BEHIND

    @abstractmethod
    def hear(self, now: Micros, content: bytes | None) -> Told | str:
        """Return what a piece says that is read ``now``, or why it is not taken; None: it was too long. Never waits."""

    @property
    def address(self) -> tuple[str, int]:
        """What is followed; it has no port."""
        return self._log.name, 0

    @property
    def hearing(self) -> bool:
        """Whether all that was there was read lately."""
        return time.monotonic() - self._all_read < BEHIND

    async def open(self, room: WaitingRoom) -> None:
        """Begin where the log was left."""
        self.room = room
        await self._log.open()
        self._following = asyncio.create_task(self._follow())

    async def finish(self) -> None:
        """Read no more: what is left is read on the next start."""
        self.stop()

    def stop(self) -> None:
        """Read no more."""
        if self._following is not None:
            self._following.cancel()

    async def close(self) -> None:
        """Keep how far it was read, and let it go."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
            self._following = None
            await self._keep()
        await self._log.close()

    async def _follow(self) -> None:
        try:
            while True:
                pieces, whole = await self._log.read(AT_ONCE)
                for piece in pieces:
                    while not self.room.free:
                        self.room.call_worker()
                        await asyncio.sleep(BREATH)
                    self._take(piece)
                if whole:
                    self._all_read = time.monotonic()
                self.room.call_worker()
                await self._keep()
        except Exception as error:  # else nobody would look at the log again
            self.room.fail(error)
            self.room.call_worker()

    def _take(self, piece: Piece) -> None:
        self.room.counters.datagrams += 1
        mark = self._parts.setdefault(piece.part, Part()).begin(piece.end)
        now = self.room.clock.now()
        told = self.hear(now, piece.content)
        if isinstance(told, str):
            self.room.drop(told)
            mark.give()
            return
        at = piece.at if told.at is None else told.at
        age = 0 if at is None else max(-LONGEST_AGE, min(now - at, LONGEST_AGE))
        self.room.take(Arrival(now, told.source, told.host, told.sighting._replace(age=age), mark))

    async def _keep(self) -> None:
        reached = {part: held.reached for part, held in self._parts.items() if held.reached is not None}
        news = {part: end for part, end in reached.items() if self._kept.get(part) != end}
        if news and await self._log.keep(news):
            self._kept |= news
