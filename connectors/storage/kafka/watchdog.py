"""Ends a worker whose partitions do not open.

The consumer group still counts such a worker as alive, so no other worker gets the partitions: if it only waited,
nothing would ever be released. Time in which the process did not run, because it was paused, does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from stream.errors import TacetError

log = logging.getLogger(__name__)

LONGEST_STEP = 1.0
"""Seconds; a longer time between two checks counts as time in which the process did not run."""


class StalledError(TacetError):
    """A worker does not do the work that the group has assigned to it, for an unknown reason."""


class Watchdog:
    """Measures for how long assigned partitions have not been open."""

    def __init__(self, limit: float, notice: float, clock: Callable[[], float]) -> None:
        """Create a watchdog.

        Args:
            limit: seconds after which the worker ends.
            notice: seconds after which an opening counts as long and is logged.
            clock: a monotonic clock, in seconds.
        """
        self._limit, self._notice, self._clock = limit, notice, clock
        self._last_check = clock()
        self._waited: dict[int, float] = {}
        self._reported = False

    def check(self, unopened: Collection[int]) -> None:
        """Record the partitions that are assigned and not open now; to be called several times a second.

        Raises:
            StalledError: one of them has not been open for longer than the limit.
        """
        now = self._clock()
        step, self._last_check = min(now - self._last_check, LONGEST_STEP), now
        self._waited = {number: self._waited[number] + step if number in self._waited else 0.0 for number in unopened}
        late = self._longer_than(self._notice)
        if late and not self._reported:
            log.warning("%s assigned and %s not opened for %g s", _were(late), _have(late), self._notice)
        self._reported = bool(late)
        overdue = self._longer_than(self._limit)
        if overdue:
            raise StalledError(f"{_were(overdue)} assigned and {_have(overdue)} not opened within {self._limit:g} s")

    def late(self, unopened: Collection[int]) -> StalledError | None:
        """Return the error for a worker that is stopped now; None if no opening takes long.

        ``unopened`` are the partitions that are assigned and not open now: one may have opened since the last check.
        """
        late = [number for number in self._longer_than(self._notice) if number in unopened]
        if not late:
            return None
        longest = max(self._waited[number] for number in late)
        return StalledError(f"stopped while {_were(late)} assigned and had not opened for {longest:.0f} s")

    def _longer_than(self, seconds: float) -> list[int]:
        return sorted(number for number, waited in self._waited.items() if waited >= seconds)


def _were(numbers: Collection[int]) -> str:
    named = ", ".join(map(str, numbers))
    return f"partitions {named} were" if len(numbers) > 1 else f"partition {named} was"


def _have(numbers: Collection[int]) -> str:
    return "have" if len(numbers) > 1 else "has"
