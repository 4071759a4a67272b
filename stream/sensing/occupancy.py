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
stop far above any real building. A site that would hold more than ``max_devices`` (where it bounds counts by the day:
of one privacy day) shuts: it forgets everybody,
takes nothing more and closes nothing more until it is reopened, and then nobody vouches for what was missed.

| symbol | name |
|--------|------------|
| tau    | tick       |
| V      | validity   |
| W      | watermark  |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from stream.columns import Columns
from stream.records import (
    CountedWindow,
    Heartbeat,
    Message,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    PrivacyDay,
    Rejected,
    Stay,
)
from stream.sensing import presence, sense_state, watermark
from stream.sensing.admission import ROWS_A_DEVICE, UNKNOWN
from stream.sensing.contribution import adopted
from stream.sensing.filing import Filing
from stream.sensing.sense_state import SenseState
from stream.sensing.waiting import END, Waiting

WINDOWS_AT_ONCE = 16
"""So many windows a step closes at most: tenths of a second, after which a runner may look around."""
FAULTY_FIELD = {"unknown_access_point": "access_point", "ahead": "time", "epoch": "time"}
"""Reasons that reject a row, with the field at fault; the other reasons only drop and count it."""

Out = OccupancyWindow | Stay | Rejected


@dataclass(frozen=True, kw_only=True)
class Sense(Filing):
    """The stage from observations and heartbeats of one site to its occupancy windows.

    Outputs: ``OccupancyWindow`` in the order of windows, none left out; ``Rejected`` for rows that broke a
    rule, in row order; with ``keep_presence`` also each ``Stay`` once it is final, after the window that
    made it final.
    """

    def initial(self) -> SenseState:
        """Return the state of a site of which nothing has been heard."""
        return SenseState(tally=None if self._day_counts is None else self._day_counts.initial())

    def step(self, state: SenseState, item: Message) -> tuple[SenseState, list[Out]]:
        """Take one item; a batch yields rejections only, windows close on heartbeats."""
        return state, [each for part, _ in self.steps(state, item) for each in part]

    def steps(self, state: SenseState, item: Message) -> Iterator[tuple[list[Out], bool]]:
        """Take one item into the state, which changes in place, in steps of at most ``WINDOWS_AT_ONCE`` windows.

        Yields what each step gives and whether it is the last. A heartbeat that was not taken to its end may
        be taken again from its beginning: it then closes the windows that are left.
        """
        fault = self._misdirected(item)
        if fault is not None or isinstance(item, CountedWindow):
            state.count_dropped(item, "input" if fault is None else fault.reason)
            yield [] if fault is None else [fault], True
        elif state.shut:
            state.count_dropped(item, "site_shut")
            yield [], True
        elif isinstance(item, Heartbeat):
            if self._take_heartbeat(state, item):
                yield from self._close_due(state)
            else:
                yield [], True
        elif (refusal := watermark.admit(state.clock, item.source, item.session, item.sequence)) is not None:
            state.count_dropped(item, refusal)
            yield [], True
        else:
            yield self._observe(state, item), True

    def _observe(self, state: SenseState, batch: ObservationBatch) -> list[Out]:
        """File each row under its window; of a device and window only the last entry is kept."""
        out: list[Out] = []
        dropped: Counter[str] = Counter()
        columns = Columns.of(batch.rows)
        zones = [self._zone_of.get(point, UNKNOWN) for point in columns.table]
        before = self._held(state)
        if not self._file_at_once(state, batch, columns, zones):
            for row, refusal in self._file_by_row(state, batch, columns, zones):
                dropped[refusal] += 1
                if refusal in FAULTY_FIELD:
                    out.append(Rejected(batch.source, refusal, f"rows[{row}].{FAULTY_FIELD[refusal]}"))
        after, limit = self._held(state), self.max_devices
        if any(now > max(limit, then) for then, now in zip(before, after, strict=True)):
            return self._shut(state, batch)
        if sum(map(len, state.rows.values())) > limit * ROWS_A_DEVICE:
            return self._shut(state, batch)
        state.count(batch, dropped)
        return out

    def _shut(self, state: SenseState, batch: ObservationBatch) -> list[Out]:
        """Shut the site on a batch that it cannot hold; its clock stays, so that it can be reopened."""
        state.shut = True
        self._break_off_counting(state)
        state.forget_devices()
        state.count_dropped(batch, "site_shut")
        return [Rejected(batch.source, "site_shut", "site")]

    def reopen(self, state: SenseState) -> SenseState:
        """Return the state of a shut site that goes on; no source vouches for what it missed."""
        state.shut = False
        watermark.lose(state.clock, self.sources)
        return state

    def _take_heartbeat(self, state: SenseState, beat: Heartbeat) -> bool:
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
            state.pending.pop(earlier).move_into(current)
        counts = [0] * len(self.zones)
        expired = []
        for device, (zone, time) in current.items():
            if tick < time + self.validity:
                counts[zone] += 1
            else:
                expired.append(device)
        for device in expired:
            del current[device]
        day, bounded = self._count_by_day(state, tick)
        state.note_known()
        state.closed = tick
        share = watermark.coverage(state.clock, self.sources, tick - self.tick_length, tick)
        watermark.forget_listened(state.clock, tick)
        return OccupancyWindow(self.site, tick, tuple(counts), share, day, bounded)

    def _count_by_day(self, state: SenseState, tick: Micros) -> tuple[PrivacyDay | None, tuple[int, ...] | None]:
        """Return the privacy day of a tick and its bounded counts, by what is current then."""
        tally = state.tally
        if tally is None or self._day_counts is None:
            if tally is not None and tally.is_over(tick):
                state.tally = None
            return None, None
        return self._day_counts.days.at(tick), self._day_counts.count(tally, tick, state.current, len(self.zones))

    def lose(self, state: SenseState) -> SenseState:
        """Return the state after a loss in the log: no source vouches for anything before its next heartbeat."""
        watermark.lose(state.clock, self.sources)
        self._break_off_counting(state)
        return state

    def _break_off_counting(self, state: SenseState) -> None:
        """Bound nothing until the next privacy day: the counters of this one have not seen all of it."""
        if self._day_counts is not None and state.tally is not None:
            self._day_counts.break_off(state.tally, state.next_tick)

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
        filed, state.pending = state.pending, {}
        for waiting in filed.values():
            for device, entry in waiting.entries.items():
                tick = self._grid(entry[0])
                window = state.pending.setdefault(tick, Waiting(tick)).entries
                window[device] = max(entry, window.get(device, entry))
        return state

    def _finish_stays(self, state: SenseState, until: Micros | None) -> list[Stay]:
        """Return the stays that nothing after ``until`` (None: nothing at all) can prolong, by end."""
        found = presence.extend(state.stays_open, self._sightings(state, until), self.validity)
        found += presence.expire(state.stays_open, self.validity, until)
        found.sort(key=lambda stay: (stay.end, stay.start, stay.device))
        return [Stay(self.site, *stay) for stay in found]

    def _sightings(self, state: SenseState, until: Micros | None) -> dict[tuple[str, Micros], str | None]:
        """Take the kept rows of the windows up to ``until`` (None: all) out of the state."""
        sightings: dict[tuple[str, Micros], str | None] = {}
        for window in [t for t in state.rows if until is None or t <= until]:
            for key, (_, _, _, zone) in state.rows.pop(window).items():
                sightings[key] = None if zone == END else self.zones[zone]
        return sightings

    def remaining_stays(self, state: SenseState) -> list[Stay]:
        """Return, at the end of a finished log, the stays not yet put out; uses the state up."""
        return self._finish_stays(state, None)

    def encode(self, state: SenseState) -> bytes:
        """Return the stable byte form: JSON in one fixed order, whatever order things arrived in."""
        return sense_state.encode(state, self.zones)

    def decode(self, data: bytes) -> SenseState:
        """Return the state whose byte form is ``data``; ``DataError`` when it is not one.

        Zones are known by name: where the registry has changed, devices in zones that are gone are let go. Counters of
        the privacy day go on where they have the same definition.
        """
        state = sense_state.decode(data, self.zones)
        state.tally = adopted(state.tally, self.by_day, state.latest())
        state.note_known()
        return state
