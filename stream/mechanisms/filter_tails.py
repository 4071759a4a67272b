"""What the calendar's copy has beyond the windows: a kernel's two ends, weighed by the calendar.

Beyond a window nothing lies but what has moved there from within, and that falls by the factor u(z) a count (below,
d(z)). So all that is needed of it is one sum for each regime: with P(e) at the window's last count e,

    Σ_{z > e} P(z) h(z) = P(e) Σ_{z > e} u(e+1) … u(z) h(z)

The sum is taken in blocks of 32 counts; from block to block the products are quotients of one table a regime,
exp(-S(z)/SU) with S the running sum of 1/g. Where the table has come to the end of what a float holds, that is for
counts of thousands in regimes that move by a few at a time, u and h are taken to stay what they are next to the window:
within a twentieth, of what is little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stream.mechanisms.exact import Floats, exp, ordered_sum
from stream.mechanisms.filter_model import DOWN_SCALES, UP_SCALES, Cells, kernels, widening
from stream.mechanisms.noise import Ints

_BLOCK = 32
_FARTHEST = 600.0
_LEAST_END = 1e-217
"""About e**-500, so that a table goes on for long enough where it is read: it ends at e**-700."""
_LEAST_PRODUCT = 1e-37
_ROOM = 1 << 18
"""Numbers that are worked on at once."""


class _Ends(NamedTuple):
    """Of one capacity and the regimes k >= 1."""

    within: Cells
    """Products of factors, from the begin of a block of 32 counts on; shape [blocks, 32, 15, 1]."""
    until: Floats
    """Products of factors from 0 up to before a count, or their inverses, 0 … C+1; shape [C+2, 15]."""
    blocks: Ints
    """The counts of ``until`` at which the blocks' products begin."""
    nearest: Floats
    """f / (1 - f) of each count's factor f, shape [C+1, 15]."""


@lru_cache(maxsize=256)
def _upper(capacity: int) -> _Ends:
    factors = kernels(capacity).up[1:].T
    within = np.multiply.accumulate(_in_blocks(factors, 1.0), axis=1)
    until = exp(-np.divide.outer(_way(capacity), UP_SCALES[1:]))
    begins = np.arange(0, capacity + 1, _BLOCK)
    return _Ends(_cut(within), until, begins, factors / (1 - factors))


@lru_cache(maxsize=256)
def _lower(capacity: int) -> _Ends:
    factors = kernels(capacity).down[1:].T
    within = np.multiply.accumulate(_in_blocks(factors, 1.0)[:, ::-1], axis=1)[:, ::-1]
    exponents = np.divide.outer(_way(capacity), DOWN_SCALES[1:])
    until = np.where(exponents < _FARTHEST, exp(np.minimum(exponents, _FARTHEST)), 0.0)
    ends = np.minimum(np.arange(0, capacity + 1, _BLOCK) + _BLOCK, capacity + 1)
    return _Ends(_cut(within), until, ends, factors / (1 - factors))


def _way(capacity: int) -> Floats:
    """Return Σ 1/g over the counts below each of 0 … C+1."""
    return np.append(0.0, np.cumsum(1 / widening(capacity)))


def _in_blocks(values: Floats, beyond: float) -> Floats:
    room = -len(values) % _BLOCK
    padded = np.pad(values, ((0, room), *((0, 0),) * (values.ndim - 1)), constant_values=beyond)
    return padded.reshape(-1, _BLOCK, *values.shape[1:])


def _cut(products: Floats) -> Cells:
    return np.where(products < _LEAST_PRODUCT, 0.0, products).astype(np.float32)[..., None]


def above(weight: Cells, high: Ints) -> Floats:
    """Return Σ u … u h over the counts above windows, where 1 lies at their last count, shape [15, zones].

    Args:
        weight: h of every count, shape [C+1, zones].
        high: of each zone the count after the last of its window.
    """
    found = np.zeros((15, len(high)))
    for zones in _parts(np.flatnonzero(high < len(weight)), len(weight)):
        first, h = high[zones], weight[:, zones]
        beyond = np.where(np.arange(len(h))[:, None] >= first, h, np.float32(0))
        found[:, zones] = _summed(_upper(len(h) - 1), beyond, first, first, h)
    return found


def below(weight: Cells, low: Ints) -> Floats:
    """Return Σ d … d h over the counts below windows, where 1 lies at their first count ``low``, shape [15, zones]."""
    found = np.zeros((15, len(low)))
    for zones in _parts(np.flatnonzero(low > 0), len(weight)):
        first, h = low[zones], weight[:, zones]
        beyond = np.where(np.arange(len(h))[:, None] < first, h, np.float32(0))
        found[:, zones] = _summed(_lower(len(h) - 1), beyond, first, first - 1, h)
    return found


def _parts(zones: Ints, counts: int) -> list[Ints]:
    step = max(1, _ROOM // (15 * counts))
    return [zones[begin : begin + step] for begin in range(0, len(zones), step)]


def _summed(ends: _Ends, beyond: Cells, end: Ints, next_to: Ints, weight: Cells) -> Floats:
    """Return the sums of some zones, shape [15, zones].

    Args:
        ends: the tables.
        beyond: h of the counts beyond the window, 0 elsewhere, shape [C+1, zones].
        end: the count of ``until`` at which the window ends.
        next_to: the count next to it beyond the window.
        weight: h of every count.
    """
    blocks = np.pad(beyond, ((0, -len(beyond) % _BLOCK), (0, 0))).reshape(-1, _BLOCK, 1, beyond.shape[1])
    of_blocks = ordered_sum((blocks * ends.within).swapaxes(0, 1))
    total = ordered_sum(of_blocks * ends.until[ends.blocks][:, :, None])
    at_end = ends.until[end].T
    is_held = at_end > _LEAST_END
    nearest = ends.nearest[next_to].T * weight[next_to, np.arange(len(end))]
    return np.where(is_held, total / np.where(is_held, at_end, 1.0), nearest)
