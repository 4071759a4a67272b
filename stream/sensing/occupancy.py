"""Occupancy of a site: how many distinct devices each zone holds at each tick.

An observation at ``t`` opens the presence [t, t + V); the device's next observation ends it at its own time,
and so does a row without an access point. At a tick ``tau`` a device therefore is where its last observation
at or before ``tau`` was, if that is less than V ago, and in no other zone of the site. "Last" is by
(time, source, session, sequence, row). Half-open presence is what bounds sensitivity: one observation more or
less changes at most two counts at each of ceil(V / tick) ticks.

A window closes once, when the site's watermark has passed its tick and the lateness. What comes for it
afterwards is dropped and counted. Only heartbeats move the watermark, so the moment at which a window closes
says nothing about anybody.

Every device that is accepted is remembered: whether one counts never depends on another. The one bound is a
stop far above any real building. A site that would hold more than ``max_devices`` shuts: it forgets everybody,
takes nothing more and closes nothing more until it is reopened, and then nobody vouches for what was missed.

| symbol | name |
|--------|------------|
| tau    | tick       |
| V      | validity   |
| W      | watermark  |
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from stream.errors import DataError, UsageError
from stream.records import (
    MINUTE,
    SECOND,
    Heartbeat,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Rejected,
    Stay,
)
from stream.sensing import presence, watermark
from stream.sensing.watermark import SiteClock

END = -1
"""Stands for a zone where a row ends the device's stay."""
UNKNOWN = -2
"""Stands for a zone where the site does not have the access point."""

FORM = 2
"""Version of the state's byte form; the one before it is read too."""
WINDOWS_AT_ONCE = 16
"""So many windows a step closes at most: tenths of a second, after which a runner may look around."""
ROWS_A_DEVICE = 64
"""So many rows a device, on average, may wait for their windows where stays are kept."""
FAULTY_FIELD = {"unknown_access_point": "access_point", "ahead": "time"}
"""Reasons that reject a row, with the field at fault; the other reasons only drop and count it."""

Stamp = tuple[str, int, int]
"""(source, session, sequence) of a batch: orders observations of the same instant."""
Entry = tuple[Micros, Stamp, int, int]
"""(time, stamp, row, zone index or END); of two entries of a device the greater is the later."""
Out = OccupancyWindow | Stay | Rejected


@dataclass(slots=True)
class SenseState:
    """What a site remembers between items; never more than ``max_devices`` devices."""

    clock: SiteClock = field(default_factory=SiteClock)
    next_tick: Micros | None = None
    """The window to close next; None until the site has a watermark."""
    closed: Micros | None = None
    """The last closed window."""
    current: dict[str, tuple[int, Micros]] = field(default_factory=dict, repr=False)
    """Device -> (zone index, time) of its last observation up to ``closed``, while that is valid."""
    pending: dict[Micros, dict[str, Entry]] = field(default_factory=dict, repr=False)
    """Window -> device -> its last entry in that window, for windows not yet closed."""
    rows: dict[Micros, dict[tuple[str, Micros], Entry]] = field(default_factory=dict, repr=False)
    """Window -> (device, time) -> last entry of that instant; filled only when stays are wanted."""
    stays_open: dict[str, presence.OpenStay] = field(default_factory=dict, repr=False)
    shut: bool = False
    """The site would have held more than ``max_devices``: nothing goes in or out until it is reopened."""
    counters: Counter[str] = field(default_factory=Counter, repr=False)
    """``rows`` seen = ``accepted`` + the rows of every reason for which rows were dropped."""
    known: set[str] = field(default_factory=set, repr=False, compare=False)
    """The devices of ``current`` and ``pending``; follows from them."""


