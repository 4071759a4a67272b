"""Collects rows of counts in windows; pure.

A row is in time from the beginning of its window until its lateness is over, by the time at which the row was written
to the topic. So a reader that reads it again after a restart finds the same rows in time. The set of windows follows
from the clock alone: each window is published once, in order, without gaps, even if no row belongs to it.

One row determines a cell. A copy of it changes nothing, since the writer may write a row twice. If two rows of a cell
differ, the cell is invalid, and a bad row makes its cell invalid too. The engine refuses a window that lacks a cell
(``stream.sensing.counter_feed``); here its rows are counted as dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import orjson

from connectors.sources.recordings.rows import Cell, CellRules, number
from stream.records import CountedWindow, Micros
from stream.sensing.counter_feed import COUNTERS, INCOMPLETE

LATE, EARLY, BAD, DIFFERS = "late", "early", "bad_row", "differs"
"""Reasons for which rows are dropped."""
_FAR: Micros = 1 << 62


def first_windows(
    rules: CellRules, now: Micros, since: Micros | None, next_windows: Mapping[str, Micros]
) -> dict[str, Micros]:
    """Return the first window of each site.

    Args:
        rules: the rules of the sites' rows.
        now: the time; windows whose lateness is not over yet are included.
        since: the first requested window, if any.
        next_windows: the window after the last one that is already closed, if it is known; no window is skipped.
    """
    first = {}
    for name, site in rules.sites.items():
        begin = -(-(now - site.lateness if since is None else since) // site.tick) * site.tick
        known = next_windows.get(name)
        first[name] = begin if known is None else known if since is None else max(known, begin)
    return first


class WindowCollector:
    """The cells of windows that are not closed yet."""

    def __init__(
        self, rules: CellRules, session: Micros, first: Mapping[str, Micros], last: Micros | None = None
    ) -> None:
        """Begin with each site's ``first`` window, which is on its grid; ``last``: no window after it."""
        self.rows = 0
        self.dropped: Counter[str] = Counter()
        """Dropped rows by reason."""
        self._rules, self._session, self._last = rules, session, _FAR if last is None else last
        self._first, self._next = dict(first), dict(first)
        self._cells: dict[Cell, int | None] = {}

    def begin_again(self) -> Micros:
        """Prepare for reading rows again; return the earliest record timestamp at which a row may be in time."""
        self._first = dict(self._next)
        return max(0, min(self._next[name] - site.tick for name, site in self._rules.sites.items()))

    @property
    def over(self) -> bool:
        """Whether the last window of every site is closed."""
        return all(window > self._last for window in self._next.values())

    def process(self, value: bytes, written: Micros) -> None:
        """Process a row, a JSON object with the fields of a file's rows, and the time at which it was written."""
        self.rows += 1
        try:
            row = orjson.loads(value)
            cell = self._rules.cell(row.get("window_end"), row.get("zone"), row.get("site"))
        except (orjson.JSONDecodeError, AttributeError):
            cell = BAD
        reason = BAD if isinstance(cell, str) else self._put(cell, number(row.get("count")), written)
        if reason is not None:
            self.dropped[reason] += 1

    def _put(self, cell: Cell, count: int | None, written: Micros) -> str | None:
        """Put a count, None for a bad one, into its cell; return the reason if it is dropped, else None."""
        site = self._rules.sites[cell.site]
        if cell.window < self._first[cell.site] or cell.window > self._last:
            return None  # before the first or after the last window
        if written > cell.window + site.lateness or cell.window < self._next[cell.site]:
            return LATE
        if written <= cell.window - site.tick:
            return EARLY
        before = self._cells.setdefault(cell, count)
        if count is None:
            self._cells[cell] = None
            return BAD
        if before != count:
            self._cells[cell] = None
            return DIFFERS
        return None

    def close(self, now: Micros) -> Iterator[CountedWindow]:
        """Yield each window whose lateness is over, in order; a window is closed when it is yielded."""
        while due := [(self._next[name], name) for name in self._rules.sites if self._is_due(name, now)]:
            window, name = min(due)
            yield self._closed(name, window)

    def _is_due(self, name: str, now: Micros) -> bool:
        window = self._next[name]
        return window <= self._last and window + self._rules.sites[name].lateness < now

    def _closed(self, name: str, window: Micros) -> CountedWindow:
        site = self._rules.sites[name]
        cells = {zone.id: self._cells.pop(Cell(name, window, zone.id), None) for zone in site.zones}
        self._next[name] = window + site.tick
        counts = tuple((zone, n) for zone, n in sorted(cells.items()) if n is not None)
        if self._rules.lacks(name, [zone for zone, _ in counts]):
            self.dropped[INCOMPLETE] += len(counts)
        return CountedWindow(name, COUNTERS, self._session, window, counts)
