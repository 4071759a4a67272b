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

A bad row loses only itself: it is counted, and told by line and rule, never by its content. Where no end is
given, one wrong year would close every window up to it; so of the stretches of rows between gaps of more
than ``LEAP`` only the one with the most rows is believed. Whoever names the end of a recording says that its
gaps are true.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from connectors.files.row_sort import Packed, RowSort
from connectors.files.text_rows import Tally, instants, lines_of, named, open_text, rows_of
from connectors.sink import Message
from stream.errors import DataError
from stream.policy.document import Policy
from stream.policy.fields import base_range
from stream.records import DAY, Heartbeat, Micros, ObservationBatch, Row
from stream.schemas import LATEST
from stream.sensing.pseudonyms import Pseudonyms, is_locally_administered

COLUMNS = ("time", "device", "access_point", "site")
BATCH_ROWS = 1000
LEAP: Micros = 7 * DAY
"""Longest gap in a recording that is believed without being asked for."""
PAUSE_ROWS = 256
"""Rows, of some 10 microseconds each, after which ``steps`` lets its caller do something else."""
PROGRESS_ROWS = 10_000
NO_DROPS = frozenset({"rows", "accepted", "stale_heartbeats"})
"""What sensing counts beside the rows that it dropped."""
MANY = 10
"""One in so many good rows that was lost for the same reason is a fault of file or policy, not of a row."""

_UTC = ZoneInfo("UTC")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")

_TIME = "time must be RFC 3339 with an offset (or local to the site without one), from 1970 to 2254"
_TWICE = "time must have an offset where the clocks of the site are set back"
_DEVICE = "device must be a MAC address, six pairs of hexadecimal digits with colons between"
_ACCESS_POINT = "access_point must be a radio address, six pairs of hexadecimal digits with colons between"
_SITE = "site must be one of the policy's"
_OTHER_SITE = "site must be the one that the access point belongs to in the policy"
_STRAY = f"time must be at most {LEAP // DAY} days from the rest of the recording where no --to is given"


