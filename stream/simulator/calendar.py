"""When people come: the academic calendar, the hours of a day, the class slots, and local time in UTC.

The factors are those of the university calendar of February to April 2018, in which the published building
trace was recorded; a date outside it follows its weekday alone. The hour weights and slots are choices that
fit that trace's totals, not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from stream.records import SECOND, Micros

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

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
    """Return f(day): how full the building is against a teaching Monday, 0 to 1."""
    if day in HOLIDAYS:
        return HOLIDAY_FACTOR
    factor = WEEKDAY_FACTOR[day.weekday()]
    if FINALS[0] <= day <= FINALS[1]:
        return factor * FINALS_FACTOR
    return factor * BREAK_FACTOR if BREAK[0] <= day <= BREAK[1] else factor


def is_teaching(day: date) -> bool:
    """Say whether classes are held: a weekday outside holidays, finals and the break."""
    return day.weekday() < 5 and day not in HOLIDAYS and not FINALS[0] <= day <= BREAK[1]


def class_slots(weekday: int) -> tuple[tuple[int, ...], int]:
    """Return the slots' starts (seconds after local midnight) and their length in seconds.

    Tuesday and Thursday hold seven classes of 80 minutes, the other days ten of 50.
    """
    return (LONG_SLOTS, LONG_CLASS) if weekday in (1, 3) else (SHORT_SLOTS, SHORT_CLASS)


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """The days of a run: what each is like, and where its local hours lie in UTC."""

    dates: tuple[date, ...]
    factor: Floats
    """f(day), one a day."""
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
