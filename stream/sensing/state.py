"""The state of a site's sensing between messages, and its stable byte form.

``SensingState`` is the whole state. ``PendingWindow`` buffers the rows of one open window: the last entry of each
device, and batches from which no entries have been made yet. Rows mostly arrive in the order of their times. A batch
whose first row is later than all buffered rows determines the zone of each of its devices, independent of earlier rows.
It is stored by column until the window closes, and the devices present are then updated from its columns. If entries
are needed earlier, they are made from the columns; the result and its bytes are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Any, NamedTuple

import orjson

from stream.errors import DataError
from stream.records import CountedWindow, JsonObject, Message, Micros, ObservationBatch
from stream.sensing import presence, watermark
from stream.sensing.contribution import DayCounter
from stream.sensing.logins import LoginState
from stream.sensing.presence import END, LEAVING, Entry, Stamp, moved
from stream.sensing.visits import VisitCounter
from stream.sensing.watermark import SiteClock

MOST_ROWS = 16_384
"""Largest number of rows that are buffered by column; further rows become entries, one per device."""

Present = dict[str, tuple[int, Micros]]
"""Device -> (place, time) of its last observation."""
Departures = dict[tuple[str, int], Entry]
"""(device, place) -> the last entry that says that the device left this place."""


class TickRun(NamedTuple):
    """A batch ordered by time, by column."""

    stamp: Stamp
    devices: Sequence[str]
    zones: Sequence[int]
    times: Sequence[Micros]


class PendingWindow:
    """The buffered rows of one open window.

    Of each device it keeps the last entry that places it or ends its stay wherever it is, and for each place the last
    entry that says that the device left it. That is enough for any order of arrival: the former decides alone unless
    the latter comes behind it and names the same place.
    """

    __slots__ = ("_entries", "_rows", "_runs", "departures", "latest")

    def __init__(
        self, latest: Micros, entries: dict[str, Entry] | None = None, departures: Departures | None = None
    ) -> None:
        """``entries`` are by device; none of them is later than ``latest``."""
        self.latest = latest
        self.departures: Departures = {} if departures is None else departures
        self._entries: dict[str, Entry] = {} if entries is None else entries
        self._runs: list[TickRun] = []
        self._rows = 0

    @property
    def entries(self) -> dict[str, Entry]:
        """Device -> its last entry; callers may change it."""
        for run in self._runs:
            self._entries |= _entries_of(run)
        self._runs, self._rows = [], 0
        return self._entries

    def append(self, run: TickRun) -> None:
        """Add a batch whose rows are all later than ``latest``."""
        self._runs.append(run)
        self._rows += len(run.times)
        if self._rows > MOST_ROWS:
            _ = self.entries

    def merge(self, run: TickRun) -> None:
        """Add a batch of any times; the later entry of each device is kept."""
        entries, new = self.entries, _entries_of(run)
        for device in entries.keys() & new.keys():
            new[device] = max(new[device], entries[device])
        entries |= new

    def leave(self, device: str, place: int, entry: Entry) -> None:
        """Add an entry that says that a device left a place; the later one of two is kept."""
        self.departures[device, place] = max(entry, self.departures.get((device, place), entry))

    def devices(self) -> Iterable[str]:
        """Return the devices, each at least once."""
        left = (device for device, _ in self.departures)
        return chain(self._entries, left, *(run.devices for run in self._runs))

    def move_into(self, present: Present) -> None:
        """Update the devices present to the end of the window, in place.

        A departure comes behind all that earlier windows placed; within the window the later entry decides.
        """
        for device, (time, _, _, zone) in self._entries.items():
            if zone == END:
                present.pop(device, None)
            else:
                present[device] = (zone, time)
        for run in self._runs:
            present.update(zip(run.devices, zip(run.zones, run.times, strict=False), strict=False))
        if any(END in run.zones for run in self._runs):
            for device in [device for device, (zone, _) in present.items() if zone == END]:
                del present[device]
        for (device, place), entry in self.departures.items():
            held = present.get(device)
            if held is None or held[0] != place or held[1] > entry[0]:
                continue
            if held[1] < entry[0] or self.entries[device] < entry:
                del present[device]

    def __len__(self) -> int:
        return len(self.entries) + len(self.departures)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PendingWindow):
            return NotImplemented
        return (self.entries, self.departures) == (other.entries, other.departures)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"PendingWindow(of {len(self)} devices)"


def _entries_of(run: TickRun) -> dict[str, Entry]:
    """Return device -> its last entry in the batch."""
    return dict(zip(run.devices, zip(run.times, repeat(run.stamp), count(), run.zones), strict=False))


_NOT_DROPPED = frozenset({"rows", "accepted", "stale_heartbeats"})
"""Counters that are not reasons for a dropped row."""


def dropped_rows(counters: Mapping[str, int]) -> dict[str, int]:
    """Return those of a site's counters that count dropped rows: reason -> rows."""
    return {reason: rows for reason, rows in counters.items() if reason not in _NOT_DROPPED}