@dataclass(frozen=True, kw_only=True)
class Sense:
    """The stage from observations and heartbeats of one site to its occupancy windows.

    Outputs: ``OccupancyWindow`` in the order of windows, none left out; ``Rejected`` for rows that broke a
    rule, in row order; with ``keep_presence`` also each ``Stay`` once it is final, after the window that
    made it final.
    """

    site: str
    zones: tuple[str, ...]
    """The zone registry: counts come in this order."""
    access_points: Mapping[str, str]
    """Access point -> zone."""
    sources: tuple[str, ...]
    tick_length: Micros
    validity: Micros
    lateness: Micros
    max_devices: int
    """The site shuts where it would hold more devices; before there is a watermark, more entries (device and
    window); with ``keep_presence``, more than ``ROWS_A_DEVICE`` times as many rows."""
    source_timeout: Micros = 120 * SECOND
    ahead: Micros = 5 * MINUTE
    """A row further than this beyond the watermark is rejected."""
    keep_presence: bool = False
    first_window: Micros | None = None
    """No window before this one is released; rows too old to matter for it are dropped."""
    last_window: Micros | None = None
    """No window after this one is released; rows after it are dropped."""
    _zone_of: dict[str | None, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        index = {zone: i for i, zone in enumerate(self.zones)}
        zone_of: dict[str | None, int] = {ap: index[zone] for ap, zone in self.access_points.items()}
        zone_of[None] = END
        object.__setattr__(self, "_zone_of", zone_of)

    def initial(self) -> SenseState:
        """Return the state of a site of which nothing has been heard."""
        return SenseState()

    def step(self, state: SenseState, item: ObservationBatch | Heartbeat) -> tuple[SenseState, list[Out]]:
        """Take one item; a batch yields rejections only, windows close on heartbeats."""
        return state, [each for part, _ in self.steps(state, item) for each in part]

    def steps(self, state: SenseState, item: ObservationBatch | Heartbeat) -> Iterator[tuple[list[Out], bool]]:
        """Take one item into the state, which changes in place, in steps of at most ``WINDOWS_AT_ONCE`` windows.

        Yields what each step gives and whether it is the last. A heartbeat that was not taken to its end may
        be taken again from its beginning: it then closes the windows that are left.
        """
        fault = self._misdirected(item)
        if fault is not None:
            _count_dropped(state, item, fault.reason)
            yield [fault], True
        elif state.shut:
            _count_dropped(state, item, "site_shut")
            yield [], True
        elif isinstance(item, Heartbeat):
            if self._hear(state, item):
                yield from self._close_due(state)
            else:
                yield [], True
        elif (refusal := watermark.admit(state.clock, item.source, item.session, item.sequence)) is not None:
            _count_dropped(state, item, refusal)
            yield [], True
        else:
            yield self._observe(state, item), True

    def _misdirected(self, item: ObservationBatch | Heartbeat) -> Rejected | None:
        if item.site != self.site:
            return Rejected(item.source, "wrong_site", "site")
        if item.source not in self.sources:
            return Rejected(item.source, "unknown_source", "source")
        return None

    def _observe(self, state: SenseState, batch: ObservationBatch) -> list[Out]:
        """File each row under its window; of a device and window only the last entry is kept.

        This loop sees every observation of the site, so names are local and the window at hand is kept
        from row to row: it changes only where neighbours in a batch lie on two sides of a tick.
        """
        out: list[Out] = []
        dropped: Counter[str] = Counter()
        stamp = (batch.source, batch.session, batch.sequence)
        zone_of, known, limit, room = self._zone_of, state.known, self.max_devices, self._room(state)
        low = high = 0
        entries: dict[str, Entry] = {}
        rows: dict[tuple[str, Micros], Entry] | None = None
        for row, (device, access_point, time) in enumerate(batch.rows):
            zone = zone_of.get(access_point, UNKNOWN)
            if zone == UNKNOWN or not low < time <= high:
                refusal = "unknown_access_point" if zone == UNKNOWN else self._refusal(state, time)
                if refusal is not None:
                    dropped[refusal] += 1
                    if refusal in FAULTY_FIELD:
                        out.append(Rejected(batch.source, refusal, f"rows[{row}].{FAULTY_FIELD[refusal]}"))
                    continue
                low, high, entries, rows = self._window_of(state, time)
            entry = (time, stamp, row, zone)
            held = entries.get(device)
            if held is None:
                if room <= 0 or (device not in known and len(known) >= limit):
                    return self._shut(state, batch)
                room -= 1
                known.add(device)
                entries[device] = entry
            elif held < entry:
                entries[device] = entry
            if rows is not None and rows.get((device, time), entry) <= entry:
                rows[device, time] = entry
        if sum(map(len, state.rows.values())) > limit * ROWS_A_DEVICE:
            return self._shut(state, batch)
        _count(state, batch, dropped)
        return out

    def _shut(self, state: SenseState, batch: ObservationBatch) -> list[Out]:
        """Shut the site on a batch that it cannot hold; its clock stays, so that it can be reopened."""
        state.shut = True
        state.current, state.pending, state.rows, state.stays_open, state.known = {}, {}, {}, {}, set()
        _count_dropped(state, batch, "site_shut")
        return [Rejected(batch.source, "site_shut", "site")]

    def reopen(self, state: SenseState) -> SenseState:
        """Return the state of a shut site that goes on; no source vouches for what it missed."""
        state.shut = False
        watermark.lose(state.clock, self.sources)
        return state

    def _room(self, state: SenseState) -> int:
        """How many more entries may be opened: bounded only while there is no watermark to bound time."""
        if state.clock.watermark is not None:
            return sys.maxsize
        return self.max_devices - sum(map(len, state.pending.values()))

    def _refusal(self, state: SenseState, time: Micros) -> str | None:
        """Return why a row of this time is dropped, or None."""
        if state.closed is not None and time <= state.closed:
            return "late"
        if self.first_window is not None and time <= self.first_window - self.validity:
            return "before_first"
        if self.last_window is not None and time > self.last_window:
            return "after_last"
        if state.clock.watermark is not None and time > state.clock.watermark + self.ahead:
            return "ahead"
        return None

    def _window_of(
        self, state: SenseState, time: Micros
    ) -> tuple[Micros, Micros, dict[str, Entry], dict[tuple[str, Micros], Entry] | None]:
        """Return the window of ``time``, (low, high], cut to what is admitted, and its entries."""
        tick = self._grid(time)
        low, high = tick - self.tick_length, tick
        if self.first_window is not None:
            low = max(low, self.first_window - self.validity)
        if self.last_window is not None:
            high = min(high, self.last_window)
        if state.clock.watermark is not None:
            high = min(high, state.clock.watermark + self.ahead)
        rows = state.rows.setdefault(tick, {}) if self.keep_presence else None
        return low, high, state.pending.setdefault(tick, {}), rows

    def _hear(self, state: SenseState, beat: Heartbeat) -> bool:
        """Take note of a heartbeat; return whether the site has a watermark, by which windows may be due."""
        if not watermark.record_heartbeat(state.clock, beat):
            state.counters["stale_heartbeats"] += 1
            return False
        watermark.settle(state.clock, self.sources, self.source_timeout)
        reached = state.clock.watermark
        if reached is not None and state.next_tick is None:
            begin = reached if self.first_window is None else max(reached, self.first_window)
            state.next_tick = self._grid(begin)
        return reached is not None

    def _close_due(self, state: SenseState) -> Iterator[tuple[list[Out], bool]]:
        """Close what the watermark has passed; at the end of each step the state is whole."""
        due = self._due(state)
        while True:
            out: list[Out] = []
            for tick in due[:WINDOWS_AT_ONCE]:
                out.append(self._close(state, tick))
                if self.keep_presence:
                    out.extend(self._finish_stays(state, tick))
                state.next_tick = tick + self.tick_length
            due = due[WINDOWS_AT_ONCE:]
            yield out, not due
            if not due:
                return

    def _due(self, state: SenseState) -> range:
        """Return the ticks of the windows to close now."""
        if state.next_tick is None or state.clock.watermark is None:
            return range(0)
        end = state.clock.watermark - self.lateness
        if self.last_window is not None:
            end = min(end, self.last_window + 1)
        return range(state.next_tick, end, self.tick_length)

    def _close(self, state: SenseState, tick: Micros) -> OccupancyWindow:
        """Bring ``current`` up to ``tick``, let expired presences go, and count."""
        current = state.current
        for earlier in sorted(t for t in state.pending if t <= tick):
            for device, (time, _, _, zone) in state.pending.pop(earlier).items():
                if zone == END:
                    current.pop(device, None)
                else:
                    current[device] = (zone, time)
        counts = [0] * len(self.zones)
        expired = []
        for device, (zone, time) in current.items():
            if tick < time + self.validity:
                counts[zone] += 1
            else:
                expired.append(device)
        for device in expired:
            del current[device]
        state.known = set(current).union(*state.pending.values())
        state.closed = tick
        share = watermark.coverage(state.clock, self.sources, tick - self.tick_length, tick)
        watermark.forget_listened(state.clock, tick)
        return OccupancyWindow(self.site, tick, tuple(counts), share)

    def lose(self, state: SenseState) -> SenseState:
        """Return the state after a loss in the log: no source vouches for anything before its next heartbeat."""
        watermark.lose(state.clock, self.sources)
        return state

    def rejoin(self, state: SenseState) -> SenseState:
        """Return the state of a site that no policy had for a time: it owes none of the windows until then."""
        state.next_tick = None
        return state

    def regrid(self, state: SenseState) -> SenseState:
        """Return a state made under another tick: its next window is on this grid, and what waits is filed anew.

        Of a device's entries that now fall into one window the last stays, whatever order they come in.
        """
        if state.next_tick is not None:
            state.next_tick = self._grid(state.next_tick)
        waiting, state.pending = state.pending, {}
        for entries in waiting.values():
            for device, entry in entries.items():
                window = state.pending.setdefault(self._grid(entry[0]), {})
                window[device] = max(entry, window.get(device, entry))
        return state

    def _grid(self, time: Micros) -> Micros:
        """Return the tick of the window in which an instant lies."""
        return -(-time // self.tick_length) * self.tick_length

    def _finish_stays(self, state: SenseState, tick: Micros) -> list[Stay]:
        found = self._fold_rows(state, tick)
        return self._as_stays(found + presence.expire(state.stays_open, self.validity, tick))

    def _fold_rows(self, state: SenseState, until: Micros | None) -> list[presence.FinishedStay]:
        """Fold the kept rows of the windows up to ``until`` (None: all) into the open stays."""
        sightings: dict[tuple[str, Micros], str | None] = {}
        for window in [t for t in state.rows if until is None or t <= until]:
            for key, (_, _, _, zone) in state.rows.pop(window).items():
                sightings[key] = None if zone == END else self.zones[zone]
        return presence.extend(state.stays_open, sightings, self.validity)

    def _as_stays(self, found: list[presence.FinishedStay]) -> list[Stay]:
        found.sort(key=lambda stay: (stay.end, stay.start, stay.device))
        return [Stay(self.site, *interval) for interval in found]

    def remaining_stays(self, state: SenseState) -> list[Stay]:
        """Return, at the end of a finished log, the stays not yet put out; uses the state up."""
        found = self._fold_rows(state, None)
        return self._as_stays(found + presence.expire(state.stays_open, self.validity, None))

    def encode(self, state: SenseState) -> bytes:
        """Return the stable byte form: JSON in one fixed order, whatever order things arrived in."""
        stamps = sorted({entry[1] for entry in _entries(state)})
        number = {stamp: i for i, stamp in enumerate(stamps)}
        plain = {
            "form": FORM,
            "clock": watermark.to_plain(state.clock),
            "ticks": [state.next_tick, state.closed, state.shut],
            "zones": self.zones,
            "current": [[device, *where] for device, where in sorted(state.current.items())],
            "stamps": stamps,
            "pending": [[tick, _flat(entries, number)] for tick, entries in sorted(state.pending.items())],
            "rows": [[tick, _flat(entries, number)] for tick, entries in sorted(state.rows.items())],
            "stays": [[device, *stay] for device, stay in sorted(state.stays_open.items())],
            "counters": sorted(state.counters.items()),
        }
        return orjson.dumps(plain)

    def decode(self, data: bytes) -> SenseState:
        """Return the state whose byte form is ``data``; ``DataError`` when it is not one.

        Zones are known by name: where the registry has changed, devices in zones that are gone are let go.
        """
        try:
            return _state_of(orjson.loads(data), self.zones)
        except (ValueError, TypeError, KeyError, IndexError):
            raise DataError("sense state: not the byte form of a state") from None


def _check(sense: Sense) -> None:
    """Refuse a configuration that cannot mean anything."""
    for name in ("tick_length", "validity", "source_timeout", "max_devices"):
        if getattr(sense, name) <= 0:
            raise UsageError(f"{name} must be positive, got {getattr(sense, name)}")
    for name in ("lateness", "ahead"):
        if getattr(sense, name) < 0:
            raise UsageError(f"{name} must not be negative, got {getattr(sense, name)}")
    if not sense.sources:
        raise UsageError("sources must name at least one source")
    if len(set(sense.zones)) != len(sense.zones):
        raise UsageError("zones must be distinct")
    for zone in sense.access_points.values():
        if zone not in sense.zones:
            raise UsageError(f"access_points must lie in the site's zones, got zone {zone!r}")


def _count_dropped(state: SenseState, item: ObservationBatch | Heartbeat, reason: str) -> None:
    """Count a whole batch as dropped, in rows."""
    if isinstance(item, ObservationBatch):
        _count(state, item, Counter({reason: len(item.rows)}))


def _count(state: SenseState, batch: ObservationBatch, dropped: Counter[str]) -> None:
    state.counters["rows"] += len(batch.rows)
    state.counters["accepted"] += len(batch.rows) - dropped.total()
    state.counters.update(dropped)


def _entries(state: SenseState) -> list[Entry]:
    pending = [entry for entries in state.pending.values() for entry in entries.values()]
    return pending + [entry for entries in state.rows.values() for entry in entries.values()]


def _flat(entries: Mapping[Any, Entry], number: Mapping[Stamp, int]) -> list[list[Any]]:
    """Entries as rows [key, time, stamp number, row, zone], in the order of their keys."""
    return [[key, time, number[stamp], row, zone] for key, (time, stamp, row, zone) in sorted(entries.items())]


class Standing(NamedTuple):
    """Where a site's sensing stands: nothing in it is of anybody."""

    watermark: Micros | None
    last_window: Micros | None
    """End of the window that closed last."""
    shut: bool
    """Whether the site has closed at ``max_devices``."""
    reached: Micros
    """The time that it has come to by its own clock."""


def standing(data: bytes) -> Standing:
    """Return where the sensing stands whose byte form is ``data``, of this form or an earlier one, without its zones.

    Raises:
        DataError: it is no such form.
    """
    try:
        plain = orjson.loads(data)
        _, closed, shut, *_ = plain["ticks"]
        clock = watermark.from_plain(plain["clock"], form=plain["form"])
        return Standing(clock.watermark, closed, plain["form"] == FORM and shut, watermark.reached(clock))
    except (ValueError, TypeError, KeyError, IndexError):
        raise DataError("sense state: not the byte form of a state") from None


def _state_of(plain: dict[str, Any], zones: tuple[str, ...]) -> SenseState:
    if plain["form"] not in (1, FORM):
        raise ValueError("form")
    stamps: list[Stamp] = [(source, session, sequence) for source, session, sequence in plain["stamps"]]
    index = {zone: i for i, zone in enumerate(zones)}
    now = {i: index.get(zone, END) for i, zone in enumerate(plain["zones"])} | {END: END}
    next_tick, closed, shut, *_ = plain["ticks"]
    state = SenseState(watermark.from_plain(plain["clock"], form=plain["form"]), next_tick, closed)
    state.shut = plain["form"] == FORM and shut
    state.current = {dev: (now[zone], time) for dev, zone, time in plain["current"] if now[zone] != END}
    for tick, entries in plain["pending"]:
        state.pending[tick] = {key: (time, stamps[s], row, now[zone]) for key, time, s, row, zone in entries}
    for tick, entries in plain["rows"]:
        state.rows[tick] = {tuple(k): (time, stamps[s], row, now[zone]) for k, time, s, row, zone in entries}
    state.stays_open = {device: presence.OpenStay(*stay) for device, *stay in plain["stays"]}
    state.counters = Counter(dict(plain["counters"]))
    state.known = set(state.current).union(*state.pending.values())
    return state
