"""The regime-switching filter: exact Bayesian smoothing of a stream of counts with discrete Laplace or Gaussian noise.

The whole price goes into the noise; what follows reads noisy values only and costs nothing. Per zone the filter
holds the joint posterior P(z, j, k) of the count z, the copy j and the regime of movement k. Copy 0 moves
freely; copy 1, where the calendar is on, leans to what this hour used to be like. A tick mixes copies and
regimes, moves the counts, weighs them by the likelihood of the noisy value y, which is e**(-ε|y-z|) or
e**(-(y-z)²/2σ²), and gives the median. One joint posterior, not one per regime normalised apart: a regime that was
wrong for a while comes back through the mixing, so that a jump after a quiet week is followed at once.

Bytes do not depend on the machine: elementwise + − × ÷ in a fixed order, own exp and ln, sums in a fixed
order (halves, or running), and a tolerance where a sum decides an integer. P is computed and kept in 32 bits
(relative error 6e-8 an operation, far below the tolerance of 1e-6); between ticks values below 1e-9 of
an even share of the counts are 0: they compress, and the next tick's mixing overlays them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import DataError, UsageError
from stream.mechanisms import filter_calendar
from stream.mechanisms.exact import ordered_sum
from stream.mechanisms.filter_calendar import Calendar, Slot
from stream.mechanisms.filter_model import (
    EVEN_SHARE,
    LEAST_CELL,
    REGIMES,
    Cells,
    arrivals,
    as_factors,
    kernels,
    likelihood,
    stationary,
)
from stream.mechanisms.noise import Ints
from stream.mechanisms.packed import pack, unpack, unpack_whole
from stream.mechanisms.parameter import NoiseParameter

_TOLERANCE = 1e-6
_NEGLIGIBLE = 1e-9
_STAY, _CROSS = 0.998, 0.001
LARGEST_CAPACITY = 1 << 20


class FilterItem(NamedTuple):
    """What a tick brings."""

    noisy: Ints
    """Counts with noise, shape [zones]."""
    slot: Slot
    """Its place in the local week; unread where the calendar is off."""


class Estimate(NamedTuple):
    """What the filter makes of a tick; each of shape [zones]."""

    median: Ints
    half_width: Ints
    """The larger distance from the median to the posterior's 1 % and 99 % quantiles."""


@dataclass(frozen=True)
class FilterState:
    """The posterior and, with the calendar on, what was learnt, one entry per distinct capacity."""

    started: bool
    cells: tuple[Cells, ...]
    """P, shape [16, C+1, copies, zones]: by regime first, since regimes are what is mixed most."""
    calendars: tuple[Calendar, ...]


