"""Revisions of past windows: by hour (``HourRevision``), or by day (``DayRevision``).

All of it is post-processing of noisy values; there is no true count among it.

**By hour.** The windows of an hour are buffered for another hour, and then revised together. The state contains the
noisy values of the windows and the filters' rounded posterior before the first one. The posteriors in between are
recomputed when the hour is due, so a snapshot does not contain them. What the filter has learnt is the same before and
after, except for one window of a day.

**By day.** For each part of the zones the filter returns revised values of a past day, one part with each of the first
windows of the next day (``learning``). With the last part the day's values begin to be published, six windows at
a time (of a day of more than 288 windows, a 48th), so that no window causes much work. Where no further window comes,
everything is returned and published at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from stream.encryption import join_parts, split_parts
from stream.errors import DataError
from stream.mechanisms.base import RevisedDay, Values, WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.learning import FARTHEST, PARTS
from stream.mechanisms.filter.mechanism import DayRevisable, Revisable
from stream.mechanisms.filter.posterior import Posterior
from stream.mechanisms.filter.state import (
    FilterState,
    decode_rounded,
    encode_rounded,
    restarted_state,
    rounded,
    rounded_size,
)
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.records import HOUR, LONGEST_DAY, Micros


class Block(NamedTuple):
    """A span of windows."""

    end: Micros
    """End of its last window: its windows end after the block before, and no later than this."""
    due: Micros
    """The block is revised with the first window that ends at this time or later."""


def block_of_hour(end: Micros) -> Block:
    """Return the hour of a window. It is revised an hour later, when an hour of data follows each of its windows."""
    hour = -(-end // HOUR) * HOUR
    return Block(hour, hour + HOUR)


class Window(NamedTuple):
    """The stored part of a window."""

    end: Micros
    coverage: Fraction
    item: FilterItem
    """Its noisy values, shape [zones], and its position in the local week."""


_NOISY = "<i4"
_A_WINDOW = 64
"""Size of end, coverage and week position, in bytes."""


def window_of(end: Micros, coverage: Fraction, noisy: Ints, slot: WeekSlot) -> Window:
    """Return the stored part of a window."""
    return Window(end, coverage, FilterItem(np.clip(noisy, -FARTHEST, FARTHEST), slot))


class RevisionInput(NamedTuple):
    """A window that has been released or denied."""

    end: Micros
    window: Window | None
    """None where it was denied and has no noisy values."""
    before: Any
    """The mechanism's state before the window."""
    values: Values | None = None
    """The published values."""


class RevisedWindow(NamedTuple):
    """A window with improved values."""

    end: Micros
    coverage: Fraction
    values: Values
    at: Micros
    """End of the window with which it is published."""


