"""The elementary updates of a posterior: copies mix, counts move, weights are applied.

Each function does one thing to the cells of some zones side by side, with regimes first: shape [16, copies, counts,
zones] unless it says otherwise. None knows windows, states or the calendar. Sums are taken in a fixed order, so that
bytes do not depend on the machine; zeros after a window do not change a sum over counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import Real, ordered_sum
from stream.mechanisms.filter.model import Cells

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
    regimes, copies, counts, zones = x.shape
    rows, ups, downs = (  # counts first: the cells of a count lie side by side in memory
        np.ascontiguousarray(np.broadcast_to(each, x.shape).transpose(2, 0, 1, 3)).reshape(counts, -1)
        for each in (x, up, down)
    )
    below, row = np.zeros_like(rows), np.empty_like(rows[0])
    for w in range(counts - 2, -1, -1):
        np.add(rows[w + 1], below[w + 1], out=row)
        np.multiply(row, downs[w], out=below[w])
    for w in range(1, counts):
        rows[w] += np.multiply(rows[w - 1], ups[w], out=row)
    rows += below
    x[:] = rows.reshape(counts, regimes, copies, zones).transpose(1, 2, 0, 3)


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
    passed_on = np.empty_like(blocks[:, 0])
    for b in range(1, blocks.shape[1]):
        blocks[:, b] += np.multiply(reach[:, b], blocks[:, b - 1, -1:], out=passed_on)
    after = both[:, :cells, 0] + both[:, cells - 1 :: -1, 1]
    after -= x
    return np.asarray(after)


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
    share = 1 / running_sum(ordered_sum(weights))
    p *= share
    weights *= share
    return weights


def marginal(p: Cells) -> Cells:
    """Return the weight of each count of P in the form of ``RegimeFilter.dense``, shape [C+1, zones]."""
    return ordered_sum(ordered_sum(p).swapaxes(0, 1))
