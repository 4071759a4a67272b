"""The regime-switching filter: exact Bayesian smoothing of a stream of counts with discrete Laplace or Gaussian noise.

The whole price goes into the noise; what follows reads noisy values only and costs nothing. Per zone the filter
holds the joint posterior P(z, j, k) of the count z, the copy j and the regime of movement k. Copy 0 moves
freely; copy 1, where the calendar is on, leans to what this hour used to be like. A tick mixes copies and
regimes, moves the counts, weighs them by the likelihood of the noisy value y, which is e**(-ε|y-z|) or
e**(-(y-z)²/2σ²), and gives the median. One joint posterior, not one per regime normalised apart: a regime that was
wrong for a while comes back through the mixing, so that a jump after a quiet week is followed at once.

A tick works on windows of the counts that are not out of the question (``active``); what the calendar's copy has beyond
them is reckoned apart (``filter_tails``).

Bytes do not depend on the machine: elementwise + − × ÷ in a fixed order, own exp and ln, sums in a fixed
order (halves, or running), and a tolerance where a sum decides an integer. P is computed and kept in 32 bits, and
between ticks values below 1e-9 of an even share of the counts are 0. Beside the formulas in 64 bits, over whole
grids and with nothing left out, a posterior is off by at most 2e-6 in total variation, and medians and quantiles differ
only where a cumulated share is as near to its level.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stream.errors import DataError, UsageError
from stream.mechanisms import filter_calendar, filter_tails
from stream.mechanisms.active import TAKE, Chunk, Posterior, Windows, chunks, joined, kept, nothing, windows
from stream.mechanisms.exact import Floats, ordered_sum, quantiles
from stream.mechanisms.filter_calendar import Calendar, Slot
from stream.mechanisms.filter_grids import Grids
from stream.mechanisms.filter_model import LEAST_CELL, REGIMES, Cells, likelihood_at, stationary
from stream.mechanisms.filter_moves import none_counted, rates, switched
from stream.mechanisms.filter_steps import lean, mix, move, running_sum
from stream.mechanisms.noise import Ints
from stream.mechanisms.packed import pack, unpack
from stream.mechanisms.parameter import NoiseParameter

_NEGLIGIBLE = 1e-9
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


class Learnt(NamedTuple):
    """What has been learnt of the zones of one capacity; no tick changes it (``nightly``)."""

    counted: Cells
    """N, shape [76, zones]: see ``filter_moves``."""
    calendar: Calendar | None
    """None where the calendar is off."""


@dataclass(frozen=True)
class FilterState:
    """The posterior, and what the filter goes by, one entry per distinct capacity."""

    started: bool
    posterior: Posterior
    learnt: tuple[Learnt, ...]


class _Expected(NamedTuple):
    """What the calendar says of a tick."""

    weight: Cells
    """h of every count of every zone, as the grids lie."""
    beyond: tuple[Floats, Floats]
    """What lies below and above each window, where 1 lies at its ends; shape [15, zones] each."""


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
    def grids(self) -> Grids:
        """Where the counts of all zones lie in arrays of them, and how they move."""
        return Grids(self.capacities)

    @property
    def families(self) -> list[tuple[int, Ints]]:
        """(capacity, the zones that have it), ascending."""
        return self.grids.families

    def initial(self) -> FilterState:
        """Return the state that knows nothing: all counts alike, regimes as often as in the long run."""
        return FilterState(False, nothing(len(self.capacities), self._copies), self.nothing_learnt())

    def nothing_learnt(self) -> tuple[Learnt, ...]:
        """Return what the filter goes by before it has learnt anything."""
        return tuple(
            Learnt(none_counted(len(zones)), filter_calendar.empty(capacity, len(zones)) if self.calendar else None)
            for capacity, zones in self.families
        )

    @property
    def _copies(self) -> int:
        return 2 if self.calendar else 1

    def shape(self, capacity: int, zones: int) -> tuple[int, int, int, int]:
        """Return the shape of P of so many zones of one capacity, all its counts."""
        return REGIMES, capacity + 1, self._copies, zones

    def dense(self, state: FilterState) -> list[Cells]:
        """Return P of all counts, by capacity, shape [16, C+1, copies, zones]; zeros before the first tick."""
        return [state.posterior.dense(zones, capacity) for capacity, zones in self.families]

    def step(self, state: FilterState, item: FilterItem) -> tuple[FilterState, list[Estimate]]:
        """Take one tick of all zones; return the state after it and the estimates, in registry order."""
        zones = len(self.capacities)
        estimate = Estimate(np.zeros(zones, np.int64), np.zeros(zones, np.int64))
        asked = windows(state.posterior, self.grids.capacities, item.noisy, self.noise)
        expected = self._expected(state, item.slot, asked)
        rate, parts = self._rates(state), list[tuple[Ints, Posterior]]()
        for chunk in chunks(asked):
            p = self._predicted(chunk, state, rate, expected)
            weights = observe(p, self._likelihood(chunk, item.noisy))
            low, median, high = quantiles(_sum_of_copies(weights), 0.01, 0.5, 0.99)
            estimate.median[chunk.zones] = chunk.low + median
            estimate.half_width[chunk.zones] = np.maximum(high - median, median - low)
            parts.append((chunk.zones, self._kept(chunk, p)))
        return FilterState(True, joined(parts), state.learnt), [estimate]

    def _rates(self, state: FilterState) -> Cells:
        """Return how regimes change, of all zones: shape [76, zones]."""
        rate = none_counted(len(self.capacities))
        for (_, zones), learnt in zip(self.families, state.learnt, strict=True):
            rate[:, zones] = rates(learnt.counted)
        return rate

    def _expected(self, state: FilterState, slot: Slot, asked: Windows) -> _Expected | None:
        """Return what the calendar says, of its copy's moving regimes; None where it is off."""
        if not self.calendar:
            return None
        weight = self.grids.zeros(np.float32)
        shape = (REGIMES - 1, len(self.capacities))
        below, above = np.zeros(shape), np.zeros(shape)
        calendars = [each.calendar for each in state.learnt if each.calendar]
        for calendar, (capacity, zones), h in zip(calendars, self.families, self.grids.parts(weight), strict=True):
            h[:] = filter_calendar.expect(calendar, capacity, slot, self.noise.steepest)
            below[:, zones] = filter_tails.below(h, asked.low[zones])
            above[:, zones] = filter_tails.above(h, (asked.low + asked.width)[zones])
        return _Expected(weight, (below, above))

    def _predicted(self, chunk: Chunk, state: FilterState, rate: Cells, expected: _Expected | None) -> Cells:
        """Return P of a chunk before anything is seen: copies mix, regimes switch, counts move, one copy leans."""
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
        """Return how likely each count makes the noisy value; 0 beyond the windows, where counts have moved on to."""
        seen = likelihood_at(self.noise, self.grids.capacities[chunk.zones], noisy[chunk.zones], chunk.counts)
        seen *= chunk.is_inside
        return seen

    def _kept(self, chunk: Chunk, p: Cells) -> Posterior:
        """Return what is held of a chunk until the next tick."""
        least = _NEGLIGIBLE / (self.grids.capacities[chunk.zones] + 1)
        is_kept = p >= least.astype(np.float32)
        p *= is_kept
        return kept(chunk, p, np.logical_or.reduce(is_kept, axis=(0, 1)))

    def encode(self, state: FilterState) -> bytes:
        """Return the stable byte form: a head, where the posterior's windows are, its cells, and what was learnt."""
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
        """Return what has been learnt, packed from ``place`` on, and where it ends."""
        read: list[Learnt] = []
        for template in self.nothing_learnt():
            arrays = []
            for shape in (array.shape for array in arrays_of((template,))):
                array, place = unpack(data, place, shape)
                arrays.append(array)
            read.append(Learnt(arrays[0], Calendar(*arrays[1:]) if self.calendar else None))
        return tuple(read), place


def arrays_of(learnt: Sequence[Learnt]) -> Iterator[Cells]:
    """Yield the arrays of which that consists, in the order in which they are kept."""
    for counted, calendar in learnt:
        yield counted
        if calendar is not None:
            yield calendar.history
            yield calendar.sums


_HEAD = struct.Struct("<4sI??")
_MAGIC = b"RSF4"


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
