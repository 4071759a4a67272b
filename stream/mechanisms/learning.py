"""What a day says of a zone when it is over: its counts in the light of all of it, and how its movement changed.

The noisy values of a day, and of some windows before it, go through the core of the filter (no calendar) and back
again. That gives how likely each count was at each window, for the calendar and for those who want the day's values
once more; and, of each pair of regimes, how many changes from the one to the other are to be expected, given
everything (one step of expectation maximisation):

    ξ_t(k, k')  in proportion to  A(k, k') Σ_z a_{t-1}(z, k) M_t(z, k'),  adding up to 1
    N           grows by Σ_t ξ_t, times the share of the windows that are the day's

with a the filter's P, and M_t = what the values from t on say of counts and regimes, handed back to where the counts
were. Begun from ignorance, some windows before the day, it needs no state: only the noisy values. The grid of counts
ends where the largest noisy value of these windows does, with a standard deviation of the noise to spare: what was
released sizes it, never what was counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stream.mechanisms.exact import Floats, ordered_sum
from stream.mechanisms.filter_model import (
    LEAST_CELL,
    REGIMES,
    Cells,
    kernels,
    likelihood,
    onward_kernels,
    stationary,
)
from stream.mechanisms.filter_moves import handed_back, none_counted, pairs, rates, switched
from stream.mechanisms.filter_steps import spread
from stream.mechanisms.noise import Ints
from stream.mechanisms.parameter import NoiseParameter
from stream.mechanisms.revision import moved_back

ROOM = 64 << 20
"""Bytes that the filtered windows of a few zones may take at once."""
_NEGLIGIBLE = 1e-9


class Lesson(NamedTuple):
    """What some zones are learnt from, all on one grid of counts."""

    zones: Ints
    """Their places among those that were asked about."""
    grid: int
    """The largest count that is considered."""


class Learning(NamedTuple):
    """What a day says of some zones."""

    history: list[Floats]
    """How likely each count was at each of the day's windows, up to a factor: shape [grid + 1, zones] each."""
    counted: Floats
    """What N grows by, shape [76, zones]."""


def lessons(noisy: Ints, capacities: Ints, noise: NoiseParameter, *, room: int = ROOM) -> Iterator[Lesson]:
    """Yield the zones in groups that are learnt together: of one grid, and few enough.

    Args:
        noisy: of the windows, shape [windows, zones].
        capacities: each zone's largest count.
        noise: of the noisy values.
        room: bytes that a group's filtered windows may take at once (those of a single zone may take more).
    """
    grids = grids_of(noisy, capacities, noise)
    for grid in np.unique(grids):
        zones = np.flatnonzero(grids == grid)
        few = max(1, room // (len(noisy) * REGIMES * (int(grid) + 1) * np.dtype(np.float32).itemsize))
        for start in range(0, len(zones), few):
            yield Lesson(zones[start : start + few], int(grid))


def grids_of(noisy: Ints, capacities: Ints, noise: NoiseParameter) -> Ints:
    """Return the largest count that is considered of each zone; arguments as for ``lessons``."""
    reach = noisy.max(axis=0) + np.int64(np.ceil(noise.deviation))
    return np.minimum(np.array([_rung(int(each)) for each in reach], np.int64), capacities)


def _rung(reach: int) -> int:
    """Return the smallest of 16, 24, 32, 48, 64, 96, … that is no less: so grids are few, and zones go together."""
    rung = 1 << max(4, (reach - 1).bit_length())
    return rung * 3 // 4 if rung > 16 and reach <= rung * 3 // 4 else rung


def learn(noise: NoiseParameter, grid: int, noisy: Ints, counted: Cells, day: int) -> Learning:
    """Return what the last windows, which are the day's, say of their zones in the light of all.

    Args:
        noise: of the noisy values.
        grid: the largest count that is considered.
        noisy: of all windows, in order, shape [windows, zones].
        counted: N of these zones so far, shape [76, zones].
        day: how many windows are the day's, 1 … all.
    """
    rate = rates(counted)
    ahead = _forward(noise, grid, noisy, rate)
    behind, history = np.ones_like(ahead[-1]), list[Floats]()
    changes = none_counted(noisy.shape[1]).astype(np.float64)
    for tick in range(len(noisy) - 1, -1, -1):
        if tick >= len(noisy) - day:
            history.append(ordered_sum(ahead[tick] * behind).astype(np.float64))
        if tick:
            moved = moved_back(behind * likelihood(noise, grid, noisy[tick]))
            changes += _changes(ahead[tick - 1], moved, rate)
            behind = handed_back(moved, rate)
            behind /= behind.max(axis=(0, 1))
    return Learning(history[::-1], changes * (day / len(noisy)))


def _forward(noise: NoiseParameter, grid: int, noisy: Ints, rate: Cells) -> list[Cells]:
    """Return P at each window, begun from ignorance: shape [16, grid + 1, zones] each."""
    even = (stationary() / (grid + 1))[:, None, None]
    p, ticks = np.broadcast_to(even, (REGIMES, grid + 1, noisy.shape[1])).astype(np.float32), list[Cells]()
    for seen in noisy:
        p = (_moved(switched(p, rate)) if ticks else p) * likelihood(noise, grid, seen)
        p /= ordered_sum(ordered_sum(p))
        np.copyto(p, 0, where=p < _NEGLIGIBLE / (grid + 1))
        ticks.append(p)
    return ticks


def _moved(q: Cells) -> Cells:
    """Return P when counts have moved, of a whole grid; shape [16, grid + 1, zones]."""
    grid = q.shape[1] - 1
    kernel = onward_kernels(grid)
    x = np.maximum(q * kernels(grid).norm[:, :, None].astype(np.float32), LEAST_CELL)
    return spread(x[:, :, None], kernel.factors, kernel.reach)[:, :, 0]


def _changes(before: Cells, moved: Cells, rate: Cells) -> Floats:
    """Return ξ of one window, shape [76, zones]."""
    origins, ends = np.array(pairs()).T
    found = ordered_sum((before[origins] * moved[ends]).swapaxes(0, 1))
    found *= rate
    expected = found.astype(np.float64)
    return np.asarray(expected / ordered_sum(expected))
