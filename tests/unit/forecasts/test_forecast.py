"""Laws of the forecast: what it reads, its bands, and what is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from stream.mechanisms.exact import Ints
from stream.mechanisms.forecast import HOURS, MEMORY, MISSING, SUNDAY, THOUSAND, Forecast, Hours

KINDS = np.arange(MEMORY + 1 + 7) % 7


def means(level: int = 50, spread: int = 20, seed: int = 1) -> Ints:
    """Return days with two nodes whose hours are drawn apart from each other; today is known until noon."""
    rng = np.random.default_rng(seed)
    drawn = level * THOUSAND + rng.integers(-spread, spread + 1, (MEMORY + 1, 2, HOURS)) * THOUSAND
    drawn[-1, :, 12:] = MISSING
    return drawn.astype(np.int64)


def said(hours: Hours) -> list[list[list[int]]]:
    return [part.tolist() for part in hours]


@pytest.mark.parametrize("ahead", [0, 1, 7])
def test_days_that_are_not_among_those_that_it_reads_change_nothing(ahead: int) -> None:
    """Older days than ``MEMORY`` are as good as none; so the state may forget them."""
    longer = np.concatenate([means(seed=2)[:7], means()])
    kinds = np.concatenate([KINDS[:7], KINDS])
    one, other = Forecast(means(), KINDS), Forecast(longer, kinds)
    if ahead:
        assert said(one.day(ahead)) == said(other.day(ahead))
    else:
        assert said(one.rest_of_today(12)) == said(other.rest_of_today(12))


def test_the_hours_to_come_of_today_are_not_read() -> None:
    known = means()
    told = known.copy()
    told[-1, :, 12:] = 10**9
    assert said(Forecast(known, KINDS).rest_of_today(12)) == said(Forecast(told, KINDS).rest_of_today(12))


def test_nodes_do_not_depend_on_each_other() -> None:
    whole = Forecast(means(), KINDS).rest_of_today(12)
    alone = Forecast(means()[:, :1], KINDS).rest_of_today(12)
    assert [part[:1].tolist() for part in whole] == said(alone)


@pytest.mark.parametrize("ahead", [1, 3, 7])
def test_bands_hold_on_nine_of_ten_days(ahead: int) -> None:
    """Days are drawn apart from each other, so the law is exact: 0.9 to 0.95, and a little more as ends are rounded.

    192 hours of 60 worlds; a share below 0.88 has a probability of less than 1e-9, and the draws are fixed anyway.
    """
    held = []
    for seed in range(60):
        drawn = means(spread=40, seed=seed)
        later = np.random.default_rng(1000 + seed).integers(10, 91, (2, HOURS)) * THOUSAND
        hours = Forecast(drawn, KINDS).day(ahead)
        held.append((hours.low * THOUSAND <= later) & (later <= hours.high * THOUSAND))
    assert 0.88 <= np.mean(held) <= 0.97


@pytest.mark.parametrize("devices", [10**5, 10**7])
def test_a_hall_that_fills_on_some_days_is_forecast_in_proportion(devices: int) -> None:
    """It is empty on most days, so its residuals are large: sums of their products must not leave 64 bits."""

    def evening(level: int) -> int:
        known = np.zeros((MEMORY + 1, 1, HOURS), np.int64)
        known[np.arange(MEMORY + 1) % 5 == 0] = level * THOUSAND
        known[-1] = level * THOUSAND
        return int(Forecast(known, KINDS).rest_of_today(12).value[0, 0])

    assert evening(devices) / devices == pytest.approx(evening(1000) / 1000, abs=0.01)


def held_back(days: int, hour: int = 0, unusual: int | None = None) -> Hours:
    """Return what is forecast today at an hour, after days of 40; one of them may have been one of 50."""
    known = np.full((days + 1, 1, HOURS), 40 * THOUSAND, np.int64)
    if unusual is not None:
        known[unusual] = 50 * THOUSAND
    known[-1, :, hour:] = MISSING
    return Forecast(known, np.zeros(days + 8, np.int64)).rest_of_today(hour)


def test_there_is_no_band_of_fewer_than_nine_days_and_no_number_without_a_band() -> None:
    """Seven days make a usual value, so 15 leave eight that were held back."""
    for part in held_back(15):
        assert (part == MISSING).all()
    assert held_back(16).value[0].tolist() == [40] * HOURS


def test_with_nine_days_the_band_is_as_wide_as_the_worst_and_rounded_outwards() -> None:
    """(9 + 1) 0.9 = 9: the ninth of nine scores. The day of 50 was 10 above what was usual."""
    hours = held_back(16, unusual=10)
    assert (hours.low[0, 0], hours.value[0, 0], hours.high[0, 0]) == (30, 40, 50)


def test_a_day_that_is_held_back_has_no_part_in_the_slope_of_its_own_score() -> None:
    """Only the day of 50 shows that afternoons follow mornings. Other days do not, so its own score is as large as
    without a morning."""
    hours = held_back(16, hour=12, unusual=10)
    assert (hours.low[0, 0], hours.value[0, 0], hours.high[0, 0]) == (30, 40, 50)


def test_closed_days_and_saturdays_are_no_working_days() -> None:
    """With Sundays of 5 and working days of 40, a Monday that is closed is expected to have 5."""
    kinds = KINDS.copy()
    known = np.where(kinds[: MEMORY + 1, None, None] < 5, 40, 5) * THOUSAND * np.ones((1, 1, HOURS), np.int64)
    kinds[MEMORY + 1 :] = SUNDAY
    assert Forecast(known.astype(np.int64), kinds).day(1).value[0].tolist() == [5] * HOURS


def test_negative_released_values_give_no_negative_forecast() -> None:
    hours = Forecast(means(level=0), KINDS).day(1)
    assert all((part >= 0).all() for part in hours)


def test_means_that_are_not_known_are_left_out() -> None:
    known = means()
    known[::3] = MISSING
    assert (Forecast(known, KINDS).day(1).value != MISSING).all()
    known[:, 1, 5] = MISSING
    assert Forecast(known, KINDS).day(1).value[1, 5] == MISSING
