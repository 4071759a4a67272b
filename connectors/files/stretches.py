"""When a recording has rows, and which stretch of it is believed where nobody says when it ends."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stream.records import DAY, Micros

LEAP: Micros = 7 * DAY
"""Longest gap in a recording that is believed without being asked for."""


class Stretches:
    """The UTC days on which a recording has rows."""

    def __init__(self) -> None:
        self._days: dict[int, _Day] = {}

    def add(self, time: Micros) -> None:
        """Count one more row."""
        day = self._days.get(time // DAY)
        if day is None:
            self._days[time // DAY] = _Day(time, time, 1)
        else:
            day.add(time)

    def add_all(self, times: npt.NDArray[np.int64]) -> None:
        """Count many more rows."""
        days = times // DAY
        for day in np.unique(days).tolist():
            of_day = times[days == day]
            found = _Day(int(of_day.min()), int(of_day.max()), len(of_day))
            held = self._days.get(day)
            if held is not None:
                found = _Day(min(held.first, found.first), max(held.last, found.last), held.rows + found.rows)
            self._days[day] = found

    def span(self, since: Micros | None, until: Micros | None) -> tuple[Micros, Micros] | None:
        """Return when the range begins, and the last time that a row of it may have; None where nothing says.

        Args:
            since: the begin that was asked for; otherwise it is the first row's time.
            until: the end that was asked for; otherwise it is that of the longest stretch.
        """
        days = [self._days[day] for day in sorted(self._days)]
        stretch = _longest_stretch(days) if until is None else (days[0].first, until) if days else None
        if since is None:
            return stretch
        last = until if stretch is None else stretch[1]
        return None if last is None else (since, max(since, last))


class _Day:
    """The rows of a UTC day."""

    __slots__ = ("first", "last", "rows")

    def __init__(self, first: Micros, last: Micros, rows: int) -> None:
        self.first, self.last, self.rows = first, last, rows

    def add(self, time: Micros) -> None:
        """Count one more row."""
        self.rows += 1
        if time < self.first:
            self.first = time
        elif time > self.last:
            self.last = time


def _longest_stretch(days: Iterable[_Day]) -> tuple[Micros, Micros] | None:
    """Return first and last time of the most rows between gaps of more than ``LEAP``; of equal ones the earliest."""
    stretches: list[_Day] = []
    for day in days:
        if stretches and day.first - stretches[-1].last <= LEAP:
            held = stretches[-1]
            stretches[-1] = _Day(held.first, day.last, held.rows + day.rows)
        else:
            stretches.append(day)
    longest = max(stretches, key=lambda stretch: stretch.rows, default=None)
    return None if longest is None else (longest.first, longest.last)
