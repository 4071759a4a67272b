"""The heat map as a stream: each window's released values in ten colours, by released values of earlier days.

What is usual of a place at a time is the mean and the deviation of what the same audience was given of it in the same
half hour of the week's same kind of day (weekday, weekend), up to the half hour before. Nothing else is read, no count
and no other epsilon, so a heat map costs nothing, its state is as public as its input, and who keeps the records can
colour them anew.

    n[s], Σ[s], Σ²[s]  windows of a half hour so far; sums of their values and of the squares, exact

Halved when a half hour has ``MOST`` windows, so that what is long ago counts less and less: Σ is rounded towards 0,
n and Σ² up, by which n Σ² stays at least (Σ)² and no deviation becomes imaginary.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stream.errors import DataError, UsageError
from stream.mechanisms.colours import Ints, Usual, colours, usual_of
from stream.mechanisms.filter_calendar import Slot
from stream.records import MINUTE, Micros

HALF_HOURS = 2 * 48
"""Of a weekday, then of a day of the weekend."""
MOST = 672
"""Windows of a half hour above which their sums are halved: 112 days of five minutes."""
LARGEST = 500_000
"""A value beyond it, on either side, counts as so large in what is usual: no place holds more, and sums fit 63 bits."""
_HEAD = struct.Struct("<4sIIiI")
_MAGIC = b"HEA1"
_NONE = -1


@dataclass(frozen=True, slots=True)
class Past:
    """Released values of earlier half hours, summed, and those of the one at hand; public."""

    counted: Ints
    """Shape [half hours]: n."""
    total: Ints
    """Shape [half hours, places]: Σ."""
    squares: Ints
    """Likewise Σ²."""
    half_hour: int
    """The one at hand; -1 before the first."""
    now: Ints
    """Its values so far, shape [windows, places]."""


class Shown(NamedTuple):
    """A window of the heat map."""

    colours: Ints
    """Shape [places], in 1 … 10."""
    usual: Usual
    """By which they are coloured."""


class Passed(NamedTuple):
    """A window that has passed."""

    slot: Slot
    values: Ints | None
    """As released, shape [places]; None: denied."""


@dataclass(frozen=True)
class HeatMap:
    """Colours of each window of some places, from the window on of whose half hour enough earlier ones are known."""

    places: int
    least: int
    """Windows of a half hour that must be known, in 2 … ``MOST`` / 2."""

    def __post_init__(self) -> None:
        if self.places < 1 or not 2 <= self.least <= MOST // 2:
            raise UsageError(
                f"a heat map must have 1 place and 2 to {MOST // 2} windows, got {self.places}, {self.least}"
            )

    def most_bytes(self, tick: Micros) -> int:
        """Return how long the byte form of a past is at most, with windows of this length."""
        at_hand = max(1, 30 * MINUTE // tick)
        return _HEAD.size + 8 * (HALF_HOURS + self.places * (2 * HALF_HOURS + at_hand))

    def initial(self) -> Past:
        """Return the past before the first window."""
        sums = np.zeros((2, HALF_HOURS, self.places), np.int64)
        return Past(np.zeros(HALF_HOURS, np.int64), sums[0], sums[1], _NONE, np.zeros((0, self.places), np.int64))

    def step(self, state: Past, item: Passed) -> tuple[Past, list[Shown | None]]:
        """Take a window; give its colours, None where it was denied or too few are known of its half hour."""
        half_hour = item.slot.half_hour + 48 * item.slot.weekend
        if half_hour != state.half_hour:
            state = _followed(state, half_hour)
        if item.values is None:
            return state, [None]
        bounded = np.clip(item.values, -LARGEST, LARGEST)
        after = Past(state.counted, state.total, state.squares, half_hour, np.vstack([state.now, bounded]))
        n = int(state.counted[half_hour])
        if n < self.least:
            return after, [None]
        usual = usual_of(n, state.total[half_hour], state.squares[half_hour])
        return after, [Shown(colours(item.values, usual), usual)]

    def encode(self, state: Past) -> bytes:
        """Return the stable byte form: windows by half hour, values at hand, then sums of half hours that have any."""
        head = _HEAD.pack(_MAGIC, self.places, self.least, state.half_hour, len(state.now))
        known = state.counted > 0
        parts = (state.counted, state.now, state.total[known], state.squares[known])
        return head + b"".join(part.astype("<i8").tobytes() for part in parts)

    def decode(self, data: bytes) -> Past:
        """Return the past of a byte form; DataError where it is not one of this stage."""
        if len(data) < _HEAD.size + 8 * HALF_HOURS or _HEAD.unpack_from(data)[:3] != (_MAGIC, self.places, self.least):
            raise DataError("heat map state: header does not fit the configuration")
        half_hour, held = _HEAD.unpack_from(data)[3:]
        if (len(data) - _HEAD.size) % 8 or not _NONE <= half_hour < HALF_HOURS:
            raise DataError("heat map state: must have whole numbers, and a half hour of the week")
        numbers = np.frombuffer(data[_HEAD.size :], "<i8").astype(np.int64)
        counted, rest = numbers[:HALF_HOURS], numbers[HALF_HOURS:]
        known = counted > 0
        if len(rest) != self.places * (held + 2 * int(known.sum())) or (counted < 0).any():
            raise DataError("heat map state: length does not fit the number of windows")
        rows = rest.reshape(-1, self.places)
        total, squares = np.zeros((2, HALF_HOURS, self.places), np.int64)
        total[known], squares[known] = np.split(rows[held:], 2)
        return Past(counted, total, squares, half_hour, rows[:held])


def _followed(state: Past, half_hour: int) -> Past:
    """Return the past when another half hour begins: that at hand is over, and its windows are known now."""
    empty = state.now[:0]
    if len(state.now) == 0:
        return Past(state.counted, state.total, state.squares, half_hour, empty)
    at, counted, total, squares = state.half_hour, state.counted.copy(), state.total.copy(), state.squares.copy()
    if counted[at] + len(state.now) > MOST:
        counted[at], squares[at] = (counted[at] + 1) // 2, (squares[at] + 1) // 2
        total[at] = np.sign(total[at]) * (np.abs(total[at]) // 2)
    counted[at] += len(state.now)
    total[at] += state.now.sum(axis=0)
    squares[at] += (state.now * state.now).sum(axis=0)
    return Past(counted, total, squares, half_hour, empty)
