"""The counts that a tick processes, and the mass beyond them.

A tick of the filter works on the counts that a posterior stores and on what they can reach (``count_ranges``). Zones
whose ranges have a similar width are processed together, side by side, and padded with cells of weight 0: no zone's
result depends on the zones beside it.

``Grids`` is the layout of the counts 0 … C of all zones in arrays, with the kernels of their movement.

**Beyond the ranges** (``above``, ``below``). Outside a range there is only mass that has moved out of it, and it
falls by the factor u(z) per count (below the range, d(z)). So one sum per regime is enough: with P(e) at the range's
last count e,

    Σ_{z > e} P(z) h(z) = P(e) Σ_{z > e} u(e+1) … u(z) h(z)

The sum is computed in blocks of 32 counts; between blocks the products are quotients of one table per regime,
exp(-S(z)/SU) with S the running sum of 1/g. Where the table has reached the smallest float, that is for counts of
thousands in regimes that move by a few at a time, u and h are assumed constant from the range's end on: within a
twentieth, of a small mass. The same holds for regimes that move by less than one count at a time: these have almost
no mass at the end of a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import DataError
from stream.mechanisms.exact import Floats, Ints, Real, exp, ordered_sum
from stream.mechanisms.filter.model import (
    DOWN_SCALES,
    REGIMES,
    UP_SCALES,
    Cells,
    as_factors,
    kernels,
    plausible_counts,
    widening,
)
from stream.mechanisms.filter.posterior import TAKE, Posterior, starts
from stream.mechanisms.noise_parameters import NoiseParameter

MARGIN = 4
"""Number of counts by which a range is wider than its cells, on both sides."""
SIDE_BY_SIDE = 1 << 15
"""Largest number of counts of a chunk, over all its zones: data that is processed together should fit the cache."""


class CountRanges(NamedTuple):
    """The counts that a tick processes."""

    low: Ints
    """The first count of each zone."""
    width: Ints


def count_ranges(posterior: Posterior, capacities: Ints, noisy: Ints, noise: NoiseParameter) -> CountRanges:
    """Return the counts that a tick has to process to weigh a posterior by noisy values.

    These are the stored counts, since their mass moves, and the counts beside them that may get a relevant weight.
    Beyond the stored counts a posterior falls by a factor per count. A noisy value that lies v counts above the
    likeliest one extends a range to the point where the posterior falls below the same share again: no farther than 2
    v. Calendar and regimes change little between ticks, and the effect is within ``MARGIN``. Counts that the value
    makes e**-32 times less likely than its own are never processed (``plausible_counts``).
    """
    seen_low, seen_high = plausible_counts(noise, capacities, noisy)
    beyond = np.clip(noisy, 0, capacities) - posterior.likeliest
    low, high = posterior.low, posterior.low + posterior.width
    down = np.maximum(low - MARGIN - 2 * np.maximum(-beyond, 0), seen_low)
    up = np.minimum(high + MARGIN + 2 * np.maximum(beyond, 0), seen_high)
    is_new = posterior.width == 0
    first = np.where(is_new, seen_low, np.minimum(low, down))
    last = np.where(is_new, seen_high, np.maximum(high, up))
    return CountRanges(first, last - first)


class Chunk(NamedTuple):
    """Zones whose ranges are processed side by side."""

    zones: Ints
    low: Ints
    width: Ints
    counts: Ints
    """Shape [widest, zones]: the counts of each range, continued beyond its end."""
    is_inside: NDArray[np.bool_]
    """Same shape: whether they are within the range."""


def chunks(processed: CountRanges) -> Iterator[Chunk]:
    """Yield all zones: first those whose ranges begin at 0; within both groups, narrow ranges first."""
    order = np.lexsort((processed.width, processed.low > 0))
    widths, begin = processed.width[order], 0
    while begin < len(order):
        fits = widths[begin:] * np.arange(1, len(order) - begin + 1) <= SIDE_BY_SIDE
        alike = (processed.low[order[begin:]] > 0) == (processed.low[order[begin]] > 0)
        end = begin + max(1, int(np.argmin(np.append(fits & alike, [False]))))
        zones = order[begin:end]
        low, width = processed.low[zones], processed.width[zones]
        places = np.arange(width.max())[:, None]
        yield Chunk(zones, low, width, low + places, places < width)
        begin = end


def stored_posterior(chunk: Chunk, cells: Cells, is_kept: NDArray[np.bool_]) -> Posterior:
    """Return the posterior of a chunk's cells between the first and the last count of each zone that is stored.

    Args:
        chunk: the zones.
        cells: shape [16, copies, widest, zones].
        is_kept: shape [widest, zones].
    """
    widest, zones = is_kept.shape
    first = is_kept.argmax(axis=0)
    width = np.where(is_kept.any(axis=0), widest - is_kept[::-1].argmax(axis=0) - first, 0)
    place = np.arange(width.sum()) - np.repeat(starts(width), width)
    source = (np.repeat(first, width) + place) * zones + np.repeat(np.arange(zones), width)
    flat = cells.reshape(-1, widest * zones)
    values = np.zeros((len(flat), len(source) + 1), np.float32)
    values[:, :-1] = np.take(flat, source, axis=1, mode=TAKE)
    return Posterior(chunk.low + first, width, np.arange(zones), values)


# The grids of all zones.


class Grids:
    """The grids of zones, by their capacities.

    An array of all zones' counts contains the capacities in ascending order, for each its counts 0 … C and
    for each count its zones; the last element stands for what is on no grid.
    """

    def __init__(self, capacities: tuple[int, ...]) -> None:
        self.capacities: Ints = np.array(capacities)
        self.families: list[tuple[int, Ints]] = [
            (int(capacity), np.flatnonzero(self.capacities == capacity)) for capacity in np.unique(self.capacities)
        ]
        """(capacity, the zones that have it), ascending."""
        self._first, self._stride = np.zeros_like(self.capacities), np.zeros_like(self.capacities)
        begin = 0
        for capacity, zones in self.families:
            self._first[zones], self._stride[zones] = begin + np.arange(len(zones)), len(zones)
            begin += (capacity + 1) * len(zones)
        self._size = begin

    def refuse_ranges(self, low: Ints, width: Ints) -> None:
        """Raise DataError where ranges are not within the grids."""
        if (low < 0).any() or (width < 0).any() or (low + width > self.capacities + 1).any():
            raise DataError("filter state: ranges must lie within the grids of the configuration")

    def places(self, chunk: Chunk) -> Ints:
        """Return the indices of a chunk's counts, shape [widest, zones]; the last one for those beyond its ranges."""
        place = self._first[chunk.zones] + self._stride[chunk.zones] * chunk.counts
        return np.where(chunk.is_inside, place, self._size)

    def zeros(self, kind: type[Real]) -> NDArray[Real]:
        """Return a zero for every count of every zone."""
        return np.zeros(self._size + 1, kind)

    def parts(self, values: NDArray[Real]) -> Iterator[NDArray[Real]]:
        """Yield, of an array of all zones' counts, each capacity's part, shape [C+1, zones]."""
        begin = 0
        for capacity, zones in self.families:
            end = begin + (capacity + 1) * len(zones)
            yield values[begin:end].reshape(capacity + 1, len(zones))
            begin = end

    @cached_property
    def _factors(self) -> tuple[Cells, Cells]:
        kernel = kernels(int(self.capacities.max()))
        return as_factors(kernel.up), as_factors(kernel.down)

    @cached_property
    def _norms(self) -> tuple[Cells, Ints]:
        """v of all capacities in order, and the index at which each zone's capacity begins."""
        norms = [kernels(capacity).norm.astype(np.float32) for capacity, _ in self.families]
        first, begin = np.zeros_like(self.capacities), 0
        for capacity, zones in self.families:
            first[zones] = begin
            begin += capacity + 1
        return np.concatenate([*norms, np.zeros((REGIMES, 1), np.float32)], axis=1), first

    def kernels(self, chunk: Chunk) -> tuple[Cells, Cells, Cells]:
        """Return v, u and d of a chunk's counts, shape [16, 1, widest, zones]; v is 0 beyond its ranges.

        Where all ranges begin at 0, u and d are those of one zone, shared by all.
        """
        norms, first = self._norms
        norm_at = np.where(chunk.is_inside, first[chunk.zones] + chunk.counts, norms.shape[1] - 1)
        counts = chunk.counts if chunk.low.any() else chunk.counts[:, :1]
        up, down = (_at(table, np.minimum(counts, table.shape[1] - 1)) for table in self._factors)
        return _at(norms, norm_at), up, down


