"""Files of observations as messages of the log.

**Order.** A file stands for every source of every site in the policy. It is read whole, its devices get pseudonyms and
its rows are sorted, and only then is anything published. So the order of the rows changes nothing, and none is late. Of
rows with one device and time, the one whose access point comes last in the policy applies. A file that cannot be read
to its end is refused: it might lack rows anywhere.

**Range.** The heartbeats follow from the range. Under a production key the commands require both its ends, so that no
row determines which windows are released. In a laboratory the range may come from the file: it begins with the first
row, and after the last one the watermark advances by validity and lateness, until no device can be present any more. At
each tick of the range every source gets a heartbeat, so windows close as they would have live (``Playback``). Rows that
no window of the range can contain are left out.

**Bad rows.** A bad row affects only itself: it is counted, and reported by line and rule, never by its content. Without
an end, one wrong year would close every window up to it. So the rows are divided into periods between gaps of more than
``LEAP``, and only the period with the most rows is used (``RecordedDays``). An explicit end of a recording confirms its
gaps.

**Shortfall.** Many good rows that were dropped for one reason are reported as an error (``shortfall``).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from connectors.sources.ingest.sighting import Message
from connectors.sources.recordings.dialect import OWN, Dialect
from connectors.sources.recordings.playback import Playback, Range
from connectors.sources.recordings.row_sort import PACKED, RowSort
from connectors.sources.recordings.rows import WHOLE, Integers, Known, RowColumns, RowRules, Sighting, Sightings
from connectors.sources.recordings.text_rows import Fields, RowCounts, lines_of, named, open_text, rows_of
from stream.errors import DataError, UsageError
from stream.policy.document import PolicyDocument
from stream.pseudonyms.derivation import is_locally_administered, names_by_site
from stream.records import DAY, Micros
from stream.sensing.counter_feed import INCOMPLETE

# --- range ------------------------------------------------------------------------------------------

LEAP: Micros = 7 * DAY
"""Longest gap in a recording that is accepted without an explicit end."""


class RecordedDays:
    """The UTC days with rows in a recording."""

    def __init__(self) -> None:
        self._days: dict[int, _Day] = {}

    def add(self, time: Micros) -> None:
        """Count one row."""
        day = self._days.get(time // DAY)
        if day is None:
            self._days[time // DAY] = _Day(time, time, 1)
        else:
            day.add(time)

    def add_all(self, times: npt.NDArray[np.int64]) -> None:
        """Count many rows."""
        days = times // DAY
        for day in np.unique(days).tolist():
            of_day = times[days == day]
            found = _Day(int(of_day.min()), int(of_day.max()), len(of_day))
            known = self._days.get(day)
            if known is not None:
                found = _Day(min(known.first, found.first), max(known.last, found.last), known.rows + found.rows)
            self._days[day] = found

    def span(self, since: Micros | None, until: Micros | None) -> tuple[Micros, Micros] | None:
        """Return the beginning of the range, and the last time of its rows; None if nothing determines them.

        Args:
            since: the requested beginning; otherwise it is the first row's time.
            until: the requested end; otherwise it is that of the longest period.
        """
        days = [self._days[day] for day in sorted(self._days)]
        period = _longest_period(days) if until is None else (days[0].first, until) if days else None
        if since is None:
            return period
        last = until if period is None else period[1]
        return None if last is None else (since, max(since, last))


class _Day:
    """The rows of a UTC day."""

    __slots__ = ("first", "last", "rows")

    def __init__(self, first: Micros, last: Micros, rows: int) -> None:
        self.first, self.last, self.rows = first, last, rows

    def add(self, time: Micros) -> None:
        """Count one more row."""
        self.rows += 1
        if time < self.first:
            self.first = time
        elif time > self.last:
            self.last = time


def _longest_period(days: Iterable[_Day]) -> tuple[Micros, Micros] | None:
    """Return first and last time of the period with the most rows; of equal ones the earliest."""
    periods: list[_Day] = []
    for day in days:
        if periods and day.first - periods[-1].last <= LEAP:
            last = periods[-1]
            periods[-1] = _Day(last.first, day.last, last.rows + day.rows)
        else:
            periods.append(day)
    longest = max(periods, key=lambda period: period.rows, default=None)
    return None if longest is None else (longest.first, longest.last)


# --- shortfall --------------------------------------------------------------------------------------

MANY = 10
"""If one in so many good rows is dropped for the same reason, the file or the policy is wrong, not a row."""


def shortfall(tally: RowCounts, dropped: dict[str, int] | None = None) -> DataError | None:
    """Return an error about bad rows, and about many dropped ones; None if there is nothing to report.

    ``dropped`` contains the rows that sensing dropped, by reason; copies of earlier batches do not count.
    """
    report = [named(tally)] if tally.bad else []
    if tally.incomplete:
        windows = "1 window was" if tally.incomplete == 1 else f"{tally.incomplete:,} windows were"
        report.append(f"{windows} refused: {WHOLE}")
    if tally.strays:
        report.append(
            f"Give --to to accept a gap of more than {LEAP // DAY} days, or put the rows after it into another file."
        )
    lost = {"were at access points in no zone of the policy": tally.unknown_access_points}
    for reason, rows in sorted((dropped or {}).items()):
        if reason == "site_shut" and rows:
            report.append(
                f"A site has more devices than its max_devices: it was suspended, and {rows:,} rows were dropped."
            )
        elif reason not in ("repeated_batch", INCOMPLETE):
            # A run that resumes in a store has already processed the rows up to its beginning.
            more = rows - tally.leading if reason == "late" else rows
            lost[f"were dropped: {reason.replace('_', ' ')}"] = more
    good = tally.rows - tally.bad
    report += [f"{rows:,} of {good:,} good rows {what}" for what, rows in lost.items() if rows * MANY > good]
    return DataError("\n".join(report)) if report else None


# --- reading ----------------------------------------------------------------------------------------

OCTETS = 6
"""Octets of an address; an opaque id has more."""
PAUSE_ROWS = 512
"""Rows, of about 2 microseconds each, after which ``steps`` yields to its caller."""
PROGRESS_ROWS = 10_000
_STRAY = f"time must be at most {LEAP // DAY} days from the rest of the recording if --to is not given"


class ObservationFile:
    """One file, read once, as batches and heartbeats in log order.

    The same rows in the same range give the same messages, so a runner that starts a file again recognises those it has
    already processed. Their session is the time at which the range begins.
    """

    def __init__(
        self,
        path: Path,
        policy: PolicyDocument,
        key: bytes,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        dialect: Dialect = OWN,
        progress: Callable[..., None] | None = None,
    ) -> None:
        """``progress`` is called with rows read; later, in a second pass, with rows processed, rows in all and the name
        of that pass."""
        if all(site.feed == "counts" for site in policy.site.values()):
            raise UsageError(f"{path}: the policy must have a site whose devices are counted (feed = 'devices')")
        self.tally = RowCounts()
        self._path = path
        self._policy = policy
        self._range = Range(since, until)
        self._progress = progress
        self._reading: Iterator[None] | None = None
        self._rows = RowSort()
        self._recorded_days = RecordedDays()
        self._span: tuple[Micros, Micros] | None = None
        self._rules = RowRules(policy, dialect)
        self._columns = dialect.names
        self._by_column = RowColumns(self._rules, dialect)
        self._site_names = [*policy.site]
        number = {site: at for at, site in enumerate(self._site_names)}
        self._site_of = np.array([number[site] for _, site in self._rules.points], dtype=np.int64)
        self._after, self._until = self._bounds()
        self._local: Known[bytes, bool] = Known(
            lambda address: len(address) == OCTETS and is_locally_administered(address)
        )
        self._ignoring = {name for name, site in policy.site.items() if site.randomised == "ignore"}
        """Sites that do not count locally administered addresses."""
        self._names = names_by_site(policy, key)
        self._identity = _identities()

    def _bounds(self) -> tuple[Integers, Integers]:
        """Return, for each place, the exclusive lower and the inclusive upper bound of its rows' times."""
        since, sites = self._range.since, [site for _, site in self._rules.points]
        after = [-1 if since is None else since - self._policy.site[site].counts_for for site in sites]
        until = [self._range.last_of(self._policy, site) for site in sites]
        return np.array(after, dtype=np.int64), np.array(until, dtype=np.int64)

    @property
    def first(self) -> Micros | None:
        """The beginning of the range; None before the file has been read, or if nothing determines it."""
        return None if self._span is None else self._span[0]

    def begin(self) -> Micros | None:
        """Read the file; return its session, None if neither range nor rows determine when it begins.

        Raises:
            UsageError: the file cannot be read or has other columns.
            DataError: it cannot be read to its end.
        """
        for _ in self._read():
            pass
        return self.first

    def steps(self) -> Iterator[Message | None]:
        """Yield the whole file's messages, and at intervals None, so that the caller can do other work.

        Raises the same errors as ``begin``.
        """
        yield from self._read()
        if self._span is not None:
            yield from self._replayed(*self._span)

    def messages(self) -> Iterator[Message]:
        """Yield the whole file's messages; raises the same errors as ``steps``."""
        return (step for step in self.steps() if step is not None)

    def _read(self) -> Iterator[None]:
        """Return an iterator that reads the file, or the rest of it; it yields so that its caller can do other work."""
        if self._reading is None:
            self._reading = self._take_in()
        return self._reading

    def _take_in(self) -> Iterator[None]:
        with open_text(self._path) as file:
            lines = rows_of(self._path, lines_of(self._path, file), self._columns)
            while block := list(islice(lines, PAUSE_ROWS)):
                self.tally.rows += len(block)
                self._read_block(block)
                if self._progress is not None and self.tally.rows % PROGRESS_ROWS < PAUSE_ROWS:
                    self._progress(self.tally.rows)
                yield None
        self._span = self._recorded_days.span(*self._range)

    def _read_block(self, block: Sequence[tuple[int, Fields | str]]) -> None:
        """Process rows: by column if they are certainly good, the others one by one."""
        for line, rule in block:
            if isinstance(rule, str):
                self.tally.note(line, rule)
        rows = [(line, fields) for line, fields in block if not isinstance(fields, str)]
        found, others = self._by_column.read(rows) if rows else (None, rows)
        if found is not None:
            self._store_all(found)
        for line, fields in others:
            if (problem := self._read_row(line, *fields)) is not None:
                self.tally.note(line, problem)

    def _store_all(self, found: Sightings) -> None:
        """Add good rows to the sort."""
        inside = found.where((found.times > self._after[found.places]) & (found.times <= self._until[found.places]))
        self.tally.outside += len(found.lines) - len(inside.lines)
        self.tally.locally_administered += sum(map(self._local.__getitem__, inside.addresses))
        sites = self._site_of[inside.places]
        for site in np.unique(sites).tolist():
            of_site = inside.where(sites == site)
            if self._site_names[site] in self._ignoring:
                counted = [not self._local[address] for address in of_site.addresses]
                of_site = of_site.where(np.array(counted, dtype=np.bool_))
            if len(of_site.times):
                self._name_all(site, of_site)
        if len(inside.times):
            self._recorded_days.add_all(inside.times)

    def _name_all(self, site: int, rows: Sightings) -> None:
        """Compute the pseudonyms of one site's rows, epoch by epoch."""
        names = self._names[self._site_names[site]]
        first, last = names.epoch(int(rows.times.min())), names.epoch(int(rows.times.max()))
        if first != last:
            epochs = np.array([names.epoch(time) for time in rows.times.tolist()])
            for epoch in range(first, last + 1):
                if (of_epoch := epochs == epoch).any():
                    self._name_all(site, rows.where(of_epoch))
            return
        packed = np.empty(len(rows.times), dtype=PACKED)
        packed["time"], packed["place"], packed["line"] = rows.times, rows.places, rows.lines
        named = "".join([names.name(address, first) for address in rows.addresses])
        packed["name"] = np.frombuffer(bytes.fromhex(named), dtype=">u8")
        packed["device"] = np.fromiter(map(self._identity, rows.addresses), np.int64, len(packed))
        self._rows.add_all(packed)

    def _read_row(self, line: int, *fields: object) -> str | None:
        """Add a good row to the sort; return the rule that a bad row broke."""
        found = self._rules.read(*fields)
        if isinstance(found, Sighting):
            self._store(line, found)
        elif found is None:
            self.tally.unknown_access_points += 1
        else:
            return found
        return None

    def _store(self, line: int, row: Sighting) -> None:
        time, address, place = row
        if not self._after[place] < time <= self._until[place]:
            self.tally.outside += 1
            return
        site = self._rules.points[place][1]
        self.tally.locally_administered += self._local[address]
        self._recorded_days.add(time)
        if site in self._ignoring and self._local[address]:
            return
        names = self._names[site]
        name = bytes.fromhex(names.name(address, names.epoch(time)))
        self._rows.add((time, place, name, line, self._identity(address)))

    def _replayed(self, first: Micros, last: Micros) -> Iterator[Message | None]:
        since = self._range.since
        playback = Playback(self._policy, self._names, self._rules.points, self._range, first)
        yield from playback.begin()
        low, read = first if since is None else -1, 0
        for block in self._rows.blocks():
            read += len(block)
            if self._progress is not None and read % PROGRESS_ROWS < len(block):
                self._progress(read, self._rows.rows, "rows counted")
            yield None
            rows = self._near(block, low, last)
            if since is not None:
                self.tally.leading += int((rows["time"] <= first).sum())
            yield from playback.process_all(rows)
        yield from playback.finish(last)

    def _near(self, block: npt.NDArray[np.void], low: Micros, last: Micros) -> npt.NDArray[np.void]:
        """Return the rows of a block from ``low`` to ``last``; others are too far from the rest of the recording."""
        near = (block["time"] >= low) & (block["time"] <= last)
        for line in block["line"][~near].tolist():
            self.tally.note(line, _STRAY)
            self.tally.strays += 1
        return block[near]


def _identities() -> Callable[[bytes], int]:
    """Return a function that distinguishes devices while a file is sorted, under a random key that is not stored."""
    key = secrets.token_bytes(32)

    @lru_cache(maxsize=65_536)
    def identity(address: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(address, key=key, digest_size=8).digest(), "big", signed=True)

    return identity
