"""A detective's four tasks on a recording (Ghayyur, thesis, 3.2.1), and scores.

On every measured day: in how many windows a room exceeds its capacity; which region is the most occupied at night.
Two events are planted into the counts, as in the study: sensors that break on the last measured day, and people
who come at the same time each day to places where they do not come otherwise. The score of a run is the mean over
questions.

Rooms are the busiest ones of the measured days: the first five for capacity, the next three with sensors that break,
the three after them with visitors, and five regions of the night that are adjacent in rank. A building with
fewer zones has fewer questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stream.errors import DataError
from stream.lab.evaluation import (
    FULL,
    WORTHLESS,
    by_occupancy,
    event_start,
    places_off,
    score,
    stuck_from,
    windows_above,
)
from stream.lab.tuning.utility import Measured, Released, World, measured
from stream.mechanisms.exact import Ints
from stream.records import HOUR, MINUTE

FULL_ROOMS, BROKEN, VISITED, REGIONS = 5, 3, 3, 5
LIMIT, NEARLY = 60, 70
"""Capacity of a room; for a room that never comes near it, three fifths of its largest count are used instead."""
COMING, STAYING, COME_WITHIN = 40, 80 * MINUTE, 30 * MINUTE
"""People of an event, how long they stay, and the time before and after it over which counts are compared."""
NIGHT_BEGINS, NIGHT_ENDS = 18 * 60, 6 * 60


class _Planted(NamedTuple):
    """Something planted: a place, and the window of a day at which it begins."""

    zone: int
    window: int


@dataclass(frozen=True, eq=False)
class Detective:
    """The questions of a world, and the scoring of released values."""

    world: World
    """The world with the planted events."""
    full: tuple[int, ...]
    """Rooms that may be too full."""
    regions: tuple[int, ...]
    broken: tuple[_Planted, ...]
    events: tuple[_Planted, ...]
    days: tuple[Ints, ...]
    """Indices of each measured day's windows among the released ones, for days of equal length."""

    def utility(self, released: Released) -> Measured:
        """Return the mean score of the released values' answers, as a share of all points, and how scores vary."""
        scores = [score(off, WORTHLESS[task]).points / FULL for task, off in self.offs(released)]
        return measured(np.array([scores], dtype=np.float64))

    def offs(self, released: Released) -> Iterator[tuple[str, int]]:
        """Yield each question's task, and the error of its answer."""
        truth = self.world.counts[self.world.released]
        for day in self.days:
            for room in self.full:
                limit = _limit(truth[day, room])
                found = windows_above(released.zones[day, room], limit)
                yield "above", abs(found - windows_above(truth[day, room], limit))
            yield "region", self._region_off(truth[day], released.zones[day], self.world.minutes[self._places(day)])
        last = self.days[-1]
        for zone, window in self.broken:
            values = released.zones[last, zone]
            answer = stuck_from(values, at_most=2 * int(released.half_widths[last[-1], zone]))
            true = stuck_from(truth[last, zone])
            yield "stuck", abs((len(last) - 1 if answer is None else answer) - (window if true is None else true))
        for zone, window in self.events:
            start = event_start(np.stack([released.zones[day, zone] for day in self.days]), self._span())
            yield "event", abs(start - window)

    def _region_off(self, truth: Ints, values: Ints, minutes: Ints) -> int:
        """Return the number of regions that are more occupied in a day's night hours than the answered one."""
        night = (minutes > NIGHT_BEGINS) | (minutes <= NIGHT_ENDS)
        order, answered = (
            by_occupancy({f"{zone:04}": counts[night, zone] for zone in self.regions}) for counts in (truth, values)
        )
        return places_off(order, answered[0])

    def _places(self, day: Ints) -> Ints:
        return day + self.world.begins

    def _span(self) -> int:
        return max(1, COME_WITHIN // self.world.site.tick)


def detective(world: World) -> tuple[Detective, Callable[[Ints], Ints]]:
    """Return a world's questions with their planted events, and a function that plants these into other counts.

    Raises:
        DataError: the building has no zone for a question, or no measured day has 24 hours.
    """
    days = tuple(_whole_days(world))
    busiest = _busiest(world, days)
    first, second = FULL_ROOMS, FULL_ROOMS + BROKEN
    ticks = len(days[-1])
    broken = tuple(_Planted(zone, ticks * (10 * 12 + 5 * n) // 288) for n, zone in enumerate(busiest[first:second]))
    visited = busiest[second : second + VISITED]
    events = tuple(_Planted(zone, ticks * (9 * 12 + 31 * n) // 288) for n, zone in enumerate(visited))

    def plant(counts: Ints) -> Ints:
        made = counts.copy()
        for zone, window in broken:
            made[days[-1][window:], zone] = 0
        for zone, window in events:
            staying = max(1, STAYING // world.site.tick)
            for day in days:
                made[day[window : window + staying], zone] += COMING
        return made

    counts = world.counts.copy()
    counts[world.released] = plant(counts[world.released])
    planted = replace(world, counts=counts)
    return Detective(planted, busiest[:first], _regions(world, days), broken, events, days), plant


def _whole_days(world: World) -> Iterator[Ints]:
    """Yield the windows of each measured day of 24 hours, among those that are released."""
    ticks = 24 * HOUR // world.site.tick
    days = world.days[world.measured :]
    found = [np.flatnonzero(days == day) + world.measured - world.begins for day in np.unique(days)]
    whole = [each for each in found if len(each) == ticks]
    if not whole:
        raise DataError("recording must contain a measured day of 24 hours")
    yield from whole


def _busiest(world: World, days: tuple[Ints, ...]) -> tuple[int, ...]:
    """Return the zones with any count on the measured days, the busiest first."""
    totals = world.counts[world.released][np.concatenate(days)].sum(axis=0)
    order = tuple(int(zone) for zone in np.argsort(-totals, kind="stable") if totals[zone] > 0)
    if not order:
        raise DataError("recording must have a count above 0 on the measured days")
    return order


def _regions(world: World, days: tuple[Ints, ...]) -> tuple[int, ...]:
    """Return the busiest regions of the nights."""
    places = np.concatenate(days)
    minutes = world.minutes[world.released][places]
    night = (minutes > NIGHT_BEGINS) | (minutes <= NIGHT_ENDS)
    totals = world.counts[world.released][places][night].sum(axis=0)
    return tuple(int(zone) for zone in np.argsort(-totals, kind="stable")[:REGIONS])


def _limit(truth: Ints) -> int:
    """Return the capacity of a room on a day."""
    largest = int(truth.max())
    return LIMIT if largest > NEARLY else largest * 3 // 5
