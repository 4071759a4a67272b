"""The noise that keeps a day of changes within its price.

    symbol   here             meaning
    D'²      squared          largest |C'd|² of one device's day at a level (``sensitivity``)
    σ'²      variances        of the noise z in u', of each level
    f_l      shares           share of the price that pays for level l, together 1
    mu²      squared_shift    Σ_l D'²/σ'_l²

**Claim.** A day added or removed costs at most what one value of a continuous Gaussian costs that is shifted by mu
standard deviations (:mod:`stream.accounting.gaussian_shift`), even if what people do depends on what was published
before. A day replaced, or a part of a day, changes C'd by a difference of two such vectors. Its squared length is at
most ``day_charges.REPLACED`` D'², whatever happens, so in the proof that many mu² take the place of mu². m devices
shift by m mu.

**Proof.** 1. Let x be a discrete Gaussian of variance V around an integer m, and y a continuous one of variance V - τ²
around m. Round y to the integers at random, with weights e**(-(x-y)²/(2τ²)). By Poisson's summation the sum of these
weights is τ√(2π) (1 ± η(τ)) for every y, η(τ) < 2.1 e**(-2π²τ²). So the result has the law of x but for a factor within
e**±4η(τ): a value with discrete noise is, up to this factor, computed from a value with continuous noise. τ² = 8 gives
1e-67 a value, and σ'² is larger than 10⁹.

2. It therefore suffices to look at a stream with continuous noise whose readers see every y. In one world a device is
present, in the other it is not. Let s_t be the difference of C'd at tick t of both worlds, in standard deviations. It
depends on what was released before, and on nothing else. Whatever happens, Σ s_t² <= mu²: the device's day is one of
those that D' covers, on every path. Append a last value whose shift makes the sum mu² exactly; this can only tell more.

3. Without the device, the loss is Σ_t (s_t g_t - s_t²/2), g_t independent standard normal, g_t also independent of
s_1 … s_t. The products of e**(iθ s_t g_t + θ² s_t²/2) are a bounded martingale of mean 1, and their last value is
e**(iθ Σ s_t g_t + θ² mu²/2). So Σ s_t g_t is normal of variance mu² exactly, and the loss has the law of one value that
is shifted by mu. Nothing is lost by adaptivity. (Rotations of a Gaussian vector, as in the proof of Denisov, McMahan,
Rush, Smith, Thakurta, NeurIPS 2022, are not needed. Concentrated privacy would need 7 % more noise at epsilon 2.)

4. Several levels are further values with noise of their own; their s_t² add up. A coarser audience's noise is a finer
one's plus independent noise, so together readers know what the finest one knows, for the price of that audience.

**Windows that are not released.** Their counts, read or not, are not used: d at the next window is the difference to
the last window that was. So x is replaced by its values at the windows used, held in between. That has no more changes
at any node, they alternate as before, and they are as many in total at most: if the device is seen at one node and then
at another, it has left the first and come to the second. The day thus remains one that D' covers, and releasing only
some rows of C'd makes the sum smaller. All audiences must use the same windows, as their noise is one chain.

The laws of the noise that is drawn differ from discrete Gaussians by ``noise.LATTICE_GAP``, for a day together. An
(epsilon, delta) price becomes (epsilon + 2e-50, delta (1 + 2e-50)); ``SLACK`` covers both.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from stream.accounting.gaussian_shift import largest_shift
from stream.errors import UsageError
from stream.mechanisms.changes.factor import MatrixFactor
from stream.mechanisms.changes.sensitivity import SEVERAL, squared_sensitivity

SLACK = Fraction(1, 10**9)
"""Relative part of mu² that is not used."""


def changes_variances(
    epsilon: Fraction,
    delta: Fraction,
    factor: MatrixFactor,
    shares: tuple[Fraction, ...] = (Fraction(1),),
    nodes: tuple[int, ...] | None = None,
) -> tuple[Fraction, ...]:
    """Return σ'² of each level, leaves first, in units of u', for which one day added or removed costs the price.

    Args:
        epsilon: of a device's day, nats, 0.01 to 100.
        delta: 1e-10 to 0.01.
        factor: of the release.
        shares: of each level in mu², each above 0, together 1.
        nodes: number of nodes of each level; None if it is not known. A level of one node needs less noise.

    Raises:
        UsageError: an argument is outside its range.
    """
    if not all(share > 0 for share in shares) or sum(shares) != 1:
        raise UsageError(f"shares must each be above 0 and add up to 1, got {', '.join(map(str, shares))}")
    affordable = largest_shift(epsilon, delta) * (1 - SLACK)
    return tuple(
        Fraction(ceil(squared_sensitivity(factor, count) / (affordable * share)))
        for count, share in zip(nodes or (SEVERAL,) * len(shares), shares, strict=True)
    )


def squared_shift(
    factor: MatrixFactor, variances: tuple[Fraction, ...], nodes: tuple[int, ...] | None = None
) -> Fraction:
    """Return mu² of a day added or removed, all levels together: what an account adds up.

    Args:
        factor: of the release.
        variances: σ'² of each level.
        nodes: as for ``changes_variances``.
    """
    levels = zip(nodes or (SEVERAL,) * len(variances), variances, strict=True)
    return sum((squared_sensitivity(factor, count) / variance for count, variance in levels), Fraction(0))
