"""The filter over past ticks: earlier ticks from later ones, forward and backward.

At each tick the filter uses the noisy values up to it. Later values contain more information about it, at no cost,
since they are released anyway. With

    symbol      here          meaning
    a_t(z, k)   ahead[t]      the filter's posterior at tick t, summed over both copies
    e_t(z)      likelihood    likelihood of count z given the noisy value of tick t, at most 1
    b_t(z, k)   behind        likelihood of count and regime at t given everything after t, at most 1

the history of tick t is a_t b_t, and b_{t-1} = T (e_t b_t), with 1 at the last tick. T moves weights from the
counts and regimes of the next tick back to those of the previous one: it moves counts back, then mixes regimes. The
calendar has no part in the backward pass: it learns from the same stream, and would count again at each tick. So b
is the same in both copies, and mixing them changes nothing.

Arithmetic is the filter's: the same bytes on every machine, in 32 bits. Zones are processed a few at a time, so
that memory for all ticks at once stays bounded.

**What is learnt of a day** (``learn``). The noisy values of a day, and of some windows before it, go through the core
of the filter (without calendar) forward and backward. The result is the probability of each count at each window, for
the calendar and for revised values; and, for each pair of regimes, the expected number of changes from one to the
other, given everything (one step of expectation maximisation):

    ξ_t(k, k')  in proportion to  A(k, k') Σ_z a_{t-1}(z, k) M_t(z, k'),  adding up to 1
    N           grows by Σ_t ξ_t, times the share of the windows that are the day's

with a the filter's P, and M_t = the likelihood of the values from t on, for counts and regimes, moved back to the
counts' previous positions. It starts from a uniform distribution, some windows before the day, and needs no state: only
the noisy values. The grid of counts ends at the largest noisy value of these windows, plus a standard deviation of the
noise: released values determine its size, never counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream.mechanisms.exact import Floats, Ints, half_widths, ordered_sum, quantiles
from stream.mechanisms.filter.calendar import Calendar
from stream.mechanisms.filter.model import REGIMES, Cells, kernels, likelihood, none_counted, pairs, rates, stationary
from stream.mechanisms.filter.posterior import joined
from stream.mechanisms.filter.state import FilterState, Learnt
from stream.mechanisms.filter.step import Estimate, FilterItem, RegimeFilter
from stream.mechanisms.filter.updates import handed_back, moved, moved_back, switched
from stream.mechanisms.noise_parameters import NoiseParameter

ROOM = 64 << 20
"""Largest memory for the filtered ticks of the zones that are processed together, in bytes."""


def smooth(
    filtered: RegimeFilter, state: FilterState, items: Sequence[FilterItem], final: int, *, room: int = ROOM
) -> tuple[FilterState, list[Estimate]]:
    """Return revised estimates of the first ticks of a stream, given all of it.

    Args:
        filtered: the filter.
        state: its state before the first tick.
        items: of each tick, in order, at least one.
        final: number of ticks to revise from the first on, 1 … all.
        room: largest memory for ticks, in bytes (a single zone may take more).

    Returns:
        The filter's state after these ticks, and their estimates (``median_and_band``), of each zone in registry order.
    """
    shape = (final, len(filtered.capacities))
    median, half_width = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    parts: list[tuple[Ints, FilterState]] = []
    for family, (capacity, zones) in enumerate(filtered.grids.families):
        for part in _parts(zones, _ticks_size(capacity, len(items)), room):
            begin = _take(filtered, state, family, part)
            few = RegimeFilter((capacity,) * (part.stop - part.start), filtered.noise, filtered.calendar)
            own = [FilterItem(item.noisy[zones[part]], item.slot) for item in items]
            after, marginals = smoothed_marginals(few, begin, own, final)
            parts.append((zones[part], after))
            for tick, weights in enumerate(marginals):
                median[tick, zones[part]], half_width[tick, zones[part]] = median_and_band(weights)
    posterior = joined([(zones, after.posterior) for zones, after in parts])
    return FilterState(True, posterior, state.learnt), [
        Estimate(*each) for each in zip(median, half_width, strict=True)
    ]


def _ticks_size(capacity: int, ticks: int) -> int:
    """Return the size of some ticks of one zone in bytes."""
    return ticks * kernels(capacity).norm.size * np.dtype(np.float32).itemsize


def _parts(zones: Ints, size: int, room: int) -> Iterator[slice]:
    step = max(1, room // size)
    for start in range(0, len(zones), step):
        yield slice(start, min(start + step, len(zones)))


def _take(filtered: RegimeFilter, state: FilterState, family: int, part: slice) -> FilterState:
    """Return the state of some zones of one capacity."""
    counted, calendar = state.learnt[family]
    few = calendar and Calendar(calendar.history[..., part], calendar.sums[..., part])
    posterior = state.posterior.of(filtered.grids.families[family][1][part])
    return FilterState(state.started, posterior, (Learnt(counted[:, part], few),))


REVISED_BAND = 0.98
"""Probability of a half-width by a revised posterior: more than of a first one (``step.BAND``), since a revised
posterior depends on parameters that were learnt from the same values."""


def median_and_band(weights: Floats) -> Estimate:
    """Return the median, and the smallest half-width within which the count lies with probability ``REVISED_BAND``.

    Args:
        weights: of each count, shape [counts, zones].
    """
    (middle,) = quantiles(weights, 0.5)
    return Estimate(middle, half_widths(weights, middle, REVISED_BAND))


class _Ahead(NamedTuple):
    """Results of the forward pass for the backward pass."""

    ticks: list[Cells]
    """P of both copies together, shape [16, C+1, zones] each."""
    after: FilterState


def smoothed_marginals(
    filtered: RegimeFilter, state: FilterState, items: Sequence[FilterItem], final: int
) -> tuple[FilterState, list[Floats]]:
    """Return the weight of each count at the first ticks of a stream, given all of it, for zones of one capacity.

    Args:
        filtered: of one capacity.
        state: the filter's, before the first tick.
        items: of each tick, in order.
        final: number of ticks to return.

    Returns:
        The filter's state after these ticks, and for each its weights, shape [C+1, zones], adding up to any number.
    """
    ((capacity, _),) = filtered.grids.families
    ahead = _ahead(filtered, state, items, final)
    rate = rates(state.learnt[0].counted)
    behind = np.ones_like(ahead.ticks[-1])
    found: list[Floats] = []
    for tick in range(len(items) - 1, -1, -1):
        if tick < final:
            found.append(ordered_sum(ahead.ticks[tick] * behind).astype(np.float64))
        if tick:
            behind = before(behind * likelihood(filtered.noise, capacity, items[tick].noisy), rate)
    return ahead.after, found[::-1]


def _ahead(filtered: RegimeFilter, state: FilterState, items: Sequence[FilterItem], final: int) -> _Ahead:
    ticks, after = [], state
    for number, item in enumerate(items, start=1):
        state, _ = filtered.step(state, item)
        (cells,) = filtered.dense(state)
        ticks.append(ordered_sum(cells.swapaxes(0, 2).swapaxes(1, 2)))
        after = state if number == final else after
    return _Ahead(ticks, after)


def before(g: Cells, rate: Cells) -> Cells:
    """Return T g, divided by its largest value: a tick's weights moved to counts and regimes one tick earlier.

    Args:
        g: by regime, count and zone, shape [16, C+1, zones].
        rate: of the zones' regimes, from ``model.rates``.
    """
    mixed = handed_back(moved_back(g), rate)
    mixed /= mixed.max(axis=(0, 1))
    return mixed


# Learning from one day.

_NEGLIGIBLE = 1e-9


class Lesson(NamedTuple):
    """Zones that are learnt together, all on one grid of counts."""

    zones: Ints
    """Their positions among the zones of the call."""
    grid: int
    """The largest count of the grid."""


class Learning(NamedTuple):
    """What was learnt about some zones from a day."""

    history: list[Floats]
    """Weight of each count at each of the day's windows, not normalised: shape [grid + 1, zones] each."""
    counted: Floats
    """The increase of N, shape [76, zones]."""


