"""What the count releases of the last days were charged, window by window: how much counts say of an attribute.

A sensitive and another value of a zone's day differ in the counts of at most n ticks of that day
(``privacy.ticks_per_attribute``), each by one person's k devices. Counts therefore change what an attribute
says by a factor of at most e^(k E). E is added up from what was charged, whatever the release was called,
under whatever policy, at whatever attempt and however late:

    E = sum of the n largest window costs of the zone within the day
        + sum over w-event releases of epsilons_for(w, n, windows charged) times epsilon
        + sum over day releases and the privacy days within the day of what a changed part of a day may lose

The cost of a window is the sum over lines, a line being a release under one name, policy version and attempt:
each has noise of its own. Readers of one line pay together what ``coalition_cost`` says. Any n windows of a day
cost at most the n largest. Of a w-event release an epsilon pays for any w windows one after another, but the n ticks
may lie apart, each where the release spends all it has (``Mechanism.epsilons_for``); a line begun anew (another name,
policy or attempt) pays for itself. A day with fewer charged windows costs less than a policy promises, and never more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from stream.policy.mechanisms import mechanism_named
from stream.records import DAY, Micros

KEPT: Micros = 2 * DAY
"""A local day has closed long before its windows are this old, also where its clocks or time zone have changed."""

Span = tuple[Micros, Micros]
"""First instant, and the first that does not belong."""


def coalition_cost(mechanism: str, epsilons: Iterable[Fraction]) -> Fraction:
    """Return what readers of one count release at one tick learn together; UsageError for an undeclared mechanism."""
    return _cost(mechanism, frozenset(epsilon for epsilon in epsilons if epsilon > 0))


@lru_cache(maxsize=1024)
def _cost(mechanism: str, distinct: frozenset[Fraction]) -> Fraction:
    composition = mechanism_named(mechanism).composition
    return composition.together(distinct) if distinct else Fraction(0)


class Line(NamedTuple):
    """A count release as it was charged: under one name, policy version and attempt."""

    mechanism: str
    w: int
    """Consecutive windows that one epsilon pays for."""
    zones: tuple[str, ...]
    day: int | None = None
    """Number of the privacy day, where one price pays for all of it; then what is paid is the loss of a day changed."""


Paid = tuple[tuple[str, Fraction], ...]
"""(audience, epsilon) in the order of audiences."""
Window = tuple[tuple[str, Paid], ...]
"""(line, what was paid on it) in the order of lines. Windows alike are one object: there are few kinds of them."""


@dataclass(slots=True)
class ChargedWindows:
    """The count charges of a site's latest windows, or of all of them."""

    lines: dict[str, Line] = field(default_factory=dict)
    """``release/version/attempt`` -> what it is."""
    days: dict[int, dict[Micros, Window]] = field(default_factory=dict)
    """UTC day -> end of a window -> what was charged for it."""
    _kinds: dict[Window, Window] = field(default_factory=dict, repr=False, compare=False)

    def note(self, end: Micros, name: str, line: Line, paid: Mapping[str, Fraction]) -> None:
        """Remember what audiences paid on one line for the window that ends at ``end``; 0 is a denial."""
        charged = {audience: epsilon for audience, epsilon in paid.items() if epsilon > 0}
        if charged:
            self.lines[name] = line
            window = dict(self._window(end))
            window[name] = tuple(sorted((dict(window.get(name, ())) | charged).items()))
            self._put(end, tuple(sorted(window.items())))

    def take_back(self, end: Micros, name: str) -> None:
        """Undo ``note``: the line was not charged for this window after all."""
        self._put(end, tuple(one for one in self._window(end) if one[0] != name))

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Let each line cover its zones under every name that they have now (``zones_now``)."""
        self.lines = {name: line._replace(zones=renamed(line.zones, now)) for name, line in self.lines.items()}

    def forget(self, end: Micros) -> None:
        """Let go of windows that are older than ``KEPT`` when one ends at ``end``."""
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

    def charged_at(self, end: Micros) -> dict[str, Line]:
        """Return the lines that were charged for a window."""
        return {name: self.lines[name] for name, _ in self._window(end)}

    def days_charged_in(self, span: Span) -> dict[str, Line]:
        """Return the lines of whole days that were charged for any window that ends within a span."""
        lines = (name for window in self._within(span) for name, _ in window)
        return {name: self.lines[name] for name in lines if self.lines[name].day is not None}

    def covering(self, zone: str) -> frozenset[str]:
        """Return the lines that cover a zone."""
        return frozenset(name for name, line in self.lines.items() if zone in line.zones)

    def exponent(self, covering: frozenset[str], span: Span, ticks: int, audiences: frozenset[str] | None) -> Fraction:
        """Return E of a zone's windows that end within ``span``, as these audiences see them together.

        Args:
            covering: the lines that cover the zone.
            span: the local day.
            ticks: n.
            audiences: those who see them; None for everybody who ever paid.
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
        """Return how many windows of each kind end within a span."""
        times: Counter[int] = Counter()
        kinds: dict[int, Window] = {}
        for day in range(span[0] // DAY, (span[1] - 1) // DAY + 1):
            for end, window in self.days.get(day, {}).items():
                if span[0] <= end < span[1]:
                    times[id(window)] += 1
                    kinds[id(window)] = window
        return {kinds[kind]: number for kind, number in times.items()}

    def _run(self, name: str, runs: Mapping[tuple[str, Fraction], int], ticks: int) -> Fraction:
        """Return what up to ``ticks`` windows of a w-event line cost."""
        each = {cost: number for (line, cost), number in runs.items() if line == name}
        line = self.lines[name]
        if line.day is not None:
            return max(each)
        return mechanism_named(line.mechanism).epsilons_for(line.w, ticks, sum(each.values())) * max(each)


def _dearest(costs: Mapping[Fraction, int], n: int) -> Fraction:
    """Return the sum of the n largest of so many costs each."""
    total = Fraction(0)
    for cost, number in sorted(costs.items(), reverse=True):
        taken = min(n, number)
        total += taken * cost
        n -= taken
    return total


def renamed(zones: Iterable[str], now: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return zones under every name that they have now, in the same order."""
    return tuple(dict.fromkeys(name for zone in zones for name in sorted(now.get(zone, (zone,)))))


def line_name(release: str, version: str, attempt: int, day: int | None = None) -> str:
    """Return the name of a line; each privacy day that was paid as a whole is one."""
    return f"{release}/{version}/{attempt}" + ("" if day is None else f"/{day}")


def release_of(line: str) -> str:
    """Return the release whose name a line bears."""
    return line.partition("/")[0]


def attempt_of(line: str) -> int:
    """Return the attempt whose charges a line holds."""
    return int(line.split("/")[2])


def encode_charged(state: ChargedWindows) -> dict[str, Any]:
    """Return the JSON form: windows alike that follow one another at one distance are one row."""
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


def decode_charged(data: Mapping[str, Any]) -> ChargedWindows:
    """Return the state of its JSON form; UsageError where a line is of a mechanism that is not declared."""
    state = ChargedWindows()
    for name, (mechanism, w, zones, *day) in data["lines"].items():
        mechanism_named(mechanism)
        state.lines[name] = Line(mechanism, w, tuple(zones), *day)
    for first, step, number, lines in data["windows"]:
        window = tuple((name, tuple((who, Fraction(epsilon)) for who, epsilon in paid)) for name, paid in lines)
        for place in range(number):
            state._put(first + place * step, window)  # noqa: SLF001
    return state
