"""What the calendar's copy has beyond the windows: a kernel's two ends, weighed by the calendar.

Beyond a window nothing lies but what has moved there from within, and that falls by the factor u(z) a count (below,
d(z)). So all that is needed of it is one sum for each regime: with P(e) at the window's last count e,

    Σ_{z > e} P(z) h(z) = P(e) Σ_{z > e} u(e+1) … u(z) h(z)

The sum is taken in blocks of 32 counts; from block to block the products are quotients of one table a regime,
exp(-S(z)/SU) with S the running sum of 1/g. Where the table has come to the end of what a float holds, that is for
counts of thousands in regimes that move by a few at a time, u and h are taken to stay what they are next to the window:
within a twentieth, of what is little. So they are for regimes that move by less than one count at a time: these have
next to nothing at the end of a window.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import Floats, exp, ordered_sum
from stream.mechanisms.filter_model import DOWN_SCALES, UP_SCALES, Cells, kernels, widening
from stream.mechanisms.noise import Ints

_BLOCK = 32
_FARTHEST = 600.0
_LEAST_END = 1e-217
"""About e**-500, so that a table goes on for long enough where it is read: it ends at e**-700."""
_LEAST_PRODUCT = 1e-37
_ROOM = 1 << 20
"""Numbers that are worked on at once."""


class _Ends(NamedTuple):
    """Of one capacity and the regimes k >= 1."""

    wide: Ints
    """The regimes whose kernel is wide enough to reach somewhere: the others have only what is next to a window."""
    within: Cells
    """Products of factors, from the begin of a block of 32 counts on; shape [blocks, 32, wide, 1]."""
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
    """Return Σ u … u h over the counts above windows, where 1 lies at their last count, shape [15, zones].

    Args:
        weight: h of every count, shape [C+1, zones].
        high: of each zone the count after the last of its window.
    """
    found, counts = np.zeros((15, len(high))), np.arange(len(weight))[:, None]
    for zones in _parts(np.flatnonzero(high < len(weight)), len(weight)):
        first = high[zones]
        found[:, zones] = _summed(_upper(len(weight) - 1), weight[:, zones], counts >= first, first, first)
    return found


def below(weight: Cells, low: Ints) -> Floats:
    """Return Σ d … d h over the counts below windows, where 1 lies at their first count ``low``, shape [15, zones]."""
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
        is_beyond: likewise, whether it lies beyond the window.
        end: the count of ``until`` at which the window ends, shape [zones].
        next_to: the count next to it beyond the window.
    """
    h = np.pad(np.where(is_beyond, weight, np.float32(0)), ((0, -len(weight) % _BLOCK), (0, 0)))
    blocks = h.reshape(-1, _BLOCK, 1, len(end))
    of_blocks = np.zeros((len(blocks), len(ends.wide), len(end)), np.float32)
    reached = np.flatnonzero(is_beyond.any(axis=1)) // _BLOCK
    some = slice(reached[0], reached[-1] + 1)
    product = np.empty_like(of_blocks[some])
    for count in range(_BLOCK):
        of_blocks[some] += np.multiply(blocks[some, count], ends.within[some, count], out=product)
    total = ordered_sum(of_blocks * ends.until[ends.blocks][:, :, None])
    at_end = ends.until[end].T
    is_held = at_end > _LEAST_END
    found = ends.nearest[next_to].T * weight[next_to, np.arange(len(end))]
    found[ends.wide] = np.where(is_held, total / np.where(is_held, at_end, 1.0), found[ends.wide])
    return np.asarray(found)
