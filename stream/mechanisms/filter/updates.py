"""The elementary updates of a posterior: copies mix, regimes change, counts move, weights are applied.

Each function does one thing to the cells of some zones side by side, with regimes first: shape [16, copies, counts,
zones] unless it says otherwise. None knows ranges, states or the calendar. Sums are taken in a fixed order, so that
bytes do not depend on the machine; zeros after a range do not change a sum over counts.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import Real, ordered_sum
from stream.mechanisms.filter.model import (
    EVEN_SHARE,
    LEAST_CELL,
    REGIMES,
    Cells,
    arrivals,
    back_kernels,
    departures,
    kernels,
    onward_kernels,
    pairs,
)

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
    # Lists of the rows: to take a row out of an array takes as long as to add two of them.
    at, under, up_at, down_at = list(rows), list(below), list(ups), list(downs)
    for w in range(counts - 2, -1, -1):
        np.add(at[w + 1], under[w + 1], out=row)
        np.multiply(row, down_at[w], out=under[w])
    for w in range(1, counts):
        np.add(at[w], np.multiply(at[w - 1], up_at[w], out=row), out=at[w])
    rows += below
    x[:] = rows.reshape(counts, regimes, copies, zones).transpose(1, 2, 0, 3)


def weigh_by_calendar(moving: Cells, weight: Cells, before: Cells, beyond: Cells) -> None:
    """Weigh copy 1's moving regimes (k >= 1) by h(z), each keeping its mass, in place.

    Args:
        moving: shape [15, counts, zones].
        weight: h of each count, shape [counts, zones].
        before: the mass that each regime has over all counts, shape [15, zones].
        beyond: the part of that mass beyond the range, weighed by h, same shape.
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


def moved(q: Cells) -> Cells:
    """Return P after the counts have moved, over a whole grid; shape [16, grid + 1, zones]."""
    grid = q.shape[1] - 1
    kernel = onward_kernels(grid)
    x = np.maximum(q * kernels(grid).norm[:, :, None].astype(np.float32), LEAST_CELL)
    return spread(x[:, :, None], kernel.factors, kernel.reach)[:, :, 0]


def moved_back(g: Cells) -> Cells:
    """Return a tick's weights moved to the counts one tick earlier, regimes unchanged; arguments as for ``before``."""
    capacity = g.shape[1] - 1
    kernel = back_kernels(capacity)
    raised = np.maximum(g, LEAST_CELL)[:, :, None]
    norm = kernels(capacity).norm[:, :, None].astype(np.float32)
    return np.asarray(spread(raised, kernel.factors, kernel.reach)[:, :, 0] * norm)


# Changes of regimes.


def switched(p: Cells, rate: Cells) -> Cells:
    """Return Q(k', ·, zone) = Σ_k P(k, ·, zone) A(k, k').

    Args:
        p: by regime, any other axes, and zone.
        rate: shape [76, zones].
    """
    return _mixed(p, rate, arrivals())


def handed_back(weights: Cells, rate: Cells) -> Cells:
    """Return Σ_k' A(k, k') weights(k', ·, zone): weights of regimes after a change, moved to those before it."""
    return _mixed(weights, rate, departures())


_Others = tuple[tuple[tuple[int, int], ...], ...]
"""For each regime: other regimes, each with the index of the pair in ``pairs``."""
_FEW = 2048
"""Up to this number of cells per regime, the time depends on the number of operations, not on their size."""


def _mixed(p: Cells, rate: Cells, others: _Others) -> Cells:
    """Return, for each regime, a share of all of them plus the shares of its own others, in their order."""
    even = ordered_sum(p)
    even *= EVEN_SHARE
    if even.size < _FEW:
        return _mixed_at_once(p, rate, others, even)
    mixed, share = np.empty_like(p), np.empty_like(even)
    for total, own in zip(mixed, others, strict=True):
        before = even
        for other, place in own:
            before = np.add(before, np.multiply(p[other], rate[place], out=share), out=total)
    return mixed


def _mixed_at_once(p: Cells, rate: Cells, others: _Others, even: Cells) -> Cells:
    """Return the same bytes: all regimes' first others are added, then all second ones; missing ones are 0."""
    mixed = np.broadcast_to(even, p.shape).copy()
    rate_or_none = np.concatenate([rate, np.zeros_like(rate[:1])])
    for other, place in _by_rank(others):
        shares = rate_or_none[place].reshape(REGIMES, *(1,) * (p.ndim - 2), -1)
        mixed += p[other] * shares
    return mixed


@lru_cache(maxsize=2)
def _by_rank(others: _Others) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return, for each rank, every regime's other at it, and the index of the pair; if missing, the last index."""
    most = max(len(own) for own in others)
    table = np.array([[*own, *[(0, len(pairs()))] * (most - len(own))] for own in others])
    return [(table[:, rank, 0], table[:, rank, 1]) for rank in range(most)]
