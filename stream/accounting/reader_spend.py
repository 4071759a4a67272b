"""Spending of one reader, or of readers together, on counts: sums window by window, and runs of w windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.charges import LatestCharges, coalition_cost
from stream.accounting.units import Cells, Day, DeviceCosts
from stream.policy.fields import EVERYBODY, decimal_string
from stream.records import CountCharge, Micros

Readers = Mapping[str, frozenset[str]]
"""Name of a reader or coalition -> the audiences whose records it reads."""


def readers_of(audiences: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return each audience alone, and all together."""
    names = list(audiences)
    return {name: frozenset([name]) for name in names} | {EVERYBODY: frozenset(names)}


@dataclass(slots=True)
class SpendTotals:
    """The cost of one reader's view so far, per presence tuple, of releases that pay per window."""

    total: Fraction = Fraction(0)
    largest: Fraction = Fraction(0)
    latest: LatestCharges[Fraction] = field(default_factory=LatestCharges)
    """The cost of each window; windows without cost are left out."""

    def at(self, end: Micros) -> Fraction:
        """Return the cost of a window, if it is the latest one."""
        return self.latest.at(end) or Fraction(0)

    def and_window(self, end: Micros, cost: Fraction, reach: Micros, oldest: Micros) -> SpendTotals:
        """Return the sums with a further cost of a window.

        Args:
            end: of the window.
            cost: epsilon per presence tuple.
            reach: how long one observation counts, in whole ticks.
            oldest: windows that end at this time or earlier are no longer needed.
        """
        window, latest = self.at(end) + cost, self.latest.after(oldest)
        latest = latest.and_window(end, window, reach) if window else latest
        return SpendTotals(self.total + cost, max(self.largest, window), latest)

    def since(self, start: Micros) -> Fraction:
        """Return the cost of the windows that end after ``start``."""
        return _sum(number * cost for cost, number in self.latest.each(start))

    def on_day(self, day: Day) -> Fraction:
        """Return the cost of one device's day so far."""
        return _sum((cells.less + cells.more) * cost for cost, cells in self.latest.of_day(day))


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
        """Return the run with one more window; arguments as for ``SpendTotals.and_window``."""
        latest = self.latest.after(oldest).and_window(end, self.restarts, reach)
        return replace(self, total=self.total + 1, latest=latest)

    def cost(self, windows: int) -> Fraction:
        """Return the largest cost of this number of windows."""
        return -(-windows // self.w) * self.epsilon

    def broken_off(self) -> WindowRun:
        """Return the run after an interruption: the mechanism may restart, so the next window pays for itself."""
        return replace(self, total=-(-self.total // self.w) * self.w, restarts=self.restarts + 1)

    def epsilons_of(self, day: Day) -> int:
        """Return the largest number of epsilons that one device's day can have cost so far."""
        cells: dict[int, Cells] = {}
        for begun, each in self.latest.of_day(day):
            held = cells.get(begun, Cells(0))
            cells[begun] = Cells(held.less + each.less, held.more + each.more)
        return sum(each.epsilons(self.w) for each in cells.values())

    def cost_of(self, day: Day) -> Fraction:
        """Return the largest cost of one device's day so far."""
        return self.epsilons_of(day) * self.epsilon


@dataclass(frozen=True, slots=True)
class ReaderSpend:
    """The payments of a reader at the end of a window, by window and in runs."""

    sums: SpendTotals
    end: Micros
    runs: tuple[WindowRun, ...]
    """Every run that the reader sees."""
    in_force: tuple[WindowRun, ...]
    """The runs among them that paid for this window."""

    @property
    def tick(self) -> Fraction:
        """Cost of one presence tuple at this window."""
        return self.sums.at(self.end) + _sum(run.epsilon for run in self.in_force)

    @property
    def total(self) -> Fraction:
        """Cost of one device's presence since the ledger began."""
        return self.sums.total + _sum(run.cost(run.total) for run in self.runs)

    @property
    def largest(self) -> Fraction:
        """The largest cost of one presence tuple at any window."""
        return self.sums.largest + _sum(run.epsilon for run in self.runs)

    def device(self, ticks_per_observation: int, w: int, since: Micros, days: Iterable[Day]) -> DeviceCosts:
        """Return the cost of one device; ``day`` is that of the most expensive of ``days``.

        The last w windows end after ``since``.
        """
        observed = ticks_per_observation * self.sums.at(self.end)
        return DeviceCosts(
            tick=self.tick,
            observation=observed + _sum(run.cost(ticks_per_observation) for run in self.in_force),
            sliding=self.sums.since(since) + _sum(run.cost(min(run.total, w)) for run in self.runs),
            day=max(self.on_day(day) for day in days),
        )

    def on_day(self, day: Day) -> Fraction:
        """Return the cost of one device's day so far."""
        return self.sums.on_day(day) + _sum(run.cost_of(day) for run in self.runs)


def _sum(costs: Iterable[Fraction]) -> Fraction:
    return sum(costs, Fraction(0))


def window_cost(charges: Iterable[CountCharge], audiences: frozenset[str]) -> Fraction:
    """Return the joint epsilon per presence tuple for readers, for charges where each window pays for itself."""
    releases: dict[tuple[str, str, int], list[Fraction]] = {}
    for charge in charges:
        if charge.w == 1 and charge.terms is None and charge.audience in audiences:
            releases.setdefault((charge.release, charge.mechanism, charge.attempt), []).append(charge.epsilon)
    return _sum(coalition_cost(mechanism, epsilons) for (_, mechanism, _), epsilons in releases.items())