FORM = 1
"""Version of the state's byte form."""


@dataclass(slots=True)
class SensingState:
    """The state of a site between messages; it never has more than ``max_devices`` devices."""

    clock: SiteClock = field(default_factory=SiteClock)
    next_tick: Micros | None = None
    """The window to close next; None until the site has a watermark."""
    closed: Micros | None = None
    """The last closed window."""
    current: Present = field(default_factory=dict, repr=False)
    """The devices present at ``closed``, by the observations that are valid then."""
    pending: dict[Micros, PendingWindow] = field(default_factory=dict, repr=False)
    """Open window -> its buffered rows."""
    rows: dict[Micros, dict[tuple[str, Micros], Entry]] = field(default_factory=dict, repr=False)
    """Open window -> (device, time) -> the last entry of that time; filled only if stays are kept."""
    open_stays: dict[str, presence.OpenStay] = field(default_factory=dict, repr=False)
    suspended: bool = False
    """Whether the site is suspended at ``max_devices``; a suspended site has no input or output."""
    counters: Counter[str] = field(default_factory=Counter, repr=False)
    """``rows`` received = ``accepted`` + the rows dropped for each reason."""
    known_devices: set[str] = field(default_factory=set, repr=False, compare=False)
    """The devices of ``current``, ``pending``, ``tally`` and ``visits``; derived from them."""
    tally: DayCounter | None = None
    """The counters of the privacy day; None if the site does not bound counts."""
    visits: VisitCounter | None = None
    """The visits of the privacy day; None if no release counts changes."""
    logins: LoginState | None = None
    """Presence and buffered rows of a site that counts logins; ``current`` and ``pending`` are then empty."""

    def count(self, batch: ObservationBatch, dropped: Counter[str]) -> None:
        """Count the rows of a batch: dropped ones by reason, the others as accepted."""
        self.counters["rows"] += len(batch.rows)
        self.counters["accepted"] += len(batch.rows) - dropped.total()
        self.counters.update(dropped)

    def count_dropped(self, item: Message, reason: str) -> None:
        """Count all rows of a message as dropped."""
        if isinstance(item, ObservationBatch):
            self.count(item, Counter({reason: len(item.rows)}))
        elif isinstance(item, CountedWindow):
            self.counters.update({"rows": len(item.counts), reason: len(item.counts)})

    def remove_devices(self) -> None:
        """Remove all devices and no other data."""
        self.current, self.pending, self.rows, self.open_stays, self.known_devices = {}, {}, {}, {}, set()
        self.logins = None if self.logins is None else LoginState()

    def update_known_devices(self) -> None:
        """Derive ``known_devices`` again."""
        self.known_devices = set(self.current).union(*(waiting.devices() for waiting in self.pending.values()))
        for counter in (self.tally, self.visits):
            if counter is not None:
                self.known_devices |= counter.seen
        if self.logins is not None:
            self.known_devices.update(self.logins.devices())

    def remove_after(self, instant: Micros | None) -> None:
        """Remove the buffered observations later than an instant; None: all of them."""
        waiting: list[dict[Any, Entry]] = [each.entries for each in self.pending.values()]
        waiting += [each.departures for each in self.pending.values()]
        for entries in (*waiting, *self.rows.values()):
            for key in [key for key, entry in entries.items() if instant is None or entry[0] > instant]:
                del entries[key]
        if self.logins is not None:
            self.logins.remove_after(instant)


