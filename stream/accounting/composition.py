"""Composition: the joint cost of many noisy releases, in (epsilon, delta).

A release is described by the change that it must hide: ``times`` of its values differ, each by one (by ``group`` if
that many devices change together). The cost consists of two numbers:

* pure: the sum of epsilons; infinite as soon as one release is Gaussian.
* approximate: the smallest epsilon for which all releases together are (epsilon, delta)-private, from the privacy loss
  distribution (``privacy_loss``). Equal releases are composed exactly. Different ones are put on one grid (``on_grid``)
  and convolved: at most 0.2 % above, never below. Tests compare this with Google's ``dp-accounting``.

A release without known loss distribution counts at its worst case (``EpsilonEvent``): its epsilon is added unchanged.
This remains correct where a mechanism is proven for a change at one tick and a day changes many of them (PeGaSus'
grouper, ``sample``, ``ba``): N changes are then a chain of N neighbours, not N independent releases, and no binomial
holds.

Group privacy: k devices shift a Gaussian by k (k² in its concentrated cost), a discrete Laplace by k (the distribution
of that shift, at most k epsilon), and multiply a pure cost by k.

``running_price`` is a fast upper bound for a running stream, which needs a price at every window. A sum that grows by
one window changes its price by little. Counts of values are therefore rounded up to six binary digits (3.2 % at most),
the loss distributions of different noises are put on a coarse grid (``on_grid``), and results are cached: for a sum
that grows for years a few hundred prices are computed, and equal days share theirs. The bound is never below the
exact price and at most 7 % above it, and has the same bits on every machine: it uses + - * / in a fixed order, where
``compose`` uses a Fourier transform for mixtures. For sums that are too large for a point-by-point
distribution, concentrated privacy is used (Bun, Steinke 2016): rho + 2 sqrt(rho ln(1/delta)), 10 to 25 % more. No
sum of charges makes an account fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce

from stream.accounting.privacy_loss import (
    ROUNDING,
    SMOOTH,
    WIDEST,
    PrivacyLossDistribution,
    added,
    convolved,
    epsilon_at,
    gaussian_loss,
    laplace_loss,
    on_grid,
)
from stream.errors import UsageError

LEAST_DELTA, MOST_DELTA = 1e-10, 0.01
"""Supported deltas: below, rounding of the convolution would dominate; above, the guarantee is too weak."""

MOST_TIMES, MOST_GROUP, MOST_KINDS = 10**6, 100, 64

LEAST_EPSILON, MOST_EPSILON = Decimal("1e-18"), Decimal(10**4)
"""Epsilons and variances whose losses stay well within the range of doubles."""
MOST_PURE = Decimal(10**12)
LEAST_VARIANCE = Fraction(1, 100)

WIDEST_SHIFT = 3000
"""Largest spread of a sum of Laplace losses, in devices, that is convolved (two seconds)."""

ROUNDED_UP = 0.002
"""Largest relative error that a grid may add to the result."""

POINTS = 2_000_000
"""Largest number of grid points: where delta alone hides nearly everything, a coarser grid is used."""

FOURIER = 1e-13
"""Probability that a convolution by Fourier transform may miss in a tail."""


@dataclass(frozen=True, slots=True)
class Laplace:
    """Discrete Laplace noise: ``epsilon`` (nats) for a change of one, on ``times`` values."""

    epsilon: Decimal
    times: int = 1

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon, self.times, MOST_EPSILON)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Discrete Gaussian noise of parameter ``variance`` (sigma², exact), on ``times`` values that change by one each.

    The squared sensitivity is ``times``: a day of at most K counted ticks has K, a day replaced by another 2K.
    """

    variance: Fraction
    times: int = 1

    def __post_init__(self) -> None:
        _check_times(self.times)
        if self.variance < LEAST_VARIANCE:
            raise UsageError(f"sigma must be at least 0.1, got {math.sqrt(max(float(self.variance), 0.0)):g}")
        values = self.times if self.variance >= SMOOTH**2 else 1
        if values * self.variance > WIDEST**2:
            width = math.sqrt(values * self.variance)
            raise UsageError(f"sigma times the square root of times must be at most {WIDEST}, got {width:g}")


@dataclass(frozen=True, slots=True)
class EpsilonEvent:
    """An ``epsilon``-private release without known loss distribution; counts ``times`` times at its worst case."""

    epsilon: Decimal
    times: int = 1

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon, self.times, MOST_PURE)


