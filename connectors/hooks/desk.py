"""What becomes of a genuine request: known as a copy, or handed over, and only then kept in mind and called taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from connectors.handover.frames import Dated
from connectors.hooks.judging import Verdict
from connectors.hooks.replays import Replays
from stream.errors import TacetError
from stream.records import Micros

REPLAYED, UNAVAILABLE = "replayed", "ingest_away"


class Taker(Protocol):
    """Where sightings go."""

    async def hand_over(self, source: str, rows: Sequence[Dated]) -> bool:
        """Hand rows over; return whether all that is to be kept of them is durable."""


@dataclass(slots=True)
class Counts:
    """What became of each request or event, and of the rows of those that were taken."""

    requests: int = 0
    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    """Handed over."""
    dropped: Counter[str] = field(default_factory=Counter)

    def check(self) -> bool:
        """Whether every request is accounted for exactly once."""
        return self.requests == self.taken + self.refused.total()


class Desk:
    """Takes each request once."""

    def __init__(self, taker: Taker, replays: Replays, now: Callable[[], Micros]) -> None:
        """Take where sightings go, what was taken lately, and the clock."""
        self._taker, self._replays, self._now = taker, replays, now
        self._under_way: set[bytes] = set()
        self._broken = asyncio.Event()
        self._failure: TacetError | None = None
        self.counts = Counts()

    async def failed(self) -> NoReturn:
        """Wait until what was taken cannot be kept in mind any more, and raise why: copies could not be known."""
        await self._broken.wait()
        raise self._failure or TacetError("hooks: must be able to keep in mind what was taken")

    def refuse(self, reason: str) -> None:
        """Count a request that is not genuine."""
        self.counts.requests += 1
        self.counts.refused[reason] += 1

    async def take(self, source: str, verdicts: Iterable[Verdict]) -> bool:
        """Hand over what genuine requests say; return whether their sender may forget them.

        A copy of what was taken is counted and may be forgotten; a copy of what is under way may not, yet.
        """
        done, fresh = True, list[Verdict]()
        for verdict in verdicts:
            self.counts.requests += 1
            if self._replays.knows(verdict.tag) or verdict.tag in self._under_way:
                self.counts.refused[REPLAYED] += 1
                done &= verdict.tag not in self._under_way
            else:
                self._under_way.add(verdict.tag)
                fresh.append(verdict)
        try:
            return await self._hand_over(source, fresh) and done
        finally:
            self._under_way.difference_update(verdict.tag for verdict in fresh)

    async def _hand_over(self, source: str, fresh: Sequence[Verdict]) -> bool:
        rows = [row for verdict in fresh for row in verdict.rows]
        if rows and not await self._taker.hand_over(source, rows):
            self.counts.refused[UNAVAILABLE] += len(fresh)
            return False
        if fresh:
            self._keep([verdict.tag for verdict in fresh])
        self.counts.taken += len(fresh)
        self.counts.rows += len(rows)
        for verdict in fresh:
            self.counts.dropped.update(verdict.dropped)
        return True

    def _keep(self, tags: Sequence[bytes]) -> None:
        try:
            self._replays.keep(tags, self._now())
        except TacetError as error:
            self._failure = error
            self._broken.set()
            raise
