"""Charges of count releases by window, and their bound on attributes.

A sensitive and another value of a zone's day differ in the counts of at most n ticks of that day
(``privacy.ticks_per_attribute``), each by one person's k devices. Counts therefore change the odds of an attribute by a
factor of at most e^(k E). E is the sum of all charges, under any release name, policy and attempt, and with any delay:

    E = sum of the n largest window costs of the zone within the day
        + sum over w-event releases of epsilons_for(w, n, windows charged) times epsilon
        + sum over day releases and the privacy days within the day of the loss of a changed part of a day

The cost of a window is the sum over lines (``ChargeStream``). A line is a release under one name, policy version and
attempt; each line has its own noise. Readers of one line pay together ``coalition_cost``. Any n windows of a day cost
at most the n largest. In a w-event release one epsilon pays for any w consecutive windows, but the n ticks may lie
apart, each at a window in which the release spends its whole epsilon (``Mechanism.epsilons_for``). A line that restarts
(another name, policy or attempt) pays for itself. A day with fewer charged windows costs less than a policy promises,
and never more.

A sliding budget looks back over w windows, and a future policy may have the longest w. The spending of an account is
therefore stored as runs (``ChargeRun``): windows at equal distances with equal cost. A release that pays for every
window is one run, however long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from stream.accounting.units import Cells, Day
from stream.policy.mechanisms import mechanism_named
from stream.records import DAY, Micros

# Runs of equal charges.


Value = TypeVar("Value")


class ChargeRun(NamedTuple, Generic[Value]):
    """Windows that end at ``first``, ``first`` + ``step`` and so on, ``windows`` of them, each charged the same."""

    first: Micros
    step: Micros
    windows: int
    charge: Value

    @property
    def last(self) -> Micros:
        """End of the last window."""
        return self.first + self.step * (self.windows - 1)

    def without_last(self) -> ChargeRun[Value] | None:
        """Return all windows but the last; None where there is only one."""
        if self.windows == 1:
            return None
        return self._replace(step=self.step if self.windows > 2 else 0, windows=self.windows - 1)

    def through(self, end: Micros) -> int:
        """Return how many of the windows end at ``end`` or earlier."""
        if end < self.first:
            return 0
        return self.windows if end >= self.last else (end - self.first) // self.step + 1

    def since(self, end: Micros) -> ChargeRun[Value] | None:
        """Return the windows that end after ``end``; None where there are none."""
        gone = self.through(end)
        if not gone:
            return self
        if gone == self.windows:
            return None
        return self._replace(first=self.first + gone * self.step, windows=self.windows - gone)

    def with_one(self, end: Micros, charge: Value) -> ChargeRun[Value] | None:
        """Return the run with one more window; None if that window does not continue it."""
        step = self.step if self.windows > 1 else end - self.first
        goes_on = charge == self.charge and step > 0 and end == self.last + step
        return self._replace(step=step, windows=self.windows + 1) if goes_on else None


def add_window(runs: list[ChargeRun[Value]], end: Micros, charge: Value) -> None:
    """Add, in place, the cost of a window; windows may come in any order."""
    longer = runs[-1].with_one(end, charge) if runs else None
    if longer is None:
        runs.append(ChargeRun(end, 0, 1, charge))
    else:
        runs[-1] = longer


def runs_after(runs: Iterable[ChargeRun[Value]], end: Micros) -> list[ChargeRun[Value]]:
    """Return the rest of the runs without the windows that end at ``end`` or earlier."""
    return [left for spell in runs if (left := spell.since(end)) is not None]


def windows_within(runs: Iterable[ChargeRun[Value]], first: Micros, last: Micros) -> Iterator[tuple[Micros, Value]]:
    """Yield (end, charge) of every window that ends at ``first``, at ``last`` or between them."""
    for spell in runs_after(runs, first - 1):
        for number in range(spell.windows):
            end = spell.first + number * spell.step
            if end > last:
                break
            yield end, spell.charge


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

    def and_window(self, end: Micros, charge: Value, reach: Micros) -> LatestCharges[Value]:
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

    def encoded(self, write: Callable[[Value], Any]) -> list[list[Any]]:
        """Return the JSON form."""
        return [[run.first, run.step, run.windows, run.charge[0], write(run.charge[1])] for run in self.runs]

    @classmethod
    def decoded(cls, rows: Iterable[list[Any]], read: Callable[[Any], Value]) -> LatestCharges[Value]:
        """Return the charges of their JSON form."""
        return cls(tuple(ChargeRun(first, step, n, (reach, read(charge))) for first, step, n, reach, charge in rows))


KEPT: Micros = 2 * DAY
"""A local day is closed long before its windows have this age, even after a change of clocks or time zone."""

Span = tuple[Micros, Micros]
"""First instant, and the first instant after."""


def coalition_cost(mechanism: str, epsilons: Iterable[Fraction]) -> Fraction:
    """Return the epsilon of all readers of one count release together, at one tick; UsageError if undeclared."""
    return _cost(mechanism, frozenset(epsilon for epsilon in epsilons if epsilon > 0))


@lru_cache(maxsize=1024)
def _cost(mechanism: str, distinct: frozenset[Fraction]) -> Fraction:
    composition = mechanism_named(mechanism).composition
    return composition.joint_epsilon(distinct) if distinct else Fraction(0)


class ChargeStream(NamedTuple):
    """A count release as it was charged: under one name, policy version and attempt."""

    mechanism: str
    w: int
    """Consecutive windows that one epsilon pays for."""
    zones: tuple[str, ...]
    day: int | None = None
    """Number of the privacy day, if one price pays for a whole day; payments are then losses of a changed day."""


AudienceCharges = tuple[tuple[str, Fraction], ...]
"""(audience, epsilon) in the order of audiences."""
Window = tuple[tuple[str, AudienceCharges], ...]
"""(line, payments on it) in the order of lines. Equal windows share one object, since there are few kinds."""


@dataclass(slots=True)
class ChargeHistory:
    """The count charges of a site's latest windows, or of all its windows."""

    lines: dict[str, ChargeStream] = field(default_factory=dict)
    """``release/version/attempt`` -> the line."""
    days: dict[int, dict[Micros, Window]] = field(default_factory=dict)
    """UTC day -> end of a window -> its charges."""
    _kinds: dict[Window, Window] = field(default_factory=dict, repr=False, compare=False)

    def note(self, end: Micros, name: str, line: ChargeStream, paid: Mapping[str, Fraction]) -> None:
        """Record the payments of audiences on one line for the window that ends at ``end``; 0 is a denial."""
        charged = {audience: epsilon for audience, epsilon in paid.items() if epsilon > 0}
        if charged:
            self.lines[name] = line
            window = dict(self._window(end))
            window[name] = tuple(sorted((dict(window.get(name, ())) | charged).items()))
            self._put(end, tuple(sorted(window.items())))

    def undo(self, end: Micros, name: str) -> None:
        """Undo ``note``: the line was not charged for this window."""
        self._put(end, tuple(one for one in self._window(end) if one[0] != name))

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Extend each line to every name that its zones have now (``zones_now``)."""
        self.lines = {name: line._replace(zones=renamed(line.zones, now)) for name, line in self.lines.items()}

    def forget(self, end: Micros) -> None:
        """Drop windows older than ``KEPT`` relative to ``end``."""
        oldest = (end - KEPT) // DAY
        if any(day < oldest for day in self.days):
            self.days = {day: windows for day, windows in self.days.items() if day >= oldest}
            self._kinds = {window: window for windows in self.days.values() for window in windows.values()}
            used = {name for window in self._kinds for name, _ in window}
            self.lines = {name: line for name, line in self.lines.items() if name in used}

    def _window(self, end: Micros) -> Window:
        return self.days.get(end // DAY, {}).get(end, ())

    def _put(self, end: Micros, window: Window) -> None:
        self.days.setdefault(end // DAY, {})[end] = self._kinds.setdefault(window, window)

    def charged_at(self, end: Micros) -> dict[str, ChargeStream]:
        """Return the lines that were charged for a window."""
        return {name: self.lines[name] for name, _ in self._window(end)}

    def days_charged_in(self, span: Span) -> dict[str, ChargeStream]:
        """Return the lines of whole days that were charged for any window that ends within a span."""
        lines = (name for window in self._within(span) for name, _ in window)
        return {name: self.lines[name] for name in lines if self.lines[name].day is not None}

    def covering(self, zone: str) -> frozenset[str]:
        """Return the lines that cover a zone."""
        return frozenset(name for name, line in self.lines.items() if zone in line.zones)

    def exponent(self, covering: frozenset[str], span: Span, ticks: int, audiences: frozenset[str] | None) -> Fraction:
        """Return E of a zone's windows that end within ``span``, for these audiences together.

        Args:
            covering: the lines that cover the zone.
            span: the local day.
            ticks: n.
            audiences: the readers; None for every audience that has paid.
        """
        costs: Counter[Fraction] = Counter()
        runs: Counter[tuple[str, Fraction]] = Counter()
        for window, times in self._within(span).items() if covering else ():
            cost = Fraction(0)
            for name, paid in window:
                if name in covering:
                    line = self.lines[name]
                    seen = [epsilon for audience, epsilon in paid if audiences is None or audience in audiences]
                    if line.w == 1 and line.day is None:
                        cost += coalition_cost(line.mechanism, seen)
                    else:
                        runs[name, coalition_cost(line.mechanism, seen)] += times
            costs[cost] += times
        return _dearest(costs, ticks) + sum(
            (self._run(name, runs, ticks) for name in {name for name, _ in runs}), Fraction(0)
        )

    def _within(self, span: Span) -> dict[Window, int]:
        """Return the number of windows of each kind that end within a span."""
        times: Counter[int] = Counter()
        kinds: dict[int, Window] = {}
        for day in range(span[0] // DAY, (span[1] - 1) // DAY + 1):
            for end, window in self.days.get(day, {}).items():
                if span[0] <= end < span[1]:
                    times[id(window)] += 1
                    kinds[id(window)] = window
        return {kinds[kind]: number for kind, number in times.items()}

    def _run(self, name: str, runs: Mapping[tuple[str, Fraction], int], ticks: int) -> Fraction:
        """Return the largest cost of ``ticks`` windows of a w-event line."""
        each = {cost: number for (line, cost), number in runs.items() if line == name}
        line = self.lines[name]
        if line.day is not None:
            return max(each)
        return mechanism_named(line.mechanism).epsilons_for(line.w, ticks, sum(each.values())) * max(each)


def _dearest(costs: Mapping[Fraction, int], n: int) -> Fraction:
    """Return the sum of the n largest costs; ``costs`` maps a cost to its number."""
    total = Fraction(0)
    for cost, number in sorted(costs.items(), reverse=True):
        taken = min(n, number)
        total += taken * cost
        n -= taken
    return total


def renamed(zones: Iterable[str], now: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return zones under all their current names, in the same order."""
    return tuple(dict.fromkeys(name for zone in zones for name in sorted(now.get(zone, (zone,)))))


