"""What many noisy releases cost together, in (epsilon, delta).

A release is described by the change it has to hide: ``times`` values of it differ, each by one (by ``group`` where that
many devices change together). Two numbers come back, and a delta beside the second:

* pure: the epsilons added up; infinite as soon as one release is Gaussian.
* approximate: the smallest epsilon for which everything together is (epsilon, delta)-private, by the law of the privacy
  loss (``loss_law``). Equal releases are composed exactly; runs of different ones are put on one grid, every loss
  rounded up, and convolved by Google's ``dp-accounting``: at most 0.2 % above, never below.

What has no law of its loss counts at its worst case (``Pure``): its epsilon is added as it stands. That stays right
where a mechanism is proven for a change at one tick and a day changes many of them (PeGaSus' grouper, ``sample``,
``ba``): N changes are then a chain of N neighbours, not N independent releases, and no binomial holds.

Group privacy: k devices shift a Gaussian by k (k² in its concentrated cost), a discrete Laplace by k (the law of that
shift, at most k epsilon), and multiply a pure cost by k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from stream.accounting.loss_law import (
    ROUNDING,
    SMOOTH,
    WIDEST,
    LossLaw,
    epsilon_at,
    gaussian_law,
    laplace_law,
    on_grid,
)
from stream.errors import UsageError

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

__all__ = ["Gaussian", "Laplace", "Noise", "Price", "Pure", "compose"]

#: Deltas that are answered. Below, rounding of the convolution would decide; above, hardly anything is promised.
LEAST_DELTA, MOST_DELTA = 1e-10, 0.01

MOST_TIMES, MOST_GROUP, MOST_KINDS = 10**6, 100, 64

#: Epsilons and variances whose losses stay well within the doubles.
LEAST_EPSILON, MOST_EPSILON = Decimal("1e-18"), Decimal(10**4)
MOST_PURE = Decimal(10**12)
LEAST_VARIANCE = Fraction(1, 100)

#: Largest spread of a sum of Laplace losses, in devices, that is convolved (two seconds).
WIDEST_SHIFT = 3000

#: What rounding losses up to a grid may add to the answer, as a share of it.
ROUNDED_UP = 0.002

#: Points of a grid at most: where delta alone hides nearly everything, a coarser one is taken.
POINTS = 2_000_000

#: Share of the answer to which it is searched for.
NEAR = 1e-7

#: What a convolution by Fourier transform may miss in a tail.
FOURIER = 1e-13


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
class Pure:
    """What is ``epsilon``-private and no more is known of it: counts ``times`` over, at its worst case."""

    epsilon: Decimal
    times: int = 1

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon, self.times, MOST_PURE)


Noise = Laplace | Gaussian | Pure


@dataclass(frozen=True, slots=True)
class Price:
    """What releases cost together.

    Attributes:
        pure: the epsilons added up; infinite with Gaussian noise.
        approximate: epsilon >= 0 at ``delta``, at most ``pure``.
        delta: of ``approximate``.
    """

    pure: Decimal
    approximate: float
    delta: float


def compose(releases: Sequence[Noise], delta: Fraction | Decimal | float, group: int = 1) -> Price:
    """Return what ``releases`` cost together for a change by ``group`` devices, each as its release describes.

    Args:
        releases: independent given what they release of; no order, equal ones are put together.
        delta: from 1e-10 to 0.01.
        group: devices that change together, at the same values, 1 to 100.

    Raises:
        UsageError: a number outside its range, or more than 64 different noises.
    """
    _check(delta, group)
    runs = together(releases)
    laws = [law_of(run, group) for run in runs if not isinstance(run, Pure)]
    worst = sum((group * run.epsilon * run.times for run in runs if isinstance(run, Pure)), Decimal(0))
    pure = pure_cost(runs, group)
    approximate = float(worst) + _composed(laws, float(delta))
    return Price(pure, min(float(pure), approximate), float(delta))


def pure_cost(releases: Sequence[Noise], group: int = 1) -> Decimal:
    """Return the epsilons of ``releases`` for ``group`` devices added up: infinite with Gaussian noise."""
    if any(isinstance(each, Gaussian) for each in releases):
        return Decimal("Infinity")
    return sum((group * each.epsilon * each.times for each in releases if not isinstance(each, Gaussian)), Decimal(0))


def together(releases: Sequence[Noise]) -> list[Noise]:
    """Return one run for each different noise, with the times added up, in an order that depends on the runs alone."""
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


def law_of(run: Laplace | Gaussian, group: int) -> LossLaw:
    """Return the law of a run's loss, where ``group`` devices change each value."""
    if isinstance(run, Gaussian):
        return gaussian_law(run.variance, group, run.times)
    if group * group * run.times > WIDEST_SHIFT**2:
        width = group * math.sqrt(run.times)
        raise UsageError(f"group times the square root of times must be at most {WIDEST_SHIFT}, got {width:g}")
    return laplace_law(run.epsilon, group, run.times)


def _composed(laws: Sequence[LossLaw], delta: float) -> float:
    """Return the smallest epsilon for independent losses of these laws, rounded up."""
    exact = delta * (1 - ROUNDING)
    if not laws:
        return 0.0
    if len(laws) == 1:
        return epsilon_at(laws[0], exact)
    return _mixed(laws, exact - FOURIER, grid_interval(laws, exact, ROUNDED_UP, POINTS))


def grid_interval(laws: Sequence[LossLaw], delta: float, more: float, points: int) -> float:
    """Return a distance of grid points for these laws: one law alone costs no more than all together.

    Args:
        laws: of losses that are added up.
        delta: at which the price is asked for.
        more: share of the price that rounding up may add.
        points: most of them, which comes before ``more``.
    """
    least = max(epsilon_at(law, delta) for law in laws)
    width = sum(law.step * len(law.masses) for law in laws)
    return max(more * least / len(laws), width / points)


def _mixed(laws: Sequence[LossLaw], delta: float, interval: float) -> float:
    total = reduce(lambda one, other: one.compose(other), (_on_grid(law, interval) for law in laws))
    most = sum(law.top for law in laws) + len(laws) * interval
    if total.get_delta_for_epsilon(most) > delta:
        return math.inf
    least = 0.0
    while most - least > NEAR * most:  # its own search for epsilon overflows where losses exceed 709
        middle = (least + most) / 2
        least, most = (least, middle) if total.get_delta_for_epsilon(middle) <= delta else (middle, most)
    return most


def _on_grid(law: LossLaw, interval: float) -> DensePLDPmf:
    """Return a law in the accountant's form, with every loss rounded up."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf  # noqa: PLC0415  (half a second, and mixtures alone need it)

    rounded = on_grid(law, interval)
    lowest = round(rounded.top / interval) - len(rounded.masses) + 1
    return DensePLDPmf(interval, lowest, rounded.masses[::-1], rounded.infinite, pessimistic_estimate=True)


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
