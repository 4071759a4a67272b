"""Privacy loss distributions of equal releases, and the resulting prices and scales.

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
same on every machine. ``calibrate`` finds the scale of Gaussian noise that keeps a run of releases within a price.
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

from stream.errors import UsageError

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
    by merging the two points of an outcome; such post-processing costs nothing. The price rises with the
    square of ``interval`` (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022).
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


# Calibration of Gaussian noise.

__all__ = ["LeastNoiseError", "calibrate", "grid_variance", "likely_loss"]

MARGIN = 0.999
"""Calibration reduces the promised delta by this, for 0.02 % of sigma. It covers rounding, and that the noise of a
coarser audience is a sum of discrete Gaussians, which is only nearly a discrete Gaussian (``STEP_GAP``)."""

POINTS, TAIL_POINTS = 4000, 20_000
"""Points of the grid on which levels of different variances are composed: for a price, and for a tail."""

DECADE, GRID = 900, 13 * 900
"""Points of the grid in a decade of sigma²: all numbers of three digits. And its number of points, 0.01 to 10^11."""

_LOGARITHM = Context(prec=30)


class LeastNoiseError(UsageError):
    """A price allows less noise than the smallest supported amount."""


def grid_variance(index: int) -> Fraction:
    """Return the ``index``-th sigma² of the grid: three significant digits, from 0.01 on (0.5 % of sigma apart)."""
    decade, digits = divmod(index, DECADE)
    return (100 + digits) * Fraction(10) ** (decade - 4)


def calibrate(
    epsilon: Decimal | Fraction | float,
    delta: Decimal | Fraction | float,
    ticks: int,
    shares: tuple[Fraction, ...] = (Fraction(1),),
) -> tuple[Fraction, ...]:
    """Return sigma² of each level's discrete Gaussian noise, for which ``ticks`` values of all levels cost the price.

    A level has the variance v / share, with one v for all: the smallest of the grid (``grid_variance``) for which the
    composition of these levels, each with its own noise, is (``epsilon``, ``delta``)-private.

    Args:
        epsilon: of a device's day, nats, 0.01 to 100.
        delta: 1e-10 to 0.01.
        ticks: K, values of each level that one day can change, each by one: the squared sensitivity.
        shares: of each level in the concentrated cost, each above 0, together 1.

    Raises:
        UsageError: an argument is outside its range, or the noise would be too wide to lay out.
        LeastNoiseError: the price allows less noise than the smallest supported amount.
    """
    _check(epsilon, delta, ticks, shares)
    return tuple(grid_variance(_smallest(epsilon, delta, ticks, shares)) / share for share in shares)


@lru_cache(maxsize=256)
def _smallest(
    epsilon: Decimal | Fraction | float, delta: Decimal | Fraction | float, ticks: int, shares: tuple[Fraction, ...]
) -> int:
    """Return the index of the grid point; cached, since every policy and every site needs the same ones."""

    def keeps(index: int) -> bool:
        return delta_at(_loss_at(index, epsilon, ticks, shares), float(epsilon)) <= float(delta) * MARGIN

    if len(shares) == 1:
        least = _first_guess(float(epsilon), Decimal(str(float(delta))), ticks)
    else:
        least = _smallest(epsilon, delta, ticks, (Fraction(1),))  # near the result, except where there is little noise
    stride = 1
    while not keeps(least):
        least, stride = least + stride, 2 * stride
    most, stride = least, 1
    while least > 0 and keeps(least):
        most, least, stride = least, max(0, least - stride), 2 * stride
    found = least + bisect_left(range(least, most), True, key=keeps)
    if found == 0:
        _check_supported(float(epsilon), float(delta), ticks, shares)
    return found


def _check_supported(epsilon: float, delta: float, ticks: int, shares: tuple[Fraction, ...]) -> None:
    """Raise LeastNoiseError where the smallest supported noise costs less than the price."""
    most = math.ceil(1000 * epsilon_at(_loss_at(0, epsilon, ticks, shares), delta * MARGIN)) / 1000
    if epsilon > most:
        sigma = math.sqrt(grid_variance(0))
        raise LeastNoiseError(
            f"epsilon must be at most {most:g} for {ticks} ticks at delta {delta:g}: the least noise that is "
            f"supported, sigma {sigma:g}, costs less; got {epsilon:g}"
        )


@lru_cache(maxsize=256)
def likely_loss(variances: tuple[Fraction, ...], cells: int, probability: Fraction, group: int = 1) -> Fraction:
    """Return a loss that discrete Gaussian noise exceeds with at most a probability, rounded up to a millionth.

    Unlike epsilon at a delta, this bounds a posterior factor: for epsilon = 2 at delta = 1e-6 the loss exceeds 2 ten
    times as often.

    Args:
        variances: sigma² of each level; at most one node a level changes in a cell.
        cells: values of each level that change, by one each for a device: 2 K for a day replaced.
        probability: 1e-10 to 0.01.
        group: devices that change the same values: their loss grows by more than as many times.
    """
    law = levels_loss(variances, group, cells, TAIL_POINTS, rounded_up)
    above = law.infinite + np.cumsum(law.masses)
    passed = int(np.searchsorted(above, float(probability) * MARGIN, side="right"))
    return Fraction(math.ceil((law.top - passed * law.step) * 1_000_000), 1_000_000)


def _loss_at(
    index: int, epsilon: Decimal | Fraction | float, ticks: int, shares: tuple[Fraction, ...]
) -> PrivacyLossDistribution:
    """Return the law of the loss at a point of the grid."""
    variances = [grid_variance(index) / share for share in shares]
    if ticks * max(variances) > WIDEST**2:
        raise UsageError(f"epsilon {float(epsilon):g} for {ticks} ticks needs noise wider than can be laid out")
    return levels_loss(variances, 1, ticks, POINTS, on_grid)


def _first_guess(epsilon: float, delta: Decimal, ticks: int) -> int:
    """Return the grid's point by concentrated cost, rho + 2 sqrt(rho ln(1/delta)) = epsilon: more noise than needed."""
    unlikely = -float(_LOGARITHM.ln(delta))
    root = math.sqrt(unlikely + epsilon) - math.sqrt(unlikely)
    return bisect_left(range(GRID), Fraction(ticks / (2 * root * root)), key=grid_variance)


def _check(
    epsilon: Decimal | Fraction | float,
    delta: Decimal | Fraction | float,
    ticks: int,
    shares: tuple[Fraction, ...],
) -> None:
    for name, value, low, high in (("epsilon", epsilon, 0.01, 100.0), ("delta", delta, 1e-10, 0.01)):
        if not low <= float(value) <= high:
            raise UsageError(f"{name} must lie in [{low:g}, {high:g}], got {float(value):g}")
    if not 1 <= ticks <= 10_000:
        raise UsageError(f"ticks must be 1 to 10000, got {ticks}")
    if not all(share > 0 for share in shares) or sum(shares) != 1:
        raise UsageError(f"shares must each be above 0 and add up to 1, got {', '.join(map(str, shares))}")
