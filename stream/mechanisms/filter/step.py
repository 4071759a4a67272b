"""The regime-switching filter: exact Bayesian smoothing of noisy counts.

The whole price pays for the noise; the filter reads noisy values only and costs nothing. For each zone the filter
stores the joint posterior P(z, j, k) of the count z, the copy j and the regime of movement k. Copy 0 moves
freely; copy 1, where the calendar is on, is weighed by the usual counts of this hour. A tick mixes copies and
regimes, moves the counts, weighs them by the likelihood of the noisy value y, which is e**(-ε|y-z|) or
e**(-(y-z)²/2σ²), and returns the median. There is one joint posterior, not one per regime normalised apart: a regime
that was wrong for a while returns by mixing, so that the filter follows a jump after a quiet week at once.

A tick works on windows of the counts that are not practically excluded (``support``); the mass of the calendar's copy
beyond them is computed separately (``support.above``, ``support.below``). Inside a tick, cells have the shape
[16, copies, counts, zones]: regimes come first, since mixing works on them most. Counts are those of windows: nothing
moves in from beyond their ends; what moves out is dropped when counts are weighed, or computed separately. Zeros after
a window do not change a sum over counts.

Bytes do not depend on the machine: elementwise + − × ÷ in a fixed order, own exp and ln, sums in a fixed
order (halves, or running), and a tolerance where a sum decides an integer. P is computed and stored in 32 bits, and
between ticks values below 1e-9 of an even share of the counts are 0. Compared with the formulas in 64 bits, over whole
grids and without omissions, a posterior differs by at most 2e-6 in total variation, and medians and quantiles differ
only where a cumulated share is that close to its level.

Byte form of arrays of 32 bits that are mostly zeros, such as the posterior (``pack``):

    bytes                   content
    ⌈cells / 8⌉             one bit per cell, the first cell highest: whether it is not 0
    4 times the bits set    the cells that are not 0, in order: all first bytes, then all second ones, and so on

Bytes of equal rank are adjacent because neighbouring cells are of similar size: so they compress better.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.domains import Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Floats, Real, half_widths, ordered_sum, quantiles
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter import support
from stream.mechanisms.filter.calendar import Calendar
from stream.mechanisms.filter.model import (
    LEAST_CELL,
    REGIMES,
    Cells,
    likelihood_at,
    none_counted,
    rates,
    stationary,
    switched,
)
from stream.mechanisms.filter.support import (
    TAKE,
    Chunk,
    Grids,
    Posterior,
    Windows,
    chunks,
    joined,
    nothing,
    stored_posterior,
    windows,
)
from stream.mechanisms.noise import Ints
from stream.mechanisms.noise_parameters import NoiseParameter

# Packed arrays.

Array = NDArray[np.float32]
_BYTES = 4


def pack(values: Array) -> bytes:
    """Return the byte form of an array of any shape; -0 counts as 0."""
    cells = np.ascontiguousarray(values, dtype="<f4").ravel()
    is_kept = cells != 0
    ranks = np.ascontiguousarray(cells[is_kept].view(np.uint8).reshape(-1, _BYTES).T)
    return b"".join((np.packbits(is_kept).data, ranks.data))


def unpack(data: bytes, place: int, shape: tuple[int, ...]) -> tuple[Array, int]:
    """Return the array of this shape whose byte form begins at ``place``, and the end of its byte form.

    Raises:
        DataError: the bytes end too early.
    """
    cells = np.zeros(prod(shape), np.float32)
    start = place + -(-cells.size // 8)
    is_kept = np.unpackbits(_within(data, place, start), count=cells.size).astype(bool)
    end = start + _BYTES * int(np.count_nonzero(is_kept))
    ranks = _within(data, start, end).reshape(_BYTES, -1)
    cells[is_kept] = np.ascontiguousarray(ranks.T).view("<f4").ravel()
    return cells.reshape(shape), end


def _within(data: bytes, start: int, end: int) -> NDArray[np.uint8]:
    if end > len(data):
        msg = f"packed array: must have {end} bytes at least, got {len(data)}"
        raise DataError(msg)
    return np.frombuffer(data[start:end], np.uint8)


# The operations of a tick.

CROSS = 0.001
_LANES = 16


def running_sum(values: NDArray[Real]) -> NDArray[Real]:
    """Return the sum over the first axis: every sixteenth, then these; trailing zeros change nothing."""
    total = np.zeros((_LANES, *values.shape[1:]), values.dtype)
    for begin in range(0, len(values), _LANES):
        part = values[begin : begin + _LANES]
        total[: len(part)] += part
    return ordered_sum(total)


def mix(p: Cells) -> None:
    """Mix the copies in place: P_j ← .998 P_j + .001 (P_0 + P_1)."""
    if p.shape[1] == 2:
        crossing = p[:, 0] - p[:, 1]
        crossing *= CROSS
        p[:, 0] -= crossing
        p[:, 1] += crossing


def move(x: Cells, up: Cells, down: Cells) -> None:
    """Move the counts in place: F + B - X with F(z) = X(z) + u(z) F(z-1), B(z) = X(z) + d(z) B(z+1).

    Args:
        x: v Q.
        up: u(z) of each count, shape [16, 1, counts, zones].
        down: d(z), likewise.
    """
    below, row = np.zeros_like(x), np.empty_like(x[:, :, 0])
    for w in range(x.shape[2] - 2, -1, -1):
        np.add(x[:, :, w + 1], below[:, :, w + 1], out=row)
        np.multiply(row, down[:, :, w], out=below[:, :, w])
    for w in range(1, x.shape[2]):
        x[:, :, w] += np.multiply(x[:, :, w - 1], up[:, :, w], out=row)
    x += below


def lean(moving: Cells, weight: Cells, before: Cells, beyond: Cells) -> None:
    """Weigh copy 1's moving regimes (k >= 1) by h(z), each keeping its mass, in place.

    Args:
        moving: shape [15, counts, zones].
        weight: h of each count, shape [counts, zones].
        before: the mass that each regime has over all counts, shape [15, zones].
        beyond: the part of that mass beyond the window, weighed by h, same shape.
    """
    moving *= weight
    mass = running_sum(moving.swapaxes(0, 1)) + beyond
    moving *= (before / np.where(mass > 0, mass, 1))[:, None]


def spread(x: Cells, factors: Cells, reach: Cells) -> Cells:
    """Return the result of two recursions in which every count passes a share of its value to the next, up and down.

    Both recursions run together, the second over the reversed grid. The grid is cut into about √C
    blocks: first every block runs by itself, then each adds the final value of the one before it.

    Args:
        x: shape [16, C+1, copies, zones].
        factors: the share that comes from the count before, in the form of ``BackKernels.factors``.
        reach: their products, as in ``BackKernels.reach``.
    """
    cells = x.shape[1]
    blocks = np.empty((*factors.shape[:3], 2, *x.shape[2:]), np.float32)
    both = blocks.reshape(len(x), -1, 2, *x.shape[2:])
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


BAND = 0.96
"""Probability of a half-width by the posterior. Published bands are to cover 95 %; a posterior is that of a model,
which no building follows exactly, so they are a little wider (measured: ``docs/bands.md``)."""
_NEGLIGIBLE = 1e-9
LARGEST_CAPACITY = 1 << 20


class FilterItem(NamedTuple):
    """The filter's input for a tick."""

    noisy: Ints
    """Counts with noise, shape [zones]."""
    slot: WeekSlot
    """Its position in the local week; unused where the calendar is off."""


