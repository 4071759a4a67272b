"""Benches: run a mechanism's candidates on a world prepared for a task.

A run serves all periods and all utilities of the search, so each is made once. Candidates ascend from the most private
one. Epsilons have two digits and are about a tenth apart (the E24 numbers of IEC 60063), so that neighbours differ in
utility by more than the runs of a day vary. A salt life is the thesis' TTL: the shorter, the more private.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Literal, Protocol

import numpy as np

from stream.accounting.costs import coalition_cost
from stream.accounting.units import day_cells
from stream.domains import Purpose
from stream.errors import UsageError
from stream.keys import subkey
from stream.lab.tuning.detective import detective
from stream.lab.tuning.utility import Measured, Period, Released, Utility, World, building_utility, heatmap_utility
from stream.mechanisms.base import CountMechanism, Parameters
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise, laplace_noise
from stream.mechanisms.registry import mechanism_of, release_counts
from stream.policy.fields import decimal_string
from stream.policy.mechanisms import mechanism_named
from stream.pseudonyms.rotation import Sightings, counts_under_names
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from stream.release.prices import DayPrice

# Candidates.

_E24 = (10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91)
DECADE = len(_E24)
EPSILONS = (*(Fraction(two) * Fraction(10) ** power for power in range(-6, 1) for two in _E24), Fraction(100))
"""From 0.00001 to 100, ascending."""
TTLS: tuple[Micros, ...] = (
    *(each * SECOND for each in (1, 2, 3, 5, 7, 10, 15, 20, 30, 45)),
    *(each * MINUTE for each in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
    *(each * HOUR for each in (1, 2, 3, 4, 6, 8, 12)),
    DAY,
)  # fmt: skip
"""From a second to a day, in microseconds, ascending."""


def _is_made(made: Callable[[Fraction], object], epsilon: Fraction) -> bool:
    try:
        made(epsilon)
    except UsageError:
        return False
    return True


def payable(
    made: Callable[[Fraction], object], least: Fraction = EPSILONS[0], most: Fraction = EPSILONS[-1]
) -> tuple[Fraction, ...]:
    """Return the epsilons whose noise is supported: ``made`` raises no UsageError. They are consecutive.

    Args:
        made: makes the noise of an epsilon.
        least: smallest epsilon.
        most: largest epsilon.
    """
    within = [epsilon for epsilon in EPSILONS if least <= epsilon <= most]
    for first, epsilon in enumerate(within):
        if _is_made(made, epsilon):
            last = bisect_left(within, True, lo=first, key=lambda larger: not _is_made(made, larger))
            return tuple(within[first:last])
    rule = "epsilon must buy noise that can be made, and be among those that are tried"
    raise UsageError(f"{rule}; none from {float(least):g} to {float(most):g} does")


# The unit that a candidate's epsilon pays for, and the noise for it.

Unit = Literal["window", "device_day"]
DELTA = Fraction(1, 1_000_000)


@dataclass(frozen=True, slots=True)
class TuningTerms:
    """How a mechanism's releases are paid at a site."""

    mechanism: str
    unit: Unit
    tick: Micros
    reach: int
    """Ticks at which one observation counts."""
    ticks: int = 0
    """K: windows of a day at which one device counts at most; 0 without a bound."""
    delta: Fraction = DELTA
    """The delta of a day's epsilon, for gaussian noise."""

    @property
    def bounded(self) -> bool:
        """Whether the released counts include a device for only part of its day."""
        return self.unit == "device_day" and mechanism_named(self.mechanism).by_day

    @property
    def cells(self) -> int:
        """How many epsilons of a window a device's day costs, where no better bound is proven."""
        cells = day_cells(self.tick, self.reach)
        return cells.epsilons(1)

    def noise(self, epsilon: Fraction) -> NoiseParameter:
        """Return the noise of a window for an epsilon of the unit.

        A day that is paid at once has gaussian noise. A mechanism without a proof for that is paid by the window: a day
        then costs the windows it may change.

        Raises:
            UsageError: the sampler supports no such noise.
        """
        if self.bounded:
            return gaussian_noise(DayPrice("gaussian", epsilon, self.delta, self.ticks).parameters[0])
        part = epsilon if self.unit == "window" else epsilon / self.cells
        least = mechanism_named(self.mechanism).smallest
        if part < least:
            raise UsageError(f"epsilon of a window must be at least {decimal_string(least)} with {self.mechanism}")
        return laplace_noise(part)

    def of_day(self, epsilon: Fraction) -> Fraction:
        """Return the cost of a device's day at an epsilon of the unit."""
        if self.unit == "device_day":
            return epsilon
        return self.cells * coalition_cost(self.mechanism, [epsilon])

    def build_mechanism(self, epsilon: Fraction, max_counts: tuple[int, ...]) -> CountMechanism:
        """Return the mechanism over zones with these largest counts; UsageError as for ``noise``."""
        return mechanism_of(self.mechanism, Parameters(self.noise(epsilon), max_counts))


# Runs of a candidate: released values of all windows, with independent noise per run.

DayKey = Callable[[int], bytes]
"""Key day, in days since 1970-01-01 -> secret."""


def released_by(mechanism: CountMechanism, world: World, day_key: DayKey, run: int) -> Released:
    """Return a mechanism's released values for a world.

    Args:
        mechanism: over the world's zones.
        world: its counts are released from ``begins`` on.
        day_key: secrets by key day; each run draws with a key derived from it.
        run: number of the run.
    """
    naming = world.naming(lru_cache(maxsize=2)(partial(_run_key, day_key, run)), run)
    times, counts = world.times[world.released], world.counts[world.released]
    return Released(*release_counts(mechanism, naming, times, counts))


