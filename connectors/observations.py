"""Files of observations: CSV or JSONL rows of time, device, access point and site, as messages of the log.

A file stands for every source of every site in the policy. Its event time is the greatest time read so far;
at each tick of it every source gets a heartbeat, so windows close as they would have live. After the last
row the watermark goes on by validity and lateness, until nobody can be present any more. With ``until`` it
ends where the last window closes that ends by then; later rows are left for a run that goes on from there.
A bad row loses only itself: it is counted, and named by line and field, never by its content.

One wrong year would take the watermark with it, and the keys of all days up to it. So a row more than
``LEAP`` ahead of all rows before it is a bad row, and so is one of the first ``OPENING`` rows that lies as
far from their median, on either side. What is at most ``until`` is believed: whoever names the end of a
recording says that its gaps are true.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import orjson

from stream.errors import DataError, UsageError
from stream.policy import Policy
from stream.records import DAY, Heartbeat, Micros, ObservationBatch, Row
from stream.schemas import LATEST, parse_time
from stream.sensing.pseudonyms import Pseudonyms

COLUMNS = ("time", "device", "access_point", "site")
BATCH_ROWS = 1000
LISTED = 20
"""So many bad rows are named; further ones are counted."""
LEAP: Micros = 7 * DAY
"""Longest gap in a recording that is believed without being asked for."""
OPENING = 25
"""So many first rows settle among themselves when the recording begins."""
PAUSE_ROWS = 256
"""Rows, of some 10 microseconds each, after which ``steps`` lets its caller do something else."""

_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")


@dataclass(slots=True)
class Tally:
    """What became of the rows of a file."""

    rows: int = 0
    bad: int = 0
    problems: list[str] = field(default_factory=list)
    """``line 17: time``, the first few."""
    strays: int = 0
    """Of the bad rows, those that lie more than ``LEAP`` from the others."""
    cut: bool = False
    """Whether the file could not be read to its end."""
    outside: int = 0
    """Good rows that no window from ``since`` to ``until`` can hold; they are left out."""
    unknown_access_points: int = 0
    locally_administered: int = 0
    last: Micros | None = None

    def note(self, line: int, name: str) -> None:
        """Count a bad row."""
        self.bad += 1
        if len(self.problems) < LISTED:
            self.problems.append(f"line {line}: {name}")


Message = ObservationBatch | Heartbeat
_Parsed = tuple[int, Micros, bytes, str, str]
"""(line, time, device, access point, site) of a good row."""


class ObservationFile:
    """One file, read once, as batches and heartbeats in log order.

    The same file gives the same messages, so that a runner that begins it again knows those it has had. Its
    session is the time at which it begins: its first row, or ``since`` if that is later.
    """

    def __init__(
        self,
        path: Path,
        policy: Policy,
        key: bytes,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.tally = Tally()
        self.first: Micros | None = None
        self._path = path
        self._policy = policy
        self._since, self._until = since, until
        self._steps: Iterator[Message | None] | None = None
        self._head: Message | None = None
        self._progress = progress
        self._places = policy.access_points()
        ttl = policy.pseudonym.ttl
        self._names = Pseudonyms.daily(key) if ttl is None else Pseudonyms.rotating(key, ttl)
        self._seen: dict[str, dict[bytes, tuple[Micros, int]]] = {site: {} for site in policy.site}
        self._rows: dict[str, list[Row]] = {}
        self._sequences: Counter[str] = Counter()
        self._ticks: dict[str, Micros] = {}

    def begin(self) -> Micros | None:
        """Open the file and read up to its first message; return its session, None where no row is good.

        Raises:
            UsageError: the file cannot be read or has other columns.
        """
        if self._steps is None:
            self._steps = self._read()
            self._head = next((step for step in self._steps if step is not None), None)
        return self.first

    def steps(self) -> Iterator[Message | None]:
        """Yield the whole file's messages, and None now and then for a caller that has other things to do.

        Raises:
            UsageError: the file cannot be read or has other columns.
        """
        self.begin()
        yield self._head
        if self._steps is not None:
            yield from self._steps

    def messages(self) -> Iterator[Message]:
        """Yield the whole file's messages; raises what ``steps`` does."""
        return (step for step in self.steps() if step is not None)

    def _read(self) -> Iterator[Message | None]:
        high: Micros | None = None
        begin = LATEST
        with open_text(self._path) as lines:
            for row in self._plausible(self._parsed(self._to_the_end(lines))):
                if row is None:
                    yield None
                    continue
                _, time, device, access_point, site = row
                begin = min(begin, time)
                if self._outside(site, time):
                    self.tally.outside += 1
                    continue
                if high is None:
                    high = self.first = begin if self._since is None else max(begin, self._since)
                    yield from self._beats(high, first=True)
                if time > high:
                    yield from self._advance(time)
                    high = time
                yield from self._take(time, device, access_point, site)
        if high is not None and not self.tally.cut:
            self.tally.last = high
            yield from self._finish(high)

    def _outside(self, site: str, time: Micros) -> bool:
        """Whether no window from ``since`` to ``until`` can hold a row."""
        early = self._since is not None and time <= self._since - self._policy.site[site].validity
        return early or (self._until is not None and time > self._until)

    # --- rows -----------------------------------------------------------------------------------------

    def _to_the_end(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of a file; where it is damaged, it ends there, and nothing says what came after."""
        begun = False
        try:
            for line in lines:
                begun = True
                yield line
        except (OSError, EOFError, zlib.error):
            if not begun:
                msg = f"{self._path}: cannot be read"
                raise UsageError(msg) from None
            self.tally.cut = True

    def _parsed(self, lines: Iterable[str]) -> Iterator[_Parsed | None]:
        for line, row in _rows(self._path, lines):
            self.tally.rows += 1
            if self._progress is not None and self.tally.rows % 10_000 == 0:
                self._progress(self.tally.rows)
            if self.tally.rows % PAUSE_ROWS == 0:
                yield None
            parsed = self._parse(line, row)
            if parsed is not None:
                yield parsed

    def _plausible(self, rows: Iterator[_Parsed | None]) -> Iterator[_Parsed | None]:
        """Leave out the rows whose time cannot be one of this recording."""
        opening = list(islice((row for row in rows if row is not None), OPENING))
        times = sorted(row[1] for row in opening)
        middle = reach = times[(len(times) - 1) // 2] if times else 0
        for number, row in enumerate(chain(opening, rows)):
            if row is None:
                yield None
                continue
            line, time = row[:2]
            strays = time > reach + LEAP or (number < len(opening) and time < middle - LEAP)
            if strays and (self._until is None or time > self._until):
                self.tally.note(line, f"time, more than {LEAP // DAY} days from the rows before it")
                self.tally.strays += 1
                continue
            reach = max(reach, time)
            yield row

    def _parse(self, line: int, row: tuple[Any, ...]) -> _Parsed | None:
        time, device, access_point, site = row
        try:
            moment = _time(time)
        except (ValueError, TypeError):
            self.tally.note(line, "time")
            return None
        address = _address(device)
        radio = access_point.lower() if isinstance(access_point, str) else ""
        place = self._places.get(radio)
        problem = None
        if address is None:
            problem = "device"
        elif not _MAC.fullmatch(radio):
            problem = "access_point"
        elif not isinstance(site, str) or site not in self._policy.site or (place is not None and place[0] != site):
            problem = "site"
        if problem is not None or address is None:
            self.tally.note(line, problem or "device")
            return None
        if place is None:
            self.tally.unknown_access_points += 1
            return None
        return line, moment, address, radio, site

    def _take(self, time: Micros, device: bytes, access_point: str, site: str) -> Iterator[ObservationBatch]:
        epoch = self._names.epoch(time)
        rows, seen = self._rows.setdefault(site, []), self._seen[site]
        last = seen.get(device)
        if last is not None and last[1] < epoch and time - last[0] <= self._policy.site[site].validity:
            rows.append(Row(self._names.name(device, last[1]), None, time))
        if last is None or time >= last[0]:
            seen[device] = (time, epoch)
        self.tally.locally_administered += bool(device[0] & 2)
        rows.append(Row(self._names.name(device, epoch), access_point, time))
        if len(rows) >= BATCH_ROWS - 1:
            yield from self._flush(site)

    def _flush(self, site: str) -> Iterator[ObservationBatch]:
        rows = self._rows.pop(site, None)
        if rows:
            source = self._policy.site[site].sources[0]
            yield ObservationBatch(site, source, self.first or 0, self._sequences[site], tuple(rows))
            self._sequences[site] += 1

    # --- time -----------------------------------------------------------------------------------------

    def _advance(self, time: Micros) -> Iterator[ObservationBatch | Heartbeat]:
        """Yield a heartbeat of every source for each tick before ``time``; what came before goes first."""
        due = [name for name in self._policy.site if self._ticks[name] < time]
        for name in due:
            yield from self._flush(name)
            while self._ticks[name] < time:
                yield from self._beat(name, self._ticks[name])
                self._ticks[name] += self._policy.site[name].tick
            horizon = time - self._policy.site[name].validity
            self._seen[name] = {device: last for device, last in self._seen[name].items() if last[0] >= horizon}

    def _beats(self, time: Micros, *, first: bool = False) -> Iterator[Heartbeat]:
        for name, site in self._policy.site.items():
            if first:
                self._ticks[name] = -(-time // site.tick) * site.tick
            yield from self._beat(name, time)

    def _beat(self, name: str, watermark: Micros) -> Iterator[Heartbeat]:
        for source in self._policy.site[name].sources:
            yield Heartbeat(name, source, self.first or 0, watermark)

    def _finish(self, last: Micros) -> Iterator[ObservationBatch | Heartbeat]:
        for name, site in self._policy.site.items():
            yield from self._flush(name)
            # A window is closed by the first instant after its lateness.
            end = site.lateness + (last + site.validity if self._until is None else max(last, self._until) + 1)
            while self._ticks[name] <= end:
                yield from self._beat(name, self._ticks[name])
                self._ticks[name] += site.tick
            yield from self._beat(name, end)


def open_text(path: Path) -> IO[str]:
    """Open a file of text, packed or not, with or without a byte order mark.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
        return path.open(encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None


def _rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    jsonl = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))
    yield from _json_rows(lines) if jsonl else csv_rows(path, lines, COLUMNS)


