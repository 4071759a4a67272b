"""Costs: sums of epsilons with their noise, and what one window costs its readers.

A ``Cost`` has two parts that add up alike. ``pure`` is a sum of epsilons. ``noises`` is a noise multiset: for each
noise, the number of values that a unit can change, by one each, from which ``running_price`` computes an epsilon at
delta.

    released at one tick                             one value of
    plain noise (``laplace``, ``filter``)            discrete Laplace, of the finest epsilon; with shares, of each level
    PeGaSus                                          the same of 0.8 epsilon, and 0.2 epsilon pure for each grouper
    any other (``sample``, ``prune``, states)        its epsilon, pure: no loss distribution is proven

``account_state`` adds costs up over windows; what a day costs that is paid as a whole is in ``day_charges``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from stream.accounting.composition import EpsilonEvent, Laplace, Noise, compose
from stream.policy.fields import EVERYBODY
from stream.policy.mechanisms import mechanism_named
from stream.records import CountCharge

Readers = Mapping[str, frozenset[str]]
"""Name of a reader or coalition -> the audiences whose records it reads."""


def readers_of(audiences: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return each audience alone, and all together."""
    names = list(audiences)
    return {name: frozenset([name]) for name in names} | {EVERYBODY: frozenset(names)}


# Noise multisets.

NoiseMultiset = Mapping[Noise, int]
"""Noise of one value -> number of values."""

NOTHING: NoiseMultiset = {}
_DIGITS = Context(prec=18, rounding=ROUND_CEILING)


def all_of(multisets: Iterable[NoiseMultiset]) -> NoiseMultiset:
    """Return the sum of multisets; an object that occurs often is processed once."""
    nonempty = [noises for noises in multisets if noises]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else NOTHING
    total: Counter[Noise] = Counter()
    distinct = {id(noises): noises for noises in nonempty}
    for which, number in Counter(map(id, nonempty)).items():
        for noise, each in distinct[which].items():
            total[noise] += number * each
    return total


def times(number: int, noises: NoiseMultiset) -> NoiseMultiset:
    """Return a multiset multiplied by a number."""
    return {noise: number * each for noise, each in noises.items()} if number else NOTHING


def as_decimal(epsilon: Fraction) -> Decimal:
    """Return an epsilon with 18 digits, rounded up."""
    return _DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))


def pure(epsilon: Fraction, number: int = 1) -> NoiseMultiset:
    """Return ``number`` releases of this epsilon without known loss distribution."""
    return {EpsilonEvent(as_decimal(epsilon)): number} if epsilon and number else NOTHING


# Costs.

Epsilon = Fraction | float
"""Infinite if the noise has no pure epsilon."""


def is_infinite(epsilon: Epsilon) -> bool:
    """Return whether an epsilon is infinite; a fraction, which is not, is not converted to find out."""
    return isinstance(epsilon, float) and math.isinf(epsilon)


class Cost(NamedTuple):
    """A sum of epsilons, and the noisy values for which they are paid, which change by one each."""

    pure: Epsilon = Fraction(0)
    noises: NoiseMultiset = NOTHING

    @classmethod
    def of_epsilons(cls, epsilon: Fraction, number: int) -> Cost:
        """Return the cost of ``number`` releases of this epsilon without known loss distribution."""
        return cls(epsilon * number, pure(epsilon, number))

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        if not (other.pure or other.noises):
            return self
        if not (self.pure or self.noises):
            return other
        return Cost(self.pure + other.pure, all_of([self.noises, other.noises]))

    def times(self, number: int) -> Cost:
        """Return the cost multiplied by a number."""
        if number == 1 or not (self.pure or self.noises):
            return self
        return Cost(self.pure * number, times(number, self.noises))

    def twice(self) -> Cost:
        """Return the cost of a unit that is removed in one place and added in another."""
        return self.times(2)


def compose_costs(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    listed = [cost for cost in costs if cost.pure or cost.noises]
    if not listed:
        return Cost()
    if len(listed) == 1:
        return listed[0]
    return Cost(sum((cost.pure for cost in listed), Fraction(0)), all_of(cost.noises for cost in listed))


class UnitCost(NamedTuple):
    """The cost of a unit: the cost for one device, and the number of devices that change together."""

    cost: Cost
    group: int = 1

    @property
    def pure(self) -> Epsilon:
        """The sum of epsilons."""
        return self.cost.pure if self.group == 1 else self.cost.pure * self.group

    def composed(self, delta: Fraction) -> float:
        """Return the epsilon at a delta; UsageError where the distribution is too large."""
        return _composed(frozenset(self.cost.noises.items()), delta, self.group)


@lru_cache(maxsize=1024)
def _composed(noises: frozenset[tuple[Noise, int]], delta: Fraction, group: int) -> float:
    return compose([replace(noise, times=number) for noise, number in noises], delta, group).approximate


# The cost of one window.


def coalition_cost(mechanism: str, epsilons: Iterable[Fraction]) -> Fraction:
    """Return the epsilon of all readers of one count release together, at one tick; UsageError if undeclared."""
    return _cost(mechanism, frozenset(epsilon for epsilon in epsilons if epsilon > 0))


@lru_cache(maxsize=1024)
def _cost(mechanism: str, distinct: frozenset[Fraction]) -> Fraction:
    composition = mechanism_named(mechanism).composition
    return composition.joint_epsilon(distinct) if distinct else Fraction(0)


def window_cost(
    charges: Iterable[CountCharge], audiences: frozenset[str], plain: Mapping[str, tuple[Fraction, ...]]
) -> Cost:
    """Return what one presence at a tick costs readers together, for charges where each window pays for itself.

    Args:
        charges: of one window; those that pay for w windows or a day are left out.
        audiences: the readers' audiences.
        plain: release -> share of epsilon of each level with its own noise, where all of it is plain noise.
    """
    paid: dict[tuple[str, str, int], set[Fraction]] = {}
    for charge in charges:
        if charge.w == 1 and charge.terms is None and charge.audience in audiences:
            paid.setdefault((charge.release, charge.mechanism, charge.attempt), set()).add(charge.epsilon)
    epsilons = sum((coalition_cost(mechanism, each) for (_, mechanism, _), each in paid.items()), Fraction(0))
    lines = (
        (mechanism, frozenset(each - {Fraction(0)}), plain.get(name, ())) for (name, mechanism, _), each in paid.items()
    )
    return Cost(epsilons, _window_noises(tuple(sorted((line for line in lines if line[1]), key=str))))


@lru_cache(maxsize=4096)
def _window_noises(lines: tuple[tuple[str, frozenset[Fraction], tuple[Fraction, ...]], ...]) -> NoiseMultiset:
    """Return one shared object for equal windows."""
    return all_of(_line(*line) for line in lines)


def _line(mechanism: str, epsilons: frozenset[Fraction], shares: tuple[Fraction, ...]) -> NoiseMultiset:
    composition = mechanism_named(mechanism).composition
    if not shares:
        return pure(composition.joint_epsilon(epsilons))
    on_chain = composition.shared * max(epsilons)
    chain: list[NoiseMultiset] = [{Laplace(as_decimal(share * on_chain)): 1} for share in shares]
    own = (pure(composition.own * epsilon) for epsilon in sorted(epsilons))
    return all_of([*chain, *own])
