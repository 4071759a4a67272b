"""Elementary functions whose last bit is the same on every machine.

IEEE 754 fixes the results of + − × ÷ and of scaling by powers of two, but not those of exp and ln, which
differ between mathematical libraries. These are built of the former in a fixed order. They are accurate to
about 2**-50, which is plenty for weights; what matters is that two machines agree.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Real = TypeVar("Real", np.float32, np.float64)

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
"""The first digits of ln 2: times an integer below 2**20 it is still exact."""
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SQRT_HALF = 0.70710678118654752
_LEAST_EXPONENT = -700.0


def exp(x: Floats) -> Floats:
    """Return e**x for x <= 700; 0 below -700, where a float would lose its digits one by one.

    x = n ln 2 + r with |r| <= ½ ln 2; e**r by fifteen terms of its series.
    """
    within = np.maximum(x, _LEAST_EXPONENT)
    n = np.rint(within * (1 / _LN2_HIGH))
    r = (within - n * _LN2_HIGH) - n * _LN2_LOW
    series = np.ones_like(x)
    for k in range(15, 0, -1):
        series *= r
        series /= k
        series += 1
    return np.asarray(np.where(x < _LEAST_EXPONENT, 0.0, np.ldexp(series, n.astype(np.int64))))


def ln(x: Floats) -> Floats:
    """Return the natural logarithm of normal x > 0.

    x = m 2**n with m in [√½, √2); ln m = 2 artanh((m-1)/(m+1)) by twelve terms of its series.
    """
    m, n = np.frexp(x)
    small = m < _SQRT_HALF
    m, n = np.where(small, 2 * m, m), np.where(small, n - 1, n).astype(np.float64)
    s = (m - 1) / (m + 1)
    square, series = s * s, np.zeros_like(s)
    for k in range(23, 0, -2):
        series = series * square + 1 / k
    return np.asarray(n * _LN2_HIGH + (n * _LN2_LOW + 2 * s * series))


def half_of_three_quarter_power(n: int) -> int:
    """Return ½ n**¾ rounded to an integer, ties to even, for n >= 0, in integers.

    ⌊n**¾⌋ is the fourth root of n³; half of it is a tie only where that root is exact and odd.
    """
    root = isqrt(isqrt(n**3))
    if root % 2 == 0:
        return root // 2
    is_tie = root**4 == n**3
    return root // 2 + (root // 2) % 2 if is_tie else root // 2 + 1


def ordered_sum(values: NDArray[Real]) -> NDArray[Real]:
    """Return the sum over the first axis, in one fixed order: halves are added until one is left."""
    total: NDArray[Real] | None = None
    while (rest := len(values) // 2) > 0:
        half = len(values) - rest
        if total is None:
            total = np.empty_like(values[:half])
            total[rest:] = values[rest:half]
        np.add(values[:rest], values[half:], out=total[:rest])
        values = total = total[:half]
    return np.asarray(values[0])


_TOLERANCE = 1e-6


def quantiles(weights: NDArray[Any], *levels: float) -> list[NDArray[np.int64]]:
    """Return, per level, the smallest count whose cumulated share reaches it, up to a tolerance of 1e-6.

    Args:
        weights: of the counts 0, 1, …, shape [counts, zones].
        levels: each in 0 … 1.
    """
    running = np.cumsum(weights, axis=0, dtype=np.float64)
    share = running / running[-1]
    last = len(weights) - 1
    return [np.minimum((share < level - _TOLERANCE).sum(axis=0), last) for level in levels]