@dataclass(frozen=True)
class RegimeFilter:
    """The filter of one noise over all zones of a site, a stage of the stream."""

    capacities: tuple[int, ...]
    """Each zone's largest count, from the policy: sized by data it would reveal them."""
    noise: NoiseParameter
    calendar: bool = True

    def __post_init__(self) -> None:
        if not self.capacities:
            raise UsageError("capacities must not be empty")
        for place, capacity in enumerate(self.capacities):
            if not 1 <= capacity <= LARGEST_CAPACITY:
                raise UsageError(f"capacities[{place}] must be in 1 … {LARGEST_CAPACITY}, got {capacity}")

    @cached_property
    def families(self) -> list[tuple[int, Ints]]:
        """(capacity, the zones that have it), ascending."""
        zones = np.array(self.capacities)
        return [(int(capacity), np.flatnonzero(zones == capacity)) for capacity in np.unique(zones)]

    def initial(self) -> FilterState:
        """Return the state that knows nothing: all counts alike, regimes as often as in the long run."""
        cells = tuple(self._ignorant(capacity, len(zones)) for capacity, zones in self.families)
        memories = [filter_calendar.empty(capacity, len(zones)) for capacity, zones in self.families]
        return FilterState(False, cells, tuple(memories) if self.calendar else ())

    def _ignorant(self, capacity: int, zones: int) -> Cells:
        each = stationary() / ((capacity + 1) * self._copies)
        return np.broadcast_to(each[:, None, None, None], self.shape(capacity, zones)).astype(np.float32)

    def shape(self, capacity: int, zones: int) -> tuple[int, int, int, int]:
        """Return the shape of P of so many zones of one capacity."""
        return REGIMES, capacity + 1, self._copies, zones

    @property
    def _copies(self) -> int:
        return 2 if self.calendar else 1

    def step(self, state: FilterState, item: FilterItem) -> tuple[FilterState, list[Estimate]]:
        """Take one tick of all zones; return the state after it and the estimates, in registry order."""
        estimate = Estimate(np.zeros(len(self.capacities), np.int64), np.zeros(len(self.capacities), np.int64))
        cells: list[Cells] = []
        calendars: list[Calendar] = []
        for family, (_, zones) in enumerate(self.families):
            memory = state.calendars[family] if self.calendar else None
            p = state.cells[family]
            p, memory = self._tick(predict(p) if state.started else p, memory, item.noisy[zones], item.slot)
            low, estimate.median[zones], high = quantiles(marginal(p), 0.01, 0.5, 0.99)
            np.copyto(p, 0, where=p < _NEGLIGIBLE / p.shape[1])
            cells.append(p)
            calendars += [memory] if memory else []
            estimate.half_width[zones] = np.maximum(high - estimate.median[zones], estimate.median[zones] - low)
        return FilterState(True, tuple(cells), tuple(calendars)), [estimate]

    def _tick(self, p: Cells, memory: Calendar | None, noisy: Ints, slot: Slot) -> tuple[Cells, Calendar | None]:
        """Weigh a predicted P by calendar and noisy value, and let the calendar learn."""
        if memory is None:
            return observe(p, noisy, self.noise), None
        expected, weight = filter_calendar.expect(memory, p.shape[1] - 1, slot, self.noise.steepest)
        p = observe(lean(p, as_factors(weight)), noisy, self.noise)
        free = ordered_sum(p[:, :, 0]).astype(np.float64)
        free /= ordered_sum(free)
        (median,) = quantiles(free, 0.5)
        return p, filter_calendar.learn(memory, slot, expected, free, median.astype(np.float64))

    def encode(self, state: FilterState) -> bytes:
        """Return the stable byte form: a head, then the arrays family by family, their zeros left out."""
        head = _HEAD.pack(_MAGIC, len(self.capacities), self.calendar, state.started)
        return b"".join((head, *map(pack, _arrays(state))))

    def decode(self, data: bytes) -> FilterState:
        """Return the state of a byte form, this one's or the one before; DataError where it is not of this filter."""
        read = _READERS.get(data[:4])
        if not read or len(data) < _HEAD.size or _HEAD.unpack_from(data)[1:3] != (len(self.capacities), self.calendar):
            raise DataError("filter state: head does not fit the configuration")
        place, arrays = _HEAD.size, []
        for template in _arrays(self.initial()):
            array, place = read(data, place, template.shape)
            arrays.append(array)
        if place != len(data):
            raise DataError("filter state: length does not fit the configuration")
        families = len(self.families)
        memories = tuple(Calendar(*pair) for pair in zip(arrays[families::2], arrays[families + 1 :: 2], strict=True))
        return FilterState(bool(_HEAD.unpack_from(data)[3]), tuple(arrays[:families]), memories)


def _arrays(state: FilterState) -> Iterator[Cells]:
    yield from state.cells
    for memory in state.calendars:
        yield memory.history
        yield memory.sums


_HEAD = struct.Struct("<4sI??")
_MAGIC = b"RSF3"
_READERS = {_MAGIC: unpack, b"RSF2": unpack_whole}


