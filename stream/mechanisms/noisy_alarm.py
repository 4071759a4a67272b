"""Alarms on noisy counts that were released anyway: thresholds that cost nothing.

The answers are a function of released counts, of the clock and of the schedule.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stream.domains import Magic
from stream.errors import DataError
from stream.mechanisms.sparse_vector import UNBOOKED
from stream.records import Micros

_MAGIC = Magic.ALARM


@dataclass(slots=True)
class Alarms:
    """The state of each node; computed from released values alone."""

    above: list[int]
    """1 while an alert lasts."""
    waits: list[Micros]
    """Nothing is queried before this instant."""


class Noisy(NamedTuple):
    """One window: noisy counts of the nodes, its end, and which nodes the schedule queries."""

    counts: Sequence[int]
    end: Micros
    scheduled: tuple[bool, ...]


class AlarmOutput(NamedTuple):
    """The published answers for one window: one per node, None where it has none, and the reasons."""

    above: tuple[bool | None, ...]
    denied: dict[int, str]


@dataclass(frozen=True)
class NoisyAlarm:
    """A threshold at each of several nodes."""

    thresholds: tuple[int, ...]
    above: bool
    """Whether a count above its threshold is the event, or one below it."""
    shifts: tuple[int, ...]
    """For each node, the number of devices by which alerts come early, so that an event is rarely missed."""
    cooldown: Micros
    """Time after the begin or end of an alert during which nothing is queried."""
    hysteresis: int | None
    """An alert ends when a noisy count is this far on the other side; None: with its cool-down."""

    def initial(self) -> Alarms:
        """Return the state before the first window."""
        return Alarms([0] * len(self.thresholds), [0] * len(self.thresholds))

    def step(self, state: Alarms, item: Noisy | None) -> tuple[Alarms, list[AlarmOutput | None]]:
        """Decide on a window; a denied window (None) has no answer and changes nothing."""
        if item is None:
            return state, [None]
        denied = {place: UNBOOKED for place, booked in enumerate(item.scheduled) if not booked}
        for place, count in enumerate(item.counts):
            if place in denied:
                state.above[place] = 0
            elif item.end >= state.waits[place]:
                self._query(state, place, count, item.end)
        return state, [AlarmOutput(tuple(None if p in denied else bool(a) for p, a in enumerate(state.above)), denied)]

    def _query(self, state: Alarms, place: int, count: int, end: Micros) -> None:
        beyond = count - self.thresholds[place] if self.above else self.thresholds[place] - count
        if state.above[place] and self.hysteresis is None:
            state.above[place] = 0
        crossed = -beyond >= (self.hysteresis or 0) if state.above[place] else beyond - 1 + self.shifts[place] >= 0
        if crossed:
            state.above[place], state.waits[place] = 1 - state.above[place], end + self.cooldown

    def encode(self, state: Alarms) -> bytes:
        """Return the stable byte form."""
        n = len(self.thresholds)
        return _MAGIC + struct.pack(f"<{2 * n}q", *state.above, *state.waits)

    def decode(self, data: bytes) -> Alarms:
        """Return the state of a byte form; DataError where it has another number of nodes."""
        n = len(self.thresholds)
        if len(data) != len(_MAGIC) + 16 * n or not data.startswith(_MAGIC):
            raise DataError("threshold state: must be of the same nodes")
        numbers = struct.unpack_from(f"<{2 * n}q", data, len(_MAGIC))
        return Alarms([*numbers[:n]], [*numbers[n:]])
