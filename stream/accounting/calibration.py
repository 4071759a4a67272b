"""The scale of Gaussian noise that keeps a run of releases to a price, the same one on every machine."""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream.accounting.loss_law import WIDEST, delta_at, gaussian_law
from stream.errors import UsageError

__all__ = ["calibrate", "grid_variance", "likely_loss"]

#: How much smaller a delta is asked for than promised. Levels of different scales have no common lattice, so their sum
#: is a little smoother than the law of one scale that pays for all; this covers the difference, for 0.02 % of sigma.
MARGIN = 0.999

#: Points of the grid in a decade of sigma²: all numbers of three digits. And its number of points, 0.01 to 10^11.
DECADE, GRID = 900, 13 * 900

#: Points by which a bracket is widened.
STRIDE = 100

_LOGARITHM = Context(prec=30)


def grid_variance(index: int) -> Fraction:
    """Return the ``index``-th sigma² of the grid: three significant digits, from 0.01 on (0.5 % of sigma apart)."""
    decade, digits = divmod(index, DECADE)
    return (100 + digits) * Fraction(10) ** (decade - 4)


def calibrate(
    epsilon: Decimal | Fraction | float, delta: Decimal | Fraction | float, ticks: int, share: Fraction | int = 1
) -> Fraction:
    """Return sigma² of discrete Gaussian noise for which ``ticks`` values cost at most (``epsilon``, ``delta``).

    Sigma² is the smallest of the grid (``grid_variance``) that keeps to the price by the law of the loss, divided by
    ``share``. Levels whose shares add up to one keep to the price together: their concentrated costs, ticks / 2 sigma²,
    add up to that of one level that takes all.

    Args:
        epsilon: of a device's day, nats, 0.01 to 100.
        delta: 1e-10 to 0.01.
        ticks: K, values that one day can change, each by one: the squared sensitivity.
        share: of this level in the concentrated cost, above 0, at most 1.

    Raises:
        UsageError: an argument is outside its range, or the noise would be too wide to lay out.
    """
    _check(epsilon, delta, ticks, share)
    return _smallest(epsilon, delta, ticks) / share


@lru_cache(maxsize=256)
def _smallest(epsilon: Decimal | Fraction | float, delta: Decimal | Fraction | float, ticks: int) -> Fraction:
    """Return sigma² of the grid; every policy that is read, and every site, asks for the same ones."""
    least = _first_guess(float(epsilon), Decimal(str(float(delta))), ticks)
    while not _keeps(least, epsilon, delta, ticks):
        least += STRIDE
    most = least
    while least > 0 and _keeps(least, epsilon, delta, ticks):
        least, most = max(0, least - STRIDE), least
    found = bisect_left(range(least, most), True, key=lambda index: _keeps(index, epsilon, delta, ticks))
    return grid_variance(least + found)


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
    together = 1 / sum((1 / variance for variance in variances), Fraction(0))
    law = gaussian_law(together, group, cells)
    above = law.infinite + np.cumsum(law.masses)
    passed = int(np.searchsorted(above, float(probability) * MARGIN, side="right"))
    return Fraction(math.ceil((law.top - passed * law.step) * 1_000_000), 1_000_000)


def _keeps(index: int, epsilon: Decimal | Fraction | float, delta: Decimal | Fraction | float, ticks: int) -> bool:
    variance = grid_variance(index)
    if ticks * variance > WIDEST**2:
        raise UsageError(f"epsilon {float(epsilon):g} for {ticks} ticks needs noise wider than can be laid out")
    return delta_at(gaussian_law(variance, 1, ticks), float(epsilon)) <= float(delta) * MARGIN


def _first_guess(epsilon: float, delta: Decimal, ticks: int) -> int:
    """Return the grid's point by concentrated cost, rho + 2 sqrt(rho ln(1/delta)) = epsilon: more noise than needed."""
    unlikely = -float(_LOGARITHM.ln(delta))
    root = math.sqrt(unlikely + epsilon) - math.sqrt(unlikely)
    return bisect_left(range(GRID), Fraction(ticks / (2 * root * root)), key=grid_variance)


def _check(
    epsilon: Decimal | Fraction | float, delta: Decimal | Fraction | float, ticks: int, share: Fraction | int
) -> None:
    for name, value, low, high in (("epsilon", epsilon, 0.01, 100.0), ("delta", delta, 1e-10, 0.01)):
        if not low <= float(value) <= high:
            raise UsageError(f"{name} must lie in [{low:g}, {high:g}], got {float(value):g}")
    if not 1 <= ticks <= 10_000:
        raise UsageError(f"ticks must be 1 to 10000, got {ticks}")
    if not 0 < share <= 1:
        raise UsageError(f"share must be above 0 and at most 1, got {share}")
