"""Figures that depend on people: sums over enough access points and minutes, stepping on the clock's grid alone.

A counter that moved when a datagram came would tell when somebody walked by. So what was counted is held back until
a point of the grid, and told only where the sites that were counted all the time since have enough access points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from connectors.monitoring.catalogue import APART, TOGETHER
from connectors.monitoring.figures import Figures
from stream.records import SECOND, Micros

Series = tuple[str, ...]
"""Name of a counter and its labels."""
SLACK: Micros = 1 * SECOND
"""By so much a busy loop may come late to a point of the grid; later than that, the point is passed over."""


class Part(NamedTuple):
    """What has been counted of some access points, since whenever."""

    access_points: int
    counts: Mapping[Series, int]


Parts = Mapping[str, Part]
"""By site, or whatever is counted together."""


class Traffic:
    """Counters of a process, and what was last told of them."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._read: list[Callable[[], Parts]] = []
        self._told: list[dict[str, Part]] = []
        self._since: Micros | None = None
        self._point: Micros | None = None

    def count(self, read: Callable[[], Parts]) -> None:
        """Tell from now on what ``read`` counts; what it has counted so far is not told."""
        self._read.append(read)
        self._told.append(dict(read()))
        self._since = None  # from here on it takes as long again
        for part in self._told[-1].values():
            for series in part.counts:
                self._figures.add(series[0], 0, *series[1:])

    def look(self, now: Micros, monotonic: Micros) -> None:
        """Step if a point of the grid has just been passed; to be called at least once a second.

        ``now`` is the wall clock's time, whose grid it is; ``monotonic`` that of one which nobody sets.
        """
        point = now // APART * APART
        if self._since is None or self._point is None:
            self._since, self._point = monotonic, point
            return
        passed, self._point = point != self._point, point
        if passed and now - point <= SLACK and monotonic - self._since >= APART - SLACK:
            self._since = monotonic
            for number, read in enumerate(self._read):
                self._step(number, dict(read()))

    def _step(self, number: int, parts: dict[str, Part]) -> None:
        """Tell what was counted since the last step by the parts that were there all the time."""
        told = self._told[number]
        whole = {name: part for name, part in parts.items() if name in told and _goes_on(told[name], part)}
        if sum(part.access_points for part in whole.values()) >= TOGETHER:
            for name, part in whole.items():
                for series, value in part.counts.items():
                    self._figures.add(series[0], value - told[name].counts.get(series, 0), *series[1:])
            self._told[number] = parts
        else:  # what has just begun, or begun anew, is counted from here
            self._told[number] = {name: told[name] if name in whole else part for name, part in parts.items()}


def _goes_on(before: Part, after: Part) -> bool:
    """Whether a part is the one that was told of: its counts have not fallen, as they do when it is restored."""
    return all(after.counts.get(series, 0) >= value for series, value in before.counts.items())
