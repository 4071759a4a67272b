"""Bands of windows and of means, and the probability of an empty room.

    symbol   here          meaning
    Z_w      Law           noise of one window's value: the sum of ``draws`` independent draws of one law
    n        windows       number of windows in a mean
    h_w      spread        95 % half-width of Z_w

The noise of different windows is independent, because each window has random words of its own. The noise in a mean of n
noisy values is therefore (Z_1 + … + Z_n) / n. If all windows have one law, its 95 % half-width is that of the sum of
all draws: for Laplace noise the quantile of the sum's own law, for Gaussian noise a bound that the sampler proves. The
scale is increased by a factor of 1 + 1e-9, because the record rounds it. If the laws differ, or only their half-widths
are known, the half-width is √(Σ (h_w + 1)²) / n: sums of Laplace draws have the heaviest tails when they consist of one
draw, so squares of half-widths add, and each whole number adds at most one. A 0 whose law is not known may stand for a
skipped node; its half-width is included in full.

Values that are not noisy values (medians of a filter, groups of PeGaSus) have errors that are correlated between
windows. Averaging does not reduce them: the mean has the mean of their half-widths, and its kind says "at most".

A filter's record contains both, its value and the noisy value. A mean over less than a day is the mean of the values,
revised ones where they exist, since they are what single windows show. A mean over a day is the mean of the noisy
values if its band is narrower: the noise of many windows cancels out.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from stream.mechanisms.exact import Floats
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.records import NoiseKind

AT_MOST: Final = "at most"
"""The mean of the half-widths of values whose errors may go the same way."""
_WIDER = Fraction(10**9 + 1, 10**9)
_HEAVIEST = 2.12
"""95 % half-width of one Laplace draw in standard deviations, ln 20 / √2; any sum of several has less."""
_EXACT_UP_TO = 200_000.0
"""Standard deviation up to which the law of a sum is computed; beyond it ``_HEAVIEST`` replaces its quantile."""
_TAIL: Final = {"noise": 0.05, "posterior": 0.04}
"""The maximal probability beyond a half-width."""
_SURE = 0.001
"""Probabilities are at least this far from 0 and 1."""


class NoiseDistribution(NamedTuple):
    """The law of the noise in one window's value."""

    noise: NoiseKind
    scale: float
    """1/ε, or σ, as in records."""
    draws: int = 1
    """The number of independent draws in the sum: the zones of a floor."""

    @property
    def parameter(self) -> NoiseParameter:
        """The law of one draw, with a scale at least that of the record."""
        scale = Fraction(self.scale) * _WIDER
        return NoiseParameter(self.noise, 1 / scale if self.noise == "laplace" else scale * scale)


@lru_cache(maxsize=4096)
def sum_half_width(law: NoiseDistribution, windows: int = 1) -> float:
    """Return a w that the sum of the noise of ``windows`` windows exceeds with probability at most 0.05.

    UsageError if the scale is not a possible scale of noise.
    """
    one, draws = law.parameter, law.draws * windows
    deviation = one.deviation * math.sqrt(draws)
    if deviation > _EXACT_UP_TO:
        return float(math.ceil(_HEAVIEST * deviation) + 1)
    return float(one.sum_half_width_95(draws))


def mean_half_width(law: NoiseDistribution, windows: int) -> float:
    """Return the 95 % half-width of the noise in a mean of noisy values of one law, over at least one window."""
    return sum_half_width(law, windows) / windows


def lower_end(value: Floats, half_width: Floats) -> Floats:
    """Return the lower ends of bands: at least 0, as counts are, even if the value is negative."""
    return np.asarray(np.maximum(0, value - half_width))


def upper_end(value: Floats, half_width: Floats) -> Floats:
    """Return the upper ends of bands: at least 0, as counts are."""
    return np.asarray(np.maximum(0, value + half_width))


def likely_empty(value: float, half_width: float, kind: str) -> float:
    """Return the probability that a room is empty, from a released value and its band.

    The band is read as that of two-sided geometric errors, which decrease by the factor a per person and have the
    given tail beyond the half-width h: a = tail ** (1 / (h + 1)), with tail 0.05, or 0.04 for a posterior. The prior is
    uniform over all counts from 0 upwards; a room that is mostly empty is empty more often than the result says.
    With v = max(value, 0), the room is empty with probability aᵛ (1 - a) / (1 + a - aᵛ⁺¹).

    Args:
        value: the released value; below 0 counts as 0.
        half_width: of the band, at least 0.
        kind: the kind of the band.

    Returns:
        A probability in [0.001, 0.999]; it is never certain.
    """
    a = _TAIL.get(kind, _TAIL["noise"]) ** (1 / (half_width + 1))
    seen = max(value, 0.0)
    empty: float = a**seen * (1 - a) / (1 + a - a ** (seen + 1))
    return round(min(1 - _SURE, max(_SURE, empty)), 3)
