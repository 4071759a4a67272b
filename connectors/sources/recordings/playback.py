"""Playback: sorted rows of a recording, with heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.sources.ingest.sighting import Message
from connectors.sources.recordings.row_sort import Packed, unpacked
from stream.policy.document import PolicyDocument
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import LATEST, Columns, Heartbeat, Micros, ObservationBatch, PrivacyDay

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
