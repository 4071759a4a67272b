"""Exact keyed discrete Gaussian noise (Canonne, Kamath, Steinke, NeurIPS 2020, arXiv 2004.00010).

    symbol   here          meaning
    σ²       variance      an exact Fraction; the variance of the continuous Gaussian, nearly equal to that of the draws
    Z        the result    Pr[Z = z] = w(z) / S,  w(z) = e**(-z²/(2σ²)),  S the sum of all w
    p_k      _tails        Pr[|Z| >= k] = 2 (w(k) + w(k+1) + …) / S,  k >= 1
    T_k      thresholds    ⌊2**63 · p_k⌋

Drawn by exact inversion (:mod:`stream.mechanisms.inversion`), not by the paper's rejection sampler: the distribution is
the same, and a table makes it as fast. All arithmetic is on integers. With W binary digits after the point, w(j+1) =
w(j) r(j) and r(j+1) = r(j) e**(-1/σ²), each product truncated: after j steps r has lost at most 2j + 1 units of its
last digit and w at most (j+1)². The weights end at the first J that is 0 by then; those beyond it add up to less than
J³ units, and all sums have an error of less than 2 (J+2)³, J < 2**22 (σ <= 100,000). So each p_k is known to 2**_DOUBT
units of a number with 2**_GUARD times as many digits as needed. Where a decision is closer than that, it is made with
more digits.

**One noise chain** serves all audiences of a release.

The finest audience gets discrete Gaussian noise of variance σ_1²; each coarser one gets the value of the next finer
one plus an independent discrete Gaussian of variance τ² = σ_2² - σ_1². So what a coalition learns follows from what
its finest member received. What a coarse reader learns alone follows from the law of a sum of discrete Gaussians,
which is nearly the discrete Gaussian of variance V = σ_2² = σ_1² + τ²:

    w(x; σ_1²) w(z-x; τ²) = w(z; V) e**(-(x-cz)²/(2s²)),  c = σ_1²/V,  s² = σ_1² τ²/V

and by Poisson's summation Σ_x e**(-(x-μ)²/(2s²)) lies within s√(2π) (1 ± η(s)) for every μ, with
η(s) = 2 Σ_{m>=1} e**(-2π²s²m²), while the three normalising sums lie within σ√(2π) and σ√(2π) (1 + η(σ)). Since
σ_1 τ = s √V, and s is the smallest of the four, the probability of every z is that of the discrete Gaussian of
variance V but for a factor within e**±g, g <= -ln(1 - η(s)) + 3 η(s). For s² >= 5/4 that is below ``STEP_GAP``;
shorter steps are refused. Adding independent noise keeps such factors, so those of the steps multiply (a similar
bound: Kairouz, Liu, Steinke, ICML 2021, arXiv 2102.06387). Noise within e**±g of a law that is (ε, δ)-private costs
at most (ε + 2g, δ e**g): nothing beside δ, but it is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from math import isqrt, sqrt

import numpy as np

from stream.domains import Draw
from stream.errors import UsageError
from stream.mechanisms.exact import Ints, Irrational, evaluate, exp_minus
from stream.mechanisms.inversion import Digits, Words, by_table, read_only, refinement, signed, words
from stream.mechanisms.noise_labels import Context

SMALLEST_VARIANCE, LARGEST_VARIANCE = Fraction(1, 100), Fraction(10**10)
_FIRST = 63
"""Number of binary digits of U in a word."""
_GUARD, _DOUBT = 192, 80


def discrete_gaussian(key: bytes, label: bytes, variance: Fraction, n: int) -> Ints:
    """Return ``n`` exact draws of discrete Gaussian noise, a function of key, label and variance alone.

    Args:
        key: the day's secret.
        label: unique to this draw, see :mod:`stream.mechanisms.noise_labels`; contains the variance.
        variance: σ², from ``SMALLEST_VARIANCE`` to ``LARGEST_VARIANCE``.
        n: number of draws, one per zone in the order of the registry.

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
    return read_only(np.array([*table[: table.index(0)], 0], dtype=np.int64))


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
    """Return |Z| for a U that begins with ``first``, drawing digits until they decide every comparison with a p_k."""
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