def predict(p: Cells) -> Cells:
    """Return P one tick later, before anything is seen of it: copies mix, regimes switch, counts move."""
    if p.shape[2] == 2:
        shared = p[:, :, :1] + p[:, :, 1:]
        shared *= _CROSS
        p = _STAY * p
        p += shared
    return _move(_switch(p))


def _switch(p: Cells) -> Cells:
    """Return Q(·, z, j) = P(·, z, j) A."""
    even = ordered_sum(p)
    even *= EVEN_SHARE
    switched, share = np.empty_like(p), np.empty_like(even)
    for total, origins in zip(switched, arrivals(), strict=True):
        before = even
        for origin, probability in origins:
            before = np.add(before, np.multiply(p[origin], probability, out=share), out=total)
    return switched


def _move(q: Cells) -> Cells:
    """Return F + B - X: X = v Q, F(z) = X(z) + u(z) F(z-1), B(z) = X(z) + d(z) B(z+1). Q is overwritten."""
    kernel = kernels(q.shape[1] - 1)
    q *= kernel.norm[:, :, None, None].astype(np.float32)
    return spread(np.maximum(q, LEAST_CELL, out=q), kernel.factors, kernel.reach)


def spread(x: Cells, factors: Cells, reach: Cells) -> Cells:
    """Return what every count has when each hands on a share of what it has to the next, up and down.

    Both recursions run together, the second over the grid turned round. The grid is cut into about √C
    blocks: first every block runs for itself, then each takes over what the one before it ends with.

    Args:
        x: shape [16, C+1, copies, zones].
        factors: the share that comes from the count before, in the form of ``Kernels.factors``.
        reach: their products, likewise.
    """
    cells = x.shape[1]
    blocks = np.empty((*factors.shape[:3], 2, *x.shape[2:]), np.float32)
    both = blocks.reshape(REGIMES, -1, 2, *x.shape[2:])
    both[:, :cells, 0], both[:, :cells, 1], both[:, cells:] = x, x[:, ::-1], 0
    step = np.empty_like(blocks[:, :, 0])
    for i in range(1, blocks.shape[2]):
        blocks[:, :, i] += np.multiply(factors[:, :, i], blocks[:, :, i - 1], out=step)
    carried = np.empty_like(blocks[:, 0])
    for b in range(1, blocks.shape[1]):
        blocks[:, b] += np.multiply(reach[:, b], blocks[:, b - 1, -1:], out=carried)
    after = both[:, :cells, 0] + both[:, cells - 1 :: -1, 1]
    after -= x
    return np.asarray(after)


def lean(p: Cells, weight: Cells) -> Cells:
    """Return P with copy 1's moving regimes (k >= 1) weighed by h(z), each keeping its mass."""
    leaning = p.copy()
    moving = leaning[1:, :, 1]
    before = ordered_sum(moving.swapaxes(0, 1))
    moving *= weight
    mass = ordered_sum(moving.swapaxes(0, 1))
    moving *= (before / np.where(mass > 0, mass, 1.0))[:, None]
    return leaning


def observe(p: Cells, noisy: Ints, noise: NoiseParameter) -> Cells:
    """Return P weighed by the likelihood of the noisy values, and divided by its total."""
    seen = p * likelihood(noise, p.shape[1] - 1, noisy)[:, None]
    seen /= ordered_sum(marginal(seen))
    return np.asarray(seen)


def marginal(p: Cells) -> Cells:
    """Return the weight of each count, shape [C+1, zones]."""
    return ordered_sum(ordered_sum(p).swapaxes(0, 1))


def quantiles(weights: NDArray[Any], *levels: float) -> list[Ints]:
    """Return, per level, the smallest count whose cumulated share reaches it, up to a tolerance of 1e-6."""
    running = np.cumsum(weights, axis=0, dtype=np.float64)
    share = running / running[-1]
    last = len(weights) - 1
    return [np.minimum((share < level - _TOLERANCE).sum(axis=0), last) for level in levels]