@dataclass(frozen=True)
class BufferedWindows:
    """The windows not yet revised, in order, and the posterior of each filter before the first, if any."""

    start: tuple[Posterior | None, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class HourRevision:
    """Revises a mechanism's windows hour by hour; an operator of the stream."""

    mechanism: Revisable

    def initial(self) -> BufferedWindows:
        """Return the state before the first window."""
        return BufferedWindows((), ())

    def most_bytes(self, tick: Micros) -> int:
        """Return the largest size of the state in bytes, uncompressed, for windows of this length."""
        zones = sum(len(each.capacities) for each in self._filters)
        windows = 2 * HOUR // tick
        return windows * (4 * zones + _A_WINDOW) + sum(rounded_size(each.form) for each in self._filters)

    @property
    def _filters(self) -> list[RegimeFilter]:
        return [each.filter for each in self.mechanism.filters]

    def step(self, state: BufferedWindows, item: RevisionInput) -> tuple[BufferedWindows, list[RevisedWindow]]:
        """Buffer a window; revise the hours that are due with it, the earliest first."""
        now = self.mechanism.states(item.before)
        if item.window is not None:
            start = state.start if state.windows else tuple(rounded(each) for each in now)
            state = BufferedWindows(start, (*state.windows, item.window))
        made: list[RevisedWindow] = []
        while state.windows and block_of_hour(state.windows[0].end).due <= item.end:
            state, revised = self._first_hour(state, item.end, now)
            made += revised
        return state, made

    def finish(self, state: BufferedWindows, now: Any) -> list[RevisedWindow]:
        """Revise all buffered windows from what is known, where none follows; ``now`` is the mechanism's state."""
        made: list[RevisedWindow] = []
        while state.windows:
            state, revised = self._first_hour(state, state.windows[-1].end, self.mechanism.states(now))
            made += revised
        return made

    def _first_hour(
        self, state: BufferedWindows, at: Micros, now: tuple[FilterState, ...]
    ) -> tuple[BufferedWindows, list[RevisedWindow]]:
        last = block_of_hour(state.windows[0].end).end
        hour = tuple(takewhile(lambda window: window.end <= last, state.windows))
        initial = [each.initial() for each in self._filters]
        start = [restarted_state(*each) for each in zip(state.start, now, initial, strict=True)]
        after, values = self.mechanism.smooth(start, [window.item for window in state.windows], len(hour))
        rest = state.windows[len(hour) :]
        revised = [
            RevisedWindow(window.end, window.coverage, made, at) for window, made in zip(hour, values, strict=True)
        ]
        return BufferedWindows(tuple(rounded(each) for each in after) if rest else (), rest), revised

    def encode(self, state: BufferedWindows) -> bytes:
        """Return the stable byte form: end, coverage and week position of each window; noisy values; states."""
        windows = [[window.end, str(window.coverage), *window.item.slot] for window in state.windows]
        noisy = b"".join(window.item.noisy.astype(_NOISY).tobytes() for window in state.windows)
        states = {str(place): encode_rounded(each) for place, each in enumerate(state.start)}
        return join_parts({"windows": windows}, {"noisy": noisy} | states)

    def decode(self, data: bytes) -> BufferedWindows:
        """Return the state of a byte form; DataError where it is not one of this operator."""
        head, parts = split_parts(data)
        try:
            rows, noisy = head["windows"], np.frombuffer(parts["noisy"], dtype=_NOISY).astype(np.int64)
            if not rows:
                return self.initial()
            windows = tuple(
                Window(end, Fraction(coverage), FilterItem(values, WeekSlot(*slot)))
                for (end, coverage, *slot), values in zip(rows, noisy.reshape(len(rows), -1), strict=True)
            )
            start = [decode_rounded(each.form, parts[str(place)]) for place, each in enumerate(self._filters)]
        except (KeyError, TypeError, ValueError):
            raise DataError("revision state: must list windows, their noisy values and the state before them") from None
        return BufferedWindows(tuple(start), windows)


# By day.

_INTS = "<i4"
_WINDOW_BYTES = 64
"""Size of a window's end and coverage, in bytes."""


@dataclass(frozen=True)
class StoredDay:
    """A day's windows with values, and their revised values so far."""

    number: int
    ends: tuple[Micros, ...]
    coverages: tuple[Fraction, ...]
    revised: Ints | None = None
    """Medians and half-widths, shape [2, windows, nodes], 0 where not known yet; None before any is known."""
    is_complete: bool = False
    """Whether they are known for all nodes."""
    published: int = 0
    """Number of windows that have been published."""


Days = tuple[StoredDay, ...]
"""The earliest first."""


@dataclass(frozen=True)
class DayRevision:
    """Publishes revised values of a mechanism's days; an operator of the stream."""

    mechanism: DayRevisable

    def initial(self) -> Days:
        """Return the state before the first window."""
        return ()

    def most_bytes(self, tick: Micros) -> int:
        """Return the largest size of the state in bytes, uncompressed, for windows of this length."""
        return (LONGEST_DAY // tick) * (8 * self.mechanism.nodes + 2 * _WINDOW_BYTES)

    def step(self, state: Days, item: RevisionInput) -> tuple[Days, list[RevisedWindow]]:
        """Store the revised parts that a window brings, publish what is due with it, and buffer the window itself."""
        made: list[RevisedWindow] = []
        state = self._with_revisions(state, item.values.histories if item.values is not None else ())
        state = tuple(self._published(day, _at_a_time(day), item.end, made) for day in state)
        state = tuple(day for day in state if day.published < len(day.ends))
        return (state if item.window is None else _with_window(state, item.window)), made

    def finish(self, state: Days, now: Any) -> list[RevisedWindow]:
        """Publish all buffered days, where no further window comes; ``now`` is the mechanism's state."""
        made: list[RevisedWindow] = []
        for day in self._with_revisions(state, self.mechanism.rest(now)):
            self._published(day, len(day.ends), state[-1].ends[-1], made)
        return made

    def _with_revisions(self, state: Days, histories: Sequence[RevisedDay]) -> Days:
        """Return the days with these revised parts."""
        for history in histories:
            if history.day not in {day.number for day in state}:
                raise DataError("day history: must have every day that is revised")
            state = tuple(self._with(day, history) if day.number == history.day else day for day in state)
        return state

    def _with(self, day: StoredDay, history: RevisedDay) -> StoredDay:
        if len(history.median) != len(day.ends):
            raise DataError(
                f"day history: {len(day.ends)} windows of a day are stored, but {len(history.median)} are revised"
            )
        shape = 2, len(day.ends), self.mechanism.nodes
        revised = np.zeros(shape, np.int64) if day.revised is None else day.revised.copy()
        revised[:, :, history.zones] = history.median, history.half_width
        return replace(day, revised=revised, is_complete=history.is_last)

    def _published(self, day: StoredDay, windows: int, at: Micros, made: list[RevisedWindow]) -> StoredDay:
        """Publish the next windows of a day, once its values are complete."""
        if not day.is_complete or day.revised is None:
            return day
        until = min(day.published + windows, len(day.ends))
        for place in range(day.published, until):
            values = self.mechanism.values_of(*day.revised[:, place])
            made.append(RevisedWindow(day.ends[place], day.coverages[place], values, at))
        return replace(day, published=until)

    def encode(self, state: Days) -> bytes:
        """Return the stable byte form: of each day its windows' ends and coverages, and its revised values."""
        days = [
            [day.number, list(day.ends), [str(each) for each in day.coverages], day.is_complete, day.published]
            for day in state
        ]
        revised = {
            str(n): day.revised.astype(_INTS).tobytes() for n, day in enumerate(state) if day.revised is not None
        }
        return join_parts({"days": days}, revised)

    def decode(self, data: bytes) -> Days:
        """Return the state of a byte form; DataError where it is not one of this operator."""
        head, parts = split_parts(data)
        try:
            return tuple(self._day(row, parts.get(str(n))) for n, row in enumerate(head["days"]))
        except (KeyError, TypeError, ValueError):
            raise DataError("day history: must list days, their windows, and what is known of them") from None

    def _day(self, row: list[Any], revised: bytes | None) -> StoredDay:
        number, ends, coverages, is_complete, published = row
        known = None
        if revised is not None:
            known = np.frombuffer(revised, _INTS).astype(np.int64).reshape(2, len(ends), self.mechanism.nodes)
        return StoredDay(number, tuple(ends), tuple(map(Fraction, coverages)), known, is_complete, published)


def _at_a_time(day: StoredDay) -> int:
    return max(6, -(-len(day.ends) // PARTS))


def _with_window(state: Days, window: Window) -> Days:
    """Return the days with one more window, of the last day or of the next."""
    number = window.item.slot.day
    *before, day = state if state and state[-1].number == number else (*state, StoredDay(number, (), ()))
    return (*before, replace(day, ends=(*day.ends, window.end), coverages=(*day.coverages, window.coverage)))
