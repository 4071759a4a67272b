"""Exact keyed discrete Gaussian noise (Canonne, Kamath, Steinke, NeurIPS 2020, arXiv 2004.00010).

    symbol   here          meaning
    σ²       variance      an exact Fraction; that of the continuous Gaussian, which the draws' own hardly differs from
    Z        the result    Pr[Z = z] = w(z) / S,  w(z) = e**(-z²/(2σ²)),  S the sum of all w
    p_k      _tails        Pr[|Z| >= k] = 2 (w(k) + w(k+1) + …) / S,  k >= 1
    T_k      thresholds    ⌊2**63 · p_k⌋

Drawn by exact inversion like the discrete Laplace (:mod:`stream.mechanisms.inversion`), not by the paper's rejection
sampler: the law is the same, and a table makes it as fast. All is integer arithmetic. With W binary digits behind the
point, w(j+1) = w(j) r(j) and r(j+1) = r(j) e**(-1/σ²), each product cut off: after j steps r has lost at most 2j + 1
units of its last digit and w at most (j+1)². The weights end at the first J that is 0 by then; those beyond it add up
to less than J³ units, and all sums are wrong by less than 2 (J+2)³, J < 2**22 (σ <= 100,000). So each p_k is known to
2**_DOUBT units of a number with 2**_GUARD times as many digits as are asked for, and what is nearer than that
to a decision is decided with more of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from math import sqrt

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.inversion import Digits, Ints, Words, by_table, frozen, refinement, signed, words
from stream.mechanisms.irrational import Irrational, evaluate, exp_minus

SMALLEST_VARIANCE, LARGEST_VARIANCE = Fraction(1, 100), Fraction(10**10)
_FIRST = 63
"""Binary digits of U that a word shows."""
_GUARD, _DOUBT = 192, 80


def discrete_gaussian(key: bytes, label: bytes, variance: Fraction, n: int) -> Ints:
    """Return ``n`` exact draws of the discrete Gaussian law, a function of key, label and variance alone.

    Args:
        key: the day's secret.
        label: unique to this draw, see :mod:`stream.mechanisms.labels`; holds the variance.
        variance: σ², from ``SMALLEST_VARIANCE`` to ``LARGEST_VARIANCE``.
        n: how many, one a zone in the order of the registry.

    Raises:
        UsageError: variance is no Fraction or out of range.
    """
    return invert(words(key, label, n), variance, refinement(key, label))


def invert(drawn: Words, variance: Fraction, digits: Digits) -> Ints:
    """Map uniform words to discrete Gaussian draws; see :func:`stream.mechanisms.inversion.signed`."""
    table = thresholds(check_variance(variance))
    return signed(drawn, partial(by_table, table=table), partial(_decide, variance=variance), digits)


def check_variance(variance: Fraction) -> Fraction:
    """Return σ²; raise UsageError unless it is an exact number in the range of the sampler."""
    if not isinstance(variance, Fraction):
        raise UsageError(f"variance must be an exact Fraction, got {type(variance).__name__}")
    if not SMALLEST_VARIANCE <= variance <= LARGEST_VARIANCE:
        raise UsageError(f"variance must be from {SMALLEST_VARIANCE} to {LARGEST_VARIANCE}, got {variance}")
    return variance


# --- the law in integers ------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def thresholds(variance: Fraction) -> Ints:
    """Return T_1 … T_K, where K is the first k with T_k = 0; read-only."""
    bits = _FIRST
    while (table := _floors(variance, bits)) is None:
        bits *= 2
    return frozen(np.array([*table[: table.index(0)], 0], dtype=np.int64))


def _floors(variance: Fraction, bits: int) -> list[int] | None:
    """Return ⌊2**63 p_k⌋ for k = 1, 2, …, down to 0 at least; None where more digits must decide one."""
    shift, doubt = bits - _FIRST + _GUARD, 1 << _DOUBT
    tails = _tails(variance, bits)
    low = [max(0, tail - doubt) >> shift for tail in tails]
    return low if low == [(tail + doubt) >> shift for tail in tails] else None


@lru_cache(maxsize=8)
def _tails(variance: Fraction, bits: int) -> list[int]:
    """Return 2**(bits + _GUARD) p_k for k = 1, 2, …, J, each by less than 2**_DOUBT wrong; p_k is smaller beyond."""
    digits = bits + _GUARD
    weights = list(_weights(variance, digits))
    sums = list(accumulate(reversed(weights)))
    total = 2 * sums[-1] - weights[0]
    return [(one << (digits + 1)) // total for one in reversed(sums[:-1])]


def _weights(variance: Fraction, digits: int) -> Iterator[int]:
    """Yield 2**digits w(j) for j = 0, 1, …, up to the first that is 0."""
    ratio, step = (_fixed(partial(exp_minus, 1 / (part * variance)), digits) for part in (2, 1))
    weight = 1 << digits
    while weight:
        yield weight
        weight = weight * ratio >> digits
        ratio = ratio * step >> digits
    yield 0


def _fixed(value: Irrational, digits: int) -> int:
    """Return a number below 1 in fixed point, cut off."""
    return int(evaluate(lambda: value() * (1 << digits), digits // 3 + 30))


def _decide(first: int, further: Iterator[int], variance: Fraction) -> int:
    """Return |Z| for a U that begins with ``first``, drawing digits until no p_k is left between."""
    seen, bits = first, _FIRST
    while True:
        tails, doubt = _tails(variance, bits), 1 << _DOUBT
        surely = _above(tails, ((seen + 1) << _GUARD) + doubt)
        if seen and surely == _above(tails, (seen << _GUARD) - doubt + 1):
            return surely
        seen, bits = seen << 64 | next(further), bits + 64


def _above(tails: list[int], least: int) -> int:
    """Return how many of the descending tails are at least ``least``."""
    return bisect_left(tails, 1 - least, key=lambda tail: -tail)


# --- what is known about the law ----------------------------------------------------------------------


@lru_cache(maxsize=256)
def half_width_95(variance: Fraction) -> int:
    """Return the smallest w with Pr[|Z| > w] <= 0.05."""
    at_most = (1 << (_FIRST + _GUARD)) // 20
    return _above(_tails(check_variance(variance), _FIRST), at_most - (1 << _DOUBT))


def scale(variance: Fraction) -> float:
    """Return σ, rounded twice and so alike on every machine."""
    return sqrt(variance)