def exact_release(counts: Ints) -> Released:
    """Return counts as a release without noise."""
    return Released(counts, np.zeros_like(counts))


def _run_key(day_key: DayKey, run: int, day: int) -> bytes:
    return subkey(day_key(day), f"{Purpose.TUNE}/{run}")


Task = Literal["heatmap", "building", "tasks"]
ByPeriod = Mapping[Period, Measured]


def _same(counts: Ints) -> Ints:
    return counts


@dataclass(frozen=True, eq=False)
class Prepared:
    """A world prepared for a task, and its utilities."""

    world: World
    utilities: Mapping[Period, Utility]
    counted: Callable[[Ints], Ints]
    """Maps counts of all zones to those of the task."""
    planted: Callable[[Ints], Ints] = _same
    """Adds the task's planted events to counts of the released windows."""

    def measures(self, released: Released) -> ByPeriod:
        """Return the utility of what was released, in each period."""
        return {period: utility(released) for period, utility in self.utilities.items()}


def check_periods(task: Task, periods: Sequence[Period]) -> None:
    """Raise UsageError if tasks are to be answered for part of the day; they have hours of their own."""
    if task == "tasks" and list(periods) != ["all"]:
        raise UsageError("period must not be given with tasks, which have hours of their own")


def prepared(world: World, task: Task, periods: Sequence[Period]) -> Prepared:
    """Return a world prepared for a task: unchanged, as one building, or with the planted events of a detective's
    tasks.

    Raises:
        UsageError: detective tasks for part of the day; they have their own hours.
        DataError: the recording is too short for the task.
    """
    check_periods(task, periods)
    if task == "tasks":
        questions, plant = detective(world)
        return Prepared(questions.world, {"all": questions.utility}, _same, plant)
    one = world.as_one() if task == "building" else world
    make = building_utility if task == "building" else heatmap_utility
    utilities = {period: make(one, one.measures(period)) for period in periods}
    return Prepared(one, utilities, _summed if task == "building" else _same)


class Bench(Protocol):
    """One mechanism, at all its candidates."""

    @property
    def candidates(self) -> Sequence[Fraction | Micros]:
        """Epsilons, or salt lives in microseconds, from the most private one on."""

    @property
    def chance(self) -> bool:
        """Whether runs differ."""

    def measures(self, place: int, run: int) -> ByPeriod:
        """Return the utility of a candidate's run, in each period."""

    def release(self, world: World, place: int, run: int) -> Released:
        """Return what a candidate's run releases of a world of the same zones."""


@dataclass(eq=False)
class NoiseBench:
    """A mechanism with noise, by epsilon."""

    prepared: Prepared
    terms: TuningTerms
    day_key: DayKey
    after_draw: Callable[[], None] = lambda: None
    """Called after each run."""
    epsilons: tuple[Fraction, Fraction] = (EPSILONS[0], EPSILONS[-1])
    """The smallest and the largest epsilon to try."""
    clamped: bool = False
    """Whether negative values count as 0."""
    chance: bool = True
    _cache: dict[tuple[int, int], ByPeriod] = field(default_factory=dict, repr=False)

    @cached_property
    def candidates(self) -> tuple[Fraction, ...]:
        """Epsilons with supported noise, within ``epsilons``."""
        return payable(self.terms.noise, *self.epsilons)

    def measures(self, place: int, run: int) -> ByPeriod:
        """Return the utility of a candidate's run, in each period."""
        if (place, run) not in self._cache:
            self._cache[place, run] = self.prepared.measures(self.release(self.prepared.world, place, run))
            self.after_draw()
        return self._cache[place, run]

    def release(self, world: World, place: int, run: int) -> Released:
        """Return what a candidate's run releases of a world of the same zones."""
        mechanism = self.terms.build_mechanism(self.candidates[place], world.site.max_counts)
        released = released_by(mechanism, world, self.day_key, run)
        return released._replace(zones=np.maximum(released.zones, 0)) if self.clamped else released


@dataclass(eq=False)
class TtlBench:
    """The thesis' TTL mechanism, by salt life."""

    prepared: Prepared
    sightings: Sightings
    validity: Micros
    zones: int
    after_run: Callable[[], None] = lambda: None
    chance: bool = False
    candidates: tuple[Micros, ...] = TTLS
    _cache: dict[int, ByPeriod] = field(default_factory=dict, repr=False)

    def measures(self, place: int, run: int) -> ByPeriod:
        """Return the utility of a candidate, in each period."""
        if place not in self._cache:
            released = self.release(self.prepared.world, place, run)
            self._cache[place] = self.prepared.measures(exact_release(self.prepared.planted(released.zones)))
            self.after_run()
        return self._cache[place]

    def release(self, world: World, place: int, run: int) -> Released:
        """Return the counts of a world's released windows with pseudonyms of a candidate's salt life."""
        ticks, life = world.times[world.released], self.candidates[place]
        counts = counts_under_names(self.sightings, ticks, self.zones, self.validity, life, "first")
        return exact_release(self.prepared.counted(counts))


def _summed(counts: Ints) -> Ints:
    summed: Ints = counts.sum(axis=1, keepdims=True)
    return summed
