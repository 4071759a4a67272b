"""What released values say about a month, with a stated probability.

A statement that selects an extreme ("the busiest day", "never above half", "full for ten hours") reads many noisy
values at once, so a band of 95 % for each of them is not enough. Here all statements of a month hold **together** with
probability ``SURE``. It follows from the law of the noise alone, whatever the true counts are:

    symbol   meaning
    c, v     true and noisy count of a window: v = c + Z, Z of a law that the record states
    m        number of values that a family of statements reads
    q        probability of error that the family may have
    d        least whole number with Pr[|Z| > d] <= q / m

By the union bound |v - c| <= d for all m values at once with probability 1 - q at least. A mean of n windows has the
noise (Z_1 + … + Z_n) / n; its d is that of the sum, divided by n. Four families share 1 - ``SURE``: windows of rooms,
means of days, means of hours of the week, and the change against the month before.

Values whose noise has no known law (``sample``, ``ba``, estimates of people) yield no statement, only a drawing.
A room of which each device counts for a part of the day only is never said to be below anything.
"""

from __future__ import annotations

import calendar
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from connectors.records.bands import NoiseDistribution
from connectors.records.decoding import PLAIN, Cell, Window, decoded
from connectors.storage.site_metadata import SiteMetadata
from stream.local_time import span_of_day
from stream.mechanisms.noise_parameters import tail
from stream.records import DAY, EPOCH, HOUR, JsonObject, Micros
from stream.schemas import parse_time

SURE = 0.95
"""The probability with which all statements of a month hold together."""
ROOMS, DAYS, HOURS, CHANGE = 0.02, 0.01, 0.01, 0.01
"""Shares of the probability of error; they add up to 1 - ``SURE``."""
FULL = 0.9
"""Share of a capacity from which a room counts as full."""
ENOUGH = 0.9
"""Share of a day's windows, or of a month's, that must have been released for a statement about its mean."""
BUILDING = "building"
WEEK_HOURS = 7 * 24
FIRST_YEAR, LAST_YEAR = 1970, 2254
_LARGEST = 1 << 40
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Month(NamedTuple):
    """A calendar month."""

    year: int
    month: int

    @staticmethod
    def parse(text: str) -> Month:
        """Read ``YYYY-MM``; ValueError if it is none, or not from 1970 to 2254 as the times of records are."""
        first = date.fromisoformat(f"{text}-01")
        if not FIRST_YEAR <= first.year <= LAST_YEAR:
            msg = f"must be a month from {FIRST_YEAR} to {LAST_YEAR}"
            raise ValueError(msg)
        return Month(first.year, first.month)

    def __str__(self) -> str:
        """Return ``YYYY-MM``."""
        return f"{self.year:04}-{self.month:02}"

    @property
    def days(self) -> list[date]:
        """Its days."""
        return [date(self.year, self.month, day) for day in range(1, calendar.monthrange(*self)[1] + 1)]

    @property
    def before(self) -> Month:
        """The month before."""
        last = date(self.year, self.month, 1) - timedelta(days=1)
        return Month(last.year, last.month)

    def span(self, timezone: ZoneInfo) -> tuple[Micros, Micros]:
        """Return its first instant, and the first after it."""
        days = self.days
        return span_of_day(days[0].isoformat(), timezone)[0], span_of_day(days[-1].isoformat(), timezone)[1]


class Band(NamedTuple):
    """A mean of released values, and between which ends the true mean is."""

    mean: float
    low: float
    high: float

    @staticmethod
    def around(mean: float, distance: float) -> Band:
        """Return a band that ends at 0 at the lowest, as counts do."""
        return Band(mean, max(0.0, mean - distance), max(0.0, mean + distance))


@lru_cache(maxsize=4096)
def distance(law: NoiseDistribution, windows: int, miss: float) -> int:
    """Return the least d with Pr[|Z_1 + … + Z_n| > d] <= ``miss``, Z_i the noise of a window, n ``windows``."""
    parameter, draws = law.parameter, law.draws * windows
    low, high = -1, 1
    while 2 * tail(parameter, draws, high + 1) > miss:
        low, high = high, 2 * high
        if high > _LARGEST:
            return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if 2 * tail(parameter, draws, middle + 1) > miss else (low, middle)
    return high


