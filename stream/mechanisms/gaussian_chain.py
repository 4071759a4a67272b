"""One chain of discrete Gaussian noise for all audiences of a release, and how near its sums are to the law.

The finest audience gets discrete Gaussian noise of variance σ_1²; each coarser one gets the value of the next finer one
plus an independent discrete Gaussian of variance τ² = σ_2² - σ_1². So what a coalition learns follows from what its
finest member was given. What a coarse reader alone learns follows from the law of a sum of discrete Gaussians,
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

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import isqrt

from stream.errors import UsageError
from stream.mechanisms.gaussian import discrete_gaussian, half_width_95
from stream.mechanisms.inversion import Ints
from stream.mechanisms.labels import Context

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
        UsageError: no variance, one outside the range of the sampler, or two that are too near each other.
    """
    ascending = sorted(set(variances))
    if not ascending:
        raise UsageError("variances must not be empty")
    check_steps(ascending)
    finest = ascending[0]
    noise = {finest: discrete_gaussian(key, context.label("gaussian", finest, digest=digest), finest, n)}
    for finer, coarser in pairwise(ascending):
        step = context.label("gaussian-add", finer, coarser, digest=digest)
        noise[coarser] = noise[finer] + discrete_gaussian(key, step, coarser - finer, n)
    return noise


def check_steps(variances: Sequence[Fraction]) -> None:
    """Raise UsageError where two variances differ, but too little for their sums to have a known law."""
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
    fall and their sum is at least √(2πV). 1.96 leaves room for what sums of up to 100,000 draws differ by. A
    variance below 5/2 is too small for that; any draw is σ²-sub-Gaussian (arXiv 2004.00010, section 2), so that the
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