class Estimate(NamedTuple):
    """The filter's output for a tick; each of shape [zones]."""

    median: Ints
    half_width: Ints
    """The smallest one within which the count lies with probability ``BAND``, by the posterior."""


class Learnt(NamedTuple):
    """What has been learnt about the zones of one capacity; ticks do not change it (``learning``)."""

    counted: Cells
    """N, shape [76, zones]: see ``model``."""
    calendar: Calendar | None
    """None where the calendar is off."""


@dataclass(frozen=True)
class FilterState:
    """The posterior, and the learnt parameters, one entry per distinct capacity."""

    started: bool
    posterior: Posterior
    learnt: tuple[Learnt, ...]


class _Expected(NamedTuple):
    """The calendar's weights for a tick."""

    weight: Cells
    """h of every count of every zone, in the layout of ``Grids``."""
    beyond: tuple[Floats, Floats]
    """The mass below and above each window, for mass 1 at its ends; shape [15, zones] each."""


@dataclass(frozen=True)
class RegimeFilter:
    """The filter for one noise over all zones of a site, an operator of the stream."""

    capacities: tuple[int, ...]
    """Each zone's largest count, from the policy: a size that depended on data would reveal them."""
    noise: NoiseParameter
    calendar: bool = True

    def __post_init__(self) -> None:
        if not self.capacities:
            raise UsageError("capacities must not be empty")
        for place, capacity in enumerate(self.capacities):
            if not 1 <= capacity <= LARGEST_CAPACITY:
                raise UsageError(f"capacities[{place}] must be in 1 … {LARGEST_CAPACITY}, got {capacity}")

    @cached_property
    def grids(self) -> Grids:
        """The layout of all zones' counts in arrays, and their movement."""
        return Grids(self.capacities)

    @property
    def families(self) -> list[tuple[int, Ints]]:
        """(capacity, the zones that have it), ascending."""
        return self.grids.families

    def initial(self) -> FilterState:
        """Return the initial state: all counts equally likely, regimes by their stationary distribution."""
        return FilterState(False, nothing(len(self.capacities), self._copies), self.nothing_learnt())

    def nothing_learnt(self) -> tuple[Learnt, ...]:
        """Return the parameters before any learning."""
        return tuple(
            Learnt(none_counted(len(zones)), filter_calendar.empty(capacity, len(zones)) if self.calendar else None)
            for capacity, zones in self.families
        )

    @property
    def _copies(self) -> int:
        return 2 if self.calendar else 1

    def shape(self, capacity: int, zones: int) -> tuple[int, int, int, int]:
        """Return the shape of P for this number of zones of one capacity, over all counts."""
        return REGIMES, capacity + 1, self._copies, zones

    def dense(self, state: FilterState) -> list[Cells]:
        """Return P of all counts, by capacity, shape [16, C+1, copies, zones]; zeros before the first tick."""
        return [state.posterior.dense(zones, capacity) for capacity, zones in self.families]

    def step(self, state: FilterState, item: FilterItem) -> tuple[FilterState, list[Estimate]]:
        """Process one tick of all zones; return the state after it and the estimates, in registry order."""
        zones = len(self.capacities)
        estimate = Estimate(np.zeros(zones, np.int64), np.zeros(zones, np.int64))
        asked = windows(state.posterior, self.grids.capacities, item.noisy, self.noise)
        expected = self._expected(state, item.slot, asked)
        rate, parts = self._rates(state), list[tuple[Ints, Posterior]]()
        for chunk in chunks(asked):
            p = self._predicted(chunk, state, rate, expected)
            weights = observe(p, self._likelihood(chunk, item.noisy))
            of_counts = _sum_of_copies(weights)
            (median,) = quantiles(of_counts, 0.5)
            estimate.median[chunk.zones] = chunk.low + median
            estimate.half_width[chunk.zones] = half_widths(of_counts, median, BAND)
            parts.append((chunk.zones, self._stored_posterior(chunk, p)))
        return FilterState(True, joined(parts), state.learnt), [estimate]

    def _rates(self, state: FilterState) -> Cells:
        """Return the regimes' transition rates of all zones: shape [76, zones]."""
        rate = none_counted(len(self.capacities))
        for (_, zones), learnt in zip(self.families, state.learnt, strict=True):
            rate[:, zones] = rates(learnt.counted)
        return rate

    def _expected(self, state: FilterState, slot: WeekSlot, asked: Windows) -> _Expected | None:
        """Return the calendar's weights for its copy's moving regimes; None where it is off."""
        if not self.calendar:
            return None
        weight = self.grids.zeros(np.float32)
        shape = (REGIMES - 1, len(self.capacities))
        below, above = np.zeros(shape), np.zeros(shape)
        calendars = [each.calendar for each in state.learnt if each.calendar]
        for calendar, (capacity, zones), h in zip(calendars, self.families, self.grids.parts(weight), strict=True):
            h[:] = filter_calendar.expect(calendar, capacity, slot, self.noise.steepest)
            below[:, zones] = support.below(h, asked.low[zones])
            above[:, zones] = support.above(h, (asked.low + asked.width)[zones])
        return _Expected(weight, (below, above))

    def _predicted(self, chunk: Chunk, state: FilterState, rate: Cells, expected: _Expected | None) -> Cells:
        """Return P of a chunk before the observation: copies mix, regimes switch, counts move, copy 1 is weighed."""
        if not state.started:
            return self._ignorant(chunk)
        columns = state.posterior.columns(chunk.zones, chunk.counts)
        p = np.take(state.posterior.values, columns, axis=1, mode=TAKE).reshape(REGIMES, self._copies, *columns.shape)
        mix(p)
        p = switched(p, rate[:, chunk.zones])
        norm, up, down = self.grids.kernels(chunk)
        before = running_sum(p[1:, -1].swapaxes(0, 1))
        p *= norm
        p += LEAST_CELL * chunk.is_inside.astype(np.float32)
        move(p, up, down)
        if expected:
            ends = p[1:, 1, 0], p[1:, 1][:, chunk.width - 1, np.arange(len(chunk.zones))]
            beyond = sum(end * tail[:, chunk.zones] for end, tail in zip(ends, expected.beyond, strict=True))
            weight = expected.weight[self.grids.places(chunk)]
            lean(p[1:, 1], weight, before, np.asarray(beyond, np.float32))
        return p

    def _ignorant(self, chunk: Chunk) -> Cells:
        each = stationary().astype(np.float32)[:, None, None, None] * chunk.is_inside
        return np.repeat(each, self._copies, axis=1)

    def _likelihood(self, chunk: Chunk, noisy: Ints) -> Cells:
        """Return the likelihood of each count given the noisy value; 0 for counts beyond the windows."""
        seen = likelihood_at(self.noise, self.grids.capacities[chunk.zones], noisy[chunk.zones], chunk.counts)
        seen *= chunk.is_inside
        return seen

    def _stored_posterior(self, chunk: Chunk, p: Cells) -> Posterior:
        """Return the stored posterior of a chunk until the next tick."""
        least = _NEGLIGIBLE / (self.grids.capacities[chunk.zones] + 1)
        is_kept = p >= least.astype(np.float32)
        p *= is_kept
        return stored_posterior(chunk, p, np.logical_or.reduce(is_kept, axis=(0, 1)))

    def encode(self, state: FilterState) -> bytes:
        """Return the stable byte form: a head, the posterior's windows, its cells, and the learnt parameters."""
        head = _HEAD.pack(_MAGIC, len(self.capacities), self.calendar, state.started)
        held = state.posterior.of(np.arange(len(self.capacities)))
        places = np.concatenate((held.low, held.width)).astype("<i4").tobytes()
        return b"".join((head, places, pack(held.values), *map(pack, arrays_of(state.learnt))))

    def decode(self, data: bytes) -> FilterState:
        """Return the state of a byte form; DataError where it is not one of this filter."""
        zones = len(self.capacities)
        begin = _HEAD.size + 8 * zones
        if len(data) < begin or _HEAD.unpack_from(data)[:3] != (_MAGIC, zones, self.calendar):
            raise DataError("filter state: head does not fit the configuration")
        low, width = np.frombuffer(data[_HEAD.size : begin], "<i4").astype(np.int64).reshape(2, zones)
        self.grids.refuse_windows(low, width)
        values, place = unpack(data, begin, (REGIMES * self._copies, int(width.sum()) + 1))
        learnt, place = self.learnt_from(data, place)
        if place != len(data):
            raise DataError("filter state: length does not fit the configuration")
        return FilterState(bool(_HEAD.unpack_from(data)[3]), Posterior(low, width, np.arange(zones), values), learnt)

    def learnt_from(self, data: bytes, place: int) -> tuple[tuple[Learnt, ...], int]:
        """Return the learnt parameters, packed from ``place`` on, and their end."""
        read: list[Learnt] = []
        for template in self.nothing_learnt():
            arrays = []
            for shape in (array.shape for array in arrays_of((template,))):
                array, place = unpack(data, place, shape)
                arrays.append(array)
            read.append(Learnt(arrays[0], Calendar(*arrays[1:]) if self.calendar else None))
        return tuple(read), place


def arrays_of(learnt: Sequence[Learnt]) -> Iterator[Cells]:
    """Yield the arrays of the learnt parameters, in their stored order."""
    for counted, calendar in learnt:
        yield counted
        if calendar is not None:
            yield calendar.history
            yield calendar.sums


_HEAD = struct.Struct("<4sI??")
_MAGIC = Magic.FILTER


def observe(p: Cells, seen: Cells) -> Cells:
    """Weigh P by the likelihood of each count, and divide it by its total, in place.

    Args:
        p: shape [16, copies, counts, zones].
        seen: shape [counts, zones].

    Returns:
        The weight of each count by copy, shape [copies, counts, zones].
    """
    p *= seen
    weights = ordered_sum(p)
    share = 1 / running_sum(_sum_of_copies(weights))
    p *= share
    weights *= share
    return weights


def _sum_of_copies(weights: Cells) -> Cells:
    return ordered_sum(weights)


def marginal(p: Cells) -> Cells:
    """Return the weight of each count of P in the form of ``RegimeFilter.dense``, shape [C+1, zones]."""
    return ordered_sum(ordered_sum(p).swapaxes(0, 1))
