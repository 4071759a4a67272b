"""Elementary functions with the same last bit on every machine.

IEEE 754 fixes the results of + − × ÷ and of scaling by powers of two, but not those of exp and ln, which
differ between mathematical libraries. The functions here consist of the former in a fixed order. They are accurate to
about 2**-50, which is enough for weights; what matters is that two machines agree.

The probabilities of exponential noise with a rational epsilon are transcendental (Lindemann-Weierstrass),
so a decimal expansion that is long enough always shows on which side of a binary fraction they lie. ``floor_scaled``
computes as many digits as the comparison needs; no decision depends on a rounding error.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from math import frexp, isqrt, sqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Real = TypeVar("Real", np.float32, np.float64)

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
"""The first digits of ln 2: the product with an integer below 2**20 is exact."""
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SQRT_HALF = 0.70710678118654752
_LEAST_EXPONENT = -700.0
_ONE, _TERMS = np.array(1.0), tuple(np.array(float(k)) for k in range(15, 0, -1))
"""Arrays, as numpy would make one of each number each time it is used."""


def exp(x: Floats) -> Floats:
    """Return e**x for x <= 700; 0 below -700, where a float would gradually lose its digits.

    x = n ln 2 + r with |r| <= ½ ln 2; e**r by fifteen terms of its series.
    """
    within = np.maximum(x, _LEAST_EXPONENT)
    n = np.rint(within * (1 / _LN2_HIGH))
    r = (within - n * _LN2_HIGH) - n * _LN2_LOW
    series = np.ones_like(x)
    for k in _TERMS:
        series *= r
        series /= k
        series += _ONE
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


def ln_of(x: float) -> float:
    """Return the natural logarithm of one normal x > 0, with the bits of ``ln`` and without its arrays."""
    m, n = frexp(x)
    m, n = (2 * m, n - 1) if m < _SQRT_HALF else (m, n)
    s = (m - 1) / (m + 1)
    square, series = s * s, 0.0
    for k in range(23, 0, -2):
        series = series * square + 1 / k
    return n * _LN2_HIGH + (n * _LN2_LOW + 2 * s * series)


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


def deviation_of_sum(parts: Floats, alike: float) -> float:
    """Return the deviation of a sum of errors of which each two have the correlation ``alike``.

    It is √((1 - ρ) Σ s² + ρ (Σ s)²), and serves for half-widths too, where these are multiples of deviations.
    """
    squares, together = float(ordered_sum(parts * parts)), float(ordered_sum(parts))
    return sqrt((1 - alike) * squares + alike * together * together)


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


def half_widths(weights: NDArray[Any], centre: NDArray[np.int64], level: float) -> NDArray[np.int64]:
    """Return, for each zone, the smallest w for which the counts within ``centre`` ± w have a share of ``level``.

    The tolerance is that of ``quantiles``.

    Args:
        weights: of the counts 0, 1, …, shape [counts, zones].
        centre: a count of each zone, shape [zones].
        level: in 0 … 1.
    """
    running = np.zeros((len(weights) + 1, weights.shape[1]))
    np.cumsum(weights, axis=0, dtype=np.float64, out=running[1:])
    least, last, zones = (level - _TOLERANCE) * running[-1], len(weights) - 1, np.arange(weights.shape[1])
    low, high = np.zeros_like(centre), np.full_like(centre, last)
    while (low < high).any():
        middle = (low + high) // 2
        within = running[np.minimum(centre + middle, last) + 1, zones] - running[np.maximum(centre - middle, 0), zones]
        low, high = np.where(within < least, middle + 1, low), np.where(within < least, high, middle)
    return high


# Exact integer parts of irrational numbers.

Irrational = Callable[[], Decimal]
"""Evaluates one irrational number under the current decimal context.

The error must stay below ``10**GUARD`` units of the last digit of 1 (the numbers here are made of a few
correctly rounded operations, of a size below 10**15).
"""

GUARD = 20
_LEAST_DIGITS = 120


def evaluate(value: Irrational, digits: int) -> Decimal:
    """Return ``value`` evaluated with ``digits`` significant digits, independent of the caller's decimal context."""
    with localcontext(Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        return value()


def floor_scaled(value: Irrational, bits: int = 0) -> int:
    """Return ⌊2**bits · value⌋ exactly; the number of digits doubles until the result is certain."""
    digits = _LEAST_DIGITS + bits
    while True:
        with localcontext(Context(prec=2 * digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)):
            scaled = evaluate(value, digits) * (1 << bits)
            floor = scaled.to_integral_value(rounding=ROUND_FLOOR)
            doubt = Decimal(10) ** (GUARD - digits) * (1 << bits)
            if doubt < scaled - floor < 1 - doubt:
                return int(floor)
        digits *= 2


def decimal(value: Fraction) -> Decimal:
    """Return ``value`` rounded to the current decimal context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def exp_minus(value: Fraction) -> Decimal:
    """Return e**-value, rounded to the current decimal context."""
    return (-decimal(value)).exp()
