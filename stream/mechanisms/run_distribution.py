"""The exact distribution of a run of AboveThreshold: whether it stays silent, crosses, or yields a transcript.

    symbol   here        meaning
    ρ        threshold   DLap(ε/2), drawn once, when the run is opened
    ν_t      query       DLap(ε/2), drawn for each window
    m_t      margin      distance of a window's count beyond the tested threshold; public shift included
    a                    e^(-ε/2)

A run crosses at the first window with m_t + ν_t >= ρ. Given ρ windows are independent, so the probability of any
transcript is a sum over ρ of products of tails, without simulation or bounds. Arithmetic is + - * / in a fixed order,
since the shift that follows from it decides released bytes. ρ is truncated where its tail is below ``CUT``; the tail is
added to probabilities that must not be underestimated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.mechanisms.exact import exp, ordered_sum

SMALLEST_RUN = Fraction(1, 1000)
"""Price of a run below which its noise is larger than any building."""
CUT = 1e-15
_LARGEST_SHIFT = 1 << 22
Floats = NDArray[np.float64]
Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class RunDistribution:
    """The distribution of runs at one price."""

    epsilon: Fraction
    """Cost of a run for a device whose changes all have the same sign; each noise has half of it."""

    def __post_init__(self) -> None:
        if self.epsilon < SMALLEST_RUN:
            raise UsageError(f"epsilon of a run must be at least {float(SMALLEST_RUN):g}, got {float(self.epsilon):g}")

    @property
    def half(self) -> Fraction:
        """The epsilon of each noise."""
        return self.epsilon / 2

    def silence(self, margin: int, windows: int) -> float:
        """Return the probability that a new run does not cross in ``windows`` windows at one margin.

        Where margins vary, it is a lower bound if none is above this one, and an upper bound if none is below.
        """
        values, weights = _thresholds(self.half)
        within = _below(values - margin, self.half)
        return _probability(weights * _power(within, windows))

    def crossing(self, margin: int, windows: int) -> float:
        """Return the probability that a new run crosses within ``windows`` windows at one margin."""
        return max(0.0, 1.0 - self.silence(margin, windows))

    def transcript(self, margins: Sequence[int], *, crosses: bool) -> float:
        """Return the probability that a new run is silent at all margins, or crosses at the last one first."""
        values, weights = _thresholds(self.half)
        product = weights
        for place, margin in enumerate(margins):
            below = _below(values - margin, self.half)
            product = product * (1.0 - below if crosses and place == len(margins) - 1 else below)
        return _probability(product)

    def least_shift(self, miss: Fraction, windows: int) -> int:
        """Return the least shift that misses a count just beyond its threshold with probability ``miss`` at most.

        Args:
            miss: the probability, between 0 and 1/2, for one run.
            windows: during which the count is beyond the threshold.

        Raises:
            UsageError: the shift would be larger than any count.
        """
        low, high = -1, 1
        while self._misses(high, windows) > miss:
            low, high = high, 2 * high
            if high > _LARGEST_SHIFT:
                raise UsageError(f"miss must be one that a run of epsilon {float(self.epsilon):g} can keep, got {miss}")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._misses(middle, windows) > miss else (low, middle)
        return high

    def _misses(self, shift: int, windows: int) -> float:
        return self.silence(shift, windows) * (1 + 1e-9) + CUT


def _probability(products: Floats) -> float:
    return min(1.0, float(ordered_sum(products)))


@lru_cache(maxsize=32)
def _thresholds(epsilon: Fraction) -> tuple[Int64Array, Floats]:
    """Return the values of ρ and their probabilities."""
    reach = math.ceil(36 / float(epsilon))
    values = np.arange(-reach, reach + 1, dtype=np.int64)
    weights = exp(-float(epsilon) * np.abs(values))
    return values, weights * ((1 - _a(epsilon)) / (1 + _a(epsilon)))


def _below(values: Int64Array, epsilon: Fraction) -> Floats:
    """Return Pr[ν < k] for each k: a^(1-k) / (1+a) up to 0, and 1 - a^k / (1+a) above it."""
    tail = exp(-float(epsilon) * np.where(values <= 0, 1 - values, values)) / (1 + _a(epsilon))
    return np.asarray(np.where(values <= 0, tail, 1 - tail))


def _a(epsilon: Fraction) -> float:
    return float(exp(np.array([-float(epsilon)]))[0])


def _power(base: Floats, exponent: int) -> Floats:
    """Return each number to a whole power, by squaring."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result
