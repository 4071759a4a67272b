"""What a unit costs: epsilons added up, and beside them the noisy values that they are for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.composition import compose
from stream.accounting.tallies import NOTHING, Tally, all_of, times

Epsilon = Fraction | float
"""Infinite where the noise has no pure epsilon."""


class Cost(NamedTuple):
    """Epsilons added up, and the noisy values that they are for, which change by one each."""

    pure: Epsilon = Fraction(0)
    tally: Tally = NOTHING

    def plus(self, other: Cost) -> Cost:
        """Return both together."""
        if not (other.pure or other.tally):
            return self
        return Cost(self.pure + other.pure, all_of([self.tally, other.tally]))

    def twice(self) -> Cost:
        """Return the cost of what is removed here and added there."""
        return Cost(2 * self.pure, times(2, self.tally))


class UnitCost(NamedTuple):
    """What a unit costs: so much for one device, and how many devices change together."""

    cost: Cost
    group: int = 1

    @property
    def pure(self) -> Epsilon:
        """Epsilons added up."""
        return self.cost.pure if self.group == 1 else self.group * self.cost.pure

    def composed(self, delta: Fraction) -> float:
        """Return the epsilon at a delta; UsageError where it is too large to be laid out."""
        releases = [replace(noise, times=number) for noise, number in self.cost.tally.items()]
        return compose(releases, delta, self.group).approximate
