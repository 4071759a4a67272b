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
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from connectors.files.dialect import OWN, Dialect
from connectors.files.playback import Playback, Range
from connectors.files.row_rules import RowRules, Sighting
from connectors.files.row_sort import RowSort
from connectors.files.stretches import LEAP, Stretches
from connectors.files.text_rows import Tally, lines_of, open_text, rows_of
from connectors.sink import Message
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.records import DAY, Micros
from stream.sensing.pseudonyms import is_locally_administered, names_by_site

OCTETS = 6
"""Of an address; an opaque id has more."""
PAUSE_ROWS = 256
"""Rows, of some 10 microseconds each, after which ``steps`` lets its caller do something else."""
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
        self._names = names_by_site(policy, key)
        self._identity = _identities()

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
            for line, fields in rows_of(self._path, lines_of(self._path, file), self._columns):
                self.tally.rows += 1
                if self.tally.rows % PAUSE_ROWS == 0:
                    if self._progress is not None and self.tally.rows % PROGRESS_ROWS < PAUSE_ROWS:
                        self._progress(self.tally.rows)
                    yield None
                problem = fields if isinstance(fields, str) else self._take_row(line, *fields)
                if problem is not None:
                    self.tally.note(line, problem)
        self._span = self._stretches.span(*self._asked)

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
        site = self._rules.points[place][1]
        since = self._asked.since
        early = since is not None and time <= since - self._policy.site[site].validity
        if early or time > self._asked.last_of(self._policy, site):
            self.tally.outside += 1
            return
        self.tally.locally_administered += len(address) == OCTETS and is_locally_administered(address)
        names = self._names[site]
        name = bytes.fromhex(names.name(address, names.epoch(time)))
        self._rows.add((time, place, name, line, self._identity(address)))
        self._stretches.add(time)

    def _give(self, first: Micros, last: Micros) -> Iterator[Message | None]:
        since = self._asked.since
        playback = Playback(self._policy, self._names, self._rules.points, self._asked, first)
        yield from playback.begin()
        low, due = first if since is None else -1, playback.due
        for number, row in enumerate(self._rows.sorted(), start=1):
            if number % PAUSE_ROWS == 0:
                if self._progress is not None and number % PROGRESS_ROWS < PAUSE_ROWS:
                    self._progress(number, self._rows.rows)
                yield None
            if not low <= row[0] <= last:
                self.tally.note(row[3], _STRAY)
                self.tally.strays += 1
                continue
            self.tally.leading += since is not None and row[0] <= first
            if row[0] > due:
                yield from playback.advance(row[0])
                due = playback.due
            yield from playback.take(row)
        yield from playback.finish(last)


def _identities() -> Callable[[bytes], int]:
    """Return a function that tells devices apart while a file is sorted, under a key that nobody keeps."""
    key = secrets.token_bytes(32)

    @lru_cache(maxsize=65_536)
    def identity(address: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(address, key=key, digest_size=8).digest(), "big", signed=True)

    return identity
