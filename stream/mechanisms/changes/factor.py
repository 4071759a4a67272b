"""The factor of noise on changes: measured sums, and counts from them.

    symbol     here          meaning
    T          ticks         ticks of the longest privacy day, 25 hours
    d(t)                     a node's count at tick t minus that at the tick before, 0 before the first
    A                        lower triangular matrix of ones: counts are A d
    a          order         between 0 and 1
    C'(j)      weights       round(2**16 c_j), c_j the coefficients of (1 - x)**-a; a lower triangular Toeplitz matrix
    u'(t)                    Σ_s C'(t - s) d(s) + z(t), z independent noise: the only thing that is measured
    b(j)       inverse       coefficients of A C'^-1, nearly 2**-16 times those of (1 - x)**-(1 - a)
    y(t)       reconstructed Σ_s b(t - s) u'(s), the noisy count: the count plus Σ_s b(t - s) z(s)

A device that stays changes counts when it comes and when it goes. So noise that hides a bounded number of changes hides
its whole day (Jain, Smith, Sivakumar, et al., NeurIPS 2023, arXiv 2306.06723). With a = 1 the noise would be on counts
of ticks, with a = 0 on changes alone, whose sums would be far too noisy. ``ORDERS`` has the a with the least error on a
recorded building (errors differ by less than 2 % within 0.05 of it).

C' is an integer matrix, so that integers plus discrete noise are released and no rounding tells anything. y is
post-processing of u' by fixed numbers: floats, each the nearest to the exact b(j), multiplied and added in one fixed
order. The result is the same on every machine. u' is below 2**53 and thus an exact float, so y differs from the exact
sum by less than 1e-6 for a million devices: no noisy count is biased by a part of a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.exact import Floats, Ints, ordered_sum
from stream.mechanisms.inversion import read_only
from stream.records import LONGEST_DAY, MINUTE, Micros

SHORTEST_TICK: Micros = 5 * MINUTE
MOST_VISITS = 8
BITS = 16
"""Binary digits of C'."""
ORDERS: dict[int, Fraction] = {visits: Fraction(6 if visits <= 2 else 7, 10) for visits in range(1, MOST_VISITS + 1)}
"""Visits -> a."""

_DIGITS = 256
"""Binary digits with which b is computed; errors of the recursion do not grow, since 1/C' has bounded coefficients."""


@dataclass(frozen=True, slots=True)
class MatrixFactor:
    """The factor for a number of visits and a tick length."""

    visits: int
    """Largest number of visits of a device a day, at all nodes of a level together."""
    ticks: int
    """T: positions in the day are 0 to T - 1."""

    @property
    def order(self) -> Fraction:
        """a."""
        return ORDERS[self.visits]

    @property
    def weights(self) -> Ints:
        """C'(0) … C'(T - 1); read-only."""
        return rounded_weights(self.order, self.ticks)

    @property
    def inverse(self) -> Floats:
        """b(0) … b(T - 1), in counts per unit of u'; read-only."""
        return _inverse(self.order, self.ticks)

    @property
    def gains(self) -> Floats:
        """Σ_{j <= t} b(j)² for each position t: the variance of y(t) for noise of variance 1 in u'; read-only."""
        return _gains(self.order, self.ticks)


def factor_of(visits: int, tick: Micros) -> MatrixFactor:
    """Return the factor for a number of visits and a tick length.

    Raises:
        UsageError: visits are not 1 to ``MOST_VISITS``, or the tick is shorter than ``SHORTEST_TICK``.
    """
    if visits not in ORDERS:
        raise UsageError(f"visits must be 1 to {MOST_VISITS}, got {visits}")
    if tick < SHORTEST_TICK:
        least = SHORTEST_TICK // MINUTE
        raise UsageError(f"tick must be at least {least}min where changes are counted, got {tick // MINUTE}min")
    return MatrixFactor(visits, -(-LONGEST_DAY // tick))  # later ticks are not released


@lru_cache(maxsize=16)
def rounded_weights(order: Fraction, ticks: int) -> Ints:
    """Return round(2**BITS c_j) for j = 0 … ticks - 1, exactly rounded, ties to even; read-only."""
    weight, found = Fraction(1 << BITS), [1 << BITS]
    for j in range(1, ticks):
        weight *= (j - 1 + order) / j
        found.append(round(weight))
    return read_only(np.array(found, dtype=np.int64))


def weighted_sum(factor: MatrixFactor, position: int, positions: Ints, changes: Ints) -> Ints:
    """Return Σ_s C'(position - s) d(s) of each node, exactly.

    Args:
        factor: of the release.
        position: of the tick that is measured.
        positions: of the ticks whose changes are given, at most ``position``, shape [ticks].
        changes: d at these ticks, shape [ticks, nodes]; restricted.
    """
    return np.asarray((factor.weights[position - positions][:, None] * changes).sum(axis=0, dtype=np.int64))


def reconstructed(factor: MatrixFactor, measured: Floats) -> Floats:
    """Return y at the last of some ticks, of each node.

    Args:
        factor: of the release.
        measured: u' at all ticks of the day so far, shape [ticks, nodes]; ``imputed_measurement`` where there is none.
    """
    return ordered_sum(factor.inverse[: len(measured)][::-1, None] * measured)


def imputed_measurement(factor: MatrixFactor, measured: Floats) -> Floats:
    """Return what stands for u' at a tick that was not released: with it, y stays what it was the tick before.

    Counts of such a tick are not read: their change is part of that at the next tick that is. So d is 0 there.

    Args:
        factor: of the release.
        measured: u' at the ticks before, shape [ticks, nodes].
    """
    if not len(measured):
        return np.zeros(measured.shape[1])
    later = np.concatenate([measured, np.zeros((1, measured.shape[1]))])
    return np.asarray((reconstructed(factor, measured) - reconstructed(factor, later)) / factor.inverse[0])


@lru_cache(maxsize=16)
def _inverse(order: Fraction, ticks: int) -> Floats:
    weights = [int(each) for each in rounded_weights(order, ticks)]
    one, found = 1 << _DIGITS, list[int]()
    for n in range(ticks):
        rest = one - sum(weights[j] * found[n - j] for j in range(1, n + 1))
        found.append(rest // weights[0])
    return read_only(np.array([each / one for each in found]))


@lru_cache(maxsize=16)
def _gains(order: Fraction, ticks: int) -> Floats:
    found, total = list[Fraction](), Fraction(0)
    for each in _inverse(order, ticks):
        total += Fraction(float(each)) ** 2
        found.append(total)
    return read_only(np.array([float(each) for each in found]))