def line_name(release: str, version: str, attempt: int, day: int | None = None) -> str:
    """Return the name of a line; each privacy day that was paid as a whole is a line of its own."""
    return f"{release}/{version}/{attempt}" + ("" if day is None else f"/{day}")


def release_of(line: str) -> str:
    """Return the release of a line."""
    return line.partition("/")[0]


def attempt_of(line: str) -> int:
    """Return the attempt of a line."""
    return int(line.split("/")[2])


def encode_charged(state: ChargeHistory) -> dict[str, Any]:
    """Return the JSON form; consecutive equal windows at equal distances form one row."""
    rows: list[tuple[Micros, Micros, int, Window]] = []
    for end, window in sorted((end, window) for windows in state.days.values() for end, window in windows.items()):
        if rows and rows[-1][3] is window and (rows[-1][2] == 1 or end == rows[-1][0] + rows[-1][2] * rows[-1][1]):
            first, step, number, _ = rows[-1]
            rows[-1] = (first, step or end - first, number + 1, window)
        else:
            rows.append((end, 0, 1, window))
    windows = [
        [*row, [[name, [[who, str(epsilon)] for who, epsilon in paid]] for name, paid in window]]
        for *row, window in rows
    ]
    return {
        "lines": {
            name: [*line[:3], *([line.day] if line.day is not None else [])]
            for name, line in sorted(state.lines.items())
        },
        "windows": windows,
    }


def decode_charged(data: Mapping[str, Any]) -> ChargeHistory:
    """Decode the JSON form; UsageError where a line belongs to an undeclared mechanism."""
    state = ChargeHistory()
    for name, (mechanism, w, zones, *day) in data["lines"].items():
        mechanism_named(mechanism)
        state.lines[name] = ChargeStream(mechanism, w, tuple(zones), *day)
    for first, step, number, lines in data["windows"]:
        window = tuple((name, tuple((who, Fraction(epsilon)) for who, epsilon in paid)) for name, paid in lines)
        for place in range(number):
            state._put(first + place * step, window)  # noqa: SLF001
    return state
