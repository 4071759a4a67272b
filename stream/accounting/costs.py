"""Costs: sums of epsilons with their noise, and each reader's total.

A ``Cost`` has two parts that add up alike. ``pure`` is a sum of epsilons. ``tally`` is a noise multiset: for each
noise, the number of values that a unit can change, by one each, from which ``running_price`` computes an epsilon at
delta.

    released at one tick                             one value of
    plain noise (``laplace``, ``filter``)            discrete Laplace, of the finest epsilon; with shares, of each level
    PeGaSus                                          the same of 0.8 epsilon, and 0.2 epsilon pure for each grouper
    any other (``sample``, ``prune``, states)        its epsilon, pure: no loss distribution is proven

``ReaderTotals`` adds up the windows that pay for themselves; a ``WindowRun`` counts windows of which one epsilon pays
for w; days that are paid as a whole are in ``day_charges``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from stream.accounting.charge_runs import ChargeRun, LatestCharges, add_window
from stream.accounting.composition import EpsilonEvent, Gaussian, Laplace, Noise, compose
from stream.accounting.units import Cells, Day
from stream.policy.fields import EVERYBODY, decimal_string
from stream.policy.mechanisms import mechanism_named
from stream.records import CountCharge, Micros

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


def all_of(tallies: Iterable[NoiseMultiset]) -> NoiseMultiset:
    """Return the sum of multisets; an object that occurs often is processed once."""
    nonempty = [tally for tally in tallies if tally]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else NOTHING
    total: Counter[Noise] = Counter()
    distinct = {id(tally): tally for tally in nonempty}
    for which, number in Counter(map(id, nonempty)).items():
        for noise, each in distinct[which].items():
            total[noise] += number * each
    return total


def times(number: int, tally: NoiseMultiset) -> NoiseMultiset:
    """Return a multiset multiplied by a number."""
    return {noise: number * each for noise, each in tally.items()} if number else NOTHING


def as_decimal(epsilon: Fraction) -> Decimal:
    """Return an epsilon with 18 digits, rounded up."""
    return _DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))


def pure(epsilon: Fraction, number: int = 1) -> NoiseMultiset:
    """Return ``number`` releases of this epsilon without known loss distribution."""
    return {EpsilonEvent(as_decimal(epsilon)): number} if epsilon and number else NOTHING


def encode_tally(tally: NoiseMultiset) -> dict[str, int]:
    """Return the JSON form."""
    return dict(sorted((_name(noise), number) for noise, number in tally.items()))


def decode_tally(data: Mapping[str, int]) -> NoiseMultiset:
    """Return the multiset from its JSON form."""
    return {_noise(name): number for name, number in data.items()}


def _name(noise: Noise) -> str:
    if isinstance(noise, Gaussian):
        return f"gaussian {noise.variance}"
    return f"{'pure' if isinstance(noise, EpsilonEvent) else 'laplace'} {noise.epsilon}"


@lru_cache(maxsize=1024)
def _noise(name: str) -> Noise:
    kind, _, size = name.partition(" ")
    if kind == "gaussian":
        return Gaussian(Fraction(size))
    return (EpsilonEvent if kind == "pure" else Laplace)(Decimal(size))


# Costs.

Epsilon = Fraction | float
"""Infinite if the noise has no pure epsilon."""


def is_infinite(epsilon: Epsilon) -> bool:
    """Return whether an epsilon is infinite; a fraction, which is not, is not converted to find out."""
    return isinstance(epsilon, float) and math.isinf(epsilon)


class Cost(NamedTuple):
    """A sum of epsilons, and the noisy values for which they are paid, which change by one each."""

    pure: Epsilon = Fraction(0)
    tally: NoiseMultiset = NOTHING

    @classmethod
    def of_epsilons(cls, epsilon: Fraction, number: int = 1) -> Cost:
        """Return the cost of ``number`` releases of this epsilon without known loss distribution."""
        return cls(number * epsilon, pure(epsilon, number))

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        if not (other.pure or other.tally):
            return self
        return Cost(self.pure + other.pure, all_of([self.tally, other.tally]))

    def times(self, number: int) -> Cost:
        """Return the cost multiplied by a number."""
        return Cost(number * self.pure, times(number, self.tally))

    def twice(self) -> Cost:
        """Return the cost of a unit that is removed in one place and added in another."""
        return self.times(2)


def compose_costs(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    listed = list(costs)
    if len(listed) == 1:
        return listed[0]
    return Cost(sum((cost.pure for cost in listed), Fraction(0)), all_of(cost.tally for cost in listed))


class UnitCost(NamedTuple):
    """The cost of a unit: the cost for one device, and the number of devices that change together."""

    cost: Cost
    group: int = 1

    @property
    def pure(self) -> Epsilon:
        """The sum of epsilons."""
        return self.cost.pure if self.group == 1 else self.group * self.cost.pure

    def composed(self, delta: Fraction) -> float:
        """Return the epsilon at a delta; UsageError where the distribution is too large."""
        return _composed(frozenset(self.cost.tally.items()), delta, self.group)


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
    return Cost(epsilons, _window_tally(tuple(sorted((line for line in lines if line[1]), key=str))))


@lru_cache(maxsize=4096)
def _window_tally(lines: tuple[tuple[str, frozenset[Fraction], tuple[Fraction, ...]], ...]) -> NoiseMultiset:
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


# What a reader has paid so far.


@dataclass(frozen=True, slots=True)
class ReaderTotals:
    """The cost of one reader's view so far, per presence tuple, of releases that pay per window."""

    total: Cost = field(default_factory=Cost)
    largest: Epsilon = Fraction(0)
    """The largest sum of epsilons of any window."""
    latest: LatestCharges[Cost] = field(default_factory=LatestCharges)
    """The cost of each window; windows without cost are left out."""

    def at(self, end: Micros) -> Cost:
        """Return the cost of a window, if it is the latest one."""
        return self.latest.at(end) or Cost()

    def and_window(self, end: Micros, cost: Cost, reach: Micros, oldest: Micros) -> ReaderTotals:
        """Return the totals with a further cost of a window.

        Args:
            end: of the window.
            cost: per presence tuple.
            reach: how long one observation counts, in whole ticks.
            oldest: windows that end at this time or earlier are no longer needed.
        """
        window, latest = self.at(end).plus(cost), self.latest.after(oldest)
        latest = latest.and_window(end, window, reach) if window.pure else latest
        return ReaderTotals(self.total.plus(cost), max(self.largest, window.pure), latest)

    def since(self, start: Micros) -> Cost:
        """Return the cost of the windows that end after ``start``."""
        return compose_costs(cost.times(number) for cost, number in self.latest.each(start))

    def on_day(self, day: Day) -> Cost:
        """Return the cost of one device's day so far."""
        return compose_costs(cost.times(cells.less + cells.more) for cost, cells in self.latest.of_day(day))