Noise = Laplace | Gaussian | EpsilonEvent


@dataclass(frozen=True, slots=True)
class Price:
    """The joint cost of releases."""

    pure: Decimal
    """The epsilons added up; infinite with Gaussian noise."""
    approximate: float
    """Epsilon >= 0 at ``delta``, at most ``pure``."""
    delta: float


def compose(releases: Sequence[Noise], delta: Fraction | Decimal | float, group: int = 1) -> Price:
    """Return the joint cost of ``releases`` for a change by ``group`` devices.

    Args:
        releases: independent given their inputs; in any order, equal ones are merged.
        delta: from 1e-10 to 0.01.
        group: devices that change together, at the same values, 1 to 100.

    Raises:
        UsageError: a number outside its range, or more than 64 different noises.
    """
    _check(delta, group)
    runs = merged_noises(releases)
    laws = [loss_distribution(run, group) for run in runs if not isinstance(run, EpsilonEvent)]
    worst = sum((group * run.epsilon * run.times for run in runs if isinstance(run, EpsilonEvent)), Decimal(0))
    pure = pure_cost(runs, group)
    approximate = float(worst) + _composed(laws, float(delta))
    return Price(pure, min(float(pure), approximate), float(delta))


def pure_cost(releases: Sequence[Noise], group: int) -> Decimal:
    """Return the sum of the epsilons of ``releases`` for ``group`` devices: infinite with Gaussian noise."""
    if any(isinstance(each, Gaussian) for each in releases):
        return Decimal("Infinity")
    return sum((group * each.epsilon * each.times for each in releases if not isinstance(each, Gaussian)), Decimal(0))


def merged_noises(releases: Sequence[Noise]) -> list[Noise]:
    """Merge equal noises and add up their times; the order of the result depends on the set of noises alone."""
    times: dict[Noise, int] = {}
    for each in releases:
        alike = replace(each, times=1)
        times[alike] = times.get(alike, 0) + each.times
    if len(times) > MOST_KINDS:
        raise UsageError(f"releases must have at most {MOST_KINDS} different noises, got {len(times)}")
    runs = [replace(alike, times=count) for alike, count in times.items()]
    return sorted(
        runs, key=lambda run: (type(run).__name__, run.variance if isinstance(run, Gaussian) else run.epsilon)
    )


def loss_distribution(run: Laplace | Gaussian, group: int) -> PrivacyLossDistribution:
    """Return the loss distribution of a run, where ``group`` devices change each value."""
    if isinstance(run, Gaussian):
        return gaussian_loss(run.variance, group, run.times)
    if group * group * run.times > WIDEST_SHIFT**2:
        width = group * math.sqrt(run.times)
        raise UsageError(f"group times the square root of times must be at most {WIDEST_SHIFT}, got {width:g}")
    return laplace_loss(run.epsilon, group, run.times)


def _composed(distributions: Sequence[PrivacyLossDistribution], delta: float) -> float:
    """Return the smallest epsilon for independent losses of these distributions, rounded up."""
    exact = delta * (1 - ROUNDING)
    if not distributions:
        return 0.0
    if len(distributions) == 1:
        return epsilon_at(distributions[0], exact)
    least = max(epsilon_at(law, exact) for law in distributions)
    return _mixed(distributions, exact - FOURIER, grid_interval(distributions, least, ROUNDED_UP, POINTS))


def grid_interval(distributions: Sequence[PrivacyLossDistribution], least: float, more: float, points: int) -> float:
    """Return a grid spacing for these distributions, with which one of them alone costs no more than all together.

    Args:
        distributions: distributions of losses that are added up.
        least: the largest price of one of them alone; all together cost no less.
        more: relative error that the grid may add to the price.
        points: largest number of points, which takes precedence over ``more``.
    """
    width = sum(law.step * len(law.masses) for law in distributions)
    return max(more * least / len(distributions), width / points)


def _mixed(distributions: Sequence[PrivacyLossDistribution], delta: float, interval: float) -> float:
    return epsilon_at(reduce(convolved, (on_grid(law, interval) for law in distributions)), delta)


def _check(delta: Fraction | Decimal | float, group: int) -> None:
    if not LEAST_DELTA <= float(delta) <= MOST_DELTA:
        raise UsageError(f"delta must lie in [{LEAST_DELTA:g}, {MOST_DELTA:g}], got {float(delta):g}")
    if not 1 <= group <= MOST_GROUP:
        raise UsageError(f"group must be 1 to {MOST_GROUP}, got {group}")


