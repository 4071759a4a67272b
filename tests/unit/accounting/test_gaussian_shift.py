"""The price of a shifted Gaussian value, against closed forms, the composition of accounts and simulation."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from stream.accounting.composition import compose
from stream.accounting.gaussian_shift import (
    CELLS,
    delta_of,
    epsilon_of,
    largest_shift,
    likely_loss_of,
    normal,
    unit_shifts,
)  # fmt: skip
from stream.errors import UsageError

F, MILLIONTH = Fraction, Fraction(1, 10**6)
PHI = NormalDist().cdf


@pytest.mark.parametrize("x", ["-18", "-6.5", "-1", "0", "0.3", "4"])
def test_normal_law(x: str) -> None:
    assert float(normal(Decimal(x))) == pytest.approx(math.erfc(-float(x) / math.sqrt(2)) / 2, rel=1e-13)


def test_normal_law_has_60_digits() -> None:
    """The value at 1 is that of mpmath."""
    known = Decimal("0.841344746068542948585232545632037922477912966726604390987394")
    assert abs(normal(Decimal(1)) - known) < Decimal("1e-60")


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (0.44833, 2.0), (1.5, 4.0)])
def test_delta_is_that_of_the_gaussian_mechanism(mu: float, epsilon: float) -> None:
    closed = PHI(mu / 2 - epsilon / mu) - math.exp(epsilon) * PHI(-mu / 2 - epsilon / mu)
    assert float(delta_of(F(mu), F(epsilon))) == pytest.approx(closed, rel=1e-6)


def test_day_at_epsilon_2() -> None:
    """Reference values: a shift of 0.44833 costs 2 at 1e-6; twice it 4.32, three times 6.87."""
    squared = largest_shift(F(2), MILLIONTH)
    assert math.sqrt(squared) == pytest.approx(0.44833, abs=1e-5)
    assert epsilon_of(squared, MILLIONTH) == pytest.approx(2, abs=2e-4)
    assert epsilon_of(squared, MILLIONTH) <= 2
    assert epsilon_of(4 * squared, MILLIONTH) == pytest.approx(4.318, abs=1e-3)
    assert epsilon_of(9 * squared, MILLIONTH) == pytest.approx(6.872, abs=1e-3)


@pytest.mark.parametrize("epsilon", [F(1, 100), F(1, 10), F(1), F(2), F(10), F(100)])
def test_shift_is_the_largest_that_the_price_allows(epsilon: Fraction) -> None:
    squared = largest_shift(epsilon, MILLIONTH)
    assert epsilon_of(squared, MILLIONTH) <= float(epsilon)
    assert epsilon_of(squared * F(1005, 1000), MILLIONTH) > float(epsilon)


@pytest.mark.parametrize("epsilon", [F(1, 10), F(2), F(8)])
@pytest.mark.parametrize("times", [1, 2])
def test_accounts_write_a_shift_as_unit_shifts_that_cost_no_less(epsilon: Fraction, times: int) -> None:
    squared = largest_shift(epsilon, MILLIONTH)
    paid = compose([replace(unit_shifts(squared), times=times * times * CELLS)], MILLIONTH).approximate
    exact = epsilon_of(times * times * squared, MILLIONTH)
    assert exact - 2e-9 <= paid <= exact * 1.0002
    assert times > 1 or paid <= float(epsilon) * (1 + 1e-6)  # the account searches to a relative 1e-7


def test_group_of_devices_shifts_as_many_times() -> None:
    squared = largest_shift(F(2), MILLIONTH)
    paid = compose([replace(unit_shifts(squared), times=CELLS)], MILLIONTH, group=3).approximate
    assert paid == pytest.approx(epsilon_of(9 * squared, MILLIONTH), rel=2e-4)


def test_likely_loss_holds_at_any_time_of_the_day() -> None:
    """A device's shifts spread over 300 ticks: the loss passes the bound in at most 1 % of days, at the end in fewer.

    20,000 days: 200 +- 14; five deviations, so it fails by chance with less than 1e-6.
    """
    bound, shift = float(likely_loss_of(F(1), F(1, 100))), 1 / math.sqrt(300)
    steps = np.random.default_rng(5).normal(shift * shift / 2, shift, (20_000, 300))
    losses = steps.cumsum(axis=1)
    passed = (losses.max(axis=1) > bound).sum()
    assert 100 < passed <= 270
    assert (losses[:, -1] > bound).sum() < passed


def test_ranges_are_named() -> None:
    with pytest.raises(UsageError, match=r"epsilon must lie in \[0.01, 100\], got 0.001"):
        largest_shift(F(1, 1000), MILLIONTH)
    with pytest.raises(UsageError, match=r"epsilon must lie in \[0.01, 100\], got 101"):
        largest_shift(F(101), MILLIONTH)
    with pytest.raises(UsageError, match=r"delta must lie in \[1e-10, 0.01\], got 0.02"):
        largest_shift(F(1), F(1, 50))
    with pytest.raises(UsageError, match="mu must be above 0 and at most 16"):
        unit_shifts(F(300))
