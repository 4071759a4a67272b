"""The law of the privacy loss of equal releases, point by point, and the price that follows from it.

The loss of a release at an outcome is ln(P/Q): how much likelier the outcome is with a change than without it. Losses
of independent releases add, so the law of many is a convolution. Both noises are on the integers and both losses lie
on a lattice, so that the convolution is a finite sum and nothing is rounded to a grid:

* discrete Laplace of parameter e against a shift of k: (k - 2j) e, j = 0..k. For k = 1 it is +e or -e, the worst that
  any e-DP release can do (Kairouz, Oh, Viswanath 2015), and the sum of N is binomial.
* discrete Gaussian of variance v against a shift of k: (k² - 2kx) / 2v at outcome x. The sum of N outcomes decides. For
  a standard deviation of at least ``SMOOTH`` its law is that of a discrete Gaussian of variance Nv to a factor of
  exp(10 N e^(-π² v)), within 1e-10 for a million (Kairouz, Liu, Steinke 2021, on sums); below that it is convolved.

delta(E) = E_P[max(0, 1 - e^(E - loss))] is the smallest delta for which the releases are (E, delta)-private. All of it
is + - * / in a fixed order (no BLAS, no library's exp), so that a noise scale calibrated from it is one everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Mass that may be cut from a tail: above it counts as infinite loss, below it as the least loss that is kept.
TAIL = 1e-24

#: Standard deviations kept of a Gaussian: beyond 11 there is less than ``TAIL``.
REACH = 11

#: From this standard deviation on, a sum of discrete Gaussians is one.
SMOOTH = 2

#: Largest standard deviation of a sum that is laid out point by point (35 MB).
WIDEST = 200_000

#: Relative error of every mass and sum of masses here, generously; prices are asked for at a delta smaller by it.
ROUNDING = 1e-6

_EXACT = Context(prec=40)


@dataclass(frozen=True, slots=True, eq=False)
class LossLaw:
    """The law of a loss on a falling lattice.

    Attributes:
        top: largest loss, nats.
        step: distance of two neighbouring losses, nats, positive.
        masses: ``masses[i]`` is the probability of the loss ``top - i * step``.
        infinite: probability that counts as infinite loss.
    """

    top: float
    step: float
    masses: Floats
    infinite: float = 0.0


def laplace_law(epsilon: Decimal, shift: int, times: int) -> LossLaw:
    """Return the law of ``times`` releases of discrete Laplace noise, each value shifted by ``shift``."""
    q = _EXACT.exp(-epsilon)
    both = _EXACT.add(1, q)
    inner = _EXACT.divide(_EXACT.subtract(1, q), both)
    masses = [_EXACT.divide(1, both)]
    masses += [_EXACT.multiply(inner, _EXACT.power(q, j)) for j in range(1, shift)]
    masses.append(_EXACT.divide(_EXACT.power(q, shift), both))
    step = float(epsilon)
    return _repeated(LossLaw(shift * step, 2 * step, np.array([float(m) for m in masses])), times)


def gaussian_law(variance: Fraction, shift: int, times: int) -> LossLaw:
    """Return the law of ``times`` releases of discrete Gaussian noise, each value shifted by ``shift``."""
    if variance >= SMOOTH**2:
        return _bell(variance, shift, times)
    return _repeated(_bell(variance, shift, 1), times)


def _bell(variance: Fraction, shift: int, times: int) -> LossLaw:
    """Return the law that follows from the sum of ``times`` outcomes as one discrete Gaussian."""
    spread = float(times * variance)
    reach = math.ceil(REACH * math.sqrt(spread)) + 1
    outcomes = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = exp_minus(outcomes * outcomes / (2 * spread))
    masses = weights / _sum(weights)
    step = float(shift / variance)
    return LossLaw(float(Fraction(times * shift * shift) / (2 * variance)) + reach * step, step, masses, TAIL)


def _repeated(law: LossLaw, times: int) -> LossLaw:
    """Return the law of ``times`` independent losses, by squaring."""
    if times == 1:
        return law
    squared = _repeated(added(law, law), times // 2)
    return added(squared, law) if times % 2 else squared


def added(one: LossLaw, other: LossLaw) -> LossLaw:
    """Return the law of the sum of two independent losses of the same step, without its tails."""
    short, long = sorted((one.masses, other.masses), key=len)
    masses = np.zeros(len(short) + len(long) - 1)
    for i, mass in enumerate(short):  # elementwise: a library's convolution may add in another order on another machine
        masses[i : i + len(long)] += mass * long
    return _trimmed(LossLaw(one.top + other.top, one.step, masses, one.infinite + other.infinite))


def on_grid(law: LossLaw, interval: float) -> LossLaw:
    """Return a law with every loss rounded up to a multiple of ``interval``, so that laws of any steps can be added."""
    losses = np.ceil((law.top - law.step * np.arange(len(law.masses))) / interval).astype(np.int64)
    masses: Floats = np.bincount(losses[0] - losses, weights=law.masses).astype(np.float64)
    return LossLaw(float(losses[0]) * interval, interval, masses, law.infinite)


def _trimmed(law: LossLaw) -> LossLaw:
    """Cut at most ``TAIL`` from each end; what is cut is counted as more loss than it is, never as less."""
    above, below = np.cumsum(law.masses), np.cumsum(law.masses[::-1])
    first = int(np.searchsorted(above, TAIL))
    last = max(first, len(law.masses) - 1 - int(np.searchsorted(below, TAIL)))
    kept = law.masses[first : last + 1].copy()
    if last + 1 < len(law.masses):
        kept[-1] += below[len(law.masses) - 2 - last]
    infinite = law.infinite + (float(above[first - 1]) if first else 0.0)
    return LossLaw(law.top - first * law.step, law.step, kept, infinite)


def delta_at(law: LossLaw, epsilon: float) -> float:
    """Return delta(epsilon), at least 0, for an epsilon of any sign, in nats."""
    above = math.ceil((law.top - epsilon) / law.step)
    if above <= 0:
        return law.infinite
    masses = law.masses[:above]
    excess = np.maximum((law.top - epsilon) - law.step * np.arange(len(masses)), 0.0)
    return law.infinite + _sum(masses * (1.0 - exp_minus(excess)))


def epsilon_at(law: LossLaw, delta: float) -> float:
    """Return the smallest epsilon >= 0 with delta(epsilon) <= ``delta``; infinity if none has.

    Between two losses delta(E) = A - e^E B, with A and B sums over the losses above: solved, not searched for.
    """
    if law.infinite > delta:
        return math.inf
    if delta_at(law, 0.0) <= delta:
        return 0.0
    least, most = 0, min(len(law.masses), math.ceil(law.top / law.step)) - 1
    while least < most:  # the last loss at which delta is still kept
        middle = (least + most + 1) // 2
        if delta_at(law, law.top - middle * law.step) <= delta:
            least = middle
        else:
            most = middle - 1
    masses = law.masses[: least + 1]
    a = law.infinite + _sum(masses)
    b = _sum(masses * exp_minus(law.step * np.arange(least, -1, -1.0)))
    return max(0.0, law.top - least * law.step + float(_EXACT.ln(Decimal((a - delta) / b))))


def exp_minus(values: Floats) -> Floats:
    """Return e^-x for x >= 0, to a relative 1e-12 up to 60 and e^-61 at least above: the same bits on every machine."""
    small = np.minimum(values, 61.0) / -1024
    result = np.ones_like(small)
    for n in range(12, 0, -1):  # Taylor, Horner's way: |small| < 0.06
        result = 1.0 + result * small / n
    for _ in range(10):
        result = result * result
    return result


def _sum(values: Floats) -> float:
    return float(np.cumsum(values)[-1])