@dataclass(slots=True)
class Values:
    """The released values of one node, window by window."""

    release: str
    start: array[int] = field(default_factory=lambda: array("q"))
    value: array[int] = field(default_factory=lambda: array("q"))
    noisy: array[int] = field(default_factory=lambda: array("q"))
    law: list[NoiseDistribution | None] = field(default_factory=list)
    bounded: bool = False
    """Whether some window counts each device for a part of the day only."""
    _latest: Micros = -1
    """The largest start; a later window is new without a search."""

    @property
    def known(self) -> bool:
        """Whether the noise of every window has a known law."""
        return bool(self.law) and None not in self.law

    def put(self, start: Micros, cell: Cell) -> None:
        """Add a window, or put another attempt of it in its place."""
        if start <= self._latest and start in self.start:
            at = self.start.index(start)
            self.value[at], self.noisy[at], self.law[at] = cell.value, cell.noisy, cell.noise
            return
        self._latest = max(start, self._latest)
        self.start.append(start)
        self.value.append(cell.value)
        self.noisy.append(cell.noisy)
        self.law.append(cell.noise)


class MonthReader:
    """Collects the records of a site's counts in a month, and of its building in the month before.

    Of several releases with a node the one counts that has a known law, is not bounded, has the least noise, in this
    order. Attempts of one window: the last one. Windows that some source did not cover are left out.
    """

    def __init__(self, site: SiteMetadata, month: Month) -> None:
        """Prepare for a month of a site, given by its metadata (``read_metadata``)."""
        self.site, self.month, self.timezone = site, month, ZoneInfo(site["timezone"])
        self._floors = {zone["zone"]: zone["floor"] for zone in site["zones"]}
        self._spans = month.span(self.timezone), month.before.span(self.timezone)
        self._found: tuple[dict[tuple[str, str], Values], ...] = ({}, {})
        self._ranks: dict[tuple[str, Micros], int] = {}
        self._laws: dict[NoiseDistribution, NoiseDistribution] = {}

    def add(self, body: JsonObject) -> None:
        """Add a parsed record; anything but first counts of this site and these months is passed over.

        DataError if it is not a private record.
        """
        if body["site"] != self.site["site"] or "attribute" in body or "revises" in body:
            return
        if body.get("half_width_95") is None or body.get("counted") == "people" or "/" in body["mechanism"]:
            return  # denied windows, threshold streams, people, queries and heat maps
        start = parse_time(body["window_start"])
        for span, found in zip(self._spans, self._found, strict=True):
            if span[0] <= start < span[1] and body["coverage"] == 1:
                self._put(found, body, only_building=found is self._found[1])

    def _put(self, found: dict[tuple[str, str], Values], body: JsonObject, *, only_building: bool) -> None:
        window = decoded(body)
        assert isinstance(window, Window)  # noqa: S101
        release, rank = window.series.release, window.series.rank
        if rank < self._ranks.setdefault((release, window.start), rank):
            return
        self._ranks[release, window.start] = rank
        for cell in self._with_laws(body, window.cells):
            if cell.node == BUILDING or not only_building:
                of = found.setdefault((cell.node, release), Values(release))
                of.put(window.start, cell)
                of.bounded |= window.bounded is not None

    def _with_laws(self, body: JsonObject, cells: Sequence[Cell]) -> Iterator[Cell]:
        """Yield the cells; plain sums of zones get the law of as many noises as they have zones."""
        sums = body["mechanism"] in PLAIN and "levels_noise_scale" not in body
        zones = [cell for cell in cells if cell.node.startswith("zone:")]
        for cell in cells:
            law = cell.noise
            if sums and law is None:
                parts = [zone for zone in zones if self._within(zone.node, cell.node)]
                laws = {zone.noise for zone in parts}
                one = laws.pop() if len(laws) == 1 else None
                if one is not None and sum(zone.value for zone in parts) == cell.value:
                    law = one._replace(draws=len(parts))
            yield cell if law is None else cell._replace(noise=self._laws.setdefault(law, law))

    def _within(self, zone: str, node: str) -> bool:
        return node == BUILDING or node == f"floor:{self._floors.get(zone.partition(':')[2])}"

    def values(self, *, before: bool = False) -> dict[str, Values]:
        """Return the values of each node: of the month, or of the one before."""
        chosen: dict[str, Values] = {}
        for (node, _), of in sorted(self._found[before].items(), key=lambda item: _rank(item[1])):
            chosen.setdefault(node, of)
        return chosen


def _rank(values: Values) -> tuple[bool, bool, float, str]:
    law = values.law[-1] if values.known else None
    spread = 0.0 if law is None else law.parameter.deviation * law.draws**0.5
    return not values.known, values.bounded, spread, values.release


def band_of(values: Values, at: Sequence[int], miss: float) -> Band | None:
    """Return the mean of some windows with the band that it has but for a probability ``miss``; None if no law is
    known."""
    if not values.known:
        return None
    laws = Counter(values.law[place] for place in at)
    total = sum(distance(law, n, miss / len(laws)) for law, n in laws.items() if law is not None)
    return Band.around(sum(values.noisy[place] for place in at) / len(at), total / len(at))


