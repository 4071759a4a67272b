"""Exact keyed discrete Laplace noise that a replay repeats, and its noise chain.

    symbol   here          meaning
    ε        epsilon       inverse scale, an exact Fraction (ε/Δ for sensitivity Δ)
    a        a             e**-ε
    Z        the result    Pr[Z = z] = (1-a)/(1+a) · a**|z|
    p_k      _tail         Pr[|Z| >= k] = 2 a**k / (1+a), k >= 1
    T_k      thresholds    ⌊2**63 · p_k⌋

It is drawn by exact inversion (:mod:`stream.mechanisms.inversion`).

**One noise chain** serves all audiences of a release: a coalition learns what its member with the least noise knows.

The finest audience gets discrete Laplace noise; each coarser one gets the value of the next finer one plus
an independent B, which makes it a post-processing of that value. With a_i = e**-ε_i and ε_1 < ε_2 the
law of noise 1 is that of noise 2 plus

    B = 0 with probability p_0 = ((1-a_1)/(1-a_2))² · a_2/a_1, else B ~ DLap(ε_1),

because (1-a_2 z)(1-a_2/z) = (a_2/a_1)(1-a_1 z)(1-a_1/z) + (1-a_2/a_1)(1-a_1 a_2) in the probability
generating functions. The continuous form is the gradual release of Koufogiannis, Han and Pappas
(arXiv 1504.00429).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.domains import Draw
from stream.errors import UsageError
from stream.mechanisms.exact import Ints, Irrational, decimal, evaluate, exp_minus, floor_scaled
from stream.mechanisms.inversion import (
    Digits,
    Magnitudes,
    Words,
    bernoulli,
    by_table,
    read_only,
    refinement,
    signed,
    words,
)
from stream.mechanisms.noise_labels import Context

SMALLEST_EPSILON = Fraction(1, 10**9)
_LARGEST_TABLE = 1 << 16
_FIXED = 512
"""Binary digits after the point in fixed-point tables; far fewer than 64 are ever lost."""


# Discrete Laplace


def discrete_laplace(key: bytes, label: bytes, epsilon: Fraction, n: int) -> Ints:
    """Return ``n`` exact draws of discrete Laplace noise, a function of key, label and epsilon alone.

    Args:
        key: the day's secret.
        label: unique to this draw, see :mod:`stream.mechanisms.noise_labels`; contains epsilon.
        epsilon: ε divided by the sensitivity, at least ``SMALLEST_EPSILON``.
        n: number of draws, one per zone in the order of the registry.

    Raises:
        UsageError: epsilon is no Fraction or too small.
    """
    return invert(words(key, label, n), epsilon, refinement(key, label))


def invert(drawn: Words, epsilon: Fraction, digits: Digits) -> Ints:
    """Map uniform words to discrete Laplace draws; see :func:`stream.mechanisms.inversion.signed`."""
    exact = check_epsilon(epsilon)
    has_table = 64 / exact < _LARGEST_TABLE
    first = partial(by_table, table=thresholds(exact)) if has_table else partial(_by_ladder, ladder=_ladder(exact))
    return signed(drawn, first, partial(_decide, epsilon=exact), digits)


def check_epsilon(epsilon: Fraction) -> Fraction:
    """Return ``epsilon``; raise UsageError unless it is an exact number in the range of the sampler."""
    if not isinstance(epsilon, Fraction):
        raise UsageError(f"epsilon must be an exact Fraction, got {type(epsilon).__name__}")
    if epsilon < SMALLEST_EPSILON:
        raise UsageError(f"epsilon must be at least {SMALLEST_EPSILON}, got {epsilon}")
    return epsilon


@lru_cache(maxsize=64)
def thresholds(epsilon: Fraction) -> Ints:
    """Return T_1 … T_K, where K is the first k with T_k = 0; read-only."""
    table: list[int] = []
    for k, scaled in enumerate(_fixed_powers(epsilon, _fixed(_tail(epsilon, 1)))):
        table.append(_top_63(scaled, epsilon, k + 1))
        if not table[-1]:
            break
    return read_only(np.array(table, dtype=np.int64))


def _top_63(scaled: int, epsilon: Fraction, k: int) -> int:
    """Return T_k from the fixed-point p_k, or from as many digits as needed where rounding could matter."""
    rest = scaled & ((1 << (_FIXED - 63)) - 1)
    doubt = 1 << 200
    if doubt < rest < (1 << (_FIXED - 63)) - doubt:
        return scaled >> (_FIXED - 63)
    return floor_scaled(_tail(epsilon, k), 63)


def _fixed(value: Irrational) -> int:
    """Return ``value`` in fixed point, from 200 decimal digits (the fixed-point form has 154)."""
    return int(evaluate(lambda: value() * (1 << _FIXED), 200))


def _fixed_powers(epsilon: Fraction, first: int) -> Iterator[int]:
    """Yield first · a**k for k = 0, 1, …, in fixed point; each step loses at most two units."""
    a = _fixed(lambda: exp_minus(epsilon))
    scaled = first
    while True:
        yield scaled
        scaled = scaled * a >> _FIXED


def _tail(epsilon: Fraction, k: int) -> Irrational:
    return lambda: 2 * exp_minus(k * epsilon) / (1 + exp_minus(epsilon))


class _Ladder(NamedTuple):
    """Two tables of floats for an epsilon whose table of thresholds would be too long."""

    coarse: NDArray[np.float64]
    """p_{qM} for q = 0, 1, …, descending (p_0 is 2/(1+a))."""
    fine: NDArray[np.float64]
    """a**r for r = 0 … M, descending."""


_FEW = 1 << 42
"""Below this, 63 digits of U are too few for a relative error of 2**-42, and more digits are drawn."""
_NEAR = 2.0**-40


@lru_cache(maxsize=64)
def _ladder(epsilon: Fraction) -> _Ladder:
    lowest = 22 * math.log(2) / float(epsilon)
    rungs = math.isqrt(int(lowest)) + 1
    fine = _floats(_fixed_powers(epsilon, 1 << _FIXED), rungs + 1)
    top = _fixed(lambda: 2 / (1 + exp_minus(epsilon)))
    coarse = _floats(_fixed_powers(rungs * epsilon, top), rungs + 2)
    return _Ladder(read_only(coarse), read_only(fine))


def _floats(scaled: Iterator[int], n: int) -> NDArray[np.float64]:
    return np.array([next(scaled) / (1 << _FIXED) for _ in range(n)])


def _by_ladder(uniform: Ints, ladder: _Ladder) -> Magnitudes:
    """Return |Z| = qM + r with p_{qM} a**r > U >= p_{qM} a**(r+1), and where floats are not accurate enough.

    All errors here (digits not yet drawn, rounded tables, two rounded operations) are below 2**-41 of the
    compared quantity; draws nearer than 2**-40 to a threshold are decided by exact digits instead.
    """
    u = uniform / 2.0**63
    q = np.clip(len(ladder.coarse) - 1 - np.searchsorted(ladder.coarse[::-1], u, side="right"), 0, None)
    ratio = u / ladder.coarse[q]
    last = len(ladder.fine) - 2
    r = np.clip(last + 1 - np.searchsorted(ladder.fine[::-1], ratio, side="right"), 0, last)
    below = ratio < ladder.fine[r] * (1 - _NEAR)
    above = ratio > ladder.fine[r + 1] * (1 + _NEAR)
    return q * (last + 1) + r, ~(below & above) | (uniform < _FEW)


def _decide(first: int, further: Iterator[int], epsilon: Fraction) -> int:
    """Return |Z| for a U that begins with ``first``, drawing digits until they decide every comparison."""
    seen, bits = first, 63
    while True:
        least = _thresholds_above(seen + 1, bits, epsilon)
        if seen and least == _thresholds_above(seen, bits, epsilon):
            return least
        seen, bits = seen << 64 | next(further), bits + 64


def _thresholds_above(numerator: int, bits: int, epsilon: Fraction) -> int:
    """Return #{k >= 1: p_k > numerator / 2**bits}: p_k is x iff k = ln(2 / ((1+a) x)) / ε."""

    def k() -> Decimal:
        x = Decimal(numerator) * (1 + exp_minus(epsilon))
        return (Decimal(1 << (bits + 1)) / x).ln() / decimal(epsilon)

    return floor_scaled(k)


