"""Where candidates are run: a world prepared for a task, and one mechanism over all its epsilons or salt lives.

A run serves all periods and all utilities that are looked for, so each is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.noise import Ints
from stream.records import Micros
from stream.sensing.renamed import Sightings, counts_under_names
from stream.tuning.candidates import EPSILONS, TTLS, payable
from stream.tuning.detective import detective
from stream.tuning.price import Terms
from stream.tuning.trial import DayKey, released_by, told
from stream.tuning.utility import Measured, Released, Utility, building_utility, heatmap_utility
from stream.tuning.world import Period, World

Task = Literal["heatmap", "building", "tasks"]
ByPeriod = Mapping[Period, Measured]


def _same(counts: Ints) -> Ints:
    return counts


@dataclass(frozen=True, eq=False)
class Prepared:
    """A world as a task needs it, and its utilities."""

    world: World
    utilities: Mapping[Period, Utility]
    counted: Callable[[Ints], Ints]
    """From counts of all zones to those of the task."""
    planted: Callable[[Ints], Ints] = _same
    """Puts what the task plants into counts of the windows that are released."""

    def measures(self, released: Released) -> ByPeriod:
        """Return the utility of what was released, in each period."""
        return {period: utility(released) for period, utility in self.utilities.items()}


def prepared(world: World, task: Task, periods: Sequence[Period]) -> Prepared:
    """Return a world as a task needs it: as it is, as one building, or with what a detective's tasks plant.

    Raises:
        UsageError: tasks are asked for in part of the day; they have hours of their own.
        DataError: the recording has too little for the task.
    """
    if task == "tasks":
        if list(periods) != ["all"]:
            raise UsageError("period must not be given with tasks, which have hours of their own")
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
    terms: Terms
    day_key: DayKey
    made: Callable[[], None] = lambda: None
    """Called after each run."""
    epsilons: tuple[Fraction, Fraction] = (EPSILONS[0], EPSILONS[-1])
    """The least and the largest that are tried."""
    clamped: bool = False
    """Whether what is below 0 is taken for 0."""
    chance: bool = True
    _held: dict[tuple[int, int], ByPeriod] = field(default_factory=dict, repr=False)

    @cached_property
    def candidates(self) -> tuple[Fraction, ...]:
        """Epsilons of which noise can be made, within ``epsilons``."""
        return payable(self.terms.noise, *self.epsilons)

    def measures(self, place: int, run: int) -> ByPeriod:
        """Return the utility of a candidate's run, in each period."""
        if (place, run) not in self._held:
            self._held[place, run] = self.prepared.measures(self.release(self.prepared.world, place, run))
            self.made()
        return self._held[place, run]

    def release(self, world: World, place: int, run: int) -> Released:
        """Return what a candidate's run releases of a world of the same zones."""
        mechanism = self.terms.made(self.candidates[place], world.site.max_counts)
        released = released_by(mechanism, world, self.day_key, run)
        return released._replace(zones=np.maximum(released.zones, 0)) if self.clamped else released


@dataclass(eq=False)
class TtlBench:
    """The thesis' TTL mechanism, by salt life."""

    prepared: Prepared
    seen: Sightings
    validity: Micros
    zones: int
    made: Callable[[], None] = lambda: None
    chance: bool = False
    candidates: tuple[Micros, ...] = TTLS
    _held: dict[int, ByPeriod] = field(default_factory=dict, repr=False)

    def measures(self, place: int, run: int) -> ByPeriod:
        """Return the utility of a candidate, in each period."""
        if place not in self._held:
            released = self.release(self.prepared.world, place, run)
            self._held[place] = self.prepared.measures(told(self.prepared.planted(released.zones)))
            self.made()
        return self._held[place]

    def release(self, world: World, place: int, run: int) -> Released:
        """Return what is counted in a world's released windows under names of a candidate's life."""
        ticks, life = world.times[world.released], self.candidates[place]
        counts = counts_under_names(self.seen, ticks, self.zones, self.validity, life, "first")
        return told(self.prepared.counted(counts))


def _summed(counts: Ints) -> Ints:
    summed: Ints = counts.sum(axis=1, keepdims=True)
    return summed
