"""Sorted rows as messages of the log: batches, and at each tick of the range a heartbeat of every source; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from connectors.files.row_sort import Packed
from connectors.sink import Message
from stream.policy.document import Policy
from stream.records import LATEST, Heartbeat, Micros, ObservationBatch, PrivacyDay, Row
from stream.sensing.pseudonyms import Pseudonyms

BATCH_ROWS = 1000


class Range(NamedTuple):
    """What was asked for: the first window of a recording, and its last."""

    since: Micros | None = None
    until: Micros | None = None

    def last_of(self, policy: Policy, site: str) -> Micros:
        """Return the last time that a row of a site may have: its own last tick, so that no batch is cut there.

        A run that goes on knows batches by their number: one that was given in part would be taken for a copy.
        """
        tick_length = policy.site[site].tick
        return LATEST if self.until is None else self.until // tick_length * tick_length


class _Seen(NamedTuple):
    """The last row of a device at a site."""

    time: Micros
    epoch: int
    name: bytes


class _Open(NamedTuple):
    """Rows that wait for a batch to be full."""

    epoch: PrivacyDay | None
    """The privacy day of all of them, where names are by such days: it turns at a tick, at which no batch goes on."""
    rows: list[Row]


class Playback:
    """A recording on its way into the log, from its first instant on."""

    def __init__(
        self,
        policy: Policy,
        names: Mapping[str, Pseudonyms],
        points: list[tuple[str, str]],
        asked: Range,
        first: Micros,
    ) -> None:
        """Take names by site, radio address and site of each place in rows, and when the range begins: the session."""
        self._policy, self._names, self._points, self._asked = policy, names, points, asked
        self._first = first
        self._seen: dict[str, dict[int, _Seen]] = {site: {} for site in policy.site}
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

    def take(self, row: Packed) -> Iterator[ObservationBatch]:
        """Take a row that comes next; yield the batch that it fills."""
        time, place, name, _, device = row
        radio, site = self._points[place]
        names, seen = self._names[site], self._seen[site]
        epoch, day = names.epoch(time), names.day(time)
        rows = self._open.setdefault(site, _Open(day, [])).rows
        before = seen.get(device)
        if before is not None and before.epoch < epoch and time - before.time <= self._policy.site[site].validity:
            rows.append(Row(before.name.hex(), None, time))
        seen[device] = _Seen(time, epoch, name)
        rows.append(Row(name.hex(), radio, time))
        if len(rows) >= BATCH_ROWS - 1:
            yield from self._flush(site)

    def _flush(self, site: str) -> Iterator[ObservationBatch]:
        waiting = self._open.pop(site, None)
        if waiting is not None:
            source, rows = self._policy.site[site].sources[0], tuple(waiting.rows)
            yield ObservationBatch(site, source, self._first, self._sequences[site], rows, waiting.epoch)
            self._sequences[site] += 1

    def advance(self, time: Micros) -> Iterator[Message]:
        """Yield a heartbeat of every source for each tick before ``time``; what came before goes first.

        Tick after tick, whatever rows there are: the order of the sites' records reveals nothing of people.
        """
        while (tick := self.due) < time:
            for name in [name for name, due in self._ticks.items() if due == tick]:
                yield from self._flush(name)
                yield from self._beat(name, tick)
                self._ticks[name] += self._policy.site[name].tick
                horizon = tick - self._policy.site[name].validity
                self._seen[name] = {device: seen for device, seen in self._seen[name].items() if seen.time >= horizon}

    def finish(self, last: Micros) -> Iterator[Message]:
        """Yield what is left, up to the instants at which the last windows close."""
        # A window is closed by the first instant after its lateness.
        ends = {
            name: site.lateness
            + (last + site.validity if self._asked.until is None else self._asked.last_of(self._policy, name) + 1)
            for name, site in self._policy.site.items()
        }
        for end, name in sorted((end, name) for name, end in ends.items()):
            yield from self.advance(end)
            yield from self._flush(name)
            yield from self._beat(name, end)
            del self._ticks[name]

    def _beat(self, name: str, watermark: Micros) -> Iterator[Heartbeat]:
        """Yield a heartbeat of every source: a recording vouches for all its windows, the first of them whole.

        That is the first from ``since`` on; without one, which a laboratory alone may leave out, the first from
        its first row on.
        """
        site, since = self._policy.site[name], self._asked.since
        begin = self._first if since is None else since
        vouched = -(-begin // site.tick) * site.tick - site.tick
        for source in site.sources:
            yield Heartbeat(name, source, self._first, watermark, vouched)
