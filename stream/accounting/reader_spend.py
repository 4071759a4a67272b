"""What one reader, or readers together, have paid for counts so far: sums window by window, and runs of w windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.charged import coalition_cost
from stream.accounting.device_day import Cells, cost_of_days
from stream.accounting.units import DeviceCosts
from stream.policy.fields import EVERYBODY, decimal_string
from stream.records import CountCharge, Micros

Readers = Mapping[str, frozenset[str]]
"""Name of a reader or coalition -> the audiences it reads as."""


def readers_of(audiences: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return each audience alone, and all together."""
    names = list(audiences)
    return {name: frozenset([name]) for name in names} | {EVERYBODY: frozenset(names)}


@dataclass(slots=True)
class Sums:
    """What one reader's view has cost so far, per presence tuple, of releases that pay window by window."""

    days: dict[int, Fraction] = field(default_factory=dict)
    """UTC day -> what one device's day has cost, of the days that counted at the latest window."""
    total: Fraction = Fraction(0)
    largest: Fraction = Fraction(0)
    recent: tuple[tuple[Micros, Fraction], ...] = ()
    """(end, cost) of the last w windows."""

    def at(self, end: Micros) -> Fraction:
        """Return what a window has cost, if it is the latest."""
        return self.recent[-1][1] if self.recent and self.recent[-1][0] == end else Fraction(0)

    def and_window(self, end: Micros, cost: Fraction, days: Mapping[int, Cells], span: Micros) -> Sums:
        """Return the sums with what a window has cost further.

        Args:
            end: of the window.
            cost: epsilon per presence tuple.
            days: UTC days whose observations can change its counts.
            span: of w windows.
        """
        window = self.at(end) + cost
        recent = [row for row in self.recent if end - span < row[0] < end]
        today = cost_of_days(self.days, days, cost)
        return Sums(today, self.total + cost, max(self.largest, window), (*recent, (end, window)))


class RunOf(NamedTuple):
    """Whose run it is: another epsilon, w or attempt has noise of its own."""

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
        """Return what ``str`` has made a text of."""
        release, audience, epsilon, w, attempt = text.split("/")
        return cls(release, audience, Fraction(epsilon), int(w), int(attempt))

    def __str__(self) -> str:
        """Return ``release/audience/epsilon/w/attempt``."""
        return f"{self.release}/{self.audience}/{decimal_string(self.epsilon)}/{self.w}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class Run:
    """The windows of a release whose epsilon pays for any w of them: n cost at most ceil(n / w) epsilons."""

    epsilon: Fraction
    w: int
    total: int = 0
    days: Mapping[int, Cells] = field(default_factory=dict)
    """UTC day -> counts of one device's day, of the days that counted at the latest window."""

    def and_one(self, cells: Mapping[int, Cells]) -> Run:
        """Return the run with one more window, which belongs to these days."""
        held = {day: self.days.get(day, Cells(0)) for day in cells}
        days = {day: Cells(held[day].less + each.less, held[day].more + each.more) for day, each in cells.items()}
        return replace(self, total=self.total + 1, days=days)

    def cost(self, windows: int) -> Fraction:
        """Return the most that so many windows can cost."""
        return -(-windows // self.w) * self.epsilon

    def broken_off(self) -> Run:
        """Return the run after which the mechanism may begin anew: the next window pays for itself."""
        days = {day: cells.rounded(self.w) for day, cells in self.days.items()}
        return replace(self, total=-(-self.total // self.w) * self.w, days=days)

    def epsilons_of(self, day: int) -> int:
        """Return how many epsilons one device's day can have cost so far, at most."""
        return self.days[day].epsilons(self.w) if day in self.days else 0

    def cost_of(self, day: int) -> Fraction:
        """Return the most that one device's day can have cost so far."""
        return self.epsilons_of(day) * self.epsilon


@dataclass(frozen=True, slots=True)
class View:
    """What a reader has paid when a window ends, window by window and in runs together."""

    sums: Sums
    end: Micros
    runs: tuple[Run, ...]
    """Every run that the reader sees."""
    in_force: tuple[Run, ...]
    """Those of them that were paid for this window."""

    @property
    def tick(self) -> Fraction:
        """What one presence tuple at this window has cost."""
        return self.sums.at(self.end) + _sum(run.epsilon for run in self.in_force)

    @property
    def total(self) -> Fraction:
        """What one device's presence has cost since the ledger began."""
        return self.sums.total + _sum(run.cost(run.total) for run in self.runs)

    @property
    def largest(self) -> Fraction:
        """The most that one presence tuple has cost at any window."""
        return self.sums.largest + _sum(run.epsilon for run in self.runs)

    def device(self, ticks_per_observation: int, w: int, days: Iterable[int]) -> DeviceCosts:
        """Return what one device has cost: of its days the dearest of those that count at this window."""
        observed = ticks_per_observation * self.sums.at(self.end)
        return DeviceCosts(
            tick=self.tick,
            observation=observed + _sum(run.cost(ticks_per_observation) for run in self.in_force),
            sliding=_sum(cost for _, cost in self.sums.recent) + _sum(run.cost(min(run.total, w)) for run in self.runs),
            day=max(self.on_day(day) for day in days),
        )

    def on_day(self, day: int) -> Fraction:
        """Return what one device's day has cost so far."""
        return self.sums.days.get(day, Fraction(0)) + _sum(run.cost_of(day) for run in self.runs)


def _sum(costs: Iterable[Fraction]) -> Fraction:
    return sum(costs, Fraction(0))


def window_cost(charges: Iterable[CountCharge], audiences: frozenset[str]) -> Fraction:
    """Return the epsilon per presence tuple that charges cost readers together, where each window pays for itself."""
    releases: dict[tuple[str, str, int], list[Fraction]] = {}
    for charge in charges:
        if charge.w == 1 and charge.terms is None and charge.audience in audiences:
            releases.setdefault((charge.release, charge.mechanism, charge.attempt), []).append(charge.epsilon)
    return _sum(coalition_cost(mechanism, epsilons) for (_, mechanism, _), epsilons in releases.items())