def csv_rows(path: Path, lines: Iterable[str], columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line's number and the fields of these columns, empty ones where it cannot be told apart.

    Raises:
        UsageError: the first line does not name the columns.
    """
    numbered = enumerate(lines, start=1)
    header = _fields(next(numbered, (1, ""))[1]) or []
    missing = [name for name in columns if name not in header]
    if missing:
        msg = f"{path}: first line must name the columns {', '.join(columns)}; {missing[0]} is missing"
        raise UsageError(msg)
    places = [header.index(name) for name in columns]
    for number, line in numbered:
        row = _fields(line)
        if row is not None and len(row) == len(header):
            yield number, tuple(row[place] for place in places)
        elif line.strip():
            yield number, ("",) * len(columns)


def _fields(line: str) -> list[str] | None:
    """Return a line's fields, None where it has none that can be told: one line never takes in another."""
    if '"' not in line:
        return line.rstrip("\r\n").split(",")
    try:
        return next(csv.reader([line]), None)
    except csv.Error:
        return None


def _json_rows(lines: Iterable[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = orjson.loads(line)
            yield number, tuple(row.get(name) for name in COLUMNS)
        except (orjson.JSONDecodeError, AttributeError):
            if line.strip():
                yield number, ("", "", "", "")


@lru_cache(maxsize=4096)
def _time(text: str) -> Micros:
    moment = parse_time(text)
    if not 0 <= moment < LATEST:
        msg = "must be after 1970 and before 2255"
        raise ValueError(msg)
    return moment


def _address(text: Any) -> bytes | None:
    return _octets(text) if isinstance(text, str) else None


@lru_cache(maxsize=65_536)
def _octets(text: str) -> bytes | None:
    if not _MAC.fullmatch(text.lower()):
        return None
    return bytes.fromhex(text.replace(":", ""))


def bad_rows(tally: Tally) -> DataError | None:
    """Return what to tell about a file's bad rows and its missing end, None when there is nothing."""
    told = []
    if tally.bad:
        told.append(named(tally))
    if tally.strays:
        told.append(f"A gap of more than {LEAP // DAY} days is believed up to --to, or as a file of its own")
    if tally.cut:
        told.append("The file cannot be read to its end; its last windows were left open")
    return DataError(". ".join(told)) if told else None


def named(tally: Tally) -> str:
    """Return the number of bad rows, and where the first ones are."""
    more = f" and {tally.bad - len(tally.problems)} more" if tally.bad > len(tally.problems) else ""
    return f"{tally.bad} bad rows were left out: {'; '.join(tally.problems)}{more}"
