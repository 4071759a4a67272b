"""Attributes of a zone's day, computed from its occupancy.

A tick belongs to the site-local date of its instant. A local day closes with the first window of the next local day. It
yields its attributes only if each of its ticks had coverage above 0; a day on which the clocks change has one hour more
or less. All attributes of a day are published together, in the order of zones and attributes, for any values.

* ``arrival``, ``departure``: local time ``HH:MM`` of the first and last occupied tick.
* ``breaks``: number of times, between these two, that the zone was empty for at least 15 min; an empty tick counts as
  one tick length of emptiness.
* ``occupancy_level``: share of occupied ticks among those with start <= local time < end of the working
  hours, rounded to 4 decimals.

For a zone that was empty all day each is None. The declaration of an attribute (``stream/policy/attributes.py``)
defines how it is counted and computed; this module maintains the state of the day.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

from stream.errors import DataError, UsageError
from stream.policy.attributes import ATTRIBUTES, COUNTING, DayFacts, OccupiedTick
from stream.records import EPOCH, DayAttribute, DayClosed, Micros, OccupancyWindow

_COUNTS = tuple(counts for kind in ATTRIBUTES.values() if (counts := kind.counts) is not None)


@dataclass(slots=True)
class ZoneDay:
    """The state of one zone's day so far."""

    first: Micros | None = field(default=None, repr=False)
    last: Micros | None = field(default=None, repr=False)
    counted: list[int] = field(default_factory=lambda: [0] * len(COUNTING), repr=False)
    """The counter of each attribute in ``COUNTING``."""


