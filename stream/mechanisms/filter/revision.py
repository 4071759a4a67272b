"""The way back of the regime-switching filter: earlier ticks in the light of what came after them.

The filter says of each tick what the noisy values up to it make likely. Those behind it say more, at no cost,
since they are released anyway. With

    symbol      here          meaning
    a_t(z, k)   ahead[t]      what the filter has of tick t, of both copies together
    e_t(z)      likelihood    how likely count z makes the noisy value of tick t, at most 1
    b_t(z, k)   behind        how likely count and regime at t make everything after t, at most 1

the history of tick t is a_t b_t, and b_{t-1} = T (e_t b_t), begun with 1 at the last tick: T asks of each count and
regime what the next tick's may be, so it moves counts back, then mixes regimes. The calendar has no part in
the way back: it learns from the same stream, and would count again at each tick. So b is the same in both copies, and
mixing them changes nothing.

Arithmetic is the filter's: the same bytes on every machine, in 32 bits. Zones go through it a few at a time, so that
what is held of all ticks at once stays within a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream.mechanisms.active import joined
from stream.mechanisms.exact import Floats, ordered_sum, quantiles
from stream.mechanisms.filter import Estimate, FilterItem, FilterState, Learnt, RegimeFilter
from stream.mechanisms.filter_calendar import Calendar
from stream.mechanisms.filter_model import LEAST_CELL, Cells, back_kernels, kernels, likelihood
from stream.mechanisms.filter_moves import handed_back, rates
from stream.mechanisms.filter_steps import spread
from stream.mechanisms.noise import Ints

ROOM = 64 << 20
"""Bytes that the filtered ticks of a few zones may take at once."""


def smooth(
    filtered: RegimeFilter, state: FilterState, items: Sequence[FilterItem], final: int, *, room: int = ROOM
) -> tuple[FilterState, list[Estimate]]:
    """Return what the first ticks of a stream are estimated to have been, given all of it.

    Args:
        filtered: the filter.
        state: its state before the first tick.
        items: of each tick, in order, at least one.
        final: how many ticks from the first on are asked for, 1 … all.
        room: bytes that may be held at once of ticks (of a single zone it may take more).

    Returns:
        The filter's state after these ticks, and their estimates (``median_and_band``), of each zone in registry order.
    """
    shape = (final, len(filtered.capacities))
    median, half_width = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    parts: list[tuple[Ints, FilterState]] = []
    for family, (capacity, zones) in enumerate(filtered.families):
        for part in _parts(zones, _ticks_size(capacity, len(items)), room):
            held = _take(filtered, state, family, part)
            few = RegimeFilter((capacity,) * (part.stop - part.start), filtered.noise, filtered.calendar)
            own = [FilterItem(item.noisy[zones[part]], item.slot) for item in items]
            after, marginals = smoothed_marginals(few, held, own, final)
            parts.append((zones[part], after))
            for tick, weights in enumerate(marginals):
                median[tick, zones[part]], half_width[tick, zones[part]] = median_and_band(weights)
    posterior = joined([(zones, after.posterior) for zones, after in parts])
    return FilterState(True, posterior, state.learnt), [
        Estimate(*each) for each in zip(median, half_width, strict=True)
    ]


def _ticks_size(capacity: int, ticks: int) -> int:
    """Return the bytes that some ticks of one zone take."""
    return ticks * kernels(capacity).norm.size * np.dtype(np.float32).itemsize


def _parts(zones: Ints, size: int, room: int) -> Iterator[slice]:
    step = max(1, room // size)
    for start in range(0, len(zones), step):
        yield slice(start, min(start + step, len(zones)))


def _take(filtered: RegimeFilter, state: FilterState, family: int, part: slice) -> FilterState:
    """Return the state of some zones of one capacity."""
    counted, calendar = state.learnt[family]
    few = calendar and Calendar(calendar.history[..., part], calendar.sums[..., part])
    posterior = state.posterior.of(filtered.families[family][1][part])
    return FilterState(state.started, posterior, (Learnt(counted[:, part], few),))


_BAND = 0.005, 0.995


def median_and_band(weights: Floats) -> Estimate:
    """Return the median, and the larger distance from it to the 0.5 % and 99.5 % quantiles.

    A little more than of the filter's own: what is known afterwards is surer of itself, and it rests on what was learnt
    from the same values.

    Args:
        weights: of each count, shape [counts, zones].
    """
    low, middle, high = quantiles(weights, _BAND[0], 0.5, _BAND[1])
    return Estimate(middle, np.maximum(high - middle, middle - low))


class _Ahead(NamedTuple):
    """What a run of the filter leaves for the way back."""

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
        final: how many ticks are asked for.

    Returns:
        The filter's state after these ticks, and for each its weights, shape [C+1, zones], adding up to any number.
    """
    ((capacity, _),) = filtered.families
    ahead = _forward(filtered, state, items, final)
    rate = rates(state.learnt[0].counted)
    behind = np.ones_like(ahead.ticks[-1])
    found: list[Floats] = []
    for tick in range(len(items) - 1, -1, -1):
        if tick < final:
            found.append(ordered_sum(ahead.ticks[tick] * behind).astype(np.float64))
        if tick:
            behind = before(behind * likelihood(filtered.noise, capacity, items[tick].noisy), rate)
    return ahead.after, found[::-1]


def _forward(filtered: RegimeFilter, state: FilterState, items: Sequence[FilterItem], final: int) -> _Ahead:
    ticks, after = [], state
    for number, item in enumerate(items, start=1):
        state, _ = filtered.step(state, item)
        (cells,) = filtered.dense(state)
        ticks.append(ordered_sum(cells.swapaxes(0, 2).swapaxes(1, 2)))
        after = state if number == final else after
    return _Ahead(ticks, after)


def before(g: Cells, rate: Cells) -> Cells:
    """Return T g, divided by its largest value: what a tick's weights say of counts and regimes one tick earlier.

    Args:
        g: by regime, count and zone, shape [16, C+1, zones].
        rate: of the zones' regimes, from ``filter_moves.rates``.
    """
    mixed = handed_back(moved_back(g), rate)
    mixed /= mixed.max(axis=(0, 1))
    return mixed


def moved_back(g: Cells) -> Cells:
    """Return what a tick's weights say of the counts one tick earlier, regimes as they are; arguments as above."""
    capacity = g.shape[1] - 1
    kernel = back_kernels(capacity)
    raised = np.maximum(g, LEAST_CELL)[:, :, None]
    norm = kernels(capacity).norm[:, :, None].astype(np.float32)
    return np.asarray(spread(raised, kernel.factors, kernel.reach)[:, :, 0] * norm)
