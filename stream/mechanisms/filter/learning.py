"""Daily learning of the filter, over the next day's first windows.

**Schedule.** When a day is over, its noisy values contain more information about it than they did one by one. For this
they are stored, with those of the 144 windows before the day. With each of the first released windows of the next day
the filter learns on one of 48 parts of the zones. The parts follow the order of the zones' largest noisy values (so
that similar zones are together) and then of the registry; parts cost about the same. Where the day had fewer windows
than 288, a window learns on proportionally more parts. All results are used from the window after these on (the 49th of
the day for windows of five minutes), for all zones at once. Parts that are left when the next day begins are learnt
then. So no window causes much work, and the released bytes depend on the noisy values and their days alone. A part
needs nothing of the window with which it is learnt, so it may be computed before that window (``prepare``): then no
window waits, and the bytes are the same.

Noisy values are released, so learning costs nothing, and each audience's filter learns from that audience's values.
A denied window has none and is left out. When a filter restarts, all of this restarts too.

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

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from stream.domains import Magic
from stream.errors import DataError
from stream.mechanisms.base import RevisedDay, WeekSlot
from stream.mechanisms.exact import Floats, ordered_sum
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter.calendar import Calendar
from stream.mechanisms.filter.model import (
    LEAST_CELL,
    REGIMES,
    Cells,
    handed_back,
    kernels,
    likelihood,
    none_counted,
    onward_kernels,
    pairs,
    rates,
    stationary,
    switched,
)
from stream.mechanisms.filter.residuals import MOST_WEIGHT, Residuals, no_residuals
from stream.mechanisms.filter.revision import median_and_band, moved_back
from stream.mechanisms.filter.state import FilterState, Learnt, arrays_of, pack
from stream.mechanisms.filter.step import Estimate, FilterItem, RegimeFilter
from stream.mechanisms.filter.updates import spread
from stream.mechanisms.noise import Ints
from stream.mechanisms.noise_parameters import NoiseParameter

# Learning from one day.


ROOM = 64 << 20
"""Largest memory for the filtered windows of the zones that are processed together, in bytes."""
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
            moved = moved_back(behind * likelihood(noise, grid, noisy[tick]))
            changes += _changes(ahead[tick - 1], moved, rate)
            behind = handed_back(moved, rate)
            behind /= behind.max(axis=(0, 1))
    return Learning(history[::-1], changes * (day / len(noisy)))


def _forward(noise: NoiseParameter, grid: int, noisy: Ints, rate: Cells) -> list[Cells]:
    """Return P at each window, from a uniform start: shape [16, grid + 1, zones] each."""
    even = (stationary() / (grid + 1))[:, None, None]
    p, ticks = np.broadcast_to(even, (REGIMES, grid + 1, noisy.shape[1])).astype(np.float32), list[Cells]()
    for seen in noisy:
        p = (_moved(switched(p, rate)) if ticks else p) * likelihood(noise, grid, seen)
        p /= ordered_sum(ordered_sum(p))
        np.copyto(p, 0, where=p < _NEGLIGIBLE / (grid + 1))
        ticks.append(p)
    return ticks


def _moved(q: Cells) -> Cells:
    """Return P after the counts have moved, over a whole grid; shape [16, grid + 1, zones]."""
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


PARTS = 48
"""Number of parts of the zones that are learnt one after another."""
WHOLE_DAY = 288
"""Number of windows of a day from which on each window learns on one part; with fewer, on more."""
BEFORE = 144
"""Number of windows before a day that are used with it: half a day of five-minute windows."""
MOST_WINDOWS = 1500
"""Largest number of windows of a day: the longest day at the shortest windows. The log of a day has no more."""
_EACH = 16
"""Fixed cost of a zone in addition to its counts, in counts."""
FARTHEST = 1 << 30
"""Noisy values are limited to this magnitude; the filter treats larger ones as values at this distance."""


class FilterOutput(NamedTuple):
    """The filter's output for one window."""

    estimate: Estimate
    histories: list[RevisedDay]


