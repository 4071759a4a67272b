"""The charges of count releases by window: who paid how much on which line.

A line (``ChargeLine``) is a count release under one name, policy version and attempt; each line has its own noise. A
release that restarts under another name, policy or attempt is another line and pays for itself. What the recorded
windows reveal of an attribute is in ``count_exponent``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from stream.policy.sites import current_names
from stream.records import DAY, Micros

KEPT: Micros = 2 * DAY
"""A local day is closed long before its windows have this age, even after a change of clocks or time zone."""


Span = tuple[Micros, Micros]
"""First instant, and the first instant after."""


AudienceCharges = tuple[tuple[str, Fraction], ...]
"""(audience, epsilon) in the order of audiences."""


Window = tuple[tuple[str, AudienceCharges], ...]
"""(line, payments on it) in the order of lines. Equal windows share one object, since there are few kinds."""


class ChargeLine(NamedTuple):
    """A count release as it was charged: under one name, policy version and attempt."""

    mechanism: str
    w: int
    """Consecutive windows that one epsilon pays for."""
    zones: tuple[str, ...]
    day: int | None = None
    """Number of the privacy day, if one price pays for a whole day; payments are then losses of a changed day."""


@dataclass(slots=True)
class ChargeHistory:
    """The count charges of a site's latest windows, or of all its windows."""

    lines: dict[str, ChargeLine] = field(default_factory=dict)
    """``line_name`` -> the line."""
    days: dict[int, dict[Micros, Window]] = field(default_factory=dict)
    """UTC day -> end of a window -> its charges."""
    _kinds: dict[Window, Window] = field(default_factory=dict, repr=False, compare=False)

    def note(self, end: Micros, name: str, line: ChargeLine, paid: Mapping[str, Fraction]) -> None:
        """Record the payments of audiences on one line for the window that ends at ``end``; 0 is a denial."""
        charged = {audience: epsilon for audience, epsilon in paid.items() if epsilon > 0}
        if charged:
            self.lines[name] = line
            window = dict(self._window(end))
            window[name] = tuple(sorted((dict(window.get(name, ())) | charged).items()))
            self.put(end, tuple(sorted(window.items())))

    def undo(self, end: Micros, name: str) -> None:
        """Undo ``note``: the line was not charged for this window."""
        self.put(end, tuple(one for one in self._window(end) if one[0] != name))

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Extend each line to every name that its zones have now (``zones_now``)."""
        self.lines = {name: line._replace(zones=current_names(line.zones, now)) for name, line in self.lines.items()}

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

    def put(self, end: Micros, window: Window) -> None:
        """Set all charges of the window that ends at ``end``."""
        self.days.setdefault(end // DAY, {})[end] = self._kinds.setdefault(window, window)

    def charged_at(self, end: Micros) -> dict[str, ChargeLine]:
        """Return the lines that were charged for a window."""
        return {name: self.lines[name] for name, _ in self._window(end)}

    def days_charged_in(self, span: Span) -> dict[str, ChargeLine]:
        """Return the lines of whole days that were charged for any window that ends within a span."""
        lines = (name for window in self.windows_in(span) for name, _ in window)
        return {name: self.lines[name] for name in lines if self.lines[name].day is not None}

    def covering(self, zone: str) -> frozenset[str]:
        """Return the lines that cover a zone."""
        return frozenset(name for name, line in self.lines.items() if zone in line.zones)

    def windows_in(self, span: Span) -> dict[Window, int]:
        """Return the number of windows of each kind that end within a span."""
        times: Counter[int] = Counter()
        kinds: dict[int, Window] = {}
        for day in range(span[0] // DAY, (span[1] - 1) // DAY + 1):
            for end, window in self.days.get(day, {}).items():
                if span[0] <= end < span[1]:
                    times[id(window)] += 1
                    kinds[id(window)] = window
        return {kinds[kind]: number for kind, number in times.items()}


def line_name(release: str, version: str, attempt: int, day: int | None = None) -> str:
    """Return the name of a line; each privacy day that was paid as a whole is a line of its own."""
    return f"{release}/{version}/{attempt}" + ("" if day is None else f"/{day}")


def release_of(line: str) -> str:
    """Return the release of a line."""
    return line.partition("/")[0]


def attempt_of(line: str) -> int:
    """Return the attempt of a line."""
    return int(line.split("/")[2])
