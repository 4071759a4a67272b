"""The heat map: released values in ten colours, relative to earlier days.

The usual count of a place at a time is the mean, with a deviation, of the values that the same audience received for
the same half hour of the same kind of day (weekday, weekend), up to the previous half hour. The heat map reads nothing
else, no count and no other epsilon, so it costs nothing. Its state is as public as its input; a reader who stores the
records can compute the colours again.

    n[s], Σ[s], Σ²[s]  number of windows of a half hour so far; exact sums of their values and of the squares

These are halved when a half hour reaches ``MOST`` windows, so that old values count less and less: Σ is rounded towards
0, n and Σ² up, so that n Σ² stays at least (Σ)² and no deviation becomes imaginary.

Colours of a count:

    symbol   here         meaning
    y        values       a count, true or released
    μ        mean         the usual count of the place at that time
    σ        deviation    how far counts of earlier days lie from it
    c_1…c_10 1 … 10       colours, from far below usual to far above

    1 below μ - 2σ, 10 above μ + 2σ; between them, both ends included, eight parts of σ/2 each, which hold their
    lower end: 2 + min(7, ⌊(y - μ + 2σ) / (σ/2)⌋). Where σ is 0: 5 at μ, else 1 or 10.

(Ghayyur, thesis, 4.2.1, whose words leave the edges open.) Each step is one of IEEE 754's, which every machine rounds
alike, so that released colours depend on none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stream.domains import Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Floats, Ints
from stream.records import MINUTE, Micros

# Colours.

COLOURS = 10
"""Number of colours; the first is 1."""
USUAL = 5
"""Colour of the usual count where the deviation is 0."""
_INNER = range(-3, 4)
"""Lower ends of the third to ninth colour, in half deviations from the mean."""


class Usual(NamedTuple):
    """The usual counts, one entry per place."""

    mean: Floats
    """In devices."""
    deviation: Floats
    """In devices, at least 0: the root of the mean square around the mean."""


def usual_of(n: int, total: Ints, squares: Ints) -> Usual:
    """Compute the usual counts from exact sums.

    Args:
        n: number of counts of each place, at least 1.
        total: their sum.
        squares: the sum of their squares; n times it fits 63 bits.

    Raises:
        UsageError: there is no count.
    """
    if n < 1:
        raise UsageError(f"usual counts must be made of at least 1, got {n}")
    return Usual(total / n, np.sqrt((n * squares - total * total).astype(np.float64)) / n)


def colours(values: ArrayLike, usual: Usual) -> Ints:
    """Return the colour of each count, in 1 … 10.

    Args:
        values: counts, in devices; of a shape that broadcasts with that of ``usual``.
        usual: the usual counts of that place and time.

    Raises:
        UsageError: a number is not finite, or a deviation is below 0.
    """
    counts, mean, deviation = (np.asarray(each, np.float64) for each in (values, usual.mean, usual.deviation))
    if not (all(np.isfinite(each).all() for each in (counts, mean, deviation)) and (deviation >= 0).all()):
        raise UsageError("colours: counts and what is usual must be finite, and deviations at least 0")
    with np.errstate(over="ignore"):  # an infinite distance gets the colour of its side
        away, half = counts - mean, deviation / 2
        between = 2 + sum((away >= edge * half).astype(np.int64) for edge in _INNER)
        found = np.select([away < -4 * half, away > 4 * half], [1, COLOURS], between)
    return np.where((deviation == 0) & (away == 0), USUAL, found).astype(np.int64)


HALF_HOURS = 2 * 48
"""48 of a weekday, then 48 of a day of the weekend."""
MOST = 672
"""Number of windows of a half hour above which their sums are halved: 112 days of five minutes."""
LARGEST = 500_000
"""Values are limited to this magnitude in the sums: no place has more devices, and sums fit 63 bits."""
_HEAD = struct.Struct("<4sIIiI")
_MAGIC = Magic.HEATMAP
_NONE = -1


@dataclass(frozen=True, slots=True)
class HeatMapState:
    """Released values of earlier half hours, summed, and those of the current one; public."""

    counted: Ints
    """Shape [half hours]: n."""
    total: Ints
    """Shape [half hours, places]: Σ."""
    squares: Ints
    """Likewise Σ²."""
    half_hour: int
    """The current half hour; -1 before the first."""
    now: Ints
    """Its values so far, shape [windows, places]."""


class HeatMapWindow(NamedTuple):
    """A window of the heat map."""

    colours: Ints
    """Shape [places], in 1 … 10."""
    usual: Usual
    """The usual counts behind the colours."""


class HeatMapInput(NamedTuple):
    """A released or denied window."""

    slot: WeekSlot
    values: Ints | None
    """As released, shape [places]; None: denied."""


@dataclass(frozen=True)
class HeatMap:
    """Colours of each window of some places, as soon as enough earlier windows of its half hour are known."""

    places: int
    least: int
    """Number of windows of a half hour that must be known, in 2 … ``MOST`` / 2."""

    def __post_init__(self) -> None:
        if self.places < 1 or not 2 <= self.least <= MOST // 2:
            raise UsageError(
                f"a heat map must have 1 place and 2 to {MOST // 2} windows, got {self.places}, {self.least}"
            )

    def most_bytes(self, tick: Micros) -> int:
        """Return the largest length of an encoded state, with windows of this length."""
        at_hand = max(1, 30 * MINUTE // tick)
        return _HEAD.size + 8 * (HALF_HOURS + self.places * (2 * HALF_HOURS + at_hand))

    def initial(self) -> HeatMapState:
        """Return the past before the first window."""
        sums = np.zeros((2, HALF_HOURS, self.places), np.int64)
        return HeatMapState(
            np.zeros(HALF_HOURS, np.int64), sums[0], sums[1], _NONE, np.zeros((0, self.places), np.int64)
        )

    def step(self, state: HeatMapState, item: HeatMapInput) -> tuple[HeatMapState, list[HeatMapWindow | None]]:
        """Process a window; return its colours, None where it was denied or too few of its half hour are known."""
        half_hour = item.slot.half_hour + 48 * item.slot.weekend
        if half_hour != state.half_hour:
            state = _next_half_hour(state, half_hour)
        if item.values is None:
            return state, [None]
        bounded = np.clip(item.values, -LARGEST, LARGEST)
        after = HeatMapState(state.counted, state.total, state.squares, half_hour, np.vstack([state.now, bounded]))
        n = int(state.counted[half_hour])
        if n < self.least:
            return after, [None]
        usual = usual_of(n, state.total[half_hour], state.squares[half_hour])
        return after, [HeatMapWindow(colours(item.values, usual), usual)]

    def encode(self, state: HeatMapState) -> bytes:
        """Return the stable byte form: windows by half hour, current values, then sums of half hours that have any."""
        head = _HEAD.pack(_MAGIC, self.places, self.least, state.half_hour, len(state.now))
        known = state.counted > 0
        parts = (state.counted, state.now, state.total[known], state.squares[known])
        return head + b"".join(part.astype("<i8").tobytes() for part in parts)

    def decode(self, data: bytes) -> HeatMapState:
        """Return the past of a byte form; DataError where it is not one of this operator."""
        if len(data) < _HEAD.size + 8 * HALF_HOURS or _HEAD.unpack_from(data)[:3] != (_MAGIC, self.places, self.least):
            raise DataError("heat map state: header does not fit the configuration")
        half_hour, in_half_hour = _HEAD.unpack_from(data)[3:]
        if (len(data) - _HEAD.size) % 8 or not _NONE <= half_hour < HALF_HOURS:
            raise DataError("heat map state: must have whole numbers, and a half hour of the week")
        numbers = np.frombuffer(data[_HEAD.size :], "<i8").astype(np.int64)
        counted, rest = numbers[:HALF_HOURS], numbers[HALF_HOURS:]
        known = counted > 0
        if len(rest) != self.places * (in_half_hour + 2 * int(known.sum())) or (counted < 0).any():
            raise DataError("heat map state: length does not fit the number of windows")
        rows = rest.reshape(-1, self.places)
        total, squares = np.zeros((2, HALF_HOURS, self.places), np.int64)
        total[known], squares[known] = np.split(rows[in_half_hour:], 2)
        return HeatMapState(counted, total, squares, half_hour, rows[:in_half_hour])


def _next_half_hour(state: HeatMapState, half_hour: int) -> HeatMapState:
    """Return the state when another half hour begins: the windows of the current one are added to the sums."""
    empty = state.now[:0]
    if len(state.now) == 0:
        return HeatMapState(state.counted, state.total, state.squares, half_hour, empty)
    at, counted, total, squares = state.half_hour, state.counted.copy(), state.total.copy(), state.squares.copy()
    if counted[at] + len(state.now) > MOST:
        counted[at], squares[at] = (counted[at] + 1) // 2, (squares[at] + 1) // 2
        total[at] = np.sign(total[at]) * (np.abs(total[at]) // 2)
    counted[at] += len(state.now)
    total[at] += state.now.sum(axis=0)
    squares[at] += (state.now * state.now).sum(axis=0)
    return HeatMapState(counted, total, squares, half_hour, empty)