def _at(table: Cells, places: Ints) -> Cells:
    return np.take(table, places, axis=1, mode=TAKE)[:, None]


# Mass beyond the ranges.

_BLOCK = 32
_FARTHEST = 600.0
_LEAST_END = 1e-217
"""About e**-500, so that a table is long enough where it is read: it ends at e**-700."""
_LEAST_PRODUCT = 1e-37
_ROOM = 1 << 20
"""Largest number of numbers that are processed at once."""
_FEW = 1 << 15
"""Up to this number of numbers, the time depends on the number of operations, not on their size."""


class _Ends(NamedTuple):
    """Tables of one capacity for the regimes k >= 1."""

    wide: Ints
    """The regimes whose kernel is wide enough to reach beyond the next count; the others use ``nearest`` only."""
    within: Cells
    """Products of factors, from the beginning of a block of 32 counts on; shape [blocks, 32, wide, 1]."""
    until: Floats
    """Products of factors from 0 up to before a count, or their inverses, 0 … C+1; shape [C+2, wide]."""
    blocks: Ints
    """The counts of ``until`` at which the blocks' products begin."""
    nearest: Floats
    """f / (1 - f) of each count's factor f, shape [C+1, 15]."""


@lru_cache(maxsize=256)
def _upper(capacity: int) -> _Ends:
    factors, wide = kernels(capacity).up[1:].T, _wide(UP_SCALES, capacity)
    within = np.multiply.accumulate(_in_blocks(factors[:, wide]), axis=1)
    until = exp(-np.divide.outer(_way(capacity), UP_SCALES[1:][wide]))
    begins = np.arange(0, capacity + 1, _BLOCK)
    return _Ends(wide, _cut(within), until, begins, factors / (1 - factors))