class _Seen(NamedTuple):
    """The last row of a device at a site."""

    time: Micros
    epoch: int
    name: bytes


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
        progress: Callable[..., None] | None = None,
    ) -> None:
        """``progress`` is called with rows read; later with rows given and rows in all."""
        self.tally = Tally()
        self._path = path
        self._policy = policy
        self._since, self._until = since, until
        self._progress = progress
        self._reading: Iterator[None] | None = None
        self._rows = RowSort()
        self._days: dict[int, _Day] = {}
        self._span: tuple[Micros, Micros] | None = None
        places = policy.access_points()
        self._points = [(radio, site) for radio, (site, _) in places.items()]
        self._place = {radio: number for number, radio in enumerate(places)}
        self._bases: dict[int, dict[int, int]] = {}
        for base in (base for site in policy.site.values() for zone in site.zones for base in zone.base_radio):
            shared, bits = base_range(base)
            self._bases.setdefault(48 - bits, {})[shared] = self._place[base.partition("/")[0]]
        self._zones = {name: ZoneInfo(site.timezone) for name, site in policy.site.items()}
        ttl = policy.pseudonym.ttl
        self._names = Pseudonyms.daily(key) if ttl is None else Pseudonyms.rotating(key, ttl)
        self._identity = _identities()
        self._seen: dict[str, dict[int, _Seen]] = {site: {} for site in policy.site}
        self._open: dict[str, list[Row]] = {}
        self._sequences: Counter[str] = Counter()
        self._ticks: dict[str, Micros] = {}

    @property
    def first(self) -> Micros | None:
        """When the range begins; None before the file has been read, or where nothing tells."""
        return None if self._span is None else self._span[0]

    def begin(self) -> Micros | None:
        """Read the file; return its session, None where neither range nor rows tell when it begins.

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

    # --- reading --------------------------------------------------------------------------------------

    def _read(self) -> Iterator[None]:
        """Return what reads the file, or the rest of it; it yields where its caller may do something else."""
        if self._reading is None:
            self._reading = self._take_in()
        return self._reading

    def _take_in(self) -> Iterator[None]:
        with open_text(self._path) as file:
            for line, fields in rows_of(self._path, lines_of(self._path, file), COLUMNS):
                self.tally.rows += 1
                if self.tally.rows % PAUSE_ROWS == 0:
                    if self._progress is not None and self.tally.rows % PROGRESS_ROWS < PAUSE_ROWS:
                        self._progress(self.tally.rows)
                    yield None
                problem = fields if isinstance(fields, str) else self._take_row(line, *fields)
                if problem is not None:
                    self.tally.note(line, problem)
        self._span = self._range()

    def _take_row(self, line: int, time: Any, device: Any, access_point: Any, site: Any) -> str | None:
        """Put a good row among those to be sorted; return the rule that a bad one broke."""
        zone = self._zones.get(site) if isinstance(site, str) else None
        moments = instants(time, zone or _UTC) if isinstance(time, str) else ()
        address = _address(device)
        radio = access_point.lower() if isinstance(access_point, str) else ""
        place = self._place.get(radio)
        if place is None and self._bases and _MAC.fullmatch(radio):
            place = self._of_base(int(radio.replace(":", ""), 16))
        problem = None
        if len(moments) != 1:
            problem = _TWICE if moments else _TIME
        elif address is None:
            problem = _DEVICE
        elif place is None and not _MAC.fullmatch(radio):
            problem = _ACCESS_POINT
        elif zone is None:
            problem = _SITE
        elif place is None:
            self.tally.unknown_access_points += 1
        elif self._points[place][1] != site:
            problem = _OTHER_SITE
        else:
            self._keep(line, moments[0], address, place)
        return problem

    def _of_base(self, radio: int) -> int | None:
        """Return the place of the base radio whose BSSID this is."""
        found = (bases.get(radio >> width) for width, bases in self._bases.items())
        return next((place for place in found if place is not None), None)

    def _keep(self, line: int, time: Micros, address: bytes, place: int) -> None:
        site = self._points[place][1]
        early = self._since is not None and time <= self._since - self._policy.site[site].validity
        if early or time > self._last_of(site):
            self.tally.outside += 1
            return
        self.tally.locally_administered += is_locally_administered(address)
        name = bytes.fromhex(self._names.name(address, self._names.epoch(time)))
        self._rows.add((time, place, name, line, self._identity(address)))
        day = self._days.get(time // DAY)
        if day is None:
            self._days[time // DAY] = _Day(time, time, 1)
        else:
            day.add(time)

    def _last_of(self, site: str) -> Micros:
        """Return the last time that a row of a site may have: its own last tick, so that no batch is cut there.

        A run that goes on knows batches by their number: one that was given in part would be taken for a copy.
        """
        return (
            LATEST
            if self._until is None
            else self._until // self._policy.site[site].tick * self._policy.site[site].tick
        )

    def _range(self) -> tuple[Micros, Micros] | None:
        """Return when the range begins, and the last time that a row of it may have."""
        days = [self._days[day] for day in sorted(self._days)]
        stretch = _longest_stretch(days) if self._until is None else (days[0].first, self._until) if days else None
        if self._since is None:
            return stretch
        last = self._until if stretch is None else stretch[1]
        return None if last is None else (self._since, max(self._since, last))

    # --- giving ---------------------------------------------------------------------------------------

    def _give(self, first: Micros, last: Micros) -> Iterator[Message | None]:
        yield from self._beats(first)
        low = first if self._since is None else -1
        due = min(self._ticks.values())
        for number, row in enumerate(self._rows.sorted(), start=1):
            if number % PAUSE_ROWS == 0:
                if self._progress is not None and number % PROGRESS_ROWS < PAUSE_ROWS:
                    self._progress(number, self._rows.rows)
                yield None
            if not low <= row[0] <= last:
                self.tally.note(row[3], _STRAY)
                self.tally.strays += 1
                continue
            self.tally.leading += self._since is not None and row[0] <= first
            if row[0] > due:
                yield from self._advance(row[0])
                due = min(self._ticks.values())
            yield from self._take(row, first)
        yield from self._finish(last)

    def _take(self, row: Packed, session: int) -> Iterator[ObservationBatch]:
        time, place, name, _, device = row
        radio, site = self._points[place]
        epoch = self._names.epoch(time)
        rows, seen = self._open.setdefault(site, []), self._seen[site]
        before = seen.get(device)
        if before is not None and before.epoch < epoch and time - before.time <= self._policy.site[site].validity:
            rows.append(Row(before.name.hex(), None, time))
        seen[device] = _Seen(time, epoch, name)
        rows.append(Row(name.hex(), radio, time))
        if len(rows) >= BATCH_ROWS - 1:
            yield from self._flush(site, session)

    def _flush(self, site: str, session: int) -> Iterator[ObservationBatch]:
        rows = self._open.pop(site, None)
        if rows:
            source = self._policy.site[site].sources[0]
            yield ObservationBatch(site, source, session, self._sequences[site], tuple(rows))
            self._sequences[site] += 1

    # --- time -----------------------------------------------------------------------------------------

    def _beats(self, time: Micros) -> Iterator[Heartbeat]:
        for name, site in self._policy.site.items():
            self._ticks[name] = -(-time // site.tick) * site.tick
            yield from self._beat(name, time)

    def _advance(self, time: Micros) -> Iterator[Message]:
        """Yield a heartbeat of every source for each tick before ``time``; what came before goes first.

        Tick after tick, whatever rows there are: the order of the sites' records tells nothing of people.
        """
        while (tick := min(self._ticks.values())) < time:
            for name in [name for name, due in self._ticks.items() if due == tick]:
                yield from self._flush(name, self.first or 0)
                yield from self._beat(name, tick)
                self._ticks[name] += self._policy.site[name].tick
                horizon = tick - self._policy.site[name].validity
                self._seen[name] = {device: seen for device, seen in self._seen[name].items() if seen.time >= horizon}

    def _finish(self, last: Micros) -> Iterator[Message]:
        # A window is closed by the first instant after its lateness.
        ends = {
            name: site.lateness + (last + site.validity if self._until is None else self._last_of(name) + 1)
            for name, site in self._policy.site.items()
        }
        for end, name in sorted((end, name) for name, end in ends.items()):
            yield from self._advance(end)
            yield from self._flush(name, self.first or 0)
            yield from self._beat(name, end)
            del self._ticks[name]

    def _beat(self, name: str, watermark: Micros) -> Iterator[Heartbeat]:
        """Yield a heartbeat of every source: a recording vouches for all its windows, the first of them whole.

        That is the first from ``since`` on; without one, which a laboratory alone may leave out, the first from
        its first row on.
        """
        site, first = self._policy.site[name], self.first or 0
        begin = first if self._since is None else self._since
        vouched = -(-begin // site.tick) * site.tick - site.tick
        for source in site.sources:
            yield Heartbeat(name, source, first, watermark, vouched)


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


def _longest_stretch(days: Iterable[_Day]) -> tuple[Micros, Micros] | None:
    """Return first and last time of the most rows between gaps of more than ``LEAP``; of equal ones the earliest."""
    stretches: list[_Day] = []
    for day in days:
        if stretches and day.first - stretches[-1].last <= LEAP:
            held = stretches[-1]
            stretches[-1] = _Day(held.first, day.last, held.rows + day.rows)
        else:
            stretches.append(day)
    longest = max(stretches, key=lambda stretch: stretch.rows, default=None)
    return None if longest is None else (longest.first, longest.last)


def _identities() -> Callable[[bytes], int]:
    """Return a function that tells devices apart while a file is sorted, under a key that nobody keeps."""
    key = secrets.token_bytes(32)

    @lru_cache(maxsize=65_536)
    def identity(address: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(address, key=key, digest_size=8).digest(), "big", signed=True)

    return identity


def _address(text: Any) -> bytes | None:
    return _octets(text) if isinstance(text, str) else None


@lru_cache(maxsize=65_536)
def _octets(text: str) -> bytes | None:
    if not _MAC.fullmatch(text.lower()):
        return None
    return bytes.fromhex(text.replace(":", ""))


# --- what is told of a file ---------------------------------------------------------------------------


def shortfall(tally: Tally, dropped: dict[str, int] | None = None) -> DataError | None:
    """Return what to tell about rows that were bad, and about many that were lost; None when there is nothing.

    ``dropped`` holds the rows that sensing dropped, by reason; copies of batches that it had had are none.
    """
    report = [named(tally)] if tally.bad else []
    if tally.strays:
        report.append(f"A gap of more than {LEAP // DAY} days is believed up to --to, or as a file of its own.")
    lost = {"were at access points in no zone of the policy": tally.unknown_access_points}
    for reason, rows in sorted((dropped or {}).items()):
        if reason == "site_shut" and rows:
            report.append(f"A site has more devices than its max_devices: it closed, and {rows:,} rows were not taken.")
        elif reason != "repeated_batch":
            # A run that goes on in a store has had the rows up to its begin.
            more = rows - tally.leading if reason == "late" else rows
            lost[f"were dropped: {reason.replace('_', ' ')}"] = more
    good = tally.rows - tally.bad
    report += [f"{rows:,} of {good:,} good rows {what}" for what, rows in lost.items() if rows * MANY > good]
    return DataError("\n".join(report)) if report else None
