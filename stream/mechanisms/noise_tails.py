"""How likely the noise of a released count, or of a sum of them, is far below or above 0: never less than it is.

Of one draw exactly (to 2**-63, rounded up), from the tables that the sampler inverts. Of n draws that are added up by
Chernoff's bound: Pr[S >= k] <= E[e^(tZ)]^n e^(-tk), the least over a grid of t; of discrete Gaussian noise, whose
moments are at most those of the continuous one, at the best t, e^(-k²/(2nσ²)). + - * / in a fixed order, since a
shift that decides released bytes follows from it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stream.errors import UsageError
from stream.mechanisms import gaussian, noise
from stream.mechanisms.exact import exp, ln
from stream.mechanisms.parameter import NoiseParameter

_GRID = np.arange(1, 256, dtype=np.float64) / 256
_LARGEST_SHIFT = 1 << 22


def tail(law: NoiseParameter, draws: int, distance: int) -> float:
    """Return a bound on Pr[S >= distance] of the sum S of so many draws; by symmetry also on Pr[S <= -distance]."""
    if distance <= 0:
        return 1.0
    if draws == 1:
        table = gaussian.thresholds(law.exact) if law.kind == "gaussian" else noise.thresholds(law.exact)
        scaled = int(table[distance - 1]) if distance <= len(table) else 0
        return (scaled + 1) / 2.0**64
    if law.kind == "gaussian":
        exponents = np.array([-float(distance * distance / (2 * draws * law.exact))])
    else:
        epsilon = float(law.exact)
        t, a = _GRID * epsilon, float(exp(np.array([-epsilon]))[0])
        moments = (1 - a) * (1 - a) / ((1 - exp(t - epsilon)) * (1 - exp(-t - epsilon)))
        exponents = draws * ln(moments) - t * distance
    return float(exp(np.minimum(exponents, 0.0)).min()) * (1 + 1e-9)


def least_shift(law: NoiseParameter, draws: int, miss: Fraction, windows: int) -> int:
    """Return the least shift with which a count just beyond its threshold for so many windows is missed so rarely.

    Raises:
        UsageError: it would be larger than any count.
    """
    low, high = -1, 1
    while tail(law, draws, high + 1) ** windows > miss:
        low, high = high, 2 * high
        if high > _LARGEST_SHIFT:
            raise UsageError(f"miss must be one that noise of scale {law.scale:g} can keep, got {float(miss):g}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(law, draws, middle + 1) ** windows > miss else (low, middle)
    return high
