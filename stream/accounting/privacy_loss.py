"""Privacy loss distributions of equal releases, and the resulting prices.

The loss of a release at an outcome is ln(P/Q): P is the probability of the outcome with a change, Q without it. Losses
of independent releases add up, so the distribution of many is a convolution. Both noises are on the integers and both
losses are on a lattice, so the convolution is a finite sum without rounding to a grid:

* discrete Laplace of parameter e against a shift of k: (k - 2j) e, j = 0..k. For k = 1 it is +e or -e, the worst case
  of any e-DP release (Kairouz, Oh, Viswanath 2015), and the sum of N is binomial.
* discrete Gaussian of variance v against a shift of k: (k² - 2kx) / 2v at outcome x. The sum of N outcomes decides. For
  a standard deviation of at least ``SMOOTH`` its law is that of a discrete Gaussian of variance Nv to a factor of
  exp(10 N e^(-π² v)), within 1e-10 for a million (Kairouz, Liu, Steinke 2021, on sums); below that it is convolved.

delta(E) = E_P[max(0, 1 - e^(E - loss))] is the smallest delta for which the releases are (E, delta)-private. All
computations are + - * / in a fixed order (no BLAS, no library's exp), so that a noise scale calibrated from it is the
same on every machine.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TAIL = 1e-24
"""Mass that may be cut from a tail: at the top it counts as infinite loss, at the bottom as the least loss kept."""

REACH = 11
"""Standard deviations kept of a Gaussian: the mass beyond 11 is less than ``TAIL``."""

SMOOTH = 2
"""From this standard deviation on, a sum of discrete Gaussians is treated as one discrete Gaussian."""

WIDEST = 200_000
"""Largest standard deviation of a sum that is represented point by point (35 MB)."""

ROUNDING = 1e-6
"""Upper bound on the relative error of every mass and sum of masses here; prices use a delta reduced by it."""

_EXACT = Context(prec=40)


@dataclass(frozen=True, slots=True, eq=False)
class PrivacyLossDistribution:
    """A distribution of a loss on a descending lattice."""

    top: float
    """Largest loss, nats."""
    step: float
    """Distance of two neighbouring losses, nats, positive."""
    masses: Floats
    """``masses[i]`` is the probability of the loss ``top - i * step``."""
    infinite: float = 0.0
    """Probability that counts as infinite loss."""


def laplace_loss(epsilon: Decimal, shift: int, times: int) -> PrivacyLossDistribution:
    """Return the distribution for ``times`` releases of discrete Laplace noise, each value shifted by ``shift``."""
    return _repeated(_one_laplace(epsilon, shift), times)


@lru_cache(maxsize=256)
def _one_laplace(epsilon: Decimal, shift: int) -> PrivacyLossDistribution:
    q = _EXACT.exp(-epsilon)
    both = _EXACT.add(1, q)
    inner = _EXACT.divide(_EXACT.subtract(1, q), both)
    masses = [_EXACT.divide(1, both)]
    masses += [_EXACT.multiply(inner, _EXACT.power(q, j)) for j in range(1, shift)]
    masses.append(_EXACT.divide(_EXACT.power(q, shift), both))
    step = float(epsilon)
    return PrivacyLossDistribution(shift * step, 2 * step, np.array([float(m) for m in masses]))


def gaussian_loss(variance: Fraction, shift: int, times: int) -> PrivacyLossDistribution:
    """Return the distribution for ``times`` releases of discrete Gaussian noise, each value shifted by ``shift``."""
    if variance >= SMOOTH**2:
        return _bell(variance, shift, times)
    return _repeated(_bell(variance, shift, 1), times)


def _bell(variance: Fraction, shift: int, times: int) -> PrivacyLossDistribution:
    """Return the distribution where the sum of ``times`` outcomes is one discrete Gaussian."""
    spread = float(times * variance)
    reach = math.ceil(REACH * math.sqrt(spread)) + 1
    outcomes = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = exp_minus(outcomes * outcomes / (2 * spread))
    masses = weights / _sum(weights)
    step = float(shift / variance)
    return PrivacyLossDistribution(
        float(Fraction(times * shift * shift) / (2 * variance)) + reach * step, step, masses, TAIL
    )


@lru_cache(maxsize=1024)
def _repeated(law: PrivacyLossDistribution, times: int) -> PrivacyLossDistribution:
    """Return the distribution of the sum of ``times`` independent losses, by squaring.

    Cached, since a running stream needs the same ones, or those of a few more values, at every window.
    """
    if times == 1:
        return law
    squared = _repeated(_twice(law), times // 2)
    return added(squared, law) if times % 2 else squared


@lru_cache(maxsize=256)
def _twice(law: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Return the distribution of two losses: one object for each law, by which ``_repeated`` knows it again."""
    return added(law, law)


