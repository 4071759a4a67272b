"""How the rows of a batch are filed under their windows: the one place that sees every observation of a site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream.columns import Columns
from stream.records import Micros, ObservationBatch
from stream.sensing.admission import UNKNOWN, Admission, Window
from stream.sensing.sense_state import SenseState
from stream.sensing.waiting import Entry, Run, Waiting

MANY = 8
"""Rows from which on a batch is filed at once."""


@dataclass(frozen=True, kw_only=True)
class Filing(Admission):
    """Of a device and window only the last entry is kept, in whatever order they come."""

    def _held(self, state: SenseState) -> tuple[int, int]:
        """Return how many devices are known, and how many entries wait while no watermark bounds their time."""
        waiting = 0 if state.clock.watermark is not None else sum(map(len, state.pending.values()))
        return len(state.known), waiting

    def _file_at_once(
        self, state: SenseState, batch: ObservationBatch, columns: Columns, zones: Sequence[int]
    ) -> bool:  # fmt: skip
        """File a batch of which every row counts, in order of time and in one window; return whether it was one.

        Nearly all are; no Python is run for each of their rows.
        """
        times = columns.times
        if len(times) < MANY or self.keep_presence or UNKNOWN in zones or sorted(times) != list(times):
            return False
        first, last = times[0], times[-1]
        if any(self._refusal(state, time, batch.epoch) for time in (first, last)):
            return False
        window = self._window_of(state, last)
        if first <= window.low:
            return False
        stamp = (batch.source, batch.session, batch.sequence)
        run = Run(stamp, columns.devices, [*map(zones.__getitem__, columns.places)], times)
        if first > window.waiting.latest and state.clock.watermark is not None:
            window.waiting.append(run)
        else:
            window.waiting.merge(run)
        state.known.update(columns.devices)
        self._note_latest(window, last)
        return True

    def _file_by_row(
        self, state: SenseState, batch: ObservationBatch, columns: Columns, zones: Sequence[int]
    ) -> Iterator[tuple[int, str]]:
        """File what counts, row by row; yield each row that is dropped, and why.

        The window at hand is kept from row to row: it changes only where neighbours lie on two sides of a tick.
        """
        stamp, known = (batch.source, batch.session, batch.sequence), state.known
        window, entries = Window(0, 0, 0, Waiting(0), None), dict[str, Entry]()
        latest = max(columns.times, default=0)
        for row, (device, place, time) in enumerate(zip(columns.devices, columns.places, columns.times, strict=True)):
            zone = zones[place]
            if zone == UNKNOWN or not window.low < time <= window.high:
                refusal = "unknown_access_point" if zone == UNKNOWN else self._refusal(state, time, batch.epoch)
                if refusal is not None:
                    yield row, refusal
                    continue
                window = self._window_of(state, time)
                entries = window.waiting.entries
                self._note_latest(window, latest)
            entry = (time, stamp, row, zone)
            held = entries.get(device)
            if held is None or held < entry:
                known.add(device)
                entries[device] = entry
            if window.rows is not None and window.rows.get((device, time), entry) <= entry:
                window.rows[device, time] = entry

    def _note_latest(self, window: Window, time: Micros) -> None:
        window.waiting.latest = min(window.tick, max(time, window.waiting.latest))
