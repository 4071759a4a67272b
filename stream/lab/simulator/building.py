"""The simulated building and its calendar.

The building has zones with one access point each, their kinds, sizes and popularity. It depends on its number and size
only, never on the seed of a run: one policy file serves all seeds.

The calendar has the day factors, hours of a day, class slots, and local time in UTC. The factors are those of the
university calendar of February to April 2018, in which the published building trace was recorded; a date outside it
follows its weekday alone. The hour weights and slots are chosen to fit that trace's totals; they are not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
from numpy.random import Generator, default_rng  # noqa: TID251  (a simulation, not noise: it draws from a seed)
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.records import SECOND, Micros

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Draws: TypeAlias = Generator
"""A seeded source of draws, passed on by the holder of the seed."""

FULL_ZONES = 64
MOST_ZONES = 4095
MOST_BUILDINGS = 256
FLOORS = 6
OFFICE_SHARE = 12 / 64
POPULARITY_ALPHA = 0.9
"""Dirichlet parameter: a few access points carry much of the traffic."""
PEAK_PRESENT = 1_100
"""Devices truly present at a busy hour at full scale; sizes the rooms."""
ACCESS_POINT_OUI = 0x5C521E
BUILDING_KEY: Final = 20_180_212

CLASSROOM, OPEN, CORRIDOR, OFFICE = "classroom", "open", "corridor", "office"
CLASSROOM_SHARE, OPEN_SHARE = 0.5, 0.27


def draws(*key: int) -> Draws:
    """Return the generator of one part of a simulation; different keys give independent streams."""
    return default_rng(key)


@dataclass(frozen=True, slots=True, eq=False)
class Building:
    """Zones in registry order; the access point of zone i is access point i."""

    zones: tuple[str, ...]
    floors: tuple[str, ...]
    kinds: tuple[str, ...]
    """``classroom``, ``open``, ``corridor`` or ``office``."""
    capacities: tuple[int, ...]
    """People; 1 in an office."""
    access_points: tuple[str, ...]
    """Base radio addresses; their last four bits are 0, as of real radios."""
    popularity: Floats
    """Share of the public traffic, sums to 1; 0 in offices."""

    def of_kind(self, *kinds: str) -> Ints:
        """Return the indices of the zones of these kinds, ascending."""
        return np.array([index for index, kind in enumerate(self.kinds) if kind in kinds], dtype=np.int64)


def building(zones: int, number: int = 0) -> Building:
    """Return building ``number`` (0 to 255) with ``zones`` zones (1 to 4095).

    Buildings of different numbers share no access point. 12 of 64 zones are single-occupant offices; of the
    others the more popular half are classrooms, then come open areas, then corridors.

    Raises:
        UsageError: a number out of range.
    """
    _check(zones, number)
    offices = _offices(zones)
    public = np.setdiff1d(np.arange(zones), offices)
    popularity = np.zeros(zones)
    popularity[public] = draws(BUILDING_KEY, number, zones).dirichlet(np.full(len(public), POPULARITY_ALPHA))
    kinds = _kinds(popularity, public)
    return Building(
        zones=tuple(f"{_floor(i, zones)}{_place(i, zones):03d}" for i in range(zones)),
        floors=tuple(str(_floor(i, zones)) for i in range(zones)),
        kinds=kinds,
        capacities=tuple(_capacity(kind, popularity[i], zones) for i, kind in enumerate(kinds)),
        access_points=tuple(mac_text(ACCESS_POINT_OUI << 24 | number << 16 | i << 4) for i in range(zones)),
        popularity=popularity,
    )


def mac_text(address: int) -> str:
    """Return a 48-bit address as six lower-case octets with colons."""
    return address.to_bytes(6).hex(":")


def unknown_access_point(number: int, index: int) -> str:
    """Return the address of an access point that no simulated building has (same vendor, last bits not 0)."""
    return mac_text(ACCESS_POINT_OUI << 24 | number << 16 | (index % 4096) << 4 | 0xF)


def _check(zones: int, number: int) -> None:
    if not 1 <= zones <= MOST_ZONES:
        raise UsageError(f"zones: must be 1 to {MOST_ZONES}, not {zones}")
    if not 0 <= number < MOST_BUILDINGS:
        raise UsageError(f"building: must be 0 to {MOST_BUILDINGS - 1}, not {number}")


def _offices(zones: int) -> Ints:
    """Spread the offices evenly over the upper two thirds, so that the ground floors are public."""
    count = round(zones * OFFICE_SHARE)
    first = zones // 3
    return np.unique(np.linspace(first, zones - 1, count).astype(np.int64)) if count else np.array([], np.int64)


def _kinds(popularity: Floats, public: Ints) -> tuple[str, ...]:
    kinds = [OFFICE] * len(popularity)
    ranked = public[np.argsort(-popularity[public], kind="stable")]
    for rank, zone in enumerate(ranked):
        share = rank / len(ranked)
        kinds[zone] = (
            CLASSROOM if share < CLASSROOM_SHARE else OPEN if share < CLASSROOM_SHARE + OPEN_SHARE else CORRIDOR
        )
    return tuple(kinds)


def _capacity(kind: str, share: float, zones: int) -> int:
    if kind == OFFICE:
        return 1
    expected = share * PEAK_PRESENT * zones / FULL_ZONES
    return max(10, 10 * round(expected * 1.5 / 10))


def _floor(zone: int, zones: int) -> int:
    return 1 + zone * min(FLOORS, zones) // zones


def _place(zone: int, zones: int) -> int:
    """Number a zone within its floor, from 1."""
    floor, levels = _floor(zone, zones), min(FLOORS, zones)
    first = -(-(floor - 1) * zones // levels)
    return zone - first + 1


# The calendar.

FULL_START = date(2018, 2, 1)
"""First day of the full-scale run; a teaching Thursday, so it also serves for a day alone."""
FULL_DAYS = 89

HOLIDAYS = frozenset({date(2018, 2, 19), date(2018, 3, 30)})
FINALS = (date(2018, 3, 17), date(2018, 3, 23))
BREAK = (date(2018, 3, 24), date(2018, 4, 1))
WEEKDAY_FACTOR = (1.0, 1.0, 1.0, 1.0, 0.72, 0.16, 0.20)
HOLIDAY_FACTOR, FINALS_FACTOR, BREAK_FACTOR = 0.2, 0.8, 0.35

HOUR_WEIGHTS = (
    *(0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 1.2),
    *(3.5, 6.5, 8.0, 8.3, 7.8, 8.6, 8.8, 8.2),
    *(7.4, 6.2, 4.6, 3.4, 2.6, 1.9, 1.2, 0.6),
)
"""Relative number of arrivals in each local hour, 0 to 23."""

LONG_SLOTS = tuple(int(hour * 3600) for hour in (8, 9.5, 11, 12.5, 14, 15.5, 17))
SHORT_SLOTS = tuple(hour * 3600 for hour in range(8, 18))
LONG_CLASS, SHORT_CLASS = 80 * 60, 50 * 60


def day_factor(day: date) -> float:
    """Return f(day): occupancy relative to a teaching Monday, 0 to 1."""
    if day in HOLIDAYS:
        return HOLIDAY_FACTOR
    factor = WEEKDAY_FACTOR[day.weekday()]
    if FINALS[0] <= day <= FINALS[1]:
        return factor * FINALS_FACTOR
    return factor * BREAK_FACTOR if BREAK[0] <= day <= BREAK[1] else factor


def is_teaching(day: date) -> bool:
    """Return whether classes are held: on a weekday outside holidays, finals and the break."""
    return day.weekday() < 5 and day not in HOLIDAYS and not FINALS[0] <= day <= BREAK[1]


def class_slots(weekday: int) -> tuple[tuple[int, ...], int]:
    """Return the slots' starts (seconds after local midnight) and their length in seconds.

    Tuesday and Thursday have seven classes of 80 minutes, the other days ten of 50.
    """
    return (LONG_SLOTS, LONG_CLASS) if weekday in (1, 3) else (SHORT_SLOTS, SHORT_CLASS)


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """The days of a run: their factors, weekdays, and local hours in UTC."""

    dates: tuple[date, ...]
    factor: Floats
    """f(day), one per day."""
    teaching: NDArray[np.bool_]
    weekday: Ints
    """0 is Monday."""
    hour_starts: Ints
    """(days, 24): UTC microseconds at which each local hour begins."""
    start: Micros
    """Local midnight that opens the first day."""
    end: Micros
    """Local midnight that closes the last day."""

    def utc(self, day: Ints, seconds: Floats) -> Ints:
        """Return the UTC microseconds of local wall-clock ``seconds`` after midnight of each ``day`` index.

        Seconds past 24 h run on into the next day; on a day with a clock change they follow the wall clock.
        """
        hour = np.clip(seconds // 3600, 0, 23).astype(np.int64)
        into = np.round((seconds - hour * 3600.0) * SECOND).astype(np.int64)
        return self.hour_starts[day, hour] + into


def calendar(first: date, days: int, timezone: ZoneInfo) -> Calendar:
    """Return the calendar of ``days`` local days from ``first``."""
    dates = tuple(first + timedelta(days=index) for index in range(days))
    hours = [[_micros(day, hour, timezone) for hour in range(24)] for day in dates]
    return Calendar(
        dates=dates,
        factor=np.array([day_factor(day) for day in dates]),
        teaching=np.array([is_teaching(day) for day in dates]),
        weekday=np.array([day.weekday() for day in dates], dtype=np.int64),
        hour_starts=np.array(hours, dtype=np.int64),
        start=hours[0][0],
        end=_micros(first + timedelta(days=days), 0, timezone),
    )


def full_factor() -> float:
    """Return the sum of f(day) over the full-scale run."""
    return sum(day_factor(FULL_START + timedelta(days=index)) for index in range(FULL_DAYS))


def _micros(day: date, hour: int, timezone: ZoneInfo) -> Micros:
    moment = datetime(day.year, day.month, day.day, hour, tzinfo=timezone)
    return int(moment.timestamp()) * SECOND