# Properties of the distribution


def pmf(epsilon: Fraction, z: Ints) -> NDArray[np.float64]:
    """Return Pr[Z = z] for each of ``z``, to the accuracy of a float."""
    log_a = -float(epsilon)
    return np.asarray(np.tanh(-log_a / 2) * np.exp(np.abs(z) * log_a))


@lru_cache(maxsize=256)
def half_width_95(epsilon: Fraction) -> int:
    """Return the smallest w with Pr[|Z| > w] = 2 a**(w+1) / (1+a) <= 0.05."""
    return floor_scaled(lambda: (40 / (1 + exp_minus(epsilon))).ln() / decimal(epsilon))


@lru_cache(maxsize=256)
def std(epsilon: Fraction) -> float:
    """Return the standard deviation √(2a)/(1-a), rounded once from many digits."""
    return float(evaluate(lambda: (2 * exp_minus(epsilon)).sqrt() / (1 - exp_minus(epsilon)), 60))


@lru_cache(maxsize=256)
def sum_half_width_95(epsilon: Fraction, n: int) -> int:
    """Return the smallest k with Pr[|sum of n discrete Laplace noises| > k] <= 0.05.

    The characteristic function of the sum is the n-th power of one noise's; it is inverted on a grid so wide that the
    aliasing error is far below the tolerance.
    """
    a = math.exp(-epsilon)
    spread = math.sqrt(2 * a * n) / (1 - a)
    size = 1 << max(6, math.ceil(math.log2(24 * spread + 100 / float(epsilon) + 8)))
    angle = 2 * np.pi * np.arange(size) / size
    transform = ((1 - a) ** 2 / (1 - 2 * a * np.cos(angle) + a * a)) ** n
    pmf = np.fft.fft(transform).real / size
    beyond = 1 - pmf[0] - 2 * np.concatenate([[0.0], np.cumsum(pmf[1 : size // 2])])
    return int(np.argmax(beyond <= 0.05 + 1e-9))


# The noise chain.


def chain(key: bytes, context: Context, digest: bytes, epsilons: Sequence[Fraction], n: int) -> dict[Fraction, Ints]:
    """Return the noise of every epsilon; equal epsilons share one value. The joint release costs the largest.

    The steps run strictly in descending order of epsilon. If each coarser value were drawn directly from the
    finest, a coalition of two coarse audiences would pay more than the larger of their epsilons.

    Args:
        key: the day's secret.
        context: the window's release; the audience is not part of it.
        digest: digest of the counts that the noise is for.
        epsilons: at least one, in any order.
        n: number of zones.

    Raises:
        UsageError: no epsilon, or one outside the range of the sampler.
    """
    descending = sorted(set(epsilons), reverse=True)
    if not descending:
        raise UsageError("epsilons must not be empty")
    finest = descending[0]
    noise = {finest: discrete_laplace(key, context.label(Draw.CHAIN, finest, digest=digest), finest, n)}
    for finer, coarser in pairwise(descending):
        keep_label = context.label(Draw.CHAIN_KEEP, finer, coarser, digest=digest)
        add_label = context.label(Draw.CHAIN_ADD, finer, coarser, digest=digest)
        kept = bernoulli(key, keep_label, keep_probability(finer, coarser), n)
        noise[coarser] = noise[finer] + np.where(kept, 0, discrete_laplace(key, add_label, coarser, n))
    return noise


@lru_cache(maxsize=256)
def keep_probability(finer: Fraction, coarser: Fraction) -> Irrational:
    """Return p_0, the probability that the coarser value equals the finer one."""

    def p_0() -> Decimal:
        a_1, a_2 = exp_minus(coarser), exp_minus(finer)
        return ((1 - a_1) / (1 - a_2)) ** 2 * (a_2 / a_1)

    return p_0