def lessons(noisy: Ints, capacities: Ints, noise: NoiseParameter, *, room: int = ROOM) -> Iterator[Lesson]:
    """Yield the zones in groups that are learnt together: with one grid, and few enough.

    Args:
        noisy: of the windows, shape [windows, zones].
        capacities: each zone's largest count.
        noise: of the noisy values.
        room: largest memory for a group's filtered windows, in bytes (a single zone may take more).
    """
    grids = grids_of(noisy, capacities, noise)
    for grid in np.unique(grids):
        zones = np.flatnonzero(grids == grid)
        few = max(1, room // (len(noisy) * REGIMES * (int(grid) + 1) * np.dtype(np.float32).itemsize))
        for start in range(0, len(zones), few):
            yield Lesson(zones[start : start + few], int(grid))


def grids_of(noisy: Ints, capacities: Ints, noise: NoiseParameter) -> Ints:
    """Return the largest count of each zone's grid; arguments as for ``lessons``."""
    reach = noisy.max(axis=0) + np.int64(np.ceil(noise.deviation))
    return np.minimum(np.array([_rung(int(each)) for each in reach], np.int64), capacities)


def _rung(reach: int) -> int:
    """Return the smallest of 16, 24, 32, 48, 64, 96, … that is not below ``reach``: few grids, so zones share them."""
    rung = 1 << max(4, (reach - 1).bit_length())
    return rung * 3 // 4 if rung > 16 and reach <= rung * 3 // 4 else rung


def learn(noise: NoiseParameter, grid: int, noisy: Ints, counted: Cells, day: int) -> Learning:
    """Learn from the last windows, which are the day's, given all windows.

    Args:
        noise: of the noisy values.
        grid: the largest count of the grid.
        noisy: of all windows, in order, shape [windows, zones].
        counted: N of these zones so far, shape [76, zones].
        day: number of windows that are the day's, from 1 to all.
    """
    rate = rates(counted)
    ahead = _forward(noise, grid, noisy, rate)
    behind, history = np.ones_like(ahead[-1]), list[Floats]()
    changes = none_counted(noisy.shape[1]).astype(np.float64)
    for tick in range(len(noisy) - 1, -1, -1):
        if tick >= len(noisy) - day:
            history.append(ordered_sum(ahead[tick] * behind).astype(np.float64))
        if tick:
            earlier = moved_back(behind * likelihood(noise, grid, noisy[tick]))
            changes += _changes(ahead[tick - 1], earlier, rate)
            behind = handed_back(earlier, rate)
            behind /= behind.max(axis=(0, 1))
    return Learning(history[::-1], changes * (day / len(noisy)))


def _forward(noise: NoiseParameter, grid: int, noisy: Ints, rate: Cells) -> list[Cells]:
    """Return P at each window, from a uniform start: shape [16, grid + 1, zones] each."""
    even = (stationary() / (grid + 1))[:, None, None]
    p, ticks = np.broadcast_to(even, (REGIMES, grid + 1, noisy.shape[1])).astype(np.float32), list[Cells]()
    for seen in noisy:
        p = (moved(switched(p, rate)) if ticks else p) * likelihood(noise, grid, seen)
        p /= ordered_sum(ordered_sum(p))
        np.copyto(p, 0, where=p < _NEGLIGIBLE / (grid + 1))
        ticks.append(p)
    return ticks


def _changes(before: Cells, moved: Cells, rate: Cells) -> Floats:
    """Return ξ of one window, shape [76, zones]."""
    origins, ends = np.array(pairs()).T
    found = ordered_sum((before[origins] * moved[ends]).swapaxes(0, 1))
    found *= rate
    expected = found.astype(np.float64)
    return np.asarray(expected / ordered_sum(expected))
