"""What releases cost a reader as noisy values, by the noise they have: what epsilon at a delta is worked out from.

A tally says how many values with which noise a unit can change, by one each. It is kept beside the sums of epsilons
(``views``), over the same windows and days: tallies add up, and ``running_price`` says what one costs.

    what was released at one tick                    one value of
    plain noise (``laplace``, ``filter``)            discrete Laplace, of the finest epsilon; with shares, of each level
    PeGaSus                                          the same of 0.8 epsilon, and 0.2 epsilon pure for each grouper
    anything else (``sample``, ``prune``, states)    its epsilon, pure: no law of its loss is proven
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from stream.accounting.composition import Gaussian, Laplace, Noise, Pure
from stream.accounting.device_day import Cells
from stream.accounting.views import Sums
from stream.policy.mechanisms import mechanism_named
from stream.records import CountCharge, Micros

Tally = Mapping[Noise, int]
"""Noise of one value -> how many values."""

NOTHING: Tally = {}
_DIGITS = Context(prec=18, rounding=ROUND_CEILING)


def all_of(tallies: Iterable[Tally]) -> Tally:
    """Return what tallies hold together; many of them may be one object, which is looked at once."""
    held = [tally for tally in tallies if tally]
    if len(held) < 2:
        return held[0] if held else NOTHING
    total: Counter[Noise] = Counter()
    alike = {id(tally): tally for tally in held}
    for which, number in Counter(map(id, held)).items():
        for noise, each in alike[which].items():
            total[noise] += number * each
    return total


def times(number: int, tally: Tally) -> Tally:
    """Return a tally so many times over."""
    return {noise: number * each for noise, each in tally.items()} if number else NOTHING


def as_decimal(epsilon: Fraction) -> Decimal:
    """Return an epsilon in 18 digits, rounded up."""
    return _DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))


def pure(epsilon: Fraction, number: int = 1) -> Tally:
    """Return so many epsilons of which nothing more is known."""
    return {Pure(as_decimal(epsilon)): number} if epsilon and number else NOTHING


def window_tally(
    charges: Iterable[CountCharge], audiences: frozenset[str], plain: Mapping[str, tuple[Fraction, ...]]
) -> Tally:
    """Return the values by which charges of one tick show one presence to readers together.

    Args:
        charges: of one window; those that pay for w windows or a day are left out.
        audiences: what the readers read as.
        plain: release -> share of epsilon of each level that has noise of its own, where all of it is plain noise.
    """
    paid: dict[tuple[str, str, int], set[Fraction]] = {}
    for charge in charges:
        if charge.w == 1 and charge.terms is None and charge.epsilon > 0 and charge.audience in audiences:
            paid.setdefault((charge.release, charge.mechanism, charge.attempt), set()).add(charge.epsilon)
    lines = ((mechanism, frozenset(epsilons), plain.get(name, ())) for (name, mechanism, _), epsilons in paid.items())
    return _window(tuple(sorted(lines, key=str)))


@lru_cache(maxsize=4096)
def _window(lines: tuple[tuple[str, frozenset[Fraction], tuple[Fraction, ...]], ...]) -> Tally:
    """Return one object for windows alike."""
    return all_of(_line(*line) for line in lines)


def _line(mechanism: str, epsilons: frozenset[Fraction], shares: tuple[Fraction, ...]) -> Tally:
    composition = mechanism_named(mechanism).composition
    if not shares:
        return pure(composition.together(epsilons))
    on_chain = composition.shared * max(epsilons)
    chain: list[Tally] = [{Laplace(as_decimal(share * on_chain)): 1} for share in shares]
    own = (pure(composition.own * epsilon) for epsilon in sorted(epsilons))
    return all_of([*chain, *own])


@dataclass(frozen=True, slots=True)
class TallySums:
    """A reader's tallies so far, as ``views.Sums`` are of epsilons."""

    days: Mapping[int, Tally] = field(default_factory=dict)
    total: Tally = field(default_factory=dict)
    recent: tuple[tuple[Micros, Tally], ...] = ()
    """(end, tally) of the last w windows."""

    @classmethod
    def of_sums(cls, sums: Sums) -> TallySums:
        """Return sums of epsilons of which nothing more is known."""
        days = {day: pure(cost) for day, cost in sums.days.items()}
        return cls(days, pure(sums.total), tuple((end, pure(cost)) for end, cost in sums.recent))

    def and_window(self, end: Micros, tally: Tally, days: Mapping[int, Cells], span: Micros) -> TallySums:
        """Return the sums with what a window has shown further; arguments as of ``Sums.and_window``."""
        held = [each for last, each in self.recent if last == end]
        recent = tuple(row for row in self.recent if end - span < row[0] < end)
        today = {
            day: all_of([self.days.get(day, NOTHING), times(cells.less + cells.more, tally)])
            for day, cells in days.items()
        }
        row = (end, all_of([*held, tally]) if held else tally)
        return TallySums(today, all_of([self.total, tally]), (*recent, row))


def encode_tally(tally: Tally) -> dict[str, int]:
    """Return the JSON form."""
    return dict(sorted((_name(noise), number) for noise, number in tally.items()))


def decode_tally(data: Mapping[str, int]) -> Tally:
    """Return the tally of its JSON form."""
    return {_noise(name): number for name, number in data.items()}


def encode_sums(sums: TallySums) -> list[Any]:
    """Return the JSON form: of recent windows each kind once, and which of them each window was."""
    kinds = {id(tally): tally for _, tally in sums.recent}
    places = {kind: place for place, kind in enumerate(kinds)}
    return [
        [[day, encode_tally(tally)] for day, tally in sorted(sums.days.items())],
        encode_tally(sums.total),
        [encode_tally(tally) for tally in kinds.values()],
        [[end, places[id(tally)]] for end, tally in sums.recent],
    ]


def decode_sums(data: list[Any]) -> TallySums:
    """Return the sums of their JSON form."""
    days, total, kinds, recent = data
    tallies = [decode_tally(kind) for kind in kinds]
    return TallySums(
        {day: decode_tally(tally) for day, tally in days},
        decode_tally(total),
        tuple((end, tallies[place]) for end, place in recent),
    )


def _name(noise: Noise) -> str:
    if isinstance(noise, Gaussian):
        return f"gaussian {noise.variance}"
    return f"{'pure' if isinstance(noise, Pure) else 'laplace'} {noise.epsilon}"


@lru_cache(maxsize=1024)
def _noise(name: str) -> Noise:
    kind, _, size = name.partition(" ")
    if kind == "gaussian":
        return Gaussian(Fraction(size))
    return (Pure if kind == "pure" else Laplace)(Decimal(size))
