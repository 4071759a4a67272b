"""What the account has added up so far, between two windows of a site.

``ReaderTotals`` adds up, for each reader, the windows that pay for themselves. A ``WindowRun`` counts the windows of a
release in which one epsilon pays for w windows. Both retain the charges of the latest windows (``LatestCharges``).
Days that are paid as a whole are in ``day_charges``. ``AccountState`` contains all of it; each part can be rebuilt from
the entries of the ledger, and ``state_json`` has the stored form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from stream.accounting.adversaries import Habits, habits_renamed
from stream.accounting.charge_history import ChargeHistory
from stream.accounting.charge_runs import ChargeRun, add_window, runs_after
from stream.accounting.costs import Cost, Epsilon, compose_costs
from stream.accounting.day_charges import DaySpend
from stream.accounting.units import Cells, Day
from stream.policy.fields import decimal_string
from stream.records import CountCharge, Micros

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class LatestCharges(Generic[Value]):
    """The charges of a site's latest windows, from which the account adds up any day, under any definition.

    Days are not added up as windows come. A site may redefine its days, and the account then needs the sum of a day
    some of whose windows have already passed.
    """

    runs: tuple[ChargeRun[tuple[Micros, Value]], ...] = ()
    """For each window the time for which an observation counted, and the charge."""

    def at(self, end: Micros) -> Value | None:
        """Return the charge of a window, if it is the latest charged window."""
        return self.runs[-1].charge[1] if self.runs and self.runs[-1].last == end else None

    def with_window(self, end: Micros, charge: Value, reach: Micros) -> LatestCharges[Value]:
        """Return the charges with those of the latest window, in place of its earlier charges.

        Args:
            end: of the window.
            charge: the sum of its charges.
            reach: how long one observation counts, in whole ticks.
        """
        runs = list(self.runs)
        if runs and runs[-1].last == end:
            runs[-1:] = [before for before in [runs[-1].without_last()] if before is not None]
        add_window(runs, end, (reach, charge))
        return LatestCharges(tuple(runs))

    def after(self, end: Micros) -> LatestCharges[Value]:
        """Return the charges of windows that end after ``end``."""
        return LatestCharges(tuple(runs_after(self.runs, end)))

    def windows(self) -> Iterator[tuple[Micros, tuple[Micros, Value]]]:
        """Yield (end, (reach, charge)) of every window, in order."""
        for run in self.runs:
            for number in range(run.windows):
                yield run.first + number * run.step, run.charge

    def each(self, start: Micros) -> Iterator[tuple[Value, int]]:
        """Yield charges, with the number of windows that end after ``start`` and have them."""
        for run in self.runs:
            if (number := run.windows - run.through(start)) > 0:
                yield run.charge[1], number

    def of_day(self, day: Day) -> Iterator[tuple[Value, Cells]]:
        """Yield charges, with the number of counts of one device's day that have them."""
        for run in self.runs:
            reach, charge = run.charge
            before = run.through(day.start)
            cells = Cells(run.through(day.end + reach) - before, run.through(day.start + reach) - before)
            if cells.less:
                yield charge, cells


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

    def with_window(self, end: Micros, cost: Cost, reach: Micros, oldest: Micros) -> ReaderTotals:
        """Return the totals with a further cost of a window.

        Args:
            end: of the window.
            cost: per presence tuple.
            reach: how long one observation counts, in whole ticks.
            oldest: windows that end at this time or earlier are no longer needed.
        """
        window, latest = self.at(end).plus(cost), self.latest.after(oldest)
        latest = latest.with_window(end, window, reach) if window.pure else latest
        return ReaderTotals(self.total.plus(cost), max(self.largest, window.pure), latest)

    def since(self, start: Micros) -> Cost:
        """Return the cost of the windows that end after ``start``."""
        return compose_costs(cost.times(number) for cost, number in self.latest.each(start))

    def on_day(self, day: Day) -> Cost:
        """Return the cost of one device's day so far."""
        return compose_costs(cost.times(cells.less + cells.more) for cost, cells in self.latest.of_day(day))


class RunKey(NamedTuple):
    """Identifies a run: another epsilon, w or attempt has its own noise."""

    release: str
    audience: str
    epsilon: Fraction
    w: int
    attempt: int

    @classmethod
    def of_charge(cls, charge: CountCharge) -> RunKey:
        """Return the run that a charge is part of."""
        return cls(charge.release, charge.audience, charge.epsilon, charge.w, charge.attempt)

    @classmethod
    def parse(cls, text: str) -> RunKey:
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

    def with_window(self, end: Micros, reach: Micros, oldest: Micros) -> WindowRun:
        """Return the run with one more window; arguments as for ``ReaderTotals.with_window``."""
        latest = self.latest.after(oldest).with_window(end, self.restarts, reach)
        return replace(self, total=self.total + 1, latest=latest)

    def cost(self, windows: int) -> Cost:
        """Return the largest cost of this number of windows."""
        return Cost.of_epsilons(self.epsilon, -(-windows // self.w))

    def after_interruption(self) -> WindowRun:
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


@dataclass(slots=True)
class AccountState:
    """The views of the ledger behind the account, and the habits of people as far as attributes have revealed them."""

    totals: dict[str, ReaderTotals] = field(default_factory=dict)
    """Reader -> the cost of windows that pay for themselves."""
    habits: Habits = field(default_factory=dict)
    runs: dict[RunKey, WindowRun] = field(default_factory=dict)
    """Runs of every release whose epsilon pays for w windows."""
    charged: ChargeHistory = field(default_factory=ChargeHistory)
    """Charges of the count releases of the latest days."""
    day_spend: DaySpend = field(default_factory=DaySpend)
    """Charges of releases that are paid per day."""
    days: tuple[Day, ...] = ()
    """The days that count at the latest window, of every definition that was in effect at one of their windows."""

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Copy the charges of each zone to every name that the zone has now (``zones_now``)."""
        self.habits = habits_renamed(self.habits, now)
        self.charged.rename(now)

    def end_runs(self, blocked: Iterable[CountCharge]) -> None:
        """End the runs of waiting releases: they restart later, and no earlier window pays for a later one."""
        waiting = {(charge.release, charge.audience) for charge in blocked}
        self.runs = {
            key: run.after_interruption() if (key.release, key.audience) in waiting else run
            for key, run in self.runs.items()
        }

    def pay_runs(self, charges: Iterable[CountCharge], end: Micros, reach: Micros, oldest: Micros) -> frozenset[RunKey]:
        """Add a window to the runs that were paid for it; return these. Arguments as for ``with_window``."""
        paid: dict[RunKey, WindowRun] = {}
        for charge in charges:
            if charge.w > 1 and charge.epsilon > 0:
                key = RunKey.of_charge(charge)
                paid[key] = self.runs.get(key, WindowRun(charge.epsilon, charge.w)).with_window(end, reach, oldest)
        self.runs |= paid
        return frozenset(paid)
