"""Files of observations: rows of time, device, access point and site, as messages of the log.

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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.sources.ingest.sighting import Message
from connectors.sources.recordings.dialect import OWN, Dialect
from connectors.sources.recordings.row_sort import PACKED, Packed, RowSort, unpacked
from connectors.sources.recordings.rows import WHOLE, Integers, Known, RowColumns, RowRules, Sighting, Sightings
from connectors.sources.recordings.text_rows import Fields, RowCounts, lines_of, named, open_text, rows_of
from stream.encoding import Columns
from stream.errors import DataError, UsageError
from stream.policy.document import PolicyDocument
from stream.pseudonyms.derivation import Pseudonyms, is_locally_administered, names_by_site
from stream.records import DAY, LATEST, Heartbeat, Micros, ObservationBatch, PrivacyDay
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

NO_DROPS = frozenset({"rows", "accepted", "stale_heartbeats"})
"""Counters of sensing that are not reasons for a dropped row."""
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
        report.append(f"A gap of more than {LEAP // DAY} days is accepted up to --to, or as a file of its own.")
    lost = {"were at access points in no zone of the policy": tally.unknown_access_points}
    for reason, rows in sorted((dropped or {}).items()):
        if reason == "site_shut" and rows:
            report.append(f"A site has more devices than its max_devices: it closed, and {rows:,} rows were dropped.")
        elif reason not in ("repeated_batch", INCOMPLETE):
            # A run that resumes in a store has already processed the rows up to its beginning.
            more = rows - tally.leading if reason == "late" else rows
            lost[f"were dropped: {reason.replace('_', ' ')}"] = more
    good = tally.rows - tally.bad
    report += [f"{rows:,} of {good:,} good rows {what}" for what, rows in lost.items() if rows * MANY > good]
    return DataError("\n".join(report)) if report else None


# --- messages ---------------------------------------------------------------------------------------

BATCH_ROWS = 1000
FULL = BATCH_ROWS - 1
"""Number of rows of a full batch: one more row may bring the end of an earlier pseudonym with it."""
NAME = 8
"""Octets of a pseudonym."""


class Range(NamedTuple):
    """The requested first and last window of a recording."""

    since: Micros | None = None
    until: Micros | None = None

    def last_of(self, policy: PolicyDocument, site: str) -> Micros:
        """Return the last time of a site's rows: its own last tick, so that no batch is cut there.

        A run that resumes recognises batches by their number: a partial batch would count as a copy.
        """
        tick_length = policy.site[site].tick
        return LATEST if self.until is None else self.until // tick_length * tick_length


_FEW = 16
"""With fewer rows of a site, processing them one by one is faster."""
_LastSighting = tuple[Micros, int, str]
"""Time, epoch and pseudonym of the last row of a device at a site."""


class _Open(NamedTuple):
    """Rows of a batch that is not full yet, by column."""

    epoch: PrivacyDay | None
    """The privacy day of all of them, if pseudonyms change with privacy days: it changes at a tick, which ends every
    batch.
    """
    devices: list[str]
    points: list[str | None]
    times: list[Micros]


class Playback:
    """Turns sorted rows into messages, from the recording's first instant on."""

    def __init__(
        self,
        policy: PolicyDocument,
        names: Mapping[str, Pseudonyms],
        points: list[tuple[str, str]],
        requested: Range,
        first: Micros,
    ) -> None:
        """Set pseudonyms by site, radio address and site of each place in rows, and the beginning of the range: the
        session.
        """
        self._policy, self._names, self._points, self._range = policy, names, points, requested
        self._first = first
        self._radios = [radio for radio, _ in points]
        self._sites = [*policy.site]
        self._site_of = np.array([self._sites.index(site) for _, site in points], dtype=np.int64)
        self._settled: dict[str, int] = {}
        """Site -> the epoch of the pseudonyms of all its devices so far, if they have the same one."""
        self._last_sightings: dict[str, dict[int, _LastSighting]] = {site: {} for site in policy.site}
        self._open: dict[str, _Open] = {}
        self._sequences: Counter[str] = Counter()
        self._ticks: dict[str, Micros] = {}

    @property
    def due(self) -> Micros:
        """The next tick of any site."""
        return min(self._ticks.values())

    def begin(self) -> Iterator[Heartbeat]:
        """Yield the first heartbeats."""
        for name, site in self._policy.site.items():
            self._ticks[name] = -(-self._first // site.tick) * site.tick
            yield from self._beat(name, self._first)

    def process(self, row: Packed) -> Iterator[ObservationBatch]:
        """Process the next row, which is before the next tick; yield the batch that it fills.

        An earlier pseudonym of its device may have to be ended before it.
        """
        time, place, octets, _, device = row
        site = self._points[place][1]
        name, epoch, seen = octets.hex(), self._names[site].epoch(time), self._last_sightings[site]
        batch, before = self._opened(site, time), seen.get(device)
        if before is not None and before[1] < epoch and time - before[0] <= self._policy.site[site].counts_for:
            _put(batch, before[2], None, time)
        if before is None and not seen:
            self._settled[site] = epoch
        elif self._settled.get(site) != epoch:
            self._settled.pop(site, None)
        seen[device] = time, epoch, name
        _put(batch, name, self._radios[place], time)
        if len(batch.times) >= FULL:
            yield self._flushed(site, batch)

    def process_all(self, rows: npt.NDArray[np.void]) -> Iterator[Message]:
        """Process the next rows, an array of ``PACKED``.

        Yield the batches that they fill, and heartbeats of ticks between.
        """
        while len(rows):
            if (time := int(rows["time"][0])) > self.due:
                yield from self.advance(time)
            end = int(np.searchsorted(rows["time"], self.due, side="right"))
            yield from self._take_in(rows[:end])
            rows = rows[end:]

    def _take_in(self, rows: npt.NDArray[np.void]) -> Iterator[ObservationBatch]:
        """Process rows without a tick between them; batches come in the order of the rows that fill them."""
        sites = self._site_of[rows["place"]]
        filled: list[tuple[int, ObservationBatch]] = []
        for site in np.unique(sites).tolist():
            which = np.flatnonzero(sites == site)
            filled += self._take_site(self._sites[site], rows[which], which.tolist())
        yield from (batch for _, batch in sorted(filled, key=itemgetter(0)))

    def _take_site(
        self, site: str, rows: npt.NDArray[np.void], numbers: list[int]
    ) -> Iterator[tuple[int, ObservationBatch]]:
        """Process rows of one site; yield each batch with the number of the row that fills it."""
        names, times = self._names[site], rows["time"].tolist()
        epoch = names.epoch(times[0])
        turns = names.epoch(times[-1]) != epoch or (self._last_sightings[site] and self._settled.get(site) != epoch)
        if turns or len(rows) < _FEW:
            for number, row in zip(numbers, unpacked(rows), strict=True):
                yield from ((number, batch) for batch in self.process(row))
            return
        self._settled[site] = epoch
        devices = rows["name"].tobytes().hex(" ", NAME).split(" ")
        points = [*map(self._radios.__getitem__, rows["place"].tolist())]
        self._last_sightings[site].update(
            zip(rows["device"].tolist(), zip(times, repeat(epoch), devices), strict=False)
        )
        begin = 0
        while begin < len(times):
            batch = self._opened(site, times[begin])
            end = begin + FULL - len(batch.times)
            batch.devices.extend(devices[begin:end])
            batch.points.extend(points[begin:end])
            batch.times.extend(times[begin:end])
            if end <= len(times):
                yield numbers[end - 1], self._flushed(site, batch)
            begin = end

    def _opened(self, site: str, time: Micros) -> _Open:
        batch = self._open.get(site)
        if batch is None:
            batch = self._open[site] = _Open(self._names[site].day(time), [], [], [])
        return batch

    def _flushed(self, site: str, batch: _Open) -> ObservationBatch:
        """Return the open rows as a batch, which is then empty."""
        del self._open[site]
        number = {point: place for place, point in enumerate(dict.fromkeys(batch.points))}
        places = [*map(number.__getitem__, batch.points)]
        rows = Columns(batch.devices, places, tuple(number), batch.times)
        source, sequence = self._policy.site[site].sources[0], self._sequences[site]
        self._sequences[site] += 1
        return ObservationBatch(site, source, self._first, sequence, rows, batch.epoch)

    def _flush(self, site: str) -> Iterator[ObservationBatch]:
        if (waiting := self._open.get(site)) is not None:
            yield self._flushed(site, waiting)

    def _settle(self, site: str) -> None:
        """Update whether all devices so far have pseudonyms of one epoch."""
        epochs = {epoch for _, epoch, _ in self._last_sightings[site].values()}
        if len(epochs) == 1:
            self._settled[site] = epochs.pop()

    def advance(self, time: Micros) -> Iterator[Message]:
        """Yield a heartbeat of every source for each tick before ``time``; open batches come first.

        Heartbeats follow tick after tick, whatever rows there are: the order of the sites' records reveals nothing
        about people.
        """
        while (tick := self.due) < time:
            for name in [name for name, due in self._ticks.items() if due == tick]:
                yield from self._flush(name)
                yield from self._beat(name, tick)
                self._ticks[name] += self._policy.site[name].tick
                horizon = tick - self._policy.site[name].counts_for
                self._last_sightings[name] = {
                    device: seen for device, seen in self._last_sightings[name].items() if seen[0] >= horizon
                }
                if name not in self._settled:
                    self._settle(name)

    def finish(self, last: Micros) -> Iterator[Message]:
        """Yield the remaining messages, up to the instants at which the last windows close."""
        # A window is closed by the first instant after its lateness.
        ends = {
            name: site.lateness
            + (last + site.counts_for if self._range.until is None else self._range.last_of(self._policy, name) + 1)
            for name, site in self._policy.site.items()
        }
        for end, name in sorted((end, name) for name, end in ends.items()):
            yield from self.advance(end)
            yield from self._flush(name)
            yield from self._beat(name, end)
            del self._ticks[name]

    def _beat(self, name: str, watermark: Micros) -> Iterator[Heartbeat]:
        """Yield a heartbeat of every source: a recording confirms coverage of all its windows, beginning with a whole
        one.

        That is the first window from ``since`` on. Without ``since``, which only a laboratory may omit, it is the first
        window from its first row on.
        """
        site, since = self._policy.site[name], self._range.since
        begin = self._first if since is None else since
        covered = -(-begin // site.tick) * site.tick - site.tick
        for source in site.sources:
            yield Heartbeat(name, source, self._first, watermark, covered)


def _put(batch: _Open, device: str, point: str | None, time: Micros) -> None:
    batch.devices.append(device)
    batch.points.append(point)
    batch.times.append(time)


OCTETS = 6
"""Octets of an address; an opaque id has more."""
PAUSE_ROWS = 512
"""Rows, of about 2 microseconds each, after which ``steps`` yields to its caller."""
PROGRESS_ROWS = 10_000
_STRAY = f"time must be at most {LEAP // DAY} days from the rest of the recording where no --to is given"


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
            self._name_all(site, inside.where(sites == site))
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
        names = self._names[site]
        name = bytes.fromhex(names.name(address, names.epoch(time)))
        self._rows.add((time, place, name, line, self._identity(address)))
        self._recorded_days.add(time)

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
