"""A day's windows once more, when the day is over: gathered part by part as the filter learns on them at night.

The filter tells of each part of the zones what they were on a day that is over, a part with each of the first windows
of the next day (``nightly``). With the last of these the day's values begin to be published, six windows of it at a
time (of a day of more than 288, a 48th), so that no window has much to do. Where no window comes any more, all is told
and published at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from stream.envelope import join_parts, split_parts
from stream.errors import DataError
from stream.mechanisms.blocks import Passed, Revised, Window
from stream.mechanisms.contract import Revisable
from stream.mechanisms.nightly import PARTS, History
from stream.mechanisms.noise import Ints
from stream.records import HOUR, Micros

_INTS = "<i4"
_A_WINDOW = 64
"""Bytes that end and coverage take."""


@dataclass(frozen=True)
class HeldDay:
    """A day's windows with values, and what is known of them."""

    number: int
    ends: tuple[Micros, ...]
    coverages: tuple[Fraction, ...]
    told: Ints | None = None
    """Medians and half-widths, shape [2, windows, nodes], 0 where they are not known yet; None before any is."""
    is_told: bool = False
    """Whether they are known of all nodes."""
    published: int = 0
    """How many windows have been published."""


Days = tuple[HeldDay, ...]
"""The earliest first."""


@dataclass(frozen=True)
class DayHistory:
    """Publishes a mechanism's days once more, a stage of the stream."""

    mechanism: Revisable

    def initial(self) -> Days:
        """Return the state before the first window."""
        return ()

    def most_bytes(self, tick: Micros) -> int:
        """Return what is held at most between windows that are so far apart, before it is compressed."""
        return (25 * HOUR // tick) * (8 * self._nodes + 2 * _A_WINDOW)

    @property
    def _nodes(self) -> int:
        return sum(len(each.filter.capacities) for each in self.mechanism.nightly)

    def step(self, state: Days, item: Passed) -> tuple[Days, list[Revised]]:
        """Take up what is told with a window, publish what is due with it, and hold the window itself."""
        made: list[Revised] = []
        state = self._told(state, item.values.histories if item.values is not None else ())
        state = tuple(self._published(day, _at_a_time(day), item.end, made) for day in state)
        state = tuple(day for day in state if day.published < len(day.ends))
        return (state if item.window is None else _with_window(state, item.window)), made

    def finish(self, state: Days, now: Any) -> list[Revised]:
        """Publish all that is held, where no window comes any more; ``now`` is the mechanism's state."""
        made: list[Revised] = []
        for day in self._told(state, self.mechanism.rest(now)):
            self._published(day, len(day.ends), state[-1].ends[-1], made)
        return made

    def _told(self, state: Days, histories: Sequence[History]) -> Days:
        """Return the days with what is known of them."""
        for history in histories:
            if history.day not in {day.number for day in state}:
                raise DataError("day history: a day must be held that something is told of")
            state = tuple(self._with(day, history) if day.number == history.day else day for day in state)
        return state

    def _with(self, day: HeldDay, history: History) -> HeldDay:
        if len(history.median) != len(day.ends):
            raise DataError(f"day history: {len(day.ends)} windows are held of a day, {len(history.median)} told of")
        told = np.zeros((2, len(day.ends), self._nodes), np.int64) if day.told is None else day.told.copy()
        told[:, :, history.zones] = history.median, history.half_width
        return replace(day, told=told, is_told=history.is_last)

    def _published(self, day: HeldDay, windows: int, at: Micros, made: list[Revised]) -> HeldDay:
        """Publish the next windows of a day, where all is told of it."""
        if not day.is_told or day.told is None:
            return day
        until = min(day.published + windows, len(day.ends))
        for place in range(day.published, until):
            values = self.mechanism.values_of(*day.told[:, place])
            made.append(Revised(day.ends[place], day.coverages[place], values, at))
        return replace(day, published=until)

    def encode(self, state: Days) -> bytes:
        """Return the stable byte form: of each day its windows' ends and coverages, and what is known."""
        days = [
            [day.number, list(day.ends), [str(each) for each in day.coverages], day.is_told, day.published]
            for day in state
        ]
        told = {str(n): day.told.astype(_INTS).tobytes() for n, day in enumerate(state) if day.told is not None}
        return join_parts({"days": days}, told)

    def decode(self, data: bytes) -> Days:
        """Return the state of a byte form; DataError where it is not one of this stage."""
        head, parts = split_parts(data)
        try:
            return tuple(self._day(row, parts.get(str(n))) for n, row in enumerate(head["days"]))
        except (KeyError, TypeError, ValueError):
            raise DataError("day history: must list days, their windows, and what is known of them") from None

    def _day(self, row: list[Any], told: bytes | None) -> HeldDay:
        number, ends, coverages, is_told, published = row
        known = None
        if told is not None:
            known = np.frombuffer(told, _INTS).astype(np.int64).reshape(2, len(ends), self._nodes)
        return HeldDay(number, tuple(ends), tuple(map(Fraction, coverages)), known, is_told, published)


def _at_a_time(day: HeldDay) -> int:
    return max(6, -(-len(day.ends) // PARTS))


def _with_window(state: Days, window: Window) -> Days:
    """Return the days with one more window of the last of them, or of the next."""
    number = window.item.slot.day
    *before, day = state if state and state[-1].number == number else (*state, HeldDay(number, (), ()))
    return (*before, replace(day, ends=(*day.ends, window.end), coverages=(*day.coverages, window.coverage)))
