"""What a utility is measured on: a stretch of a site's windows that is released as it would be, and what came before.

Mechanisms begin with the first window of the stretch; utility is measured on its last whole local days, in the hours
that are asked for. What is usual at a time of day follows from the windows before those that are measured.
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
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.counts import Naming
from stream.mechanisms.noise import Ints
from stream.policy.mechanisms import LARGEST_STATE
from stream.policy.privacy_day import privacy_days
from stream.records import DAY, EPOCH, Micros

Bools = NDArray[np.bool_]
Period = Literal["all", "day", "night"]
DAY_BEGINS, DAY_ENDS = 7 * 60, 19 * 60
"""Local minutes between which it is ``day`` (Ghayyur, thesis, 4.6.2: 7am-7pm, and 7pm-7am for the night)."""


class Site(NamedTuple):
    """What has to be known of a site."""

    name: str
    timezone: str
    zones: tuple[str, ...]
    max_counts: tuple[int, ...]
    """Largest count of each zone that a filter considers."""
    tick: Micros
    day_starts: str = MIDNIGHT
    """Of the days by which a filter learns."""


@dataclass(frozen=True, eq=False)
class World:
    """A site's recorded windows; restricted."""

    site: Site
    times: Ints
    """Ends of the windows, strictly ascending microseconds, shape [T]."""
    counts: Ints
    """What is released, shape [T, zones]: all that is counted, or that to which a device adds for part of its day."""
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
        """Return the world of at most so many days before the windows that are released; None where there are none."""
        first = max(0, self.begins - days * DAY // self.site.tick)
        if first == self.begins:
            return None
        held = slice(0, self.begins)
        times, counts, days_of, minutes = (each[held] for each in (self.times, self.counts, self.days, self.minutes))
        return World(self.site, times, counts, days_of, minutes, first, first)

    def measures(self, period: Period) -> Bools:
        """Return for each window that is released whether it is measured."""
        asked = within(period, self.minutes)
        asked[: self.measured] = False
        return asked[self.released]

    def naming(self, day_key: Callable[[int], bytes], run: int) -> Naming:
        """Return whose counts are released, in one of many runs under keys of its own."""
        site = self.site
        slot = partial(slot_of, timezone=site.timezone, day_starts=site.day_starts)
        return Naming(site.name, f"tune/{run}", site.zones, day_key, slot, site.tick)


def world_of(site: Site, times: Ints, counts: Ints, measured: int, before: int = 0) -> World:
    """Return the world of a recording's windows.

    Args:
        site: whose they are.
        times: ends of windows, strictly ascending.
        counts: of each, shape [T, zones].
        measured: how many of the last whole local days are measured, at least 1.
        before: how many whole days before these are released too.

    Raises:
        UsageError: a number of days out of range, or shapes that do not fit.
        DataError: the recording does not end with so many whole days.
    """
    if measured < 1 or before < 0:
        raise UsageError(f"days must be at least 1 to be measured, and 0 before them, got {measured} and {before}")
    if counts.shape != (len(times), len(site.zones)) or (np.diff(times) <= 0).any():
        raise UsageError("counts must have an entry for each time and zone, and times must ascend")
    at = privacy_days(MIDNIGHT, site.timezone).at
    held = [at(int(time)) for time in times]
    whole = _whole_days(times, [(day.number, day.start, day.end) for day in held], site.tick)
    if len(whole) < measured + before:
        rule = f"recording must end with at least {measured + before} whole days of windows"
        raise DataError(f"{rule}, got {len(whole)}")
    last = whole[-1][1]
    return World(
        site, times[:last], counts[:last], np.array([day.number for day in held[:last]], dtype=np.int64),
        np.array([_minute(int(time), site.timezone) for time in times[:last]], dtype=np.int64),
        begins=whole[-(measured + before)][0], measured=whole[-measured][0],
    )  # fmt: skip


def within(period: Period, minutes: Ints) -> Bools:
    """Return which times of day belong to a period; a window does that ends in it or with it."""
    by_day = (minutes > DAY_BEGINS) & (minutes <= DAY_ENDS)
    if period == "all":
        return np.ones(len(minutes), dtype=np.bool_)
    return by_day if period == "day" else ~by_day


def _whole_days(times: Ints, days: Sequence[tuple[int, Micros, Micros]], tick: Micros) -> list[tuple[int, int]]:
    """Return the windows, from and to, of the last run of days of which every window is there."""
    whole: list[tuple[int, int]] = []
    for (_, start, end), held in groupby(range(len(times)), key=lambda window: days[window]):
        places = list(held)
        if len(places) * tick == end - start:
            if whole and times[whole[-1][1] - 1] != start:
                whole = []
            whole.append((places[0], places[-1] + 1))
    return whole


def _minute(instant: Micros, timezone: str) -> int:
    local = (EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(timezone))
    return 60 * local.hour + local.minute
