"""Files of counts: rows of window_end, zone and count, as messages.

A file is read whole before anything is published, and its rows may be in any order. Each window of the range is
published once, even if no row belongs to it: the set of windows must not depend on rows. Therefore the commands require
both ends of the range under a production key.

A cell is a zone at a window. A bad row, or a second row of the same cell, makes its cell invalid, and the cell is not
published. The engine refuses a window that lacks a cell (``stream.sensing.counter_feed``); such windows are tallied
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from connectors.sources.recordings.rows import COUNT, TWICE, CellRules, number
from connectors.sources.recordings.text_rows import RowCounts, lines_of, open_text, rows_of
from stream.policy.document import PolicyDocument
from stream.policy.sites import Site
from stream.records import CountedWindow, Micros
from stream.sensing.counter_feed import COUNTERS

PAUSE_ROWS = 256
PROGRESS_ROWS = 10_000


class CountsFile:
    """One file, read once, as counted windows in log order; the same rows in the same range give the same messages."""

    def __init__(
        self,
        path: Path,
        policy: PolicyDocument,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        progress: Callable[..., None] | None = None,
    ) -> None:
        """Set the windows that the file covers; UsageError if no site of the policy receives counts."""
        self.tally = RowCounts()
        self._path, self._since, self._until, self._progress = path, since, until, progress
        self._rules = CellRules(policy)
        self._counts: dict[tuple[str, Micros], dict[str, int | None]] = {}
        self._read = False

    @property
    def first(self) -> Micros | None:
        """The first window of the range, which is the session.

        None before the file was read, or if nothing determines it.
        """
        if self._since is not None:
            return self._since
        return min((window for _, window in self._counts), default=None)

    def begin(self) -> Micros | None:
        """Read the file; return its session, None if neither range nor rows determine when it begins.

        Raises:
            UsageError: the file cannot be read or has other columns.
            DataError: it cannot be read to its end.
        """
        for _ in self._take_in():
            pass
        return self.first

    def steps(self) -> Iterator[CountedWindow | None]:
        """Yield the whole file's messages, and at intervals None, so that the caller can do other work."""
        yield from self._take_in()
        first = self.first
        last = self._until if self._until is not None else max((w for _, w in self._counts), default=None)
        if first is None or last is None:
            return
        for name, site in self._rules.sites.items():
            for window in range(-(-first // site.tick) * site.tick, last + 1, site.tick):
                cells = self._counts.get((name, window), {})
                counts = tuple((zone, n) for zone, n in sorted(cells.items()) if n is not None)
                yield CountedWindow(name, COUNTERS, first, window, counts)

    def messages(self) -> Iterator[CountedWindow]:
        """Yield the whole file's messages; raises the same errors as ``begin``."""
        return (step for step in self.steps() if step is not None)

    def _take_in(self) -> Iterator[None]:
        if self._read:
            return
        with open_text(self._path) as file:
            for line, fields in rows_of(self._path, lines_of(self._path, file), self._rules.columns):
                self.tally.rows += 1
                if self.tally.rows % PAUSE_ROWS == 0:
                    if self._progress is not None and self.tally.rows % PROGRESS_ROWS < PAUSE_ROWS:
                        self._progress(self.tally.rows)
                    yield None
                problem = fields if isinstance(fields, str) else self._take_row(*fields)
                if problem is not None:
                    self.tally.note(line, problem)
        self.tally.incomplete = sum(
            self._rules.lacks(site, [zone for zone, n in cells.items() if n is not None])
            for (site, _), cells in self._counts.items()
        )
        self._read = True

    def _take_row(self, time: Any, zone: Any, count: Any, site: Any = None) -> str | None:
        """Put a row into its cell.

        Return the rule that a bad row broke, and invalidate its cell if the cell is known.
        """
        found = self._rules.cell(time, zone, site)
        if isinstance(found, str):
            return found
        if self._outside(self._rules.sites[found.site], found.window):
            self.tally.outside += 1
            return None
        cell = self._counts.setdefault((found.site, found.window), {})
        parsed = number(count)
        problem = TWICE if found.zone in cell else COUNT if parsed is None else None
        cell[found.zone] = parsed if problem is None else None
        return problem

    def _outside(self, site: Site, window: Micros) -> bool:
        since, until = self._since, self._until
        return (since is not None and window < since) or (until is not None and window > until // site.tick * site.tick)
