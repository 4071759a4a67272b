"""Noise multisets: a reader's cost as noisy values, by their noise; the input for an epsilon at delta.

A noise multiset contains, for each noise, the number of values that a unit can change, by one each. It is stored beside
the sums of epsilons (``reader_spend``), over the same windows and days. Multisets add up, and ``running_price``
computes the price of one.

    released at one tick                             one value of
    plain noise (``laplace``, ``filter``)            discrete Laplace, of the finest epsilon; with shares, of each level
    PeGaSus                                          the same of 0.8 epsilon, and 0.2 epsilon pure for each grouper
    any other (``sample``, ``prune``, states)        its epsilon, pure: no loss distribution is proven

``UnitCost`` is the cost of a unit: the sum of epsilons, and the noisy values for which they were paid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from stream.accounting.charges import LatestCharges
from stream.accounting.composition import EpsilonEvent, Gaussian, Laplace, Noise, compose
from stream.accounting.units import Day
from stream.policy.mechanisms import mechanism_named
from stream.records import CountCharge, Micros

NoiseMultiset = Mapping[Noise, int]
"""Noise of one value -> number of values."""

NOTHING: NoiseMultiset = {}
_DIGITS = Context(prec=18, rounding=ROUND_CEILING)


def all_of(tallies: Iterable[NoiseMultiset]) -> NoiseMultiset:
    """Return the sum of multisets; an object that occurs often is processed once."""
    held = [tally for tally in tallies if tally]
    if len(held) < 2:
        return held[0] if held else NOTHING
    total: Counter[Noise] = Counter()
    alike = {id(tally): tally for tally in held}
    for which, number in Counter(map(id, held)).items():
        for noise, each in alike[which].items():
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


def window_tally(
    charges: Iterable[CountCharge], audiences: frozenset[str], plain: Mapping[str, tuple[Fraction, ...]]
) -> NoiseMultiset:
    """Return the values by which charges of one tick reveal one presence to readers together.

    Args:
        charges: of one window; those that pay for w windows or a day are left out.
        audiences: the readers' audiences.
        plain: release -> share of epsilon of each level with its own noise, where all of it is plain noise.
    """
    paid: dict[tuple[str, str, int], set[Fraction]] = {}
    for charge in charges:
        if charge.w == 1 and charge.terms is None and charge.epsilon > 0 and charge.audience in audiences:
            paid.setdefault((charge.release, charge.mechanism, charge.attempt), set()).add(charge.epsilon)
    lines = ((mechanism, frozenset(epsilons), plain.get(name, ())) for (name, mechanism, _), epsilons in paid.items())
    return _window(tuple(sorted(lines, key=str)))


@lru_cache(maxsize=4096)
def _window(lines: tuple[tuple[str, frozenset[Fraction], tuple[Fraction, ...]], ...]) -> NoiseMultiset:
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


@dataclass(frozen=True, slots=True)
class TallySums:
    """A reader's tallies so far, as ``SpendTotals`` are of epsilons."""

    total: NoiseMultiset = field(default_factory=dict)
    latest: LatestCharges[NoiseMultiset] = field(default_factory=LatestCharges)
    """The values that each window has shown; windows that showed none are left out."""

    def at(self, end: Micros) -> NoiseMultiset:
        """Return the values that a window has shown, if it is the latest one."""
        return self.latest.at(end) or NOTHING

    def and_window(self, end: Micros, tally: NoiseMultiset, reach: Micros, oldest: Micros) -> TallySums:
        """Return the sums with further values of a window; arguments as for ``SpendTotals.and_window``."""
        window, latest = all_of([self.at(end), tally]), self.latest.after(oldest)
        latest = latest.and_window(end, window, reach) if window else latest
        return TallySums(all_of([self.total, tally]), latest)

    def since(self, start: Micros) -> NoiseMultiset:
        """Return the values that the windows after ``start`` have shown."""
        return all_of(times(number, tally) for tally, number in self.latest.each(start))

    def on_day(self, day: Day) -> NoiseMultiset:
        """Return the values that the counts of one device's day have shown so far."""
        return all_of(times(cells.less + cells.more, tally) for tally, cells in self.latest.of_day(day))


def encode_tally(tally: NoiseMultiset) -> dict[str, int]:
    """Return the JSON form."""
    return dict(sorted((_name(noise), number) for noise, number in tally.items()))


def decode_tally(data: Mapping[str, int]) -> NoiseMultiset:
    """Return the multiset from its JSON form."""
    return {_noise(name): number for name, number in data.items()}


def encode_sums(sums: TallySums) -> list[Any]:
    """Return the JSON form."""
    return [encode_tally(sums.total), sums.latest.encoded(encode_tally)]


def decode_sums(data: list[Any]) -> TallySums:
    """Return the sums of their JSON form."""
    total, latest = data
    return TallySums(decode_tally(total), LatestCharges.decoded(latest, decode_tally))


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


# Costs of units.

Epsilon = Fraction | float
"""Infinite if the noise has no pure epsilon."""


class Cost(NamedTuple):
    """A sum of epsilons, and the noisy values for which they are paid, which change by one each."""

    pure: Epsilon = Fraction(0)
    tally: NoiseMultiset = NOTHING

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        if not (other.pure or other.tally):
            return self
        return Cost(self.pure + other.pure, all_of([self.tally, other.tally]))

    def twice(self) -> Cost:
        """Return the cost of a unit that is removed in one place and added in another."""
        return Cost(2 * self.pure, times(2, self.tally))


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
        releases = [replace(noise, times=number) for noise, number in self.cost.tally.items()]
        return compose(releases, delta, self.group).approximate