class Room(NamedTuple):
    """What may be said about a room: ends that hold for all rooms and windows of the month together."""

    zone: str
    capacity: int
    most: int | None
    """The count that was never exceeded; None if nothing of the kind may be said."""
    full_at_least: float
    """Hours in which it was full, at least."""
    full_at_most: float | None
    windows: int


def rooms(values: Mapping[str, Values], capacities: Mapping[str, int], tick: Micros) -> list[Room]:
    """Return the rooms with a capacity whose noise has a known law.

    Args:
        values: by node.
        capacities: by zone.
        tick: the length of a window.
    """
    read = {
        zone: of for zone in capacities if (of := values.get(f"zone:{zone}")) is not None and of.known
    }  # fmt: skip
    number = sum(len(of.start) for of in read.values())
    return [_room(zone, capacities[zone], of, ROOMS / number, tick) for zone, of in read.items()]


def _room(zone: str, capacity: int, of: Values, miss: float, tick: Micros) -> Room:
    away = {law: distance(law, 1, miss) for law in set(of.law) if law is not None}
    noisy = np.array(of.noisy, np.int64)
    ends = np.array([away[law] for law in of.law if law is not None], np.int64)
    line, hours = FULL * capacity, tick / HOUR
    surely, perhaps = noisy - ends >= line, noisy + ends >= line
    return Room(
        zone, capacity, None if of.bounded else max(0, int((noisy + ends).max())), int(surely.sum()) * hours,
        None if of.bounded else int(perhaps.sum()) * hours, len(noisy),
    )  # fmt: skip


class LocalTimes:
    """Local days and hours of windows."""

    def __init__(self, timezone: ZoneInfo, start: Sequence[Micros]) -> None:
        times = [(EPOCH + timedelta(microseconds=at)).astimezone(timezone) for at in start]
        self.days = [time.date() for time in times]
        self.hours = [24 * time.weekday() + time.hour for time in times]


def _places(keys: Sequence[Any]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return found


def days(values: Values, month: Month, timezone: ZoneInfo, tick: Micros) -> dict[date, Band | None]:
    """Return the mean of each day, None for a day of which too few windows were released; all bands hold together."""
    at = _places(LocalTimes(timezone, values.start).days)
    listed = month.days
    return {
        day: band_of(values, at[day], DAYS / len(listed)) if len(at.get(day, ())) * tick >= ENOUGH * DAY else None
        for day in listed
    }


def week(values: Values, timezone: ZoneInfo) -> list[Band | None]:
    """Return the mean of each hour of the week, Monday 0 h first; all bands hold together."""
    at = _places(LocalTimes(timezone, values.start).hours)
    return [band_of(values, at[hour], HOURS / WEEK_HOURS) if hour in at else None for hour in range(WEEK_HOURS)]


def drawn_means(values: Values, keys: Sequence[Any]) -> dict[Any, float]:
    """Return plain means of values by key, for a drawing without a statement."""
    shown = values.noisy if values.known else values.value
    return {key: float(np.mean([shown[place] for place in at])) for key, at in _places(keys).items()}


def extreme(bands: Mapping[Any, Band], *, highest: bool) -> list[Any]:
    """Return the keys of which one is the extreme, the most likely first: those whose bands do not exclude it."""
    if not bands:
        return []
    if highest:
        line = max(band.low for band in bands.values())
        found = [key for key, band in bands.items() if band.high >= line]
    else:
        line = min(band.high for band in bands.values())
        found = [key for key, band in bands.items() if band.low <= line]
    return sorted(found, key=lambda key: -bands[key].mean if highest else bands[key].mean)


class Change(NamedTuple):
    """The mean of workdays, of this month and the one before, and their difference."""

    now: float
    before: float
    low: float
    """Lower end of the difference; may be negative."""
    high: float


def change(
    now: Values, before: Values | None, months: tuple[Month, Month], timezone: ZoneInfo, tick: Micros
) -> Change | None:  # fmt: skip
    """Return the change of the mean of workdays; None if one of the months has too few windows or no known law."""
    parts: list[tuple[float, float]] = []
    for values, month in zip((now, before), months, strict=True):
        if values is None or not values.known:
            return None
        at = [place for place, day in enumerate(LocalTimes(timezone, values.start).days) if day.weekday() < 5]
        if len(at) * tick < ENOUGH * DAY * sum(day.weekday() < 5 for day in month.days):
            return None
        laws = Counter(values.law[place] for place in at)
        away = sum(distance(law, n, CHANGE / 2 / len(laws)) for law, n in laws.items() if law is not None)
        parts.append((sum(values.noisy[place] for place in at) / len(at), away / len(at)))
    (mean, away_now), (old, away_before) = parts
    return Change(mean, old, mean - old - away_now - away_before, mean - old + away_now + away_before)
