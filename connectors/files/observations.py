"""Files of observations: rows of time, device, access point and site, as messages of the log.

A file stands for every source of every site in the policy. It is read whole, its rows are named and sorted,
and only then is anything published; so the order of the rows decides nothing, and none is late. Of rows of
one device and time the one at the access point that comes last in the policy decides. A file that cannot be
read to its end is refused: it might lack rows anywhere.

Which heartbeats there are follows from the range. Under a production key the verbs ask for both
its ends, so that no row decides which windows are released. In a laboratory the range may come from
the file: it begins with the first row, and after the last one the watermark goes on by validity and lateness,
until nobody can be present any more. At each tick of the range every source gets a heartbeat, so windows
close as they would have live. Rows that no window of the range can hold are left out.

A bad row loses only itself: it is counted, and reported by line and rule, never by its content. Where no end is
given, one wrong year would close every window up to it; so of the stretches of rows between gaps of more
than ``LEAP`` only the one with the most rows is believed. Whoever names the end of a recording says that its
gaps are true.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from connectors.files.dialect import OWN, Dialect
from connectors.files.playback import Playback, Range
from connectors.files.row_columns import Integers, Known, RowColumns, Sightings
from connectors.files.row_rules import RowRules, Sighting
from connectors.files.row_sort import PACKED, RowSort
from connectors.files.stretches import LEAP, Stretches
from connectors.files.text_rows import Fields, Tally, lines_of, open_text, rows_of
from connectors.sink import Message
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.records import DAY, Micros
from stream.sensing.pseudonyms import is_locally_administered, names_by_site

OCTETS = 6
"""Of an address; an opaque id has more."""
PAUSE_ROWS = 512
"""Rows, of some 2 microseconds each, after which ``steps`` lets its caller do something else."""
PROGRESS_ROWS = 10_000
_STRAY = f"time must be at most {LEAP // DAY} days from the rest of the recording where no --to is given"


class ObservationFile:
    """One file, read once, as batches and heartbeats in log order.

    The same rows in the same range give the same messages, so that a runner that begins a file again knows
    those it has had. Their session is the time at which the range begins.
    """

    def __init__(
        self,
        path: Path,
        policy: Policy,
        key: bytes,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        dialect: Dialect = OWN,
        progress: Callable[..., None] | None = None,
    ) -> None:
        """``progress`` is called with rows read; later with rows given and rows in all."""
        if all(site.feed == "counts" for site in policy.site.values()):
            raise UsageError(f"{path}: the policy must have a site whose devices are counted (feed = 'devices')")
        self.tally = Tally()
        self._path = path
        self._policy = policy
        self._asked = Range(since, until)
        self._progress = progress
        self._reading: Iterator[None] | None = None
        self._rows = RowSort()
        self._stretches = Stretches()
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
        """Return, for each place, behind which time a row must be to be taken, and up to which."""
        since, sites = self._asked.since, [site for _, site in self._rules.points]
        after = [-1 if since is None else since - self._policy.site[site].validity for site in sites]
        until = [self._asked.last_of(self._policy, site) for site in sites]
        return np.array(after, dtype=np.int64), np.array(until, dtype=np.int64)

    @property
    def first(self) -> Micros | None:
        """When the range begins; None before the file has been read, or where nothing says."""
        return None if self._span is None else self._span[0]

    def begin(self) -> Micros | None:
        """Read the file; return its session, None where neither range nor rows say when it begins.

        Raises:
            UsageError: the file cannot be read or has other columns.
            DataError: it cannot be read to its end.
        """
        for _ in self._read():
            pass
        return self.first

    def steps(self) -> Iterator[Message | None]:
        """Yield the whole file's messages, and None now and then for a caller that has other things to do.

        Raises what ``begin`` does.
        """
        yield from self._read()
        if self._span is not None:
            yield from self._give(*self._span)

    def messages(self) -> Iterator[Message]:
        """Yield the whole file's messages; raises what ``steps`` does."""
        return (step for step in self.steps() if step is not None)

    def _read(self) -> Iterator[None]:
        """Return what reads the file, or the rest of it; it yields where its caller may do something else."""
        if self._reading is None:
            self._reading = self._take_in()
        return self._reading

    def _take_in(self) -> Iterator[None]:
        with open_text(self._path) as file:
            lines = rows_of(self._path, lines_of(self._path, file), self._columns)
            while block := list(islice(lines, PAUSE_ROWS)):
                self.tally.rows += len(block)
                self._take_block(block)
                if self._progress is not None and self.tally.rows % PROGRESS_ROWS < PAUSE_ROWS:
                    self._progress(self.tally.rows)
                yield None
        self._span = self._stretches.span(*self._asked)

    def _take_block(self, block: Sequence[tuple[int, Fields | str]]) -> None:
        """Take rows: by column where they are certainly good, each other one by itself."""
        for line, rule in block:
            if isinstance(rule, str):
                self.tally.note(line, rule)
        rows = [(line, fields) for line, fields in block if not isinstance(fields, str)]
        found, others = self._by_column.read(rows) if rows else (None, rows)
        if found is not None:
            self._keep_all(found)
        for line, fields in others:
            if (problem := self._take_row(line, *fields)) is not None:
                self.tally.note(line, problem)

    def _keep_all(self, found: Sightings) -> None:
        """Put good rows among those to be sorted."""
        inside = found.where((found.times > self._after[found.places]) & (found.times <= self._until[found.places]))
        self.tally.outside += len(found.lines) - len(inside.lines)
        self.tally.locally_administered += sum(map(self._local.__getitem__, inside.addresses))
        sites = self._site_of[inside.places]
        for site in np.unique(sites).tolist():
            self._name_all(site, inside.where(sites == site))
        if len(inside.times):
            self._stretches.add_all(inside.times)

    def _name_all(self, site: int, rows: Sightings) -> None:
        """Name the devices of one site's rows, epoch by epoch."""
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

    def _take_row(self, line: int, *fields: object) -> str | None:
        """Put a good row among those to be sorted; return the rule that a bad one broke."""
        found = self._rules.read(*fields)
        if isinstance(found, Sighting):
            self._keep(line, found)
        elif found is None:
            self.tally.unknown_access_points += 1
        else:
            return found
        return None

    def _keep(self, line: int, row: Sighting) -> None:
        time, address, place = row
        if not self._after[place] < time <= self._until[place]:
            self.tally.outside += 1
            return
        site = self._rules.points[place][1]
        self.tally.locally_administered += self._local[address]
        names = self._names[site]
        name = bytes.fromhex(names.name(address, names.epoch(time)))
        self._rows.add((time, place, name, line, self._identity(address)))
        self._stretches.add(time)

    def _give(self, first: Micros, last: Micros) -> Iterator[Message | None]:
        since = self._asked.since
        playback = Playback(self._policy, self._names, self._rules.points, self._asked, first)
        yield from playback.begin()
        low, given = first if since is None else -1, 0
        for block in self._rows.blocks():
            given += len(block)
            if self._progress is not None and given % PROGRESS_ROWS < len(block):
                self._progress(given, self._rows.rows)
            yield None
            rows = self._believed(block, low, last)
            if since is not None:
                self.tally.leading += int((rows["time"] <= first).sum())
            yield from playback.take_all(rows)
        yield from playback.finish(last)

    def _believed(self, block: npt.NDArray[np.void], low: Micros, last: Micros) -> npt.NDArray[np.void]:
        """Return the rows of a block from ``low`` to ``last``; others are too far from the recording."""
        near = (block["time"] >= low) & (block["time"] <= last)
        for line in block["line"][~near].tolist():
            self.tally.note(line, _STRAY)
            self.tally.strays += 1
        return block[near]


def _identities() -> Callable[[bytes], int]:
    """Return a function that tells devices apart while a file is sorted, under a key that nobody keeps."""
    key = secrets.token_bytes(32)

    @lru_cache(maxsize=65_536)
    def identity(address: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(address, key=key, digest_size=8).digest(), "big", signed=True)

    return identity
