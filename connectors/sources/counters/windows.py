"""Rows of counts gathered into windows; pure.

A row is in time from the begin of its window until its lateness is over, by the time at which it was written down where
it is read; whoever reads it again, after a restart, finds the same rows in time. Which windows there are follows from
the clock alone: each is told of once, in order, none left out, also where no row spoke of it.

A cell is told of by one row. A copy of it changes nothing, since who writes may write a row twice; where two rows of a
cell differ neither is believed, and a bad row spoils its own cell and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import orjson

from connectors.files.cells import Cell, CellRules, number
from stream.records import CountedWindow, Micros
from stream.sensing.counted import COUNTERS

LATE, EARLY, BAD, DIFFERS = "late", "early", "bad_row", "differs"
"""Why a row was dropped."""
_FAR: Micros = 1 << 62


def first_windows(
    rules: CellRules, now: Micros, since: Micros | None, next_windows: Mapping[str, Micros]
) -> dict[str, Micros]:
    """Return with which window each site begins.

    Args:
        rules: whose sites they are.
        now: the time; what ended before its lateness is over still goes in.
        since: the first one that is asked for, if any.
        next_windows: the one behind the last that is closed already, where that is known: nothing is left out.
    """
    first = {}
    for name, site in rules.sites.items():
        begin = -(-(now - site.lateness if since is None else since) // site.tick) * site.tick
        known = next_windows.get(name)
        first[name] = begin if known is None else known if since is None else max(known, begin)
    return first


class Gathering:
    """Cells of windows that are not closed yet."""

    def __init__(
        self, rules: CellRules, session: Micros, first: Mapping[str, Micros], last: Micros | None = None
    ) -> None:
        """Begin with each site's ``first`` window, which is on its grid; ``last``: no window after it."""
        self.rows = 0
        self.dropped: Counter[str] = Counter()
        """Rows by why they were dropped."""
        self._rules, self._session, self._last = rules, session, _FAR if last is None else last
        self._first, self._next = dict(first), dict(first)
        self._cells: dict[Cell, int | None] = {}

    def begin_again(self) -> Micros:
        """Take note that rows will be read again; return from when on some may be in time, as they were written."""
        self._first = dict(self._next)
        return max(0, min(self._next[name] - site.tick for name, site in self._rules.sites.items()))

    @property
    def over(self) -> bool:
        """Whether the last window of every site is closed."""
        return all(window > self._last for window in self._next.values())

    def take(self, value: bytes, written: Micros) -> None:
        """Take a row, an object of JSON with the fields of a file's rows, and when it was written down."""
        self.rows += 1
        try:
            row = orjson.loads(value)
            cell = self._rules.cell(row.get("window_end"), row.get("zone"), row.get("site"))
        except (orjson.JSONDecodeError, AttributeError):
            cell = BAD
        reason = BAD if isinstance(cell, str) else self._put(cell, number(row.get("count")), written)
        if reason is not None:
            self.dropped[reason] += 1

    def _put(self, cell: Cell, told: int | None, written: Micros) -> str | None:
        """Put a count, None for a bad one, into its cell; return why it was dropped, or None."""
        site = self._rules.sites[cell.site]
        if cell.window < self._first[cell.site] or cell.window > self._last:
            return None  # of before and after
        if written > cell.window + site.lateness or cell.window < self._next[cell.site]:
            return LATE
        if written <= cell.window - site.tick:
            return EARLY
        before = self._cells.setdefault(cell, told)
        if told is None:
            self._cells[cell] = None
            return BAD
        if before != told:
            self._cells[cell] = None
            return DIFFERS
        return None

    def close(self, now: Micros) -> Iterator[CountedWindow]:
        """Yield each window whose lateness is over, in order; each is closed when it is yielded."""
        while due := [(self._next[name], name) for name in self._rules.sites if self._is_due(name, now)]:
            window, name = min(due)
            yield self._closed(name, window)

    def _is_due(self, name: str, now: Micros) -> bool:
        window = self._next[name]
        return window <= self._last and window + self._rules.sites[name].lateness < now

    def _closed(self, name: str, window: Micros) -> CountedWindow:
        site = self._rules.sites[name]
        told = {zone.id: self._cells.pop(Cell(name, window, zone.id), None) for zone in site.zones}
        self._next[name] = window + site.tick
        counts = tuple((zone, n) for zone, n in sorted(told.items()) if n is not None)
        return CountedWindow(name, COUNTERS, self._session, window, counts)