class LearnedPart(NamedTuple):
    """Results after one more part of the zones."""

    coming: tuple[Learnt, ...]
    """Results for this part and those before it."""
    history: RevisedDay


@dataclass(frozen=True)
class NightlyState:
    """The filter, the windows from which it will learn, and what it has learnt but does not use yet."""

    filter: FilterState
    log: tuple[FilterItem, ...] = ()
    """Windows with noisy values: up to 144, then a past day to learn from, if any, then the current day."""
    part: int = PARTS
    """Number of parts of the zones that have been learnt since a day was over."""
    coming: tuple[Learnt, ...] = ()
    """Results for these parts, 0 for the other zones; empty where all results are in use."""
    residuals: Residuals = field(default_factory=lambda: no_residuals(0))
    """Differences between noisy values and estimates, of which bands of sums are made."""
    ahead: tuple[LearnedPart, ...] = field(default=(), compare=False)
    """Following parts, computed ahead. The byte form does not contain them; after decoding they are recomputed."""


@dataclass(frozen=True)
class NightlyFilter:
    """A regime-switching filter with daily learning; an operator of the stream."""

    filter: RegimeFilter

    def initial(self) -> NightlyState:
        """Return the state without data."""
        return NightlyState(self.filter.initial(), residuals=no_residuals(len(self.filter.capacities)))

    def step(self, state: NightlyState, item: FilterItem) -> tuple[NightlyState, list[FilterOutput]]:
        """Process one window of all zones; learn on the next part of them, where a day is over."""
        histories: list[RevisedDay] = []
        if state.log and state.log[-1].slot.day != item.slot.day:
            state, histories = self._parts(state, _at_hand(state.log), PARTS)
            state = self._begin_day(state)
        filtered, [estimate] = self.filter.step(state.filter, item)
        clipped = FilterItem(np.clip(item.noisy, -FARTHEST, FARTHEST), item.slot)
        log = (*state.log, clipped)[-(MOST_WINDOWS + BEFORE + PARTS) :]
        residuals = state.residuals.after(clipped.noisy, estimate.median)
        state = replace(state, filter=filtered, log=log, residuals=residuals)
        if state.part < PARTS:
            at_hand = _at_hand(state.log)
            state, more = self._parts(state, at_hand, _parts_a_window(state.log[:-at_hand]))
            histories += more
        return state, [FilterOutput(estimate, histories)]

    def prepare(self, state: NightlyState) -> NightlyState:
        """Return the state with one more of the next window's parts computed; the same state where none is left."""
        done = state.part + len(state.ahead)
        if done >= PARTS:
            return state
        log = state.log[: len(state.log) - _at_hand(state.log)]
        if len(state.ahead) >= _parts_a_window(log):
            return state
        coming = state.ahead[-1].coming if state.ahead else state.coming
        part = self._learnt_on(replace(state, part=done, coming=coming), log)
        return replace(state, ahead=(*state.ahead, part))

    def rest(self, state: NightlyState) -> list[RevisedDay]:
        """Return the remaining revised parts, including the current day, where no further window comes."""
        state, histories = self._parts(state, _at_hand(state.log), PARTS)
        return histories + (self._parts(self._begin_day(state), 0, PARTS)[1] if state.log else [])

    def _begin_day(self, state: NightlyState) -> NightlyState:
        """Return the state in which the current day is over, and nothing has been learnt from it."""
        return replace(state, log=_with_lead(state.log), part=0, coming=self.filter.form.nothing_learnt())

    def _parts(self, state: NightlyState, at_hand: int, parts: int) -> tuple[NightlyState, list[RevisedDay]]:
        """Learn on up to ``parts`` parts, as far as any are left; ``at_hand`` as for ``next_part``."""
        histories: list[RevisedDay] = []
        until = min(PARTS, state.part + parts)
        while state.part < until:
            state, history = self.next_part(state, at_hand)
            histories.append(history)
        return state, histories

    def next_part(self, state: NightlyState, at_hand: int) -> tuple[NightlyState, RevisedDay]:
        """Learn on the next part from a past day; the log has ``at_hand`` windows of the current day after it."""
        part, *ahead = state.ahead or (self._learnt_on(state, state.log[: len(state.log) - at_hand]),)
        state = replace(state, part=state.part + 1, coming=part.coming, ahead=tuple(ahead))
        return (_in_use(state) if part.history.is_last else state), part.history

    def _learnt_on(self, state: NightlyState, log: Sequence[FilterItem]) -> LearnedPart:
        """Learn on the state's next part from the last day of a log."""
        slots = [item.slot for item in log[-_at_hand(log) :]]
        every = np.array([item.noisy for item in log])
        zones = self._zones_of_part(every, state.part)
        median, half_width = np.zeros((2, len(slots), len(zones)), np.int64)
        coming = tuple(_copied(each) for each in state.coming) if len(zones) else state.coming
        noisy = every[:, zones]
        for few, grid in lessons(noisy, self._capacities[zones], self.filter.noise):
            before = self._learnt_for(state.filter.learnt, zones[few])
            known = learn(self.filter.noise, grid, noisy[:, few], before.counted, len(slots))
            self._put(coming, zones[few], _taught(before, slots, known))
            for place, weights in enumerate(known.history):
                median[place, few], half_width[place, few] = median_and_band(weights)
        return LearnedPart(
            coming, RevisedDay(slots[-1].day, zones, median, half_width, is_last=state.part + 1 == PARTS)
        )

    def _zones_of_part(self, noisy: Ints, part: int) -> Ints:
        """Return the zones of a part; with fewer zones than parts some parts are empty."""
        grids = grids_of(noisy, self._capacities, self.filter.noise)
        order = np.argsort(grids, kind="stable")
        costs = grids[order] + _EACH
        return np.asarray(order[(np.cumsum(costs) - costs) * PARTS // costs.sum() == part])

    @cached_property
    def _capacities(self) -> Ints:
        return np.array(self.filter.capacities)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """For each zone: its family, and its position in that."""
        found = {
            int(zone): (family, place)
            for family, (_, zones) in enumerate(self.filter.families)
            for place, zone in enumerate(zones)
        }
        return [found[zone] for zone in range(len(found))]

    def _learnt_for(self, learnt: Sequence[Learnt], zones: Ints) -> Learnt:
        """Return what was learnt about some zones of any capacity, side by side.

        The number of bins is the next power of two, so that a zone's sums do not depend on the other zones.
        """
        places = [self._places[zone] for zone in zones]
        counted = np.stack([learnt[family].counted[:, place] for family, place in places], axis=-1)
        calendars = [(calendar, place) for family, place in places if (calendar := learnt[family].calendar)]
        if not calendars:
            return Learnt(counted, None)
        bins = 1 << max(calendar.history.shape[2] - 1 for calendar, _ in calendars).bit_length()
        history = np.zeros((*calendars[0][0].history.shape[:2], bins, len(zones)), np.float32)
        for column, (calendar, place) in enumerate(calendars):
            history[:, :, : calendar.history.shape[2], column] = calendar.history[..., place]
        sums = np.stack([calendar.sums[..., place] for calendar, place in calendars], axis=-1)
        return Learnt(counted, Calendar(history, sums))

    def _put(self, coming: Sequence[Learnt], zones: Ints, taught: Learnt) -> None:
        """Write what has been learnt about some zones to their positions."""
        for column, (family, place) in enumerate(self._places[zone] for zone in zones):
            counted, calendar = coming[family]
            counted[:, place] = taught.counted[:, column]
            if calendar is not None and taught.calendar is not None:
                bins = calendar.history.shape[2]
                calendar.history[..., place] = taught.calendar.history[:, :, :bins, column]
                calendar.sums[..., place] = taught.calendar.sums[..., column]

    def encode(self, state: NightlyState) -> bytes:
        """Return the byte form: head, filter state, residuals, the log's slots and noisy values, pending results."""
        filtered = self.filter.encode(state.filter)
        total, weight, squares = state.residuals
        head = _HEAD.pack(_MAGIC, state.part, len(state.log), len(filtered), weight, squares)
        slots = [
            _SLOT.pack(item.slot.day, item.slot.half_hour, item.slot.hour, item.slot.weekend) for item in state.log
        ]
        noisy = np.array([item.noisy for item in state.log]).astype(_NOISY).view(np.uint8).reshape(-1, 4)
        ranks = np.ascontiguousarray(noisy.T)  # bytes of equal rank are adjacent: they compress better
        residuals = total.astype("<f8").tobytes()
        return b"".join((head, filtered, residuals, *slots, ranks.data, *map(pack, arrays_of(state.coming))))

    def decode(self, data: bytes) -> NightlyState:
        """Return the state of a byte form; DataError where it is not one of this filter."""
        try:
            magic, part, windows, length, weight, squares = _HEAD.unpack_from(data)
            end = _HEAD.size + length
            filtered = self.filter.decode(data[_HEAD.size : end])
            total = np.array(struct.unpack_from(f"<{len(self.filter.capacities)}d", data, end))
            start = end + total.nbytes
            slots = [_slot(*_SLOT.unpack_from(data, start + n * _SLOT.size)) for n in range(windows)]
        except struct.error:
            raise DataError("nightly filter state: must not be cut off") from None
        place = start + windows * _SLOT.size
        cells = windows * len(self.filter.capacities)
        ranks = np.frombuffer(data[place : place + 4 * cells], np.uint8)
        if not (np.isfinite(total).all() and 0 <= squares <= weight <= MOST_WEIGHT):
            raise DataError("nightly filter state: residuals must be finite, and their weights within range")
        if magic != _MAGIC or part > PARTS or ranks.size != 4 * cells:
            raise DataError("nightly filter state: head does not fit the configuration")
        noisy = np.ascontiguousarray(ranks.reshape(4, -1).T).view(_NOISY).astype(np.int64)
        rows = noisy.reshape(windows, len(self.filter.capacities))
        log = tuple(FilterItem(*each) for each in zip(rows, slots, strict=True))
        coming, place = (
            self.filter.form.decode_learnt(data, place + ranks.size) if part < PARTS else ((), place + ranks.size)
        )
        if place != len(data):
            raise DataError("nightly filter state: length does not fit the configuration")
        return NightlyState(filtered, log, part, coming, Residuals(total, weight, squares))


_HEAD = struct.Struct("<4sBIIdd")
_MAGIC = Magic.FILTER_LEARNING
_SLOT = struct.Struct("<iBB?")
_NOISY = "<i4"


def _slot(day: int, half_hour: int, hour: int, weekend: bool) -> WeekSlot:
    return WeekSlot(half_hour, hour, weekend, day)


def _at_hand(log: Sequence[FilterItem]) -> int:
    """Return the number of windows of the log's last day."""
    return sum(1 for _ in takewhile(lambda item: item.slot.day == log[-1].slot.day, reversed(log)))


def _parts_a_window(log: Sequence[FilterItem]) -> int:
    """Return the number of parts per window when learning from the last day of a log."""
    return max(1, WHOLE_DAY // _at_hand(log))


def _with_lead(log: tuple[FilterItem, ...]) -> tuple[FilterItem, ...]:
    """Return the last day of the log, with the windows before it that are used with it."""
    return log[-(_at_hand(log) + BEFORE) :]


def _taught(before: Learnt, slots: Sequence[WeekSlot], known: Learning) -> Learnt:
    """Return the learnt state of some zones after one more day."""
    counted = (before.counted + known.counted).astype(np.float32)
    if before.calendar is None:
        return Learnt(counted, None)
    return Learnt(counted, filter_calendar.learnt(before.calendar, slots, known.history))


def _copied(learnt: Learnt) -> Learnt:
    calendar = learnt.calendar
    return Learnt(learnt.counted.copy(), calendar and Calendar(calendar.history.copy(), calendar.sums.copy()))


def _in_use(state: NightlyState) -> NightlyState:
    """Return the state in which the filter uses what was learnt on all parts."""
    return replace(state, filter=replace(state.filter, learnt=state.coming), log=_with_lead(state.log), coming=())