# --- properties of the distribution -------------------------------------------------------------------


@lru_cache(maxsize=256)
def half_width_95(variance: Fraction) -> int:
    """Return the smallest w with Pr[|Z| > w] <= 0.05."""
    at_most = (1 << (_FIRST + _GUARD)) // 20
    return _above(_tails(check_variance(variance), _FIRST), at_most - (1 << _DOUBT))


def scale(variance: Fraction) -> float:
    """Return σ, rounded twice and so equal on every machine."""
    return sqrt(variance)


# The noise chain of Gaussian noise.

STEP_GAP = 2e-10
"""g: how far ln Pr of the sum of two discrete Gaussians is at most from that of one, where s² >= 5/4."""
_LEAST = Fraction(5, 4)


def gaussian_chain(
    key: bytes, context: Context, digest: bytes, variances: Sequence[Fraction], n: int
) -> dict[Fraction, Ints]:
    """Return the noise of every variance, equal ones sharing one value; steps run from the finest to the coarsest.

    Args:
        key: the day's secret.
        context: the window's release; the audience is not part of it.
        digest: digest of the counts that the noise is for.
        variances: σ² of each audience, at least one, in any order.
        n: number of zones.

    Raises:
        UsageError: no variance, one outside the range of the sampler, or two that are too close to each other.
    """
    ascending = sorted(set(variances))
    if not ascending:
        raise UsageError("variances must not be empty")
    check_steps(ascending)
    finest = ascending[0]
    noise = {finest: discrete_gaussian(key, context.label(Draw.GAUSSIAN, finest, digest=digest), finest, n)}
    for finer, coarser in pairwise(ascending):
        step = context.label(Draw.GAUSSIAN_ADD, finer, coarser, digest=digest)
        noise[coarser] = noise[finer] + discrete_gaussian(key, step, coarser - finer, n)
    return noise


def check_steps(variances: Sequence[Fraction]) -> None:
    """Raise UsageError where two variances differ by too little for their sums to have a known distribution."""
    for finer, coarser in pairwise(sorted(set(variances))):
        if not alike(finer, coarser - finer):
            raise UsageError(
                "variances of two audiences must be equal, or so far apart that 1/finer + 1/(coarser - finer) "
                f"is at most {1 / _LEAST}, got {finer} and {coarser}"
            )


def alike(one: Fraction, other: Fraction) -> bool:
    """Whether the sum of discrete Gaussians of these variances is within ``STEP_GAP`` of one: s² >= 5/4."""
    return one * other >= _LEAST * (one + other)


def sum_half_width_95(variance: Fraction, n: int) -> int:
    """Return a w with Pr[|sum of n independent draws| > w] <= 0.05: the smallest for one draw, for more at most 1 more.

    A discrete Gaussian of variance V exceeds w with at most twice the normal probability beyond w/√V, since its weights
    decrease and their sum is at least √(2πV). The factor 1.96 covers the difference for sums of up to 100,000 draws. A
    variance below 5/2 is too small for that; any draw is σ²-sub-Gaussian (arXiv 2004.00010, section 2), so the
    sum exceeds w with at most 2 e**(-w²/(2nσ²)).
    """
    if n == 1:
        return half_width_95(variance)
    square = n * variance * (_NORMAL if alike(variance, variance) else _SUB_GAUSSIAN)
    return 1 + isqrt(-(-square.numerator // square.denominator) - 1)


_NORMAL = Fraction("3.8416")
"""1.96², where 1.959964 would do."""
_SUB_GAUSSIAN = Fraction("7.3778")
"""2 ln 40, rounded up."""
