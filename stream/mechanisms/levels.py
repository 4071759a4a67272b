"""Floors and buildings: sums over zones of what was released anyway, so they cost nothing more.

Sums are made of the values before rounding and clamping, since clamping each zone first would add up to a
bias. Their noise is the sum of the zones' independent noises and has a half-width of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream.mechanisms.counts import CountMechanism, Laplace, Values


def level_sum(mechanism: CountMechanism, values: Values, members: Sequence[int]) -> int:
    """Return the sum over some zones: rounded half to even, and at least 0 unless noise is left as it is."""
    top, bottom = (part[list(members)].tolist() for part in values.exact)
    common = math.lcm(*bottom)
    total = round(Fraction(sum(t * (common // b) for t, b in zip(top, bottom, strict=True)), common))
    return total if isinstance(mechanism, Laplace) else max(0, total)


def level_half_width(mechanism: CountMechanism, values: Values, members: Sequence[int]) -> int:
    """Return the 95 % half-width of that sum: of the summed noise, or the sum of posterior half-widths."""
    if mechanism.half_width_kind == "posterior":
        return int(sum(int(values.half_width[i]) for i in members))
    return sum_half_width_95(mechanism.noise_epsilon, len(members))


@lru_cache(maxsize=256)
def sum_half_width_95(epsilon: Fraction, n: int) -> int:
    """Return the smallest k with Pr[|sum of n discrete Laplace noises| > k] <= 0.05.

    The transform of the sum is the n-th power of one noise's; it is inverted on a grid so wide that what
    wraps around is far below the tolerance.
    """
    a = math.exp(-epsilon)
    spread = math.sqrt(2 * a * n) / (1 - a)
    size = 1 << max(6, math.ceil(math.log2(24 * spread + 100 / float(epsilon) + 8)))
    angle = 2 * np.pi * np.arange(size) / size
    transform = ((1 - a) ** 2 / (1 - 2 * a * np.cos(angle) + a * a)) ** n
    pmf = np.fft.fft(transform).real / size
    beyond = 1 - pmf[0] - 2 * np.concatenate([[0.0], np.cumsum(pmf[1 : size // 2])])
    return int(np.argmax(beyond <= 0.05 + 1e-9))