class RunOf(NamedTuple):
    """Identifies a run: another epsilon, w or attempt has its own noise."""

    release: str
    audience: str
    epsilon: Fraction
    w: int
    attempt: int

    @classmethod
    def of_charge(cls, charge: CountCharge) -> RunOf:
        """Return the run that a charge is part of."""
        return cls(charge.release, charge.audience, charge.epsilon, charge.w, charge.attempt)

    @classmethod
    def parse(cls, text: str) -> RunOf:
        """Parse the text that ``str`` returns."""
        release, audience, epsilon, w, attempt = text.split("/")
        return cls(release, audience, Fraction(epsilon), int(w), int(attempt))

    def __str__(self) -> str:
        """Return ``release/audience/epsilon/w/attempt``."""
        return f"{self.release}/{self.audience}/{decimal_string(self.epsilon)}/{self.w}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class WindowRun:
    """The windows of a release whose epsilon pays for any w of them: n cost at most ceil(n / w) epsilons."""

    epsilon: Fraction
    w: int
    total: int = 0
    restarts: int = 0
    """Largest number of restarts of the mechanism."""
    latest: LatestCharges[int] = field(default_factory=LatestCharges)
    """For each window the largest number of restarts of the mechanism before it."""

    def and_one(self, end: Micros, reach: Micros, oldest: Micros) -> WindowRun:
        """Return the run with one more window; arguments as for ``ReaderTotals.and_window``."""
        latest = self.latest.after(oldest).and_window(end, self.restarts, reach)
        return replace(self, total=self.total + 1, latest=latest)

    def cost(self, windows: int) -> Cost:
        """Return the largest cost of this number of windows."""
        return Cost.of_epsilons(self.epsilon, -(-windows // self.w))

    def broken_off(self) -> WindowRun:
        """Return the run after an interruption: the mechanism may restart, so the next window pays for itself."""
        return replace(self, total=-(-self.total // self.w) * self.w, restarts=self.restarts + 1)

    def epsilons_of(self, day: Day) -> int:
        """Return the largest number of epsilons that one device's day can have cost so far."""
        cells: dict[int, Cells] = {}
        for restarts, each in self.latest.of_day(day):
            so_far = cells.get(restarts, Cells(0))
            cells[restarts] = Cells(so_far.less + each.less, so_far.more + each.more)
        return sum(each.epsilons(self.w) for each in cells.values())

    def cost_of(self, day: Day) -> Cost:
        """Return the largest cost of one device's day so far."""
        return Cost.of_epsilons(self.epsilon, self.epsilons_of(day))


# The JSON form of totals.

TotalsRow = tuple[str, str, list[list[Any]]]
"""Total, largest and latest windows, in epsilons."""
TallyRow = tuple[dict[str, int], list[list[Any]]]
"""Total and latest windows, as noise multisets."""


def encode_totals(totals: ReaderTotals) -> tuple[TotalsRow, TallyRow]:
    """Return the JSON forms of the epsilons and of the noisy values."""
    epsilons = totals.latest.encoded(lambda cost: str(cost.pure))
    tallies = totals.latest.encoded(lambda cost: encode_tally(cost.tally))
    return (str(totals.total.pure), str(totals.largest), epsilons), (encode_tally(totals.total.tally), tallies)


def decode_totals(epsilons: TotalsRow, tallies: TallyRow) -> ReaderTotals:
    """Return the totals from their JSON forms; equal epsilons may have been paid for different noise."""
    total, largest, by_epsilon = epsilons
    values, by_tally = tallies
    if [row[:4] for row in by_epsilon] == [row[:4] for row in by_tally]:
        rows = ([*row[:4], (row[4], tally[4])] for row, tally in zip(by_epsilon, by_tally, strict=True))
        latest = LatestCharges.decoded(rows, lambda pair: Cost(Fraction(pair[0]), decode_tally(pair[1])))
    else:
        latest = _latest_of(LatestCharges.decoded(by_epsilon, Fraction), LatestCharges.decoded(by_tally, decode_tally))
    return ReaderTotals(Cost(Fraction(total), decode_tally(values)), Fraction(largest), latest)


def _latest_of(epsilons: LatestCharges[Fraction], tallies: LatestCharges[NoiseMultiset]) -> LatestCharges[Cost]:
    """Combine runs that were stored apart and split at different windows."""
    values = {end: tally for end, (_, tally) in tallies.windows()}
    runs: list[ChargeRun[tuple[Micros, Cost]]] = []
    for end, (reach, epsilon) in epsilons.windows():
        add_window(runs, end, (reach, Cost(epsilon, values.get(end, NOTHING))))
    return LatestCharges(tuple(runs))
