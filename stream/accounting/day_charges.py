"""Releases that are paid per day: noisy values per unit, and cost.

    symbol   here         meaning
    K        terms.ticks  windows of a privacy day at which one device counts at most
    d        days         privacy days that a unit may touch

Adding or removing a device's whole privacy day changes at most K values of each level, by one each; the price is for
this unit. A unit smaller than a day (one presence, one observation, w windows) may determine which of the device's
ticks count. Its price is that of replacing each day that it touches, by 2 K values, so it costs no more in two
windows of a day than in one. A person's devices change the same values: in the worst case a shift by their number.

Where a day pays for changes, it is as private as one Gaussian value that is shifted by mu standard deviations
(``gaussian_shift``); mu² adds up over levels, releases and days. A day replaced, or any part of one, has at most
``REPLACED`` times its squared shift.

``DaySpend`` adds up the cost: each privacy day of each release counts once, for any number of windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

from stream.accounting.attribute_leakage import CERTAIN
from stream.accounting.calibration import likely_loss
from stream.accounting.composition import Gaussian, Laplace
from stream.accounting.costs import Cost, Readers, UnitCost, all_of, as_decimal, pure
from stream.accounting.gaussian_shift import CELLS, likely_loss_of, unit_shifts
from stream.accounting.units import Day, GroupSizes, Scope, added_or_replaced, device_costs
from stream.records import CHANGES, DAY, HOUR, PURE, CountCharge, DayTerms, Micros

SHORTEST_DAY: Micros = DAY - HOUR
"""A privacy day in which the clocks are set forward."""


REPLACED: Mapping[int, Fraction] = {
    2: Fraction("2.49"),
    4: Fraction("3.11"),
    6: Fraction("3.19"),
    8: Fraction("3.24"),
    10: Fraction("3.28"),
    12: Fraction("3.35"),
    14: Fraction("3.4"),
    16: Fraction("3.44"),
}
"""Changes of a day at most -> squared shift of such a day replaced, in parts of that of a day added, at most.

Two days that differ at every visit still shift some sums the same way, so it is less than 4. The bounds hold at each
level, for any number of nodes and for every day that noise on changes covers; two days at one node exist that come
within 2 % of the shift. Tests derive them again (``tests.support.changes_certificate``, which has the proof)."""
UNPROVEN = Fraction(4)
"""The same for any other number of changes: two days shift by 2 mu at most."""


def day_units(terms: DayTerms, w_span: Micros, group_sizes: GroupSizes) -> dict[str, UnitCost]:
    """Return unit -> cost of one day's price.

    Args:
        terms: of the day.
        w_span: length of w windows.
        group_sizes: how many days change together in a unit.
    """
    changed = UnitCost(cost_of(terms, replaced=True))
    day, sliding = UnitCost(cost_of(terms)), UnitCost(changed.cost.times(days_touched(w_span)))
    costs = {
        Scope.TICK: added_or_replaced(changed, changed),
        Scope.OBSERVATION: added_or_replaced(changed, changed),
        Scope.WINDOWS: added_or_replaced(sliding, sliding),
        Scope.DAY: added_or_replaced(day, changed),
    }
    return {name: cost._replace(group=group_sizes(unit)) for name, unit, cost in device_costs(costs)}


def cost_of(terms: DayTerms, *, replaced: bool = False) -> Cost:
    """Return the cost of a day added or removed, K values of each level; or of a day replaced, twice as many.

    Where changes are paid for, of a shift by mu, or by what ``REPLACED`` says.
    """
    cells = (2 if replaced else 1) * terms.ticks
    if terms.noise == CHANGES:
        parts = REPLACED.get(terms.ticks, UNPROVEN) if replaced else 1
        return Cost(math.inf, {unit_shifts(sum(terms.parameters, Fraction(0))): math.ceil(parts * CELLS)})
    if terms.noise == PURE:
        return Cost(cells * sum(terms.parameters, Fraction(0)), all_of(pure(each, cells) for each in terms.parameters))
    if terms.noise == "gaussian":
        return Cost(math.inf, all_of({Gaussian(variance): cells} for variance in terms.parameters))
    noise = all_of({Laplace(as_decimal(epsilon)): cells} for epsilon in terms.parameters)
    return Cost(cells * sum(terms.parameters, Fraction(0)), noise)


def cost_of_days(terms: Iterable[DayTerms], *, replaced: bool = False) -> Cost:
    """Return the cost of these days, added or removed, or replaced."""
    return reduce(Cost.plus, (cost_of(each, replaced=replaced) for each in terms), Cost())


def changed_loss(
    noise: str, parameters: tuple[Fraction, ...], ticks: int, probability: Fraction | None, devices: int
) -> Fraction:
    """Return a bound on the loss of changed parts of a person's day, for each device.

    Args:
        noise: ``laplace``, ``gaussian``, ``CHANGES``, or ``PURE``.
        parameters: as in ``DayTerms``.
        ticks: K, or the number of changes.
        probability: with which Gaussian noise may exceed it, 1e-10 to 0.01; without it there is none (``CERTAIN``).
        devices: of one person.
    """
    if noise in ("laplace", PURE):
        return 2 * ticks * sum(parameters, Fraction(0))
    if probability is None:
        return CERTAIN
    if noise == CHANGES:
        squared = REPLACED.get(ticks, UNPROVEN) * sum(parameters, Fraction(0))
        return likely_loss_of(devices * devices * squared, probability) / devices
    return likely_loss(parameters, 2 * ticks, probability, devices) / devices


def days_touched(span: Micros) -> int:
    """Return the largest number of privacy days that a span of time may touch."""
    return 1 + -(-span // SHORTEST_DAY)


def finest(terms: Iterable[DayTerms]) -> DayTerms:
    """Return the terms with the least noise, which readers of one release know together, since they share its chain."""
    return min(terms, key=lambda one: one.parameters if one.noise == "gaussian" else _dearest_first(one))


def _dearest_first(terms: DayTerms) -> tuple[Fraction, ...]:
    return (*(-each for each in terms.parameters), Fraction(-terms.ticks))


# The cost so far.
#
# If a site has redefined its days, one device's day of another definition may contain a part of a paid day. It is then
# priced as that paid day replaced. A paid day that it contains completely is added or removed as a whole.

KEPT: Micros = 3 * DAY
"""A privacy day has no further window when this time has passed since any of its windows."""


class DayCharge(NamedTuple):
    """The subject of one price: one run of the counters through one day of a release."""

    release: str
    attempt: int
    day: Day

    @classmethod
    def of(cls, release: str, attempt: int, terms: DayTerms) -> DayCharge:
        """Return the subject of a charge on these terms."""
        return cls(release, attempt, Day(terms.day.start, terms.day.end))


@dataclass(frozen=True, slots=True)
class PaidDay:
    """What each audience has paid for one privacy day."""

    terms: Mapping[str, DayTerms]
    """By audience."""
    end: Micros
    """End of its last window so far."""

    def with_terms(self, terms: Mapping[str, DayTerms]) -> Mapping[str, DayTerms]:
        """Return the combined terms: runs are charged one after another, a day's noise only once."""
        before = {who: self.terms[who].ticks for who, each in terms.items() if each.noise == PURE and who in self.terms}
        return {
            **self.terms,
            **{who: each._replace(ticks=each.ticks + before.get(who, 0)) for who, each in terms.items()},
        }

    def to(self, audiences: frozenset[str]) -> DayTerms | None:
        """Return the joint knowledge of these readers: that of the reader with the least noise."""
        own = [terms for audience, terms in sorted(self.terms.items()) if audience in audiences]
        return finest(own) if own else None


