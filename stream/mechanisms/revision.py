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
from stream.mechanisms.exact import Floats, ordered_sum
from stream.mechanisms.filter import Estimate, FilterItem, FilterState, RegimeFilter, quantiles
from stream.mechanisms.filter_calendar import Calendar
from stream.mechanisms.filter_model import EVEN_SHARE, LEAST_CELL, Cells, back_kernels, departures, kernels, likelihood
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
        The filter's state after these ticks, and their estimates: median, and the larger distance from it to the 1 %
        and 99 % quantiles, of each zone in registry order.
    """
    shape = (final, len(filtered.capacities))
    median, half_width = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    families: list[list[tuple[Ints, FilterState]]] = []
    for capacity, zones in filtered.families:
        families.append([])
        for part in _parts(zones, _ticks_size(capacity, len(items)), room):
            held = _take(filtered, state, len(families) - 1, part)
            few = RegimeFilter((capacity,) * (part.stop - part.start), filtered.noise, filtered.calendar)
            own = [FilterItem(item.noisy[zones[part]], item.slot) for item in items]
            after, marginals = smoothed_marginals(few, held, own, final)
            families[-1].append((zones[part], after))
            for tick, weights in enumerate(marginals):
                low, middle, high = quantiles(weights, 0.01, 0.5, 0.99)
                median[tick, zones[part]] = middle
                half_width[tick, zones[part]] = np.maximum(high - middle, middle - low)
    return _joined(families), [Estimate(*each) for each in zip(median, half_width, strict=True)]


def _ticks_size(capacity: int, ticks: int) -> int:
    """Return the bytes that some ticks of one zone take."""
    return ticks * kernels(capacity).norm.size * np.dtype(np.float32).itemsize


def _parts(zones: Ints, size: int, room: int) -> Iterator[slice]:
    step = max(1, room // size)
    for start in range(0, len(zones), step):
        yield slice(start, min(start + step, len(zones)))


def _take(filtered: RegimeFilter, state: FilterState, family: int, part: slice) -> FilterState:
    """Return the state of some zones of one capacity."""
    calendars: tuple[Calendar, ...] = ()
    if filtered.calendar:
        held = state.calendars[family]
        calendars = (Calendar(held.history[..., part], held.sums[..., part]),)
    zones = filtered.families[family][1][part]
    return FilterState(state.started, state.posterior.of(zones), calendars)


def _joined(families: Sequence[Sequence[tuple[Ints, FilterState]]]) -> FilterState:
    """Return the state of all zones from those of a few, capacity by capacity."""
    posterior = joined([(zones, part.posterior) for parts in families for zones, part in parts])
    calendars = tuple(
        Calendar(
            np.concatenate([part.calendars[0].history for _, part in parts], axis=-1),
            np.concatenate([part.calendars[0].sums for _, part in parts], axis=-1),
        )
        for parts in families
        if parts[0][1].calendars
    )
    return FilterState(True, posterior, calendars)


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
    behind = np.ones_like(ahead.ticks[-1])
    found: list[Floats] = []
    for tick in range(len(items) - 1, -1, -1):
        if tick < final:
            found.append(ordered_sum(ahead.ticks[tick] * behind).astype(np.float64))
        if tick:
            behind = before(behind * likelihood(filtered.noise, capacity, items[tick].noisy))
    return ahead.after, found[::-1]


def _forward(filtered: RegimeFilter, state: FilterState, items: Sequence[FilterItem], final: int) -> _Ahead:
    ticks, after = [], state
    for number, item in enumerate(items, start=1):
        state, _ = filtered.step(state, item)
        (cells,) = filtered.dense(state)
        ticks.append(ordered_sum(cells.swapaxes(0, 2).swapaxes(1, 2)))
        after = state if number == final else after
    return _Ahead(ticks, after)


def before(g: Cells) -> Cells:
    """Return T g, divided by its largest value: what a tick's weights say of counts and regimes one tick earlier.

    Args:
        g: by regime, count and zone, shape [16, C+1, zones].
    """
    capacity = g.shape[1] - 1
    kernel = back_kernels(capacity)
    raised = np.maximum(g, LEAST_CELL)[:, :, None]
    moved = spread(raised, kernel.factors, kernel.reach)[:, :, 0] * kernels(capacity).norm[:, :, None].astype(
        np.float32
    )
    even = EVEN_SHARE * ordered_sum(moved)
    mixed, share = np.empty_like(moved), np.empty_like(even)
    for total, ends in zip(mixed, departures(), strict=True):
        total[:] = even
        for end, probability in ends:
            np.add(total, np.multiply(moved[end], probability, out=share), out=total)
    return np.asarray(mixed / mixed.max(axis=(0, 1)))
