"""Thresholds on noisy counts that were released anyway: a function of these, of clock and schedule, and so free."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stream.errors import DataError
from stream.mechanisms.sparse_vector import UNBOOKED
from stream.records import Micros

_MAGIC = b"ALM1"


@dataclass(slots=True)
class Alarms:
    """Where each node stands; made of released values alone."""

    above: list[int]
    """1 while an alert lasts."""
    waits: list[Micros]
    """Nothing is asked before this instant."""


class Noisy(NamedTuple):
    """One window: noisy counts of the nodes, its end, and which nodes are asked by the schedule."""

    counts: Sequence[int]
    end: Micros
    booked: tuple[bool, ...]


class Said(NamedTuple):
    """What is told of one window: an answer a node, None where it has none, and why."""

    above: tuple[bool | None, ...]
    denied: dict[int, str]


@dataclass(frozen=True)
class NoisyAlarm:
    """A threshold at each of several nodes."""

    thresholds: tuple[int, ...]
    above: bool
    """Whether a count above its threshold is the event, or one below it."""
    shifts: tuple[int, ...]
    """By how much each node is alerted of early, so that an event is missed rarely."""
    cooldown: Micros
    """For so long nothing is asked after an alert began or ended."""
    hysteresis: int | None
    """An alert ends when a noisy count is so far on the other side; None: with its cool-down."""

    def initial(self) -> Alarms:
        """Return the state before the first window."""
        return Alarms([0] * len(self.thresholds), [0] * len(self.thresholds))

    def step(self, state: Alarms, item: Noisy | None) -> tuple[Alarms, list[Said | None]]:
        """Decide on a window; nothing is told, and nothing changes, where it was denied (None)."""
        if item is None:
            return state, [None]
        denied = {place: UNBOOKED for place, booked in enumerate(item.booked) if not booked}
        for place, count in enumerate(item.counts):
            if place in denied:
                state.above[place] = 0
            elif item.end >= state.waits[place]:
                self._ask(state, place, count, item.end)
        return state, [Said(tuple(None if p in denied else bool(a) for p, a in enumerate(state.above)), denied)]

    def _ask(self, state: Alarms, place: int, count: int, end: Micros) -> None:
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
        """Return the state of a byte form; DataError where it is of another number of nodes."""
        n = len(self.thresholds)
        if len(data) != len(_MAGIC) + 16 * n or not data.startswith(_MAGIC):
            raise DataError("threshold state: must be of the same nodes")
        numbers = struct.unpack_from(f"<{2 * n}q", data, len(_MAGIC))
        return Alarms([*numbers[:n]], [*numbers[n:]])
