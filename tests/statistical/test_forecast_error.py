"""Forecasts on days that were held back, against the same time last week and the mean of the last four weeks.

Both are given the same released values, as hourly means, and know the newest weeks that had been released. Errors and
bands are those of the true hourly means. The form of the forecast was chosen on days 1 to 16 of campus1 and on a year
of another seed; days 17 to 31 and this year were looked at once, afterwards.

Noise follows from a fixed key, and the year from a fixed seed, so there are no false alarms; the bars hold for the
other keys and seeds that were tried, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.forecast import AHEAD, HOURS, MEMORY, MISSING, SUNDAY, THOUSAND, Forecast, Hours
from stream.mechanisms.registry import ReleaseContext, count_mechanism, release_counts
from stream.records import DAY
from tests.statistical.test_filter_error import MONTH, TABLE, building
from tests.support.simulated_year import DAYS, HOLIDAYS, START, year

TUESDAY = 1
"""Weekday of the first day of both records."""
A_DAY = 288
LAST_WEEKS = 4
NAMING = ReleaseContext("s", "r", tuple(map(str, range(A_DAY))), lambda _: bytes(32), lambda _: WeekSlot(0, 0, False))
ISSUED = (7, 9, 11, 13, 15, 17)
"""Hours at which the next eight hours are forecast."""
NEXT = 8


class Record(NamedTuple):
    """Hourly means of each day, true and released, in thousandths, and the kind of each day."""

    true: Ints
    released: Ints
    kinds: Ints


class Score(NamedTuple):
    """Mean errors in devices, and the share of hours in their band."""

    forecast: float
    last_week: float
    four_weeks: float
    covered: float
    hours: int

    def __str__(self) -> str:
        return (
            f"mean error {self.forecast:.1f}, last week {self.last_week:.1f}, four weeks {self.four_weeks:.1f}; "
            f"{self.covered:.1%} of {self.hours} hours in their band"
        )


def _released(counts: Ints, epsilon: str, capacity: int) -> Ints:
    """Release a day's windows as so many zones of one window: each has noise of its own either way."""
    mechanism = count_mechanism("laplace", epsilon=Fraction(epsilon), max_counts=[capacity] * A_DAY)
    times = np.arange(1, counts.size // A_DAY + 1) * DAY + 18_000 * DAY
    values, _ = release_counts(mechanism, NAMING, times, counts.reshape(-1, A_DAY))
    return values


def _hourly(counts: Ints) -> Ints:
    means: Ints = counts.reshape(-1, HOURS, A_DAY // HOURS).sum(2) * THOUSAND // (A_DAY // HOURS)
    return means


@cache
def campus() -> Record:
    _, counts = building(MONTH)
    kinds = (TUESDAY + np.arange(31)) % 7
    return Record(_hourly(counts), _hourly(_released(counts, "0.1", 1200)), kinds)


@cache
def simulated(*, told: bool = True) -> Record:
    counts = year(2)
    off = np.array([START + timedelta(days=day) in HOLIDAYS for day in range(DAYS)])
    kinds = (TUESDAY + np.arange(DAYS)) % 7
    released = _hourly(_released(counts, "0.5", 600))
    return Record(_hourly(counts), released, np.where(off, SUNDAY, kinds) if told else kinds)


def _on(record: Record, day: int, hour: int) -> Forecast:
    first = max(0, day - MEMORY)
    means = record.released[first : day + 1, None].copy()
    means[-1, :, hour:] = MISSING
    kinds = np.concatenate([record.kinds, record.kinds[-AHEAD:]])
    return Forecast(means, kinds[first : day + 1 + AHEAD])


def _rows(record: Record, day: int, known: int, hours: slice, part: Hours) -> Iterable[tuple[float, ...]]:
    """Yield errors of the three forecasts of a day's hours, and whether the band holds; ``known`` days are released."""
    weeks = [each for each in range(day - 7, -1, -7) if each < known][:LAST_WEEKS]
    last, mean = record.released[weeks[0], hours], record.released[weeks][:, hours].mean(0)
    for place, true in enumerate(record.true[day, hours]):
        value, low, high = (int(numbers[0, place]) for numbers in (part.value, part.low, part.high))
        if value != MISSING:
            others = (abs(max(0, each[place]) - true) / THOUSAND for each in (last, mean))
            yield abs(value - true / THOUSAND), *others, low * THOUSAND <= true <= high * THOUSAND


def _score(rows: list[tuple[float, ...]]) -> Score:
    forecast, last_week, four_weeks, covered = np.mean(rows, axis=0).tolist()
    return Score(forecast, last_week, four_weeks, covered, len(rows))


def next_hours(record: Record, days: Iterable[int]) -> Score:
    rows = list[tuple[float, ...]]()
    for day in days:
        for hour in ISSUED:
            hours = slice(hour, min(HOURS, hour + NEXT))
            part = Hours(*(numbers[:, :NEXT] for numbers in _on(record, day, hour).rest_of_today(hour)))
            rows += _rows(record, day, day, hours, part)
    return _score(rows)


def next_week(record: Record, days: Iterable[int]) -> Score:
    """Score the seven days after each of some days."""
    rows = list[tuple[float, ...]]()
    for day in days:
        forecast = _on(record, day, 0)
        for ahead in range(1, min(AHEAD, len(record.true) - day - 1) + 1):
            rows += _rows(record, day + ahead, day, slice(0, HOURS), forecast.day(ahead))
    return _score(rows)


def _beats_both(score: Score, what: str) -> bool:
    print(f"{what}: {score}")
    return score.forecast < score.last_week and score.forecast < score.four_weeks


@pytest.mark.shared_data
@pytest.mark.skipif(not TABLE.exists(), reason=f"no ../shared/data/{TABLE.parent.name} beside the project")
def test_on_campus_it_beats_both_and_bands_hold_on_days_that_were_held_back() -> None:
    """Days 17 to 31. Over four keys errors differ by 1.2 devices, shares by .02."""
    hours, week = next_hours(campus(), range(16, 31)), next_week(campus(), range(16, 30))
    assert _beats_both(hours, "campus1, next hours")
    assert _beats_both(week, "campus1, next week")
    assert hours.forecast < 0.85 * min(hours[1:3])
    assert week.forecast < 0.9 * min(week[1:3])
    assert hours.covered >= 0.9
    assert week.covered >= 0.9


SAMPLE = range(70, DAYS - AHEAD, 9)
"""Days of the year from which is forecast: each weekday in turn."""


@cache
def week_of_the_year(*, told: bool) -> Score:
    return next_week(simulated(told=told), SAMPLE)


def test_on_a_simulated_year_it_beats_both_and_bands_hold() -> None:
    """Over three seeds errors of hours differ by 1.1 devices, of weeks by .2, shares by .02."""
    hours, week = next_hours(simulated(), SAMPLE), week_of_the_year(told=True)
    assert _beats_both(hours, "a simulated year, next hours")
    assert _beats_both(week, "a simulated year, next week")
    assert hours.forecast < 0.75 * min(hours[1:3])
    assert week.forecast < 0.85 * min(week[1:3])
    assert 0.9 <= hours.covered <= 0.97
    assert 0.9 <= week.covered <= 0.97


@pytest.mark.long
def test_without_a_calendar_it_errs_by_more_and_still_beats_both() -> None:
    untold = week_of_the_year(told=False)
    assert _beats_both(untold, "a simulated year, next week, without a calendar")
    assert untold.forecast > 1.03 * week_of_the_year(told=True).forecast
