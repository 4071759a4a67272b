"""The regime-switching filter straight from its formulas: all counts, one after the other, in 64 bits.

What the filter of the project must equal within its tolerance: it works on windows, in 32 bits, and drops tiny cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from stream.mechanisms.exact import Floats, Ints, ordered_sum, quantiles
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter.calendar import Calendar
from stream.mechanisms.filter.model import Cells, kernels, stationary, transitions
from stream.mechanisms.filter.state import FilterState, Learnt
from stream.mechanisms.filter.step import BAND, Estimate, FilterItem, RegimeFilter
from stream.mechanisms.noise_parameters import NoiseParameter


@dataclass
class PlainFilter:
    """The filter of some zones of one capacity; ``p`` is P, shape [16, copies, C+1, zones]."""

    capacity: int
    zones: int
    noise: NoiseParameter
    calendar: bool = True

    def __post_init__(self) -> None:
        copies = 2 if self.calendar else 1
        shape = (16, copies, self.capacity + 1, self.zones)
        self.p: Floats = np.broadcast_to(stationary()[:, None, None, None], shape) / ((self.capacity + 1) * copies)
        self.memory: Calendar = filter_calendar.empty(self.capacity, self.zones)
        self._started = False

    def step(self, item: FilterItem) -> tuple[Ints, Ints]:
        """Take a tick; return the medians and half-widths of the zones."""
        p = self.p
        if self._started:
            p = moved(np.einsum("kjzn,kl->ljzn", mixed(p), np.array(transitions(), dtype=float)), self.capacity)
        weight = filter_calendar.expect(self.memory, self.capacity, item.slot, self.noise.inverse_scale)
        if self._started and self.calendar:
            p = leaning(p, weight)
        p = p * self._likelihood(item.noisy)
        self.p, self._started = p / p.sum(axis=(0, 1, 2)), True
        if self.calendar:
            free = self.p[:, 0].sum(axis=0) / self.p[:, 0].sum(axis=(0, 1))
            filter_calendar.take_in(self.memory, item.slot, free)
        counts = self.p.sum(axis=(0, 1))
        (middle,) = quantiles(counts, 0.5)
        distance = np.abs(np.arange(self.capacity + 1)[:, None] - middle)
        at_distance = np.zeros_like(counts)
        np.add.at(at_distance, (distance, np.arange(self.zones)), counts)
        return middle, np.asarray((np.cumsum(at_distance, axis=0) < BAND - 1e-6).sum(axis=0))

    def _likelihood(self, noisy: Ints) -> Floats:
        counts = np.arange(self.capacity + 1)[:, None]
        if self.noise.kind == "laplace":
            exponents = -float(self.noise.exact) * np.abs(noisy - counts)
        else:
            exponents = -((noisy - counts) ** 2) / (2 * float(self.noise.exact))
        return np.asarray(np.exp(exponents - exponents.max(axis=0)))

    def dense(self) -> Floats:
        """Return P in the form of ``RegimeFilter.dense``, shape [16, C+1, copies, zones]."""
        return self.p.swapaxes(1, 2)


def mixed(p: Floats) -> Floats:
    """Return P when copies have become each other."""
    return p if p.shape[1] == 1 else 0.998 * p + 0.001 * p.sum(axis=1, keepdims=True)


def moved(q: Floats, capacity: int) -> Floats:
    """Return F + B - X."""
    kernel = kernels(capacity)
    x = q * kernel.norm[:, None, :, None]
    both = np.moveaxis(np.array([x, x[:, :, ::-1]]), 3, 0).copy()  # the counts of F, and those of B from the last on
    factors = np.array([kernel.up, kernel.down[:, ::-1]])[..., None, None]
    for z in range(1, capacity + 1):
        both[z] += factors[:, :, z] * both[z - 1]
    forth, back = np.moveaxis(both, 0, 3)
    return np.asarray(forth + back[:, :, ::-1] - x)


def leaning(p: Floats, weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Floats:
    """Return P with copy 1's moving regimes weighed by h(z), each keeping its mass."""
    before = p[1:, 1]
    after = before * weight
    leaned = p.copy()
    leaned[1:, 1] = after * (before.sum(axis=1) / after.sum(axis=1))[:, None]
    return leaned


def by_tick(stage: RegimeFilter, stream: Iterable[FilterItem]) -> Iterator[tuple[FilterState, Estimate]]:
    """Yield state and estimate of each tick, the calendar fed with each by the filter itself, as published."""
    state = stage.initial()
    for item in stream:
        state, [estimate] = stage.step(state, item)
        fed = [fed_with(*each, item) for each in zip(state.learnt, stage.dense(state), strict=True)]
        state = replace(state, learnt=tuple(fed))
        yield state, estimate


def fed_with(learnt: Learnt, cells: Cells, item: FilterItem) -> Learnt:
    """Return what was learnt with a tick of copy 0 on top."""
    if learnt.calendar is None:
        return learnt
    calendar = Calendar(learnt.calendar.history.copy(), learnt.calendar.sums.copy())
    free = ordered_sum(cells[:, :, 0]).astype(np.float64)
    filter_calendar.take_in(calendar, item.slot, free / ordered_sum(free))
    return learnt._replace(calendar=calendar)
