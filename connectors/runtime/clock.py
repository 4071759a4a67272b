"""The connector's clock: anchored once to the wall clock, then advanced by the monotonic one."""

from __future__ import annotations

import time
from collections.abc import Callable

from stream.errors import TacetError
from stream.records import SECOND, Micros

CLOCK_STEP: Micros = 5 * SECOND


def wall_clock() -> Micros:
    """Return the system's wall-clock time, in microseconds."""
    return time.time_ns() // 1000


class ClockStepError(TacetError):
    """The wall clock was set; observations would get wrong times."""


class AnchoredClock:
    """The wall clock at the start plus the monotonic time since; both in microseconds."""

    def __init__(self, wall: Callable[[], Micros], monotonic: Callable[[], Micros]) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._offset = wall() - monotonic()

    def wall_ahead(self) -> Micros:
        """Return how far the wall clock is ahead of this one; negative if it is behind."""
        return self._wall() - self._monotonic() - self._offset

    def now(self) -> Micros:
        """Return the time; ``ClockStepError`` if the wall clock differs from it by more than 5 s."""
        now = self._monotonic() + self._offset
        if abs(self._wall() - now) > CLOCK_STEP:
            msg = (
                f"clock: must agree with the wall clock within {CLOCK_STEP // SECOND} s, but the wall clock was set; "
                "restart this process"
            )
            raise ClockStepError(msg)
        return now
