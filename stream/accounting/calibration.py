"""Calibration of Gaussian noise: the least noise that keeps a day of releases within a price.

``calibrate`` finds it on a grid of variances, by the privacy loss distribution of all levels together
(``privacy_loss``). The result decides released bytes, so it is the same on every machine.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream.accounting.privacy_loss import (
    WIDEST,
    PrivacyLossDistribution,
    delta_at,
    epsilon_at,
    levels_loss,
    on_grid,
    rounded_up,
)
from stream.errors import UsageError

MARGIN = 0.999
"""Calibration reduces the promised delta by this, for 0.02 % of sigma. It covers rounding, and that the noise of a
coarser audience is a sum of discrete Gaussians, which is only nearly a discrete Gaussian (``STEP_GAP``)."""

POINTS, TAIL_POINTS = 4000, 20_000
"""Points of the grid on which levels of different variances are composed: for a price, and for a tail."""

DECADE, GRID = 900, 13 * 900
"""Points of the grid in a decade of sigma²: all numbers of three digits. And its number of points, 0.01 to 10^11."""

_LOGARITHM = Context(prec=30)


class LeastNoiseError(UsageError):
    """A price allows less noise than the smallest supported amount."""


def grid_variance(index: int) -> Fraction:
    """Return the ``index``-th sigma² of the grid: three significant digits, from 0.01 on (0.5 % of sigma apart)."""
    decade, digits = divmod(index, DECADE)
    return (100 + digits) * Fraction(10) ** (decade - 4)


def calibrate(
    epsilon: Decimal | Fraction | float,
    delta: Decimal | Fraction | float,
    ticks: int,
    shares: tuple[Fraction, ...] = (Fraction(1),),
) -> tuple[Fraction, ...]:
    """Return sigma² of each level's discrete Gaussian noise, for which ``ticks`` values of all levels cost the price.

    A level has the variance v / share, with one v for all: the smallest of the grid (``grid_variance``) for which the
    composition of these levels, each with its own noise, is (``epsilon``, ``delta``)-private.

    Args:
        epsilon: of a device's day, nats, 0.01 to 100.
        delta: 1e-10 to 0.01.
        ticks: K, values of each level that one day can change, each by one: the squared sensitivity.
        shares: of each level in the concentrated cost, each above 0, together 1.

    Raises:
        UsageError: an argument is outside its range, or the noise would be too wide to lay out.
        LeastNoiseError: the price allows less noise than the smallest supported amount.
    """
    _check(epsilon, delta, ticks, shares)
    return tuple(grid_variance(_smallest(epsilon, delta, ticks, shares)) / share for share in shares)


@lru_cache(maxsize=256)
def _smallest(
    epsilon: Decimal | Fraction | float, delta: Decimal | Fraction | float, ticks: int, shares: tuple[Fraction, ...]
) -> int:
    """Return the index of the grid point; cached, since every policy and every site needs the same ones."""

    def keeps(index: int) -> bool:
        return delta_at(_loss_at(index, epsilon, ticks, shares), float(epsilon)) <= float(delta) * MARGIN

    if len(shares) == 1:
        least = _first_guess(float(epsilon), Decimal(str(float(delta))), ticks)
    else:
        least = _smallest(epsilon, delta, ticks, (Fraction(1),))  # near the result, except where there is little noise
    stride = 1
    while not keeps(least):
        least, stride = least + stride, 2 * stride
    most, stride = least, 1
    while least > 0 and keeps(least):
        most, least, stride = least, max(0, least - stride), 2 * stride
    found = least + bisect_left(range(least, most), True, key=keeps)
    if found == 0:
        _check_supported(float(epsilon), float(delta), ticks, shares)
    return found


def _check_supported(epsilon: float, delta: float, ticks: int, shares: tuple[Fraction, ...]) -> None:
    """Raise LeastNoiseError where the smallest supported noise costs less than the price."""
    most = math.ceil(1000 * epsilon_at(_loss_at(0, epsilon, ticks, shares), delta * MARGIN)) / 1000
    if epsilon > most:
        sigma = math.sqrt(grid_variance(0))
        raise LeastNoiseError(
            f"epsilon must be at most {most:g} for {ticks} ticks at delta {delta:g}: the least noise that is "
            f"supported, sigma {sigma:g}, costs less; got {epsilon:g}"
        )


@lru_cache(maxsize=256)
def likely_loss(variances: tuple[Fraction, ...], cells: int, probability: Fraction, group: int = 1) -> Fraction:
    """Return a loss that discrete Gaussian noise exceeds with at most a probability, rounded up to a millionth.

    Unlike epsilon at a delta, this bounds a posterior factor: for epsilon = 2 at delta = 1e-6 the loss exceeds 2 ten
    times as often.

    Args:
        variances: sigma² of each level; at most one node a level changes in a cell.
        cells: values of each level that change, by one each for a device: 2 K for a day replaced.
        probability: 1e-10 to 0.01.
        group: devices that change the same values: their loss grows by more than as many times.
    """
    law = levels_loss(variances, group, cells, TAIL_POINTS, rounded_up)
    above = law.infinite + np.cumsum(law.masses)
    passed = int(np.searchsorted(above, float(probability) * MARGIN, side="right"))
    return Fraction(math.ceil((law.top - passed * law.step) * 1_000_000), 1_000_000)


def _loss_at(
    index: int, epsilon: Decimal | Fraction | float, ticks: int, shares: tuple[Fraction, ...]
) -> PrivacyLossDistribution:
    """Return the law of the loss at a point of the grid."""
    variances = [grid_variance(index) / share for share in shares]
    if ticks * max(variances) > WIDEST**2:
        raise UsageError(f"epsilon {float(epsilon):g} for {ticks} ticks needs noise wider than can be laid out")
    return levels_loss(variances, 1, ticks, POINTS, on_grid)


def _first_guess(epsilon: float, delta: Decimal, ticks: int) -> int:
    """Return the grid's point by concentrated cost, rho + 2 sqrt(rho ln(1/delta)) = epsilon: more noise than needed."""
    unlikely = -float(_LOGARITHM.ln(delta))
    root = math.sqrt(unlikely + epsilon) - math.sqrt(unlikely)
    return bisect_left(range(GRID), Fraction(ticks / (2 * root * root)), key=grid_variance)


def _check(
    epsilon: Decimal | Fraction | float,
    delta: Decimal | Fraction | float,
    ticks: int,
    shares: tuple[Fraction, ...],
) -> None:
    for name, value, low, high in (("epsilon", epsilon, 0.01, 100.0), ("delta", delta, 1e-10, 0.01)):
        if not low <= float(value) <= high:
            raise UsageError(f"{name} must lie in [{low:g}, {high:g}], got {float(value):g}")
    if not 1 <= ticks <= 10_000:
        raise UsageError(f"ticks must be 1 to 10000, got {ticks}")
    if not all(share > 0 for share in shares) or sum(shares) != 1:
        raise UsageError(f"shares must each be above 0 and add up to 1, got {', '.join(map(str, shares))}")