def encode(state: SensingState, zones: tuple[str, ...]) -> bytes:
    """Return the stable byte form: JSON in one fixed order, independent of the order of arrival.

    ``zones`` are the names of the places, in the order of their indices.
    """
    stamps = sorted({entry[1] for entry in _entries(state)} | _stamps_of(state.logins))
    number = {stamp: i for i, stamp in enumerate(stamps)}
    plain = {
        "form": FORM,
        "clock": watermark.to_plain(state.clock),
        "ticks": [state.next_tick, state.closed, state.suspended],
        "zones": zones,
        "current": [[device, *where] for device, where in sorted(state.current.items())],
        "stamps": stamps,
        "pending": [[tick, _flat(waiting.entries, number)] for tick, waiting in sorted(state.pending.items())],
        "rows": [[tick, _flat(entries, number)] for tick, entries in sorted(state.rows.items())],
        "stays": [[device, *stay] for device, stay in sorted(state.open_stays.items())],
        "counters": sorted(state.counters.items()),
    }
    left = [[tick, _flat(each.departures, number)] for tick, each in sorted(state.pending.items()) if each.departures]
    if left:
        plain["left"] = left
    counters = {"tally": state.tally, "visits": state.visits}
    plain |= {name: each.to_plain() for name, each in counters.items() if each is not None}
    if state.logins is not None:
        plain["logins"] = state.logins.to_plain(number)
    return orjson.dumps(plain)


def decode(data: bytes, zones: tuple[str, ...]) -> SensingState:
    """Return the state whose byte form is ``data``; ``DataError`` when it is not one.

    Places are identified by name: if the registry has changed, devices at removed places are dropped.
    """
    try:
        return _state_of(orjson.loads(data), zones)
    except (ValueError, TypeError, KeyError, IndexError):
        raise DataError("sense state: not the byte form of a state") from None


def _entries(state: SensingState) -> list[Entry]:
    pending = [entry for waiting in state.pending.values() for entry in waiting.entries.values()]
    pending += [entry for waiting in state.pending.values() for entry in waiting.departures.values()]
    return pending + [entry for entries in state.rows.values() for entry in entries.values()]


def _stamps_of(logins: LoginState | None) -> set[Stamp]:
    return set() if logins is None else {row.stamp for rows in logins.pending.values() for row in rows}


def _flat(entries: Mapping[Any, Entry], number: Mapping[Stamp, int]) -> list[list[Any]]:
    """Return entries as rows [key, time, stamp number, row, zone], ordered by key."""
    return [[key, time, number[stamp], row, zone] for key, (time, stamp, row, zone) in sorted(entries.items())]


class SensingStatus(NamedTuple):
    """The progress of a site's sensing, without data about people."""

    watermark: Micros | None
    last_window: Micros | None
    """End of the window that closed last."""
    suspended: bool
    """Whether the site is suspended at ``max_devices``."""
    reached: Micros
    """The site's current time by its own clock."""


def decode_status(data: bytes) -> SensingStatus:
    """Return the progress of the sensing state whose byte form is ``data``; zones are not needed.

    Raises:
        DataError: ``data`` is not such a form.
    """
    try:
        plain = orjson.loads(data)
        _, closed, shut = plain["ticks"]
        clock = watermark.from_plain(plain["clock"])
        return SensingStatus(clock.watermark, closed, shut, watermark.present_time(clock))
    except (ValueError, TypeError, KeyError, IndexError):
        raise DataError("sense state: not the byte form of a state") from None


def _state_of(plain: JsonObject, zones: tuple[str, ...]) -> SensingState:
    if plain["form"] != FORM:
        raise ValueError("form")
    stamps: list[Stamp] = [(source, session, sequence) for source, session, sequence in plain["stamps"]]
    index = {zone: i for i, zone in enumerate(zones)}
    now = {i: index.get(zone, END) for i, zone in enumerate(plain["zones"])} | {END: END}
    next_tick, closed, shut = plain["ticks"]
    state = SensingState(watermark.from_plain(plain["clock"]), next_tick, closed, suspended=shut)
    state.current = {dev: (now[zone], time) for dev, zone, time in plain["current"] if now[zone] != END}
    for tick, entries in plain["pending"]:
        waiting = {key: (time, stamps[s], row, now[zone]) for key, time, s, row, zone in entries}
        state.pending[tick] = PendingWindow(tick, waiting)
    for tick, entries in plain.get("left", ()):
        for (device, place), time, s, row, _ in entries:
            if now[place] != END:
                state.pending[tick].leave(device, now[place], (time, stamps[s], row, LEAVING - now[place]))
    for tick, entries in plain["rows"]:
        state.rows[tick] = {tuple(k): (time, stamps[s], row, moved(zone, now)) for k, time, s, row, zone in entries}
    state.open_stays = {device: presence.OpenStay(*stay) for device, *stay in plain["stays"]}
    state.counters = Counter(dict(plain["counters"]))
    state.tally = DayCounter.from_plain(plain["tally"]) if "tally" in plain else None
    state.visits = VisitCounter.from_plain(plain["visits"]) if "visits" in plain else None
    if "logins" in plain:
        state.logins = LoginState.from_plain(plain["logins"], stamps, now)
    state.update_known_devices()
    return state
