"""The shape of a zone's day, in which attributes are whole numbers: what can be in it at once.

symbol   here    meaning
T        ticks   ticks of a day
W        work    ticks of the working hours, from ``begins`` to ``ends``
e        empty   empty ticks that make a break
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.records import DAY, MINUTE


class Span(NamedTuple):
    """Whole numbers from ``low`` to ``high``; empty where ``high`` is less."""

    low: int
    high: int


@dataclass(frozen=True)
class DayShape:
    """A day of whole ticks, counted from 0 at local midnight."""

    ticks: int
    begins: int
    ends: int
    empty: int

    @property
    def work(self) -> int:
        """Ticks of the working hours."""
        return self.ends - self.begins

    @property
    def most_breaks(self) -> int:
        """As many breaks as fit between the first and the last tick."""
        return (self.ticks - 1) // (self.empty + 1)

    def local_time(self, tick: int) -> str:
        """Return a tick's local time, ``HH:MM``."""
        minutes = tick * DAY // self.ticks // MINUTE
        return f"{minutes // 60:02d}:{minutes % 60:02d}"

    def levels_with(self, breaks: int) -> Span:
        """Return how many working ticks are occupied in days with so many breaks."""
        return _span(self._together[:, breaks])

    def breaks_with(self, occupied: int) -> Span:
        """Return how many breaks days have that are occupied in so many working ticks."""
        return _span(self._together[occupied])

    @cached_property
    def _together(self) -> NDArray[np.bool_]:
        """Which pairs of (occupied working ticks, breaks) some day has, found tick by tick.

        ``held[g]`` are the pairs of days occupied before, whose last ``g`` ticks were empty (``empty`` stands
        for that many or more).
        """
        shape = (self.work + 1, self.most_breaks + 2)
        held = np.zeros((self.empty + 1, *shape), dtype=np.bool_)
        begun = np.zeros(shape, dtype=np.bool_)
        begun[0, 0] = True
        for tick in range(self.ticks):
            occupied = begun | held[: self.empty].any(axis=0)
            occupied[:, 1:] |= held[self.empty, :, :-1]
            if self.begins <= tick < self.ends:
                occupied = np.vstack([np.zeros((1, shape[1]), dtype=np.bool_), occupied[:-1]])
            idle = np.concatenate([occupied[None], held[:-1]])
            idle[self.empty] |= held[self.empty]
            held = idle
        return np.asarray(held.any(axis=0))


def _span(reached: NDArray[np.bool_]) -> Span:
    places = np.flatnonzero(reached)
    return Span(int(places[0]), int(places[-1])) if len(places) else Span(0, -1)
