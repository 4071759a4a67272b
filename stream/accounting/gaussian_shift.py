"""The price of a shift of Gaussian noise by mu standard deviations.

A release whose privacy loss is at most that of one value of the standard normal distribution shifted by mu is, for
every epsilon, (epsilon, delta)-private with

    delta = Φ(mu/2 - epsilon/mu) - e**epsilon Φ(-mu/2 - epsilon/mu)        (Balle, Wang, ICML 2018, arXiv 1805.06530)

and mu² adds up over releases. A day whose changes are counted is such a release
(:mod:`stream.mechanisms.changes.calibration` has the proof): mu for a day added or removed, less than 2 mu for a day
replaced or for a part of a day, m mu for m devices. Under the change the loss is normal, of mean mu²/2 and variance
mu². It is that of a Brownian motion, so the probability that it exceeds x at any time of the day is

    Φ(-(x - mu²/2)/mu) + e**x Φ(-(x + mu²/2)/mu)

Computed in decimals of a fixed precision, so that results are the same on every machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil

from stream.accounting.composition import Gaussian
from stream.errors import UsageError

_PRECISE = Context(prec=150, rounding=ROUND_HALF_EVEN)
"""The terms of Φ are below e**(x²/2), and |x| below 20: 87 digits may cancel."""
_STEPS = 10**9
"""Steps of mu and of epsilon in 1."""
_LOSS_STEPS = 10**6
MOST_MU, MOST_EPSILON = 16, 1000

CELLS = 512
"""Values over which ``unit_shifts`` distributes a shift."""
_ROUGHNESS = 5
"""A continuous Gaussian of variance V costs at most what a discrete one of variance V - 5 costs: adding a continuous
Gaussian of variance 5 to the latter gives the former, but for a factor within e**±1e-40."""


def largest_shift(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return mu², rounded down, for which a shift of mu is (epsilon, delta)-private, also as ``unit_shifts`` puts it.

    Raises:
        UsageError: epsilon is not 0.01 to 100, or delta not 1e-10 to 0.01.
    """
    for name, value, least, most in (("epsilon", epsilon, 0.01, 100.0), ("delta", delta, 1e-10, 0.01)):
        if not least <= float(value) <= most:
            raise UsageError(f"{name} must lie in [{least:g}, {most:g}], got {float(value):g}")
    return _largest_shift(Fraction(epsilon), Fraction(delta))


@lru_cache(maxsize=256)
def _largest_shift(epsilon: Fraction, delta: Fraction) -> Fraction:
    found = _first(MOST_MU * _STEPS, lambda n: delta_of(Fraction(n, _STEPS), epsilon) > _decimal(delta))
    squared = Fraction(found - 1, _STEPS) ** 2
    return CELLS * CELLS / (CELLS * CELLS / squared + 2 * _ROUGHNESS)


@lru_cache(maxsize=256)
def epsilon_of(squared: Fraction, delta: Fraction) -> float:
    """Return the epsilon at delta of a shift of mu, rounded up to a billionth.

    Args:
        squared: mu², above 0; up to 4 mu² for a day replaced.
        delta: above 0.
    """
    mu = _root_above(squared)
    found = _first(MOST_EPSILON * _STEPS, lambda n: delta_of(mu, Fraction(n, _STEPS)) <= _decimal(delta))
    return found / _STEPS


@lru_cache(maxsize=256)
def likely_loss_of(squared: Fraction, probability: Fraction) -> Fraction:
    """Return a loss that a shift of mu exceeds at any time of the day with at most a probability; rounded up.

    Args:
        squared: mu², above 0.
        probability: above 0.
    """
    mu = _root_above(squared)

    def exceeds(n: int) -> bool:
        with localcontext(_PRECISE):
            x, scale = Decimal(n) / _LOSS_STEPS, _decimal(mu)
            middle = scale * scale / 2
            later = x.exp() * normal(-(x + middle) / scale)
            return normal(-(x - middle) / scale) + later <= _decimal(probability)

    return Fraction(_first(MOST_EPSILON * _LOSS_STEPS, exceeds), _LOSS_STEPS)


def unit_shifts(squared: Fraction) -> Gaussian:
    """Return the noise of which ``CELLS`` values, each shifted by one, cost at least as much as a shift of mu.

    Their epsilon is larger by 1e-4 of it at most. In a noise multiset (``costs``) a day added or removed has ``CELLS``
    such values; a day replaced, or a part of one, has up to four times as many.

    Args:
        squared: mu², above 0 and at most ``MOST_MU``².

    Raises:
        UsageError: mu is out of range.
    """
    if not 0 < squared <= MOST_MU**2:
        raise UsageError(f"mu must be above 0 and at most {MOST_MU}, got {float(squared) ** 0.5:g}")
    return Gaussian((CELLS * CELLS / squared - _ROUGHNESS) / CELLS)


def delta_of(mu: Fraction, epsilon: Fraction) -> Decimal:
    """Return delta of a shift of mu at an epsilon."""
    with localcontext(_PRECISE):
        scale, at = _decimal(mu), _decimal(epsilon)
        return normal(scale / 2 - at / scale) - at.exp() * normal(-scale / 2 - at / scale)


def normal(x: Decimal) -> Decimal:
    """Return Φ(x), to 60 digits after the point for |x| <= 20; 0 or 1 beyond 20 (an error below 1e-88).

    Φ(x) = 1/2 + φ(x) (x + x³/3 + x⁵/(3·5) + …).
    """
    if abs(x) > 20:
        return Decimal(x > 0)
    with localcontext(_PRECISE):
        term = total = x
        n, square = 1, x * x
        while abs(term) > Decimal("1e-62"):
            n += 2
            term = term * square / n
            total += term
        return Decimal("0.5") + total * (-square / 2).exp() / _root_of_two_pi()


@lru_cache(maxsize=1)
def _root_of_two_pi() -> Decimal:
    """Return √(2π), π by Machin's formula."""
    with localcontext(_PRECISE):
        return (2 * 4 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))).sqrt()


def _arctan_of_inverse(n: int) -> Decimal:
    power, total, k = 1 / Decimal(n), Decimal(0), 0
    while power > Decimal("1e-149"):
        total += (-1) ** k * power / (2 * k + 1)
        power, k = power / (n * n), k + 1
    return total


def _root_above(squared: Fraction) -> Fraction:
    """Return a number whose square is at least ``squared``, and larger by 1e-15 of it at most."""
    with localcontext(_PRECISE):
        return Fraction(ceil(_decimal(squared).sqrt() * 10**20) + 1, 10**20)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _first(end: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from 1 on for which a condition holds that stays true, at most ``end``."""
    return bisect_left(range(end), True, lo=1, key=holds)