def _check_epsilon(epsilon: Decimal, times: int, most: Decimal) -> None:
    _check_times(times)
    if not (epsilon.is_finite() and LEAST_EPSILON <= epsilon <= most):
        raise UsageError(f"epsilon must lie in [{LEAST_EPSILON}, {most}], got {epsilon}")


def _check_times(times: int) -> None:
    if not 1 <= times <= MOST_TIMES:
        raise UsageError(f"times must be 1 to {MOST_TIMES}, got {times}")


# The fast upper bound for running streams.

DIGITS = 6
"""Number of leading binary digits that rounding keeps of a count of values."""

MORE, BOUND_POINTS = 0.03, 20_000
"""Relative error that the grid may add to the price, and its largest number of points."""

_DIGITS = Context(prec=30)

_EXACTLY = Context(prec=80, rounding=ROUND_CEILING)
"""Enough digits for any sum of epsilons with 18 digits each."""


def running_price(
    noises: Mapping[Noise, int], delta: Fraction, group: int = 1, most: Fraction | float = math.inf
) -> float:
    """Return an epsilon at which releases are (epsilon, delta)-private for a change by ``group`` devices.

    Args:
        noises: noise of one value -> number of values with this noise that change, by one each, at least one.
        delta: 1e-10 to 0.01.
        group: devices that change together.
        most: the sum of epsilons, if there is one: no price is above it.

    Returns:
        Nats, rounded up to a millionth.
    """
    noisy, worst = list[tuple[Laplace | Gaussian, int]](), Decimal(0)
    for noise, times in noises.items():
        if isinstance(noise, EpsilonEvent):
            worst = _EXACTLY.fma(noise.epsilon, group * times, worst)
        else:
            noisy.append((noise, rounded_up(times)))
    composed = float(worst) + (_composed_bound(frozenset(noisy), delta.as_integer_ratio(), group) if noisy else 0.0)
    return min(_up(composed), _up(float(most)))


def rounded_up(times: int) -> int:
    """Return the next number with at most ``DIGITS`` significant binary digits."""
    shift = max(0, times.bit_length() - DIGITS)
    return -(-times >> shift) << shift


@lru_cache(maxsize=4096)
def _composed_bound(noisy: frozenset[tuple[Laplace | Gaussian, int]], ratio: tuple[int, int], group: int) -> float:
    """Return the bound for runs of noise; ``ratio`` is delta in two integers, whose hash takes no time."""
    delta = Fraction(*ratio)
    runs = sorted(noisy, key=str)
    exact = float(delta) * (1 - ROUNDING)
    try:
        alone = [_bound_alone(noise, times, exact, group) for noise, times in runs]
    except UsageError:
        return _concentrated(runs, delta, group)
    if len(alone) == 1:
        return alone[0]
    laws = [loss_distribution(replace(noise, times=times), group) for noise, times in runs]
    interval = grid_interval(laws, max(alone), MORE, BOUND_POINTS)
    return epsilon_at(reduce(added, (on_grid(law, interval) for law in laws)), exact)


@lru_cache(maxsize=4096)
def _bound_alone(noise: Laplace | Gaussian, times: int, delta: float, group: int) -> float:
    """Return the price of one run; cached, because it stays the same beside others that grow."""
    return epsilon_at(loss_distribution(replace(noise, times=times), group), delta)


def _concentrated(runs: Iterable[tuple[Laplace | Gaussian, int]], delta: Fraction, group: int) -> float:
    rho = float(sum((group * group * times * _rho(noise) for noise, times in runs), Fraction(0)))
    unlikely = -float(_DIGITS.ln(_DIGITS.divide(delta.numerator, delta.denominator)))
    return rho + 2 * math.sqrt(rho * unlikely)


def _rho(noise: Laplace | Gaussian) -> Fraction:
    """Return the concentrated cost of one value; an epsilon costs at most half its square."""
    return 1 / (2 * noise.variance) if isinstance(noise, Gaussian) else Fraction(noise.epsilon) ** 2 / 2


def _up(epsilon: float) -> float:
    return math.inf if math.isinf(epsilon) else math.ceil(epsilon * 1_000_000 * (1 - 1e-12)) / 1_000_000
