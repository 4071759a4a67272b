"""Noise for a price: the smallest scale of the grid that keeps to it, the same on every machine."""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from stream.accounting.calibration import calibrate, grid_variance
from stream.accounting.composition import Gaussian, compose
from stream.accounting.privacy_loss import gaussian_loss, laplace_loss
from stream.errors import UsageError
from tests.unit.accounting.exact_delta import exact_delta, gaussian_outcomes

PRICES = [
    ("1", (41.393, 46.279, 72.191)),
    ("2", (21.854, 24.434, 38.114)),
    ("4", (11.694, 13.074, 20.395)),
]
TICKS = (96, 120, 292)


@pytest.mark.parametrize(("epsilon", "sigmas"), PRICES)
def test_sigma_is_that_of_the_analytic_formula_within_a_percent(epsilon: str, sigmas: tuple[float, ...]) -> None:
    for ticks, sigma in zip(TICKS, sigmas, strict=True):
        found = math.sqrt(calibrate(Decimal(epsilon), Decimal("1e-6"), ticks)[0])
        assert sigma <= found <= 1.01 * sigma


@pytest.mark.parametrize(
    ("epsilon", "delta", "ticks"), [(2, 1e-6, 96), (4, 1e-6, 12), (0.5, 1e-9, 30), (30, 1e-3, 12), (12, 1e-6, 1)]
)
def test_the_calibrated_law_keeps_to_its_price_by_direct_summation_and_the_next_finer_does_not(
    epsilon: float, delta: float, ticks: int
) -> None:
    (variance,) = calibrate(epsilon, delta, ticks)
    index = next(i for i in range(13 * 900) if grid_variance(i) == variance)
    assert exact_delta([gaussian_outcomes(variance, ticks, 1)], epsilon) <= delta
    assert exact_delta([gaussian_outcomes(grid_variance(index - 1), ticks, 1)], epsilon) > 0.999 * delta


def test_a_calibrated_day_costs_its_price_and_a_replaced_one_less_than_twice_as_much() -> None:
    (variance,) = calibrate(Decimal(2), Decimal("1e-6"), 96)
    assert 1.99 < compose([Gaussian(variance, 96)], 1e-6).approximate <= 2
    assert compose([Gaussian(variance, 2 * 96)], 1e-6).approximate == pytest.approx(2.93, abs=0.01)


def test_the_grid_rises_by_at_most_half_a_percent_of_sigma() -> None:
    values = [grid_variance(i) for i in range(2000)]
    assert values[0] == Fraction(1, 100)
    assert all(1 < after / before <= Fraction(101, 100) for before, after in pairwise(values))


@pytest.mark.pinned
def test_scales_and_laws_are_the_same_bits_everywhere() -> None:
    found = [calibrate(Decimal(e), Decimal("1e-6"), ticks)[0] for e, _ in PRICES for ticks in TICKS]
    assert found == [1720, 2150, 5220, 478, 598, 1460, 137, 171, 416]
    laws = [gaussian_loss(Fraction(478), 1, 96), gaussian_loss(Fraction(2), 2, 30), laplace_loss(Decimal("0.1"), 3, 96)]
    bits = hashlib.sha256(b"".join(law.masses.tobytes() for law in laws)).hexdigest()
    assert bits[:16] == "247f3ffadc446175"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1e-6, 96), "epsilon must lie in"),
        ((2, 0, 96), "delta must lie in"),
        ((2, math.nan, 96), "delta must lie in"),
        ((2, 1e-6, 0), "ticks must be 1 to 10000, got 0"),
        ((2, 1e-6, 96, (Fraction(0), Fraction(1))), "shares must each be above 0 and add up to 1, got 0, 1"),
        ((2, 1e-6, 96, (Fraction(1, 2), Fraction(1, 3))), "shares must each be above 0 and add up to 1, got 1/2, 1/3"),
        ((0.01, 1e-10, 10_000), "needs noise wider than can be laid out"),
    ],
)
def test_what_is_outside_its_range_is_refused_by_name(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        calibrate(*arguments)
