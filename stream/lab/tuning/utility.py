"""The utility of a run's released values, and its variation over time and space.

    heatmap    1 - |Δcolour| / 9, averaged over time and zones (Ghayyur, thesis, 4.6.2)
    building   1 - mean |error| / mean count of the building as one zone, by day, averaged over days; below 0 where
               errors are larger than counts
    tasks      score of a detective's answers (``stream/lab/tuning/detective.py``)

Utilities compare released with true values, so they are restricted.

A ``World`` is a part of a site's windows that is released as in operation, with the windows before it. Mechanisms start
with the first window of this part. Utility is measured on its last whole local days, in the hours of the period. The
usual counts at a time of day follow from the windows before the measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from stream.errors import DataError, UsageError
from stream.lab.evaluation import usual_in, utilities
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.heatmap import Usual
from stream.mechanisms.registry import ReleaseContext
from stream.policy.mechanisms import LARGEST_STATE
from stream.policy.privacy_days import privacy_days
from stream.records import DAY, EPOCH, Micros

# Worlds.

Bools = NDArray[np.bool_]
Period = Literal["all", "day", "night"]
DAY_BEGINS, DAY_ENDS = 7 * 60, 19 * 60
"""Local minutes between which it is ``day`` (Ghayyur, thesis, 4.6.2: 7am-7pm, and 7pm-7am for the night)."""


class Site(NamedTuple):
    """The parameters of a site."""

    name: str
    timezone: str
    zones: tuple[str, ...]
    max_counts: tuple[int, ...]
    """Largest count of each zone that a filter considers."""
    tick: Micros
    day_starts: str = MIDNIGHT
    """Start of the days from which a filter learns."""


@dataclass(frozen=True, eq=False)
class World:
    """A site's recorded windows; restricted."""

    site: Site
    times: Ints
    """Ends of the windows, strictly ascending microseconds, shape [T]."""
    counts: Ints
    """The counts to release, shape [T, zones]: complete, or with each device for only part of its day."""
    days: Ints
    """Local day in which each window begins, a number each, shape [T]."""
    minutes: Ints
    """Local time of day at which each window ends, in minutes, shape [T]."""
    begins: int
    """First window that is released."""
    measured: int
    """First window of which utility is measured, ``begins`` or later."""

    @property
    def released(self) -> slice:
        """The windows that are released."""
        return slice(self.begins, None)

    def as_one(self) -> World:
        """Return the world in which the building is counted, as one zone."""
        site = self.site._replace(zones=("building",), max_counts=(min(sum(self.site.max_counts), LARGEST_STATE),))
        return replace(self, site=site, counts=self.counts.sum(axis=1, keepdims=True))

    def before(self, days: int) -> World | None:
        """Return the world of at most ``days`` days before the released windows; None where there are none."""
        first = max(0, self.begins - days * DAY // self.site.tick)
        if first == self.begins:
            return None
        earlier = slice(0, self.begins)
        times, counts, days_of, minutes = (each[earlier] for each in (self.times, self.counts, self.days, self.minutes))
        return World(self.site, times, counts, days_of, minutes, first, first)

    def measures(self, period: Period) -> Bools:
        """Return for each released window whether it is measured."""
        chosen = within(period, self.minutes)
        chosen[: self.measured] = False
        return chosen[self.released]

    def naming(self, day_key: Callable[[int], bytes], run: int) -> ReleaseContext:
        """Return the labels and keys of one of many runs; each run has its own keys."""
        site = self.site
        slot = partial(slot_of, timezone=site.timezone, day_starts=site.day_starts)
        return ReleaseContext(site.name, f"tune/{run}", site.zones, day_key, slot, site.tick)


def world_of(site: Site, times: Ints, counts: Ints, measured: int, before: int = 0) -> World:
    """Return the world of a recording's windows.

    Args:
        site: of the windows.
        times: ends of windows, strictly ascending.
        counts: of each, shape [T, zones].
        measured: number of the last whole local days that are measured, at least 1.
        before: number of whole days before these that are also released.

    Raises:
        UsageError: a number of days out of range, or shapes that do not fit.
        DataError: the recording does not end with that many whole days.
    """
    if measured < 1 or before < 0:
        raise UsageError(f"days must be at least 1 to be measured, and 0 before them, got {measured} and {before}")
    if counts.shape != (len(times), len(site.zones)) or (np.diff(times) <= 0).any():
        raise UsageError("counts must have an entry for each time and zone, and times must ascend")
    at = privacy_days(MIDNIGHT, site.timezone).at
    day_of = [at(int(time)) for time in times]
    whole = _whole_days(times, [(day.number, day.start, day.end) for day in day_of], site.tick)
    if len(whole) < measured + before:
        rule = f"recording must end with at least {measured + before} whole days of windows"
        raise DataError(f"{rule}, got {len(whole)}")
    last = whole[-1][1]
    return World(
        site, times[:last], counts[:last], np.array([day.number for day in day_of[:last]], dtype=np.int64),
        np.array([_minute(int(time), site.timezone) for time in times[:last]], dtype=np.int64),
        begins=whole[-(measured + before)][0], measured=whole[-measured][0],
    )  # fmt: skip


def within(period: Period, minutes: Ints) -> Bools:
    """Return which times of day belong to a period; a window belongs to it if it ends in it or with it."""
    by_day = (minutes > DAY_BEGINS) & (minutes <= DAY_ENDS)
    if period == "all":
        return np.ones(len(minutes), dtype=np.bool_)
    return by_day if period == "day" else ~by_day


def _whole_days(times: Ints, days: Sequence[tuple[int, Micros, Micros]], tick: Micros) -> list[tuple[int, int]]:
    """Return the windows, from and to, of the last consecutive days of which every window exists."""
    whole: list[tuple[int, int]] = []
    for (_, start, end), windows in groupby(range(len(times)), key=lambda window: days[window]):
        places = list(windows)
        if len(places) * tick == end - start:
            if whole and times[whole[-1][1] - 1] != start:
                whole = []
            whole.append((places[0], places[-1] + 1))
    return whole


def _minute(instant: Micros, timezone: str) -> int:
    local = (EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(timezone))
    return 60 * local.hour + local.minute


class Released(NamedTuple):
    """A run's released values of a world's windows, in order."""

    zones: Ints
    """Shape [windows, zones]."""
    half_widths: Ints
    """95 % half-widths of ``zones``, of the same shape; 0 without noise."""


class Measured(NamedTuple):
    """The utility of a run."""

    utility: float
    """At most 1."""
    spread: float
    """Standard deviation of the averaged values over all times and places."""
    over_time: float
    """Standard deviation over times of the mean over places."""
    over_space: float
    """Standard deviation over places of the mean over times; 0 where there is one place."""


Utility = Callable[[Released], Measured]


def measured(cells: Floats) -> Measured:
    """Return the mean of utilities, shape [times, places], and how they vary."""
    return Measured(
        float(cells.mean()), float(cells.std()), float(cells.mean(axis=1).std()), float(cells.mean(axis=0).std())
    )


def heatmap_utility(world: World, selected: Bools) -> Utility:
    """Return the utility of a heat map, coloured by the usual counts in the windows before the measured ones.

    Args:
        world: with the released windows.
        selected: which of its released windows are measured.

    Raises:
        DataError: no window is measured, or some time of day occurs less than twice before.
    """
    _check_selected(selected)
    usual = _usual(world)
    places = world.minutes[world.released][selected]
    by = Usual(*(np.stack([getattr(usual[minute], name) for minute in places.tolist()]) for name in Usual._fields))
    truth = world.counts[world.released][selected]

    def utility(released: Released) -> Measured:
        return measured(utilities(truth, released.zones[selected], by))

    return utility


def _usual(world: World) -> dict[int, Usual]:
    """Return the usual counts at each time of day that is measured."""
    past, minutes = world.counts[: world.measured], world.minutes[: world.measured]
    found = {}
    for minute in np.unique(world.minutes[world.measured :]).tolist():
        seen = past[minutes == minute]
        if len(seen) < 2:
            raise DataError("recording must contain at least two days before the measured ones, for the usual counts")
        found[minute] = usual_in(seen)
    return found


def building_utility(world: World, selected: Bools) -> Utility:
    """Return the utility of the building's count: 1 - mean |error| / mean count of each day, averaged over days.

    Args:
        world: of one zone that is the building (``World.as_one``).
        selected: which of its released windows are measured.

    Raises:
        DataError: no window is measured, or there is a day without any count in them.
    """
    _check_selected(selected)
    truth = world.counts[world.released][selected].sum(axis=1)
    days = world.days[world.released][selected]
    numbers = np.unique(days)
    mean = {day: float(truth[days == day].mean()) for day in numbers.tolist()}
    if min(mean.values()) == 0:
        raise DataError("recording must have a count above 0 on each measured day")
    scale = np.array([mean[day] for day in days.tolist()])

    def utility(released: Released) -> Measured:
        cells = 1 - np.abs(released.zones[selected].sum(axis=1) - truth) / scale
        by_day = float(np.mean([cells[days == day].mean() for day in numbers]))
        return measured(cells[:, None])._replace(utility=by_day)

    return utility


def _check_selected(selected: Bools) -> None:
    if not selected.any():
        raise DataError("recording must contain a window to be measured, in the hours of the period")