@dataclass(slots=True)
class DayState:
    """The state of the current local day."""

    local_day: str | None = None
    """Site-local date, ISO form; None before the first window."""
    start: Micros = 0
    end: Micros = 0
    """The day's instants are [start, end)."""
    seen: int = 0
    """Ticks of the day that had coverage above 0."""
    working: int = 0
    """The covered ticks in working hours."""
    last: Micros | None = None
    """The latest window; it and earlier windows change nothing when they are repeated."""
    skipped: int = 0
    """Days that yielded no record because part of them was not covered."""
    zones: list[ZoneDay] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DayAttributes:
    """The stage from a site's occupancy windows, in order, to the attributes of its zones' days."""

    site: str
    zones: tuple[tuple[str, int], ...]
    """(zone, its index in the window's counts) for each selected zone, in registry order."""
    timezone: str
    """IANA name."""
    tick_length: Micros
    working_hours: tuple[str, str] = ("08:00", "18:00")
    """Local times ``HH:MM``; the end, at most ``24:00``, is not part of them."""
    attributes: tuple[str, ...] = tuple(ATTRIBUTES)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)
    _hours: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tick_length <= 0:
            raise UsageError(f"tick must be positive, got {self.tick_length}")
        for attribute in self.attributes:
            if attribute not in ATTRIBUTES:
                raise UsageError(f"attributes: {attribute!r} is not one of {', '.join(ATTRIBUTES)}")
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError):
            raise UsageError(f"timezone must be an IANA name, got {self.timezone!r}") from None
        object.__setattr__(self, "_zone", zone)
        object.__setattr__(self, "_hours", _hours(self.working_hours))

    def initial(self) -> DayState:
        """Return the state before the first window."""
        return DayState()

    def step(self, state: DayState, item: OccupancyWindow) -> tuple[DayState, list[DayClosed]]:
        """Process the next window; the first window of a day yields the attributes of the day before."""
        if item.site != self.site:
            raise DataError("window.site: not the site of this stage")
        tick = item.window_end
        if state.last is not None and tick <= state.last:
            return state, []
        out: list[DayClosed] = []
        if state.local_day is None or tick >= state.end:
            out = self._close(state, tick)
            state = self._open(tick, state.skipped)
        state.last = tick
        if item.coverage > 0:
            self._count(state, item)
        return state, out

    def _local(self, instant: Micros) -> datetime:
        return (EPOCH + timedelta(microseconds=instant)).astimezone(self._zone)

    def _midnight(self, day: date) -> Micros:
        """Return the first instant of a local date, also if the clocks skip or repeat midnight."""
        return (datetime.combine(day, time(0), self._zone) - EPOCH) // timedelta(microseconds=1)

    def _open(self, tick: Micros, skipped: int) -> DayState:
        day = self._local(tick).date()
        start, end = self._midnight(day), self._midnight(day + timedelta(days=1))
        zones = [ZoneDay() for _ in self.zones]
        return DayState(day.isoformat(), start, end, skipped=skipped, zones=zones)

    def _count(self, state: DayState, window: OccupancyWindow) -> None:
        tick = window.window_end
        local = self._local(tick)
        working = self._hours[0] <= local.hour * 60 + local.minute < self._hours[1]
        state.seen += 1
        state.working += working
        for zone_day, (_, index) in zip(state.zones, self.zones, strict=True):
            if window.counts[index] <= 0:
                continue
            empty = 0 if zone_day.last is None else tick - zone_day.last - self.tick_length
            occupied = OccupiedTick(local, working, empty)
            for place, counts in enumerate(_COUNTS):
                zone_day.counted[place] += counts(occupied)
            zone_day.first = tick if zone_day.first is None else zone_day.first
            zone_day.last = tick

    def _close(self, state: DayState, closed: Micros) -> list[DayClosed]:
        if state.local_day is None:
            return []
        if state.seen != -(-state.end // self.tick_length) - -(-state.start // self.tick_length):
            state.skipped += 1
            return []
        records = tuple(
            DayAttribute(self.site, zone, state.local_day, name, self._value(state, zone_day, name), closed)
            for (zone, _), zone_day in zip(self.zones, state.zones, strict=True)
            for name in self.attributes
        )
        return [DayClosed(self.site, state.local_day, closed, records)]

    def _value(self, state: DayState, zone_day: ZoneDay, attribute: str) -> str | int | float | None:
        if zone_day.first is None or zone_day.last is None:
            return None
        first, last = self._local(zone_day.first), self._local(zone_day.last)
        counted = zone_day.counted[COUNTING.index(attribute)] if attribute in COUNTING else 0
        return ATTRIBUTES[attribute].value(DayFacts(first, last, counted, state.working))

    def encode(self, state: DayState) -> bytes:
        """Return the stable byte form: JSON in one fixed order."""
        zones = [[zone_day.first, zone_day.last, *zone_day.counted] for zone_day in state.zones]
        day = [state.local_day, state.start, state.end, state.seen, state.working, state.last, state.skipped]
        return orjson.dumps({"form": 1, "day": day, "zones": zones})

    def decode(self, data: bytes) -> DayState:
        """Return the state whose byte form is ``data``; ``DataError`` when it is not one."""
        try:
            plain = orjson.loads(data)
            if plain["form"] != 1:
                raise ValueError("form")
            day, start, end, seen, working, last, skipped = plain["day"]
            rows = [(first, final, counted) for first, final, *counted in plain["zones"]]
            if any(len(counted) != len(COUNTING) for _, _, counted in rows):
                raise ValueError("zones")
            zones = [ZoneDay(*row) for row in rows]
            return DayState(day, start, end, seen, working, last, skipped, zones)
        except (ValueError, TypeError, KeyError):
            raise DataError("day state: not the byte form of a state") from None


def _hours(working_hours: tuple[str, str]) -> tuple[int, int]:
    """Return the working hours as minutes of the day."""
    begin, end = (_minutes(text) for text in working_hours)
    if not begin < end <= 24 * 60:
        raise UsageError(f"working_hours must begin before they end, got {working_hours}")
    return begin, end


def _minutes(text: str) -> int:
    hour, colon, minute = text.partition(":")
    if not (colon and len(hour) == len(minute) == 2 and (hour + minute).isdecimal() and int(minute) < 60):
        raise UsageError(f"working_hours must be HH:MM, got {text!r}")
    return int(hour) * 60 + int(minute)