def added(one: PrivacyLossDistribution, other: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Return the distribution of the sum of two independent losses of the same step, without its tails."""
    short, long = sorted((one.masses, other.masses), key=len)
    masses = np.zeros(len(short) + len(long) - 1)
    for i, mass in enumerate(short):  # elementwise: a library's convolution may add in another order on another machine
        masses[i : i + len(long)] += mass * long
    return _trimmed(PrivacyLossDistribution(one.top + other.top, one.step, masses, one.infinite + other.infinite))


def convolved(one: PrivacyLossDistribution, other: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Return the distribution of the sum of two independent losses of the same step, by Fourier transform.

    Fast where both distributions are long. Masses are rounded, and their last bits depend on the machine (``added`` has
    the same ones everywhere).
    """
    size = len(one.masses) + len(other.masses) - 1
    points = 1 << (size - 1).bit_length()
    masses = np.fft.irfft(np.fft.rfft(one.masses, points) * np.fft.rfft(other.masses, points), points)[:size]
    masses = np.maximum(masses, 0.0)
    return PrivacyLossDistribution(one.top + other.top, one.step, masses, one.infinite + other.infinite)


def on_grid(law: PrivacyLossDistribution, interval: float) -> PrivacyLossDistribution:
    """Return a distribution on multiples of ``interval`` that costs at least as much as ``law`` at every epsilon.

    The mass at a loss x between grid points l and u is divided between both, so that its total is preserved with the
    change and without it: p to u, with p (1 - e^-(u-l)) = mass (1 - e^-(x-l)), and the rest to l. ``law`` is obtained
    by merging the two points of an outcome; such post-processing costs nothing. The price rises with the square of
    ``interval`` ("connect the dots": Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022).
    """
    losses = law.top - law.step * np.arange(len(law.masses))
    above = np.ceil(losses / interval)
    over = np.clip(losses - (above - 1) * interval, 0.0, interval)
    shares = 1.0 - exp_minus(np.append(over, interval))
    upper = law.masses * np.minimum(1.0, shares[:-1] / shares[-1])
    return _filed(above, upper, law.masses - upper, interval, law.infinite)


def rounded_up(law: PrivacyLossDistribution, interval: float) -> PrivacyLossDistribution:
    """Return a distribution with every loss rounded up to a multiple of ``interval``: no loss becomes less likely."""
    above = np.ceil((law.top - law.step * np.arange(len(law.masses))) / interval)
    return _filed(above, law.masses, np.zeros_like(law.masses), interval, law.infinite)


def _filed(above: Floats, upper: Floats, lower: Floats, interval: float, infinite: float) -> PrivacyLossDistribution:
    """Return the distribution with masses ``upper`` at grid points ``above`` and ``lower`` at those before."""
    places = (above[0] - above).astype(np.int64)
    masses = np.bincount(places, weights=upper, minlength=int(places[-1]) + 2)
    masses[1:] += np.bincount(places, weights=lower, minlength=int(places[-1]) + 1)
    return PrivacyLossDistribution(float(above[0]) * interval, interval, masses.astype(np.float64), infinite)


def levels_loss(
    variances: Sequence[Fraction],
    shift: int,
    times: int,
    points: int,
    gridded: Callable[[PrivacyLossDistribution, float], PrivacyLossDistribution],
) -> PrivacyLossDistribution:
    """Return the distribution for discrete Gaussian noise on ``times`` values per level, each shifted by ``shift``.

    Levels of equal variance are composed exactly, others on a grid of ``points`` points.

    Args:
        variances: of each level.
        shift: of each value.
        times: values of each level.
        points: of the grid, for all levels together.
        gridded: puts a distribution on a grid: ``on_grid`` or ``rounded_up``.
    """
    alike = Counter(variances)
    laws = [gaussian_loss(variance, shift, times * levels) for variance, levels in sorted(alike.items())]
    if len(laws) == 1:
        return laws[0]
    interval = sum(law.step * len(law.masses) for law in laws) / points
    return reduce(added, (gridded(law, interval) for law in laws))


def _trimmed(law: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Cut at most ``TAIL`` from each end; the cut mass counts as a larger loss, never as a smaller one."""
    above, below = np.cumsum(law.masses), np.cumsum(law.masses[::-1])
    first = int(np.searchsorted(above, TAIL))
    last = max(first, len(law.masses) - 1 - int(np.searchsorted(below, TAIL)))
    kept = law.masses[first : last + 1].copy()
    if last + 1 < len(law.masses):
        kept[-1] += below[len(law.masses) - 2 - last]
    infinite = law.infinite + (float(above[first - 1]) if first else 0.0)
    return PrivacyLossDistribution(law.top - first * law.step, law.step, kept, infinite)


def delta_at(law: PrivacyLossDistribution, epsilon: float) -> float:
    """Return delta(epsilon), at least 0, for an epsilon of any sign, in nats."""
    above = math.ceil((law.top - epsilon) / law.step)
    if above <= 0:
        return law.infinite
    masses = law.masses[:above]
    excess = np.maximum((law.top - epsilon) - law.step * np.arange(len(masses)), 0.0)
    return law.infinite + _sum(masses * (1.0 - exp_minus(excess)))


def epsilon_at(law: PrivacyLossDistribution, delta: float) -> float:
    """Return the smallest epsilon >= 0 with delta(epsilon) <= ``delta``; infinity if none has.

    Between two losses delta(E) = A - e^E B, with A and B sums over the losses above; E is solved for directly.
    """
    if law.infinite > delta:
        return math.inf
    if not _is_far_above(law, delta) and delta_at(law, 0.0) <= delta:
        return 0.0
    least = _last_loss(law, delta)
    masses = law.masses[: least + 1]
    a = law.infinite + _sum(masses)
    b = _sum(masses * exp_minus(law.step * np.arange(least, -1, -1.0)))
    return max(0.0, law.top - least * law.step + float(_EXACT.ln(Decimal((a - delta) / b))))


def _is_far_above(law: PrivacyLossDistribution, delta: float) -> bool:
    """Return whether delta(0) is certainly larger, from losses above ln 2 alone; each adds half its mass or more."""
    large = int((law.top - math.log(2)) / law.step) if law.top > math.log(2) else 0
    return 0.49 * float(law.masses[:large].sum()) > delta


def _last_loss(law: PrivacyLossDistribution, delta: float) -> int:
    """Return the index of the smallest positive loss at which ``delta`` is still met; it is met at the largest."""

    def exceeds(index: int) -> bool:
        return delta_at(law, law.top - index * law.step) > delta

    end = min(len(law.masses), math.ceil(law.top / law.step))
    first, stride = min(_about_last_loss(law, delta, end), end - 1), 1
    while first > 0 and exceeds(first):
        end, first, stride = first, max(0, first - stride), 2 * stride
    stride = 1
    while first + stride < end and not exceeds(first + stride):
        first, stride = first + stride, 2 * stride
    return bisect_left(range(first + 1, min(end, first + stride)), True, key=exceeds) + first


def _about_last_loss(law: PrivacyLossDistribution, delta: float, end: int) -> int:
    """Return a guess of ``_last_loss`` from all losses at once, which may err and depends on the machine."""
    growth = np.minimum(law.step * np.arange(end), 600.0)
    masses = law.masses[:end]
    deltas = law.infinite + np.cumsum(masses) - np.exp(-growth) * np.cumsum(masses * np.exp(growth))
    return max(0, int(np.searchsorted(deltas > delta, True)) - 1)


def exp_minus(values: Floats) -> Floats:
    """Return e^-x for x >= 0, to a relative 1e-12 up to 60 and at least e^-61 above: the same bits on every machine."""
    small = np.minimum(values, 61.0) / -1024
    result = 1.0 + small / 12
    for n in range(11, 0, -1):  # Taylor series by Horner's method: |small| < 0.06
        result *= small
        result /= n
        result += 1.0
    for _ in range(10):
        result *= result
    return result


def _sum(values: Floats) -> float:
    return float(np.cumsum(values)[-1])
