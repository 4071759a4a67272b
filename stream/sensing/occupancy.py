"""Occupancy of a site: the number of distinct devices in each zone at each tick.

An observation at ``t`` opens the presence [t, t + V). The device's next observation, or a row without an access point,
ends it at its own time. At a tick ``tau`` a device therefore is in the zone of its last observation at or before
``tau``, if that is less than V ago, and in no other zone of the site. "Last" is by (time, source, session, sequence,
row). Half-open presence bounds the sensitivity: one observation more or less changes at most two counts at each of
ceil(V / tick) ticks.

**Sessions** (``sessions``). V is then the policy's ``session_limit``, and a row may say that a device left an access
point. It ends the presence if the last observation before it that places the device names the same access point;
otherwise it changes nothing, since the device has gone on to another. At a site with privacy days a presence also ends
where its day does.

The bound is the same. Consider one row more or less at ``t``, and a tick ``tau`` >= t. If some other row after ``t``
and up to ``tau`` places the device, or ends its presence wherever it is, the rows after that one decide alone, and they
are the same in both worlds. Otherwise every row that places the device comes at or before ``t``, so nobody is present
by it from t + V on. Before ``t`` nothing differs. No row is read in the light of anything but the last row that placed
its device, and no row is left out by what came before it: therefore no chain of rows carries a difference further. What
the ingest leaves out (``connectors.sources.ingest``) changes no count.

A window closes once, when the site's watermark has passed its tick plus the lateness. Rows that arrive for it later are
dropped, and the drops are counted. Only heartbeats move the watermark, so the moment at which a window closes reveals
nothing about any person.

Every accepted device is stored, so the counting of one device never depends on another. The only bound is
``max_devices``, a limit far above any real building. A site that would store more devices (if it bounds counts per
privacy day: more devices of one privacy day) is suspended. It then forgets all devices, accepts no message and closes
no window until it is resumed, and the windows that it missed have coverage 0.

A batch adds rows to open windows: of a device and window only the last entry is kept, for any order of arrival
(``PendingWindow`` buffers one window). A heartbeat moves the watermark (``sensing.watermark``) and closes windows.

| symbol | name                                  |
|--------|---------------------------------------|
| tau    | tick                                  |
| V      | validity, with sessions session_limit |
| W      | watermark                             |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stream.errors import UsageError
from stream.records import (
    LEFT,
    MINUTE,
    SECOND,
    Columns,
    CountedWindow,
    Heartbeat,
    LevelCounts,
    Message,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    PrivacyDay,
    Rejected,
    Stay,
)
from stream.sensing import presence, watermark
from stream.sensing import state as sense_state
from stream.sensing.contribution import BoundedCounts, ContributionBound, changes_pseudonyms, migrated_counter
from stream.sensing.logins import Logins, LoginState
from stream.sensing.presence import END, LEAVING, UNKNOWN, Entry
from stream.sensing.state import PendingWindow, SensingState, TickRun
from stream.sensing.visits import VisitBound, VisitCounts, migrated_visits

ROWS_A_DEVICE = 64
"""With ``keep_presence``, at most so many rows per device, on average, are buffered for open windows."""


MANY = 8
"""A batch of at least so many rows is added in one step where possible."""
WINDOWS_AT_ONCE = 16
"""A step closes at most so many windows, which takes tenths of a second; then the runner can do other work."""
FAULTY_FIELD = {"unknown_access_point": "access_point", "ahead": "time", "epoch": "time"}
"""Reason that rejects a row -> the field at fault; the other reasons only drop the row and count it."""

Out = OccupancyWindow | Stay | Rejected
ZonesPresent = Mapping[str, tuple[int, Micros]]
"""Who is present -> zone, and time of the last observation."""


class Window(NamedTuple):
    """An open window, to which rows are added."""

    tick: Micros
    low: Micros
    high: Micros
    """Rows with times in (low, high] are admitted."""
    pending: PendingWindow
    rows: dict[tuple[str, Micros], Entry] | None
    """(device, time) -> its last entry; None unless stays are kept."""


@dataclass(frozen=True, kw_only=True)
class OccupancyOperator:
    """The stage from observations and heartbeats of one site to its occupancy windows.

    Outputs: ``OccupancyWindow`` in the order of windows, none left out; ``Rejected`` for rows that broke a rule, in row
    order; with ``keep_presence`` also each ``Stay``, after the window that makes it final.
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
    """The site is suspended if it would store more devices; while it has no watermark, more entries (device and
    window); with ``keep_presence``, more than ``ROWS_A_DEVICE`` times as many rows."""
    source_timeout: Micros = 120 * SECOND
    ahead: Micros = 5 * MINUTE
    """A row whose time is further than this ahead of the watermark is rejected."""
    keep_presence: bool = False
    first_window: Micros | None = None
    """No window before this one is released; rows too old to affect it are dropped."""
    last_window: Micros | None = None
    """No window after this one is released; rows after it are dropped."""
    by_day: ContributionBound | None = None
    """The bound on counts per privacy day; None: no bound."""
    sessions: bool = False
    """Whether stays have ends of their own, which name the access point that a device leaves, and are cut at the start
    of a privacy day. Places are then access points instead of zones."""
    by_visits: VisitBound | None = None
    """The bound on visits per privacy day, only together with ``by_day``; None: visits are not counted."""
    others: bool = False
    """Where logins count (``by_day.logins``): whether devices without one count too."""
    places: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of the places in the state."""
    _zone_of_place: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _visit_counts: VisitCounts | None = field(init=False, repr=False, compare=False)
    _day_counts: BoundedCounts | None = field(init=False, repr=False, compare=False)
    _logins: Logins | None = field(init=False, repr=False, compare=False)
    _place_of: dict[str | None, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        index = {zone: i for i, zone in enumerate(self.zones)}
        place_of: dict[str | None, int] = {point: index[zone] for point, zone in self.access_points.items()}
        places, zone_of_place = self.zones, tuple(range(len(self.zones)))
        if self.sessions:
            places, zone_of_place = tuple(self.access_points), tuple(place_of.values())
            place_of = {point: i for i, point in enumerate(places)}
            place_of |= {LEFT + point: LEAVING - i for i, point in enumerate(places)}
        place_of[None] = END
        object.__setattr__(self, "_place_of", place_of)
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "_zone_of_place", zone_of_place)
        object.__setattr__(self, "_day_counts", None if self.by_day is None else BoundedCounts(self.by_day))
        object.__setattr__(self, "_visit_counts", None if self.by_visits is None else VisitCounts(self.by_visits))
        object.__setattr__(self, "_logins", self._login_stage())

    def _login_stage(self) -> Logins | None:
        """Return how logins are present; None if devices count."""
        if self.by_day is None or self._day_counts is None or self.by_day.logins is None:
            return None
        ignore = self.by_day.ignore_residents
        return Logins(
            self._day_counts.days, self._zone_of_place, self.validity, others=self.others, ignore_residents=ignore
        )  # fmt: skip

    def initial(self) -> SensingState:
        """Return the state of a site before its first message."""
        return SensingState(
            tally=None if self._day_counts is None else self._day_counts.initial(),
            visits=None if self._visit_counts is None else self._visit_counts.initial(),
            logins=None if self._logins is None else LoginState(),
        )

    def step(self, state: SensingState, item: Message) -> tuple[SensingState, list[Out]]:
        """Process one message; a batch yields rejections only, windows close on heartbeats."""
        return state, [each for part, _ in self.steps(state, item) for each in part]

    def steps(self, state: SensingState, item: Message) -> Iterator[tuple[list[Out], bool]]:
        """Process one message in steps of at most ``WINDOWS_AT_ONCE`` windows; the state changes in place.

        Yields the outputs of each step and whether it is the last. A heartbeat whose steps were not all run may be
        processed again from its beginning: it then closes the remaining windows.
        """
        fault = self._misdirected(item)
        if fault is not None or isinstance(item, CountedWindow):
            state.count_dropped(item, "input" if fault is None else fault.reason)
            yield [] if fault is None else [fault], True
        elif state.suspended:
            state.count_dropped(item, "site_shut")
            yield [], True
        elif isinstance(item, Heartbeat):
            if self._on_heartbeat(state, item):
                yield from self._close_due(state)
            else:
                yield [], True
        elif (refusal := watermark.admit(state.clock, item.source, item.session, item.sequence)) is not None:
            state.count_dropped(item, refusal)
            yield [], True
        else:
            yield self._observe(state, item), True

    def _observe(self, state: SensingState, batch: ObservationBatch) -> list[Out]:
        """Add each row of a batch to its window; suspend the site if it would store too many devices."""
        out: list[Out] = []
        dropped: Counter[str] = Counter()
        columns = Columns.of(batch.rows)
        places = [self._place_of.get(point, UNKNOWN) for point in columns.table]
        before = self._stored(state)
        if not self._file_at_once(state, batch, columns, places):
            for row, refusal in self._file_by_row(state, batch, columns, places):
                dropped[refusal] += 1
                if refusal in FAULTY_FIELD:
                    out.append(Rejected(batch.source, refusal, f"rows[{row}].{FAULTY_FIELD[refusal]}"))
        after, limit = self._stored(state), self.max_devices
        if any(now > max(limit, then) for then, now in zip(before, after, strict=True)):
            return self._suspend(state, batch)
        buffered = sum(map(len, state.rows.values())), 0 if state.logins is None else state.logins.waiting
        if max(buffered) > limit * ROWS_A_DEVICE:
            return self._suspend(state, batch)
        state.count(batch, dropped)
        return out

    # --- admission of messages and rows

    def _misdirected(self, item: Message) -> Rejected | None:
        if item.site != self.site:
            return Rejected(item.source, "wrong_site", "site")
        if isinstance(item, CountedWindow):
            return Rejected(item.source, "input", "kind")
        if item.source not in self.sources:
            return Rejected(item.source, "unknown_source", "source")
        if isinstance(item, ObservationBatch) and not self._is_epoch(item.epoch):
            return Rejected(item.source, "epoch", "epoch")
        if isinstance(item, ObservationBatch) and item.identity != (self.by_day and self.by_day.logins):
            return Rejected(item.source, "epoch", "identity")
        return None

    def _is_epoch(self, epoch: PrivacyDay | None) -> bool:
        """Whether the site counts by the pseudonyms of this epoch.

        With a connector of another policy, or with other time zone data, a device would have two pseudonyms per day.
        """
        if epoch is None or self._day_counts is None:
            return epoch is None and self._day_counts is None
        return self._day_counts.days.at(epoch.end) == epoch

    def _refusal(self, state: SensingState, time: Micros, epoch: PrivacyDay | None) -> str | None:
        """Return the reason for dropping a row of this time, or None; ``epoch`` is that of its batch."""
        if epoch is not None and not epoch.start < time <= epoch.end:
            return "epoch"
        if state.closed is not None and time <= state.closed:
            return "late"
        if self.first_window is not None and time <= self.first_window - self.validity:
            return "before_first"
        if self.last_window is not None and time > self.last_window:
            return "after_last"
        if state.clock.watermark is not None and time > state.clock.watermark + self.ahead:
            return "ahead"
        return None

    def _window_of(self, state: SensingState, time: Micros) -> Window:
        """Return the window of ``time``, its range cut to the admitted times, with its buffered rows."""
        tick = self._grid(time)
        low, high = tick - self.tick_length, tick
        if self.first_window is not None:
            low = max(low, self.first_window - self.validity)
        if self.last_window is not None:
            high = min(high, self.last_window)
        if state.clock.watermark is not None:
            high = min(high, state.clock.watermark + self.ahead)
        rows = state.rows.setdefault(tick, {}) if self.keep_presence else None
        if tick not in state.pending:
            state.pending[tick] = PendingWindow(low)
        return Window(tick, low, high, state.pending[tick], rows)

    def _grid(self, time: Micros) -> Micros:
        """Return the tick of the window that contains an instant."""
        return -(-time // self.tick_length) * self.tick_length

    # --- rows to windows

    def _stored(self, state: SensingState) -> tuple[int, int]:
        """Return the number of known devices and, while no watermark bounds their times, of buffered entries."""
        waiting = 0 if state.clock.watermark is not None else sum(map(len, state.pending.values()))
        return len(state.known_devices), waiting

    def _file_at_once(
        self, state: SensingState, batch: ObservationBatch, columns: Columns, places: Sequence[int]
    ) -> bool:  # fmt: skip
        """Add a batch whose rows are all admitted, ordered by time and of one window; return whether it is such a
        batch.

        Nearly all batches are of this kind. For them no Python code runs per row.
        """
        times = columns.times
        if len(times) < MANY or self.keep_presence or min(places) <= UNKNOWN or sorted(times) != list(times):
            return False
        if self._logins is not None:
            return False
        first, last = times[0], times[-1]
        if any(self._refusal(state, time, batch.epoch) for time in (first, last)):
            return False
        window = self._window_of(state, last)
        if first <= window.low:
            return False
        stamp = (batch.source, batch.session, batch.sequence)
        run = TickRun(stamp, columns.devices, [*map(places.__getitem__, columns.places)], times)
        if first > window.pending.latest and state.clock.watermark is not None:
            window.pending.append(run)
        else:
            window.pending.merge(run)
        state.known_devices.update(columns.devices)
        self._note_latest(window, last)
        return True

    def _file_by_row(
        self, state: SensingState, batch: ObservationBatch, columns: Columns, places: Sequence[int]
    ) -> Iterator[tuple[int, str]]:
        """Add the admitted rows one by one; yield each row that is dropped, with the reason.

        The window is looked up again only if a tick separates two neighbouring rows.
        """
        stamp, known = (batch.source, batch.session, batch.sequence), state.known_devices
        window, entries = Window(0, 0, 0, PendingWindow(0), None), dict[str, Entry]()
        latest = max(columns.times, default=0)
        for row, (device, point, time) in enumerate(zip(columns.devices, columns.places, columns.times, strict=True)):
            place = places[point]
            if place == UNKNOWN or not window.low < time <= window.high:
                refusal = "unknown_access_point" if place == UNKNOWN else self._refusal(state, time, batch.epoch)
                if refusal is not None:
                    yield row, refusal
                    continue
                window = self._window_of(state, time)
                entries = window.pending.entries
                self._note_latest(window, latest)
            entry = (time, stamp, row, place)
            last = entries.get(device)
            if self._logins is not None and state.logins is not None:
                known.add(self._logins.file(state.logins, window.tick, entry, device, columns.login(row)))
            elif place <= LEAVING:
                known.add(device)
                window.pending.leave(device, LEAVING - place, entry)
            elif last is None or last < entry:
                known.add(device)
                entries[device] = entry
            if window.rows is not None and window.rows.get((device, time), entry) <= entry:
                window.rows[device, time] = entry

    def _note_latest(self, window: Window, time: Micros) -> None:
        window.pending.latest = min(window.tick, max(time, window.pending.latest))

    # --- windows to counts

    def _suspend(self, state: SensingState, batch: ObservationBatch) -> list[Out]:
        """Suspend the site on a batch that exceeds ``max_devices``; its clock stays, so that it can be resumed."""
        state.suspended = True
        self._suspend_bounded_counts(state)
        state.remove_devices()
        state.count_dropped(batch, "site_shut")
        return [Rejected(batch.source, "site_shut", "site")]

    def resume(self, state: SensingState) -> SensingState:
        """Return the state of a suspended site that resumes; no source covers the missed windows."""
        state.suspended = False
        watermark.mark_data_loss(state.clock, self.sources)
        return state

    def _on_heartbeat(self, state: SensingState, beat: Heartbeat) -> bool:
        """Record a heartbeat; return whether the site has a watermark, so that windows may be due."""
        if not watermark.record_heartbeat(state.clock, beat):
            state.counters["stale_heartbeats"] += 1
            return False
        watermark.update_watermark(state.clock, self.sources, self.source_timeout)
        reached = state.clock.watermark
        if reached is not None and state.next_tick is None:
            begin = reached if self.first_window is None else max(reached, self.first_window)
            state.next_tick = self._grid(begin)
        return reached is not None

    def _close_due(self, state: SensingState) -> Iterator[tuple[list[Out], bool]]:
        """Close the windows that the watermark has passed; after each step the state is consistent."""
        due = self._due(state)
        while True:
            out: list[Out] = []
            for tick in due[:WINDOWS_AT_ONCE]:
                out.append(self._close(state, tick))
                if self.keep_presence:
                    out.extend(self._finish_stays(state, tick))
                state.next_tick = tick + self.tick_length
            if due:
                state.update_known_devices()
            due = due[WINDOWS_AT_ONCE:]
            yield out, not due
            if not due:
                return

    def _due(self, state: SensingState) -> range:
        """Return the ticks of the windows to close now."""
        if state.next_tick is None or state.clock.watermark is None:
            return range(0)
        end = state.clock.watermark - self.lateness
        if self.last_window is not None:
            end = min(end, self.last_window + 1)
        return range(state.next_tick, end, self.tick_length)

    def _close(self, state: SensingState, tick: Micros) -> OccupancyWindow:
        """Bring presence up to ``tick``, and count."""
        counts = [0] * len(self.zones)
        if self._logins is not None and state.logins is not None:
            for earlier in [t for t in state.pending if t <= tick]:
                del state.pending[earlier]
            everybody, present = self._logins.close(state.logins, tick)
            for zone, _ in everybody.values():
                counts[zone] += 1
        else:
            self._close_devices(state, tick, counts)
            present = self._present(state)
        day, bounded = self._count_by_day(state, tick, present)
        by_visits = self._count_visits(state, tick, present)
        state.closed = tick
        share = watermark.coverage(state.clock, self.sources, tick - self.tick_length, tick)
        watermark.remove_intervals(state.clock, tick)
        return OccupancyWindow(self.site, tick, tuple(counts), share, day, bounded, by_visits)

    def _close_devices(self, state: SensingState, tick: Micros, counts: list[int]) -> None:
        """Bring ``current`` up to ``tick``, remove expired presences, and add each device to the count of its zone."""
        current, zones = state.current, self._zone_of_place
        for earlier in sorted(t for t in state.pending if t <= tick):
            state.pending.pop(earlier).move_into(current)
        expired, oldest = [], self._oldest(tick)
        for device, (place, time) in current.items():
            if time > oldest:
                counts[zones[place]] += 1
            else:
                expired.append(device)
        for device in expired:
            del current[device]

    def _oldest(self, tick: Micros) -> Micros:
        """Return the time up to which no observation counts any more at a tick."""
        oldest = tick - self.validity
        if self.sessions and self._day_counts is not None:
            return max(oldest, self._day_counts.days.at(tick).start)
        return oldest

    def _count_by_day(
        self, state: SensingState, tick: Micros, present: ZonesPresent
    ) -> tuple[PrivacyDay | None, tuple[int, ...] | None]:
        """Return the privacy day of a tick and its bounded counts, by who is present at the tick."""
        tally = state.tally
        if tally is None or self._day_counts is None:
            if tally is not None and tally.is_over(tick):
                state.tally = None
            return None, None
        counts = self._day_counts.count(tally, tick, present, len(self.zones))
        return self._day_counts.days.at(tick), counts

    def _present(self, state: SensingState) -> ZonesPresent:
        """Return the zone of each present device, and the time of its last observation."""
        if not self.sessions:
            return state.current
        zones = self._zone_of_place
        return {device: (zones[place], time) for device, (place, time) in state.current.items()}

    def _count_visits(self, state: SensingState, tick: Micros, present: ZonesPresent) -> LevelCounts | None:
        """Return the counts by visits of a tick, by who is present at the tick."""
        if state.visits is None or self._visit_counts is None:
            if state.visits is not None and state.visits.is_over(tick):
                state.visits = None
            return None
        return self._visit_counts.count(state.visits, tick, present)

    def mark_data_loss(self, state: SensingState) -> SensingState:
        """Return the state after a loss in the log: no source covers any time before its next heartbeat."""
        watermark.mark_data_loss(state.clock, self.sources)
        self._suspend_bounded_counts(state)
        return state

    def _suspend_bounded_counts(self, state: SensingState) -> None:
        """Suspend bounded counts until the next privacy day: the counters of this one are incomplete."""
        if self._day_counts is not None and state.tally is not None:
            self._day_counts.suspend(state.tally, state.next_tick)
        if self._visit_counts is not None and state.visits is not None:
            self._visit_counts.suspend(state.visits, state.next_tick)

    def resume_after_absence(self, state: SensingState) -> SensingState:
        """Return the state of a site that was absent from the policy; the windows of that time are not closed."""
        state.next_tick = None
        return state

    def rebase_ticks(self, state: SensingState) -> SensingState:
        """Return a state made under another tick length: its next window and its buffered entries are moved to this
        grid.

        If several entries of a device now fall into one window, the last one is kept, for any order of arrival.
        """
        if state.next_tick is not None:
            state.next_tick = self._grid(state.next_tick)
        filed, state.pending = state.pending, {}
        for waiting in filed.values():
            for device, entry in waiting.entries.items():
                tick = self._grid(entry[0])
                window = state.pending.setdefault(tick, PendingWindow(tick)).entries
                window[device] = max(entry, window.get(device, entry))
            for (device, place), entry in waiting.departures.items():
                tick = self._grid(entry[0])
                state.pending.setdefault(tick, PendingWindow(tick)).leave(device, place, entry)
        if state.logins is not None:
            state.logins.rebase(self.tick_length)
        return state

    def _finish_stays(self, state: SensingState, until: Micros | None) -> list[Stay]:
        """Return the stays that no observation after ``until`` (None: no observation) can prolong, by end."""
        found = presence.extend(state.open_stays, self._sightings(state, until), self.validity)
        found += presence.expire(state.open_stays, self.validity, until)
        if self.sessions:
            found = [stay._replace(zone=self._zone_named(stay.zone), end=self._cut(stay)) for stay in found]
        found.sort(key=lambda stay: (stay.end, stay.start, stay.device))
        return [Stay(self.site, *stay) for stay in found]

    def _zone_named(self, place: str) -> str:
        """Return the zone of a place; of one that the site no longer has, the place itself."""
        return self.access_points.get(place, place)

    def _cut(self, stay: presence.FinishedStay) -> Micros:
        """Return the end of a stay, at the latest that of its privacy day."""
        return stay.end if self._day_counts is None else min(stay.end, self._day_counts.days.at(stay.start).end)

    def _sightings(self, state: SensingState, until: Micros | None) -> dict[tuple[str, Micros], presence.Seen]:
        """Remove the stored rows of the windows up to ``until`` (None: all) from the state and return them."""
        sightings: dict[tuple[str, Micros], presence.Seen] = {}
        for window in [t for t in state.rows if until is None or t <= until]:
            for key, (_, _, _, place) in state.rows.pop(window).items():
                sightings[key] = (
                    self.places[place] if place >= 0
                    else None if place == END else presence.Departure(self.places[LEAVING - place])
                )  # fmt: skip
        return sightings

    def remaining_stays(self, state: SensingState) -> list[Stay]:
        """Return, at the end of a finished log, the stays not yet output; the state must not be used afterwards."""
        return self._finish_stays(state, None)

    def encode(self, state: SensingState) -> bytes:
        """Return the stable byte form: JSON in one fixed order, independent of the order of arrival."""
        return sense_state.encode(state, self.places)

    def decode(self, data: bytes) -> SensingState:
        """Return the state whose byte form is ``data``; ``DataError`` when it is not one.

        Places are identified by name: if the registry has changed, devices at removed places are dropped; if presence
        changes between events and sessions, all devices are. The counters of the privacy day continue if their
        definition is the same. If pseudonyms now change at other times, buffered
        observations further ahead than this site admits are dropped, so that none under an earlier pseudonym arrives
        after counting has resumed.
        """
        state = sense_state.decode(data, self.places)
        reach = None if state.clock.watermark is None else state.clock.watermark + self.ahead
        renamed = changes_pseudonyms(state.tally, self.by_day)
        logins = None if state.tally is None or state.tally.definition is None else state.tally.definition.logins
        if renamed:
            state.remove_after(reach)
        state.tally = migrated_counter(state.tally, self.by_day, reach)
        state.visits = migrated_visits(state.visits, self.by_visits, reach if renamed else None)
        self._migrate_logins(state, changed=logins != (self.by_day and self.by_day.logins))
        state.update_known_devices()
        return state

    def _migrate_logins(self, state: SensingState, *, changed: bool) -> None:
        """Forget who is present if others count from now on: logins, devices, or logins by other rules.

        The counters of the day wait for the next one all the same, since their definition has changed.
        """
        if changed:
            state.current, state.pending, state.logins = {}, {}, None
        if self._logins is not None and state.logins is None:
            state.logins = LoginState()


def _check(operator: OccupancyOperator) -> None:
    """Raise UsageError for a configuration that is inconsistent."""
    for name in ("tick_length", "validity", "source_timeout", "max_devices"):
        if getattr(operator, name) <= 0:
            raise UsageError(f"{name} must be positive, got {getattr(operator, name)}")
    for name in ("lateness", "ahead"):
        if getattr(operator, name) < 0:
            raise UsageError(f"{name} must not be negative, got {getattr(operator, name)}")
    if not operator.sources:
        raise UsageError("sources must name at least one source")
    if len(set(operator.zones)) != len(operator.zones):
        raise UsageError("zones must be distinct")
    if operator.by_visits is not None and operator.by_day is None:
        raise UsageError("by_visits must be given with by_day, which says when privacy days begin")
    for zone in operator.access_points.values():
        if zone not in operator.zones:
            raise UsageError(f"access_points must lie in the site's zones, got zone {zone!r}")
