"""What the count releases of the last days were charged, window by window: how much counts say of an attribute.

A sensitive and another value of a zone's day differ in the counts of at most n ticks of that day
(``privacy.ticks_per_attribute``), each by one person's k devices. Counts therefore change what an attribute
says by a factor of at most e^(k E). E is added up from what was charged, whatever the release was called,
under whatever policy, at whatever attempt and however late:

    E = sum of the n largest window costs of the zone within the day
        + sum over w-event releases of ceil(min(n, windows charged) / w) epsilon

The cost of a window is the sum over lines, a line being a release under one name, policy version and attempt:
each has noise of its own. Readers of one line pay together what ``coalition_cost`` says. Any n windows of a day
cost at most the n largest; of a w-event release, whose epsilon pays for any w windows one after another, a
line begun anew (another name, policy or attempt) pays for itself. A day with fewer charged windows costs less
than a policy promises, and never more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from heapq import nlargest
from typing import Any, NamedTuple

from stream.records import DAY, Micros

PERTURBER_SHARE = Fraction(4, 5)
GROUPER_SHARE = Fraction(1, 5)
KEPT: Micros = 3 * DAY
"""A local day has closed long before its windows are this old, also where its clocks or time zone have changed."""

Span = tuple[Micros, Micros]
"""First instant, and the first that does not belong."""


def coalition_cost(mechanism: str, epsilons: Iterable[Fraction]) -> Fraction:
    """Return what readers of one count release at one tick learn together."""
    return _cost(mechanism, frozenset(epsilon for epsilon in epsilons if epsilon > 0))


@lru_cache(maxsize=1024)
def _cost(mechanism: str, distinct: frozenset[Fraction]) -> Fraction:
    if not distinct:
        return Fraction(0)
    if mechanism == "pegasus":
        return PERTURBER_SHARE * max(distinct) + GROUPER_SHARE * sum(distinct)
    return max(distinct)


class Line(NamedTuple):
    """A count release as it was charged: under one name, policy version and attempt."""

    mechanism: str
    w: int
    """Consecutive windows that one epsilon pays for."""
    zones: tuple[str, ...]


Window = dict[str, dict[str, Fraction]]
"""Line -> audience -> epsilon paid."""


@dataclass(slots=True)
class ChargedWindows:
    """The count charges of a site's latest windows, or of all of them."""

    lines: dict[str, Line] = field(default_factory=dict)
    """``release/version/attempt`` -> what it is."""
    days: dict[int, dict[Micros, Window]] = field(default_factory=dict)
    """UTC day -> end of a window -> what was charged for it."""

    def note(self, end: Micros, name: str, line: Line, paid: Mapping[str, Fraction]) -> None:
        """Remember what audiences paid on one line for the window that ends at ``end``; 0 is a refusal."""
        charged = {audience: epsilon for audience, epsilon in paid.items() if epsilon > 0}
        if charged:
            self.lines[name] = line
            self.days.setdefault(end // DAY, {}).setdefault(end, {}).setdefault(name, {}).update(charged)

    def take_back(self, end: Micros, name: str) -> None:
        """Undo ``note``: the line was not charged for this window after all."""
        self._window(end).pop(name, None)

    def forget(self, end: Micros) -> None:
        """Let go of windows that are older than ``KEPT`` when one ends at ``end``."""
        oldest = (end - KEPT) // DAY
        if any(day < oldest for day in self.days):
            self.days = {day: windows for day, windows in self.days.items() if day >= oldest}
            used = {name for windows in self.days.values() for window in windows.values() for name in window}
            self.lines = {name: line for name, line in self.lines.items() if name in used}

    def _window(self, end: Micros) -> Window:
        return self.days.get(end // DAY, {}).get(end, {})

    def charged_at(self, end: Micros) -> dict[str, Line]:
        """Return the lines that were charged for a window."""
        return {name: self.lines[name] for name, paid in self._window(end).items() if paid}

    def covering(self, zone: str) -> frozenset[str]:
        """Return the lines that cover a zone."""
        return frozenset(name for name, line in self.lines.items() if zone in line.zones)

    def exponent(self, covering: frozenset[str], span: Span, ticks: int, members: frozenset[str] | None) -> Fraction:
        """Return E of a zone's windows that end within ``span``, as these audiences see them together.

        Args:
            covering: the lines that cover the zone.
            span: the local day.
            ticks: n.
            members: audiences; None for everybody who ever paid.
        """
        costs: defaultdict[Micros, Fraction] = defaultdict(Fraction)
        runs: defaultdict[str, list[Fraction]] = defaultdict(list)
        for end, name, paid in self._paid(covering, span):
            line = self.lines[name]
            seen = [epsilon for audience, epsilon in paid.items() if members is None or audience in members]
            cost = coalition_cost(line.mechanism, seen)
            if line.w == 1:
                costs[end] += cost
            else:
                runs[name].append(cost)
        total = sum(nlargest(ticks, costs.values()), Fraction(0))
        for name, each in runs.items():
            total += -(-min(ticks, len(each)) // self.lines[name].w) * max(each)
        return total

    def _paid(self, covering: frozenset[str], span: Span) -> Iterator[tuple[Micros, str, dict[str, Fraction]]]:
        """Yield (end, line, audience -> epsilon) of what was charged on these lines within a span."""
        if covering:
            for day in range(span[0] // DAY, (span[1] - 1) // DAY + 1):
                for end, window in self.days.get(day, {}).items():
                    if span[0] <= end < span[1]:
                        yield from ((end, name, paid) for name, paid in window.items() if name in covering)


def line_name(release: str, version: str, attempt: int) -> str:
    """Return the name of a line."""
    return f"{release}/{version}/{attempt}"


def encode_charged(state: ChargedWindows) -> dict[str, Any]:
    """Return the JSON form."""
    windows = {
        str(end): {
            name: {audience: str(epsilon) for audience, epsilon in sorted(paid.items())}
            for name, paid in sorted(window.items())
            if paid
        }
        for _, ends in sorted(state.days.items())
        for end, window in sorted(ends.items())
    }
    return {"lines": {name: [*line] for name, line in sorted(state.lines.items())}, "windows": windows}


def decode_charged(data: Mapping[str, Any]) -> ChargedWindows:
    """Return the state of its JSON form."""
    state = ChargedWindows()
    for name, (mechanism, w, zones) in data["lines"].items():
        state.lines[name] = Line(mechanism, w, tuple(zones))
    for end, window in data["windows"].items():
        for name, paid in window.items():
            state.note(int(end), name, state.lines[name], {who: Fraction(epsilon) for who, epsilon in paid.items()})
    return state
