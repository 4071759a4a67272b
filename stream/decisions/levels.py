"""Which ε makes misses rare enough, and which shift: exact, on integers.

    symbol  here     meaning
    c       --       threshold: positive is a count of at least c + 1
    a       --       e**-ε
    s       shift    how far below the threshold a noisy count may still count as above
    β       beta     bound on Pr[a count of c + 1 is missed]

A count of c + 1 with discrete Laplace noise is taken for at most c - s with probability a**(s+1) / (1+a), and any
larger count less often; a count of c - 2s or less is taken for above just as rarely. The thesis has the continuous
law instead, ε = ln(1/2β)/α.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise

from stream.errors import UsageError
from stream.mechanisms.irrational import decimal, exp_minus, floor_scaled
from stream.mechanisms.noise import SMALLEST_EPSILON

GRID = SMALLEST_EPSILON.denominator
"""Epsilons are multiples of one over this, rounded up: misses become rarer by it."""


@lru_cache(maxsize=4096)
def shift_for(epsilon: Fraction, beta: Fraction) -> int:
    """Return the least s >= 0 with a**(s+1) / (1+a) <= β."""

    def s() -> Decimal:
        return -(decimal(beta) * (1 + exp_minus(epsilon))).ln() / decimal(epsilon)

    return max(0, floor_scaled(s))


@lru_cache(maxsize=256)
def epsilon_for(shift: int, beta: Fraction) -> Fraction:
    """Return the least ε, a multiple of 1e-9, with a**(s+1) / (1+a) <= β, for 0 < β < ½ and s >= 0."""
    enough = floor_scaled(lambda: -decimal(beta).ln() / (shift + 1), 30) * GRID // (1 << 30) + 2
    too_little = 0
    while enough - too_little > 1:
        middle = (enough + too_little) // 2
        if shift_for(Fraction(middle, GRID), beta) <= shift:
            enough = middle
        else:
            too_little = middle
    return Fraction(enough, GRID)


def printed_epsilon(alpha: Fraction, beta: Fraction) -> Fraction:
    """Return the thesis' ε = ln(1/2β)/α, rounded up to a multiple of 1e-9."""
    return Fraction(floor_scaled(lambda: -(2 * decimal(beta)).ln() / decimal(alpha) * GRID) + 1, GRID)


def printed_shift(epsilon: Fraction, beta: Fraction) -> int:
    """Return what the thesis' α = ln(1/2β)/ε is among integers."""
    return max(0, floor_scaled(lambda: -(2 * decimal(beta)).ln() / decimal(epsilon)))


@lru_cache(maxsize=256)
def geometric(first: Fraction, last: Fraction, steps: int) -> tuple[Fraction, ...]:
    """Return ``steps`` epsilons from first to last, each the one before times the same, rounded up to 1e-9.

    Raises:
        UsageError: they do not grow.
    """
    levels = (last,) if steps == 1 else (first, *_between(first, last, steps), last)
    if any(finer <= coarser for coarser, finer in pairwise(levels)):
        rule = f"below the last one of {float(last):g}, by enough for {steps} steps"
        raise UsageError(f"the first epsilon must be {rule}, got {float(first):g}")
    return levels


def _between(first: Fraction, last: Fraction, steps: int) -> Iterator[Fraction]:
    for j in range(1, steps - 1):
        share = Fraction(j, steps - 1)

        yield Fraction(floor_scaled(partial(_scaled, first, last, share)) + 1, GRID)


def _scaled(first: Fraction, last: Fraction, share: Fraction) -> Decimal:
    """Return first**(1-share) · last**share in units of the grid; a hair more, so that no whole number is in doubt."""
    logarithm = decimal(first).ln() * decimal(1 - share) + decimal(last).ln() * decimal(share)
    return logarithm.exp() * GRID + Decimal("1e-40")