@lru_cache(maxsize=256)
def _lower(capacity: int) -> _Ends:
    factors, wide = kernels(capacity).down[1:].T, _wide(DOWN_SCALES, capacity)
    within = np.multiply.accumulate(_in_blocks(factors[:, wide])[:, ::-1], axis=1)[:, ::-1]
    exponents = np.divide.outer(_way(capacity), DOWN_SCALES[1:][wide])
    until = np.where(exponents < _FARTHEST, exp(np.minimum(exponents, _FARTHEST)), 0.0)
    ends = np.minimum(np.arange(0, capacity + 1, _BLOCK) + _BLOCK, capacity + 1)
    return _Ends(wide, _cut(within), until, ends, factors / (1 - factors))


def _wide(scales: Floats, capacity: int) -> Ints:
    return np.flatnonzero(scales[1:] * widening(capacity)[-1] >= 1)


def _way(capacity: int) -> Floats:
    """Return Σ 1/g over the counts below each of 0 … C+1."""
    return np.append(0.0, np.cumsum(1 / widening(capacity)))


def _in_blocks(values: Floats) -> Floats:
    padded = np.pad(values, ((0, -len(values) % _BLOCK), (0, 0)), constant_values=1.0)
    return padded.reshape(-1, _BLOCK, *values.shape[1:])


def _cut(products: Floats) -> Cells:
    return np.where(products < _LEAST_PRODUCT, 0.0, products).astype(np.float32)[..., None]


def above(weight: Cells, high: Ints) -> Floats:
    """Return Σ u … u h over the counts above ranges, for mass 1 at their last count, shape [15, zones].

    Args:
        weight: h of every count, shape [C+1, zones].
        high: of each zone the count after the last of its range.
    """
    found, counts = np.zeros((15, len(high))), np.arange(len(weight))[:, None]
    for zones in _parts(np.flatnonzero(high < len(weight)), len(weight)):
        first = high[zones]
        found[:, zones] = _summed(_upper(len(weight) - 1), weight[:, zones], counts >= first, first, first)
    return found


def below(weight: Cells, low: Ints) -> Floats:
    """Return Σ d … d h over the counts below ranges, for mass 1 at their first count ``low``, shape [15, zones]."""
    found, counts = np.zeros((15, len(low))), np.arange(len(weight))[:, None]
    for zones in _parts(np.flatnonzero(low > 0), len(weight)):
        first = low[zones]
        found[:, zones] = _summed(_lower(len(weight) - 1), weight[:, zones], counts < first, first, first - 1)
    return found


def _parts(zones: Ints, counts: int) -> list[Ints]:
    step = max(1, _ROOM // (15 * counts))
    return [zones[begin : begin + step] for begin in range(0, len(zones), step)]


def _summed(ends: _Ends, weight: Cells, is_beyond: NDArray[np.bool_], end: Ints, next_to: Ints) -> Floats:
    """Return the sums of some zones, shape [15, zones].

    Args:
        ends: the tables.
        weight: h of every count, shape [C+1, zones].
        is_beyond: likewise, whether it lies beyond the range.
        end: the count of ``until`` at which the range ends, shape [zones].
        next_to: the count next to it beyond the range.
    """
    h = np.pad(np.where(is_beyond, weight, np.float32(0)), ((0, -len(weight) % _BLOCK), (0, 0)))
    blocks = h.reshape(-1, _BLOCK, 1, len(end))
    of_blocks = np.zeros((len(blocks), len(ends.wide), len(end)), np.float32)
    reached = np.flatnonzero(is_beyond.any(axis=1)) // _BLOCK
    some = slice(reached[0], reached[-1] + 1)
    of_blocks[some] = _accumulated(blocks[some], ends.within[some])
    total = ordered_sum(of_blocks * ends.until[ends.blocks][:, :, None])
    at_end = ends.until[end].T
    is_held = at_end > _LEAST_END
    found = ends.nearest[next_to].T * weight[next_to, np.arange(len(end))]
    found[ends.wide] = np.where(is_held, total / np.where(is_held, at_end, 1.0), found[ends.wide])
    return np.asarray(found)


def _accumulated(weights: Cells, factors: Cells) -> Cells:
    """Return Σ weights · factors over the counts of each block, in their order, shape [blocks, wide, zones].

    Args:
        weights: shape [blocks, 32, 1, zones].
        factors: shape [blocks, 32, wide, 1].
    """
    if weights.size * factors.shape[2] < _FEW:
        return np.asarray(np.add.accumulate(weights * factors, axis=1)[:, -1])
    total = weights[:, 0] * factors[:, 0]
    product = np.empty_like(total)
    for count in range(1, _BLOCK):
        total += np.multiply(weights[:, count], factors[:, count], out=product)
    return total
