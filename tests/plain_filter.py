"""The steps of the regime-switching filter written plainly, one array an operation: what the fast ones must equal.

Every operation, and the order of operations on every cell, is what decides the filter's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from stream.mechanisms import filter as filter_
from stream.mechanisms.exact import ordered_sum
from stream.mechanisms.filter import FilterState
from stream.mechanisms.filter_model import EVEN_SHARE, LEAST_CELL, Cells, arrivals, kernels, likelihood
from stream.mechanisms.noise import Ints
from stream.mechanisms.parameter import NoiseParameter


def predict(p: Cells) -> Cells:
    """Return P one tick later: copies mix, regimes switch, counts move."""
    if p.shape[2] == 2:
        p = 0.998 * p + 0.001 * (p[:, :, :1] + p[:, :, 1:])
    return move(switch(p))


def switch(p: Cells) -> Cells:
    """Return Q(·, z, j) = P(·, z, j) A."""
    even = EVEN_SHARE * ordered_sum(p)
    switched = np.empty_like(p)
    for total, origins in zip(switched, arrivals(), strict=True):
        total[:] = even
        for origin, probability in origins:
            np.add(total, p[origin] * probability, out=total)
    return switched


def move(q: Cells) -> Cells:
    """Return F + B - X, both recursions in one array."""
    kernel, cells = kernels(q.shape[1] - 1), q.shape[1]
    x = np.maximum(q * kernel.norm[:, :, None, None].astype(np.float32), LEAST_CELL)
    blocks = np.zeros((*kernel.factors.shape[:3], 2, *q.shape[2:]), np.float32)
    both = blocks.reshape(len(q), -1, 2, *q.shape[2:])
    both[:, :cells, 0], both[:, :cells, 1] = x, x[:, ::-1]
    for i in range(1, blocks.shape[2]):
        blocks[:, :, i] += kernel.factors[:, :, i] * blocks[:, :, i - 1]
    for b in range(1, blocks.shape[1]):
        blocks[:, b] += kernel.reach[:, b] * blocks[:, b - 1, -1:]
    return np.asarray(both[:, :cells, 0] + both[:, cells - 1 :: -1, 1] - x)


def lean(p: Cells, weight: Cells) -> Cells:
    """Return P with copy 1's moving regimes weighed by h(z), each keeping its mass."""
    before = p[1:, :, 1]
    after = before * weight
    mass = ordered_sum(after.swapaxes(0, 1))
    scale = ordered_sum(before.swapaxes(0, 1)) / np.where(mass > 0, mass, 1.0)
    leaning = p.copy()
    leaning[1:, :, 1] = after * scale[:, None]
    return leaning


def observe(p: Cells, noisy: Ints, noise: NoiseParameter) -> Cells:
    """Return P weighed by the likelihood of the noisy values, and divided by its total."""
    seen = p * likelihood(noise, p.shape[1] - 1, noisy)[:, None]
    return np.asarray(seen / ordered_sum(ordered_sum(ordered_sum(seen).swapaxes(0, 1))))


def whole(state: FilterState, head: bytes) -> bytes:
    """Return a state's byte form before zeros were left out: ``RSF2``, the rest of its head, all cells."""
    memories = [array for memory in state.calendars for array in (memory.history, memory.sums)]
    arrays = (*state.cells, *memories)
    return b"RSF2" + head[4:10] + b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)


@contextmanager
def plainly() -> Iterator[None]:
    """Let filters take their steps by these functions."""
    with patch.multiple(filter_, predict=predict, lean=lean, observe=observe):
        yield