@dataclass(slots=True)
class DaySpend:
    """The latest paid days, and the cost of all days so far for each reader."""

    paid_days: dict[DayCharge, PaidDay] = field(default_factory=dict)
    totals: dict[str, Cost] = field(default_factory=dict)

    def pay(self, charges: Iterable[CountCharge], end: Micros, readers: Readers) -> None:
        """Add the charges of a window that ends at ``end``; charges of a day that is already paid cost nothing more.

        Readers who learn more of a day than before (another audience, less noise) pay for it again.
        """
        paid: dict[DayCharge, dict[str, DayTerms]] = {}
        for charge in charges:
            if charge.terms is not None and (charge.epsilon > 0 or charge.terms.noise == PURE):
                line = DayCharge.of(charge.release, charge.attempt, charge.terms)
                paid.setdefault(line, {})[charge.audience] = charge.terms
        for line, terms in paid.items():
            before = self.paid_days.get(line, PaidDay({}, end))
            after = PaidDay(before.with_terms(terms), max(end, before.end))
            self.paid_days[line] = after
            for reader, audiences in readers.items():
                known = after.to(audiences)
                more = None if known is None else _beyond(known, before.to(audiences))
                if more is not None:
                    self.totals[reader] = self.totals.get(reader, Cost()).plus(cost_of(more))

    def so_far(self, charge: CountCharge) -> DayTerms | None:
        """Return the total of a charge's day so far for its audience; None if nothing has been charged yet."""
        assert charge.terms is not None  # noqa: S101
        paid = self.paid_days.get(DayCharge.of(charge.release, charge.attempt, charge.terms))
        return None if paid is None else paid.terms.get(charge.audience)

    def forget(self, end: Micros, span: Micros) -> None:
        """Drop days whose windows are older than any unit reaches; ``span`` is the length of w windows."""
        self.paid_days = {line: paid for line, paid in self.paid_days.items() if paid.end > end - max(span, KEPT)}

    def since(self, start: Micros, audiences: frozenset[str]) -> list[DayTerms]:
        """Return the readers' terms of each day that had a window after ``start``."""
        return list(self._terms(audiences, (paid for paid in self.paid_days.values() if paid.end > start)))

    def of_day(self, day: Day, audiences: frozenset[str], *, moved: bool) -> Cost:
        """Return the cost of one device's day for readers, on every paid day that overlaps it.

        Args:
            day: of any definition.
            audiences: the audiences of these readers.
            moved: whether the device is elsewhere instead; otherwise its day is added or removed.
        """
        overlapping = [(line.day, paid) for line, paid in self.paid_days.items() if day.overlaps(line.day)]
        whole = [paid for other, paid in overlapping if day.holds(other) and not moved]
        changed = [paid for other, paid in overlapping if moved or not day.holds(other)]
        paid = cost_of_days(self._terms(audiences, whole))
        return paid.plus(cost_of_days(self._terms(audiences, changed), replaced=True))

    @staticmethod
    def _terms(audiences: frozenset[str], days: Iterable[PaidDay]) -> Iterator[DayTerms]:
        for paid in days:
            if (terms := paid.to(audiences)) is not None:
                yield terms


def _beyond(known: DayTerms, before: DayTerms | None) -> DayTerms | None:
    """Return the terms that readers with ``before`` pay for additional knowledge; None without any."""
    if known == before:
        return None
    if before is not None and known.noise == PURE:
        return known._replace(ticks=known.ticks - before.ticks)
    return known
