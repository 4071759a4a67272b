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
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from stream.domains import Magic
from stream.errors import DataError
from stream.mechanisms.base import RevisedDay, WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter.residuals import MOST_WEIGHT, Residuals, no_residuals
from stream.mechanisms.filter.smoothing import Learning, grids_of, learn, lessons, median_and_band
from stream.mechanisms.filter.state import FilterState, Learnt, arrays_of, copied, pack
from stream.mechanisms.filter.step import Estimate, FilterItem, RegimeFilter

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
class LearningState:
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
class LearningFilter:
    """A regime-switching filter with daily learning; an operator of the stream."""

    filter: RegimeFilter

    def initial(self) -> LearningState:
        """Return the state without data."""
        return LearningState(self.filter.initial(), residuals=no_residuals(len(self.filter.capacities)))

    def step(self, state: LearningState, item: FilterItem) -> tuple[LearningState, list[FilterOutput]]:
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

    def prepare(self, state: LearningState) -> LearningState:
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

    def rest(self, state: LearningState) -> list[RevisedDay]:
        """Return the remaining revised parts, including the current day, where no further window comes."""
        state, histories = self._parts(state, _at_hand(state.log), PARTS)
        return histories + (self._parts(self._begin_day(state), 0, PARTS)[1] if state.log else [])

    def _begin_day(self, state: LearningState) -> LearningState:
        """Return the state in which the current day is over, and nothing has been learnt from it."""
        return replace(state, log=_with_lead(state.log), part=0, coming=self.filter.form.nothing_learnt())

    def _parts(self, state: LearningState, at_hand: int, parts: int) -> tuple[LearningState, list[RevisedDay]]:
        """Learn on up to ``parts`` parts, as far as any are left; ``at_hand`` as for ``next_part``."""
        histories: list[RevisedDay] = []
        until = min(PARTS, state.part + parts)
        while state.part < until:
            state, history = self.next_part(state, at_hand)
            histories.append(history)
        return state, histories

    def next_part(self, state: LearningState, at_hand: int) -> tuple[LearningState, RevisedDay]:
        """Learn on the next part from a past day; the log has ``at_hand`` windows of the current day after it."""
        part, *ahead = state.ahead or (self._learnt_on(state, state.log[: len(state.log) - at_hand]),)
        state = replace(state, part=state.part + 1, coming=part.coming, ahead=tuple(ahead))
        return (_in_use(state) if part.history.is_last else state), part.history

    def _learnt_on(self, state: LearningState, log: Sequence[FilterItem]) -> LearnedPart:
        """Learn on the state's next part from the last day of a log."""
        slots = [item.slot for item in log[-_at_hand(log) :]]
        every = np.array([item.noisy for item in log])
        zones = self._zones_of_part(every, state.part)
        median, half_width = np.zeros((2, len(slots), len(zones)), np.int64)
        coming = tuple(copied(each) for each in state.coming) if len(zones) else state.coming
        noisy = every[:, zones]
        for few, grid in lessons(noisy, self.filter.grids.capacities[zones], self.filter.noise):
            before = self.filter.form.learnt_of(state.filter.learnt, zones[few])
            known = learn(self.filter.noise, grid, noisy[:, few], before.counted, len(slots))
            self.filter.form.put_learnt(coming, zones[few], _learnt_after(before, slots, known))
            for place, weights in enumerate(known.history):
                median[place, few], half_width[place, few] = median_and_band(weights)
        return LearnedPart(
            coming, RevisedDay(slots[-1].day, zones, median, half_width, is_last=state.part + 1 == PARTS)
        )

    def _zones_of_part(self, noisy: Ints, part: int) -> Ints:
        """Return the zones of a part; with fewer zones than parts some parts are empty."""
        grids = grids_of(noisy, self.filter.grids.capacities, self.filter.noise)
        order = np.argsort(grids, kind="stable")
        costs = grids[order] + _EACH
        return np.asarray(order[(np.cumsum(costs) - costs) * PARTS // costs.sum() == part])

    def encode(self, state: LearningState) -> bytes:
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

    def decode(self, data: bytes) -> LearningState:
        """Return the state of a byte form; DataError where it is not one of this filter."""
        try:
            magic, part, windows, length, weight, squares = _HEAD.unpack_from(data)
            end = _HEAD.size + length
            filtered = self.filter.decode(data[_HEAD.size : end])
            total = np.array(struct.unpack_from(f"<{len(self.filter.capacities)}d", data, end))
            start = end + total.nbytes
            slots = [_slot(*_SLOT.unpack_from(data, start + n * _SLOT.size)) for n in range(windows)]
        except struct.error:
            raise DataError("learning filter state: must not be cut off") from None
        place = start + windows * _SLOT.size
        cells = windows * len(self.filter.capacities)
        ranks = np.frombuffer(data[place : place + 4 * cells], np.uint8)
        if not (np.isfinite(total).all() and 0 <= squares <= weight <= MOST_WEIGHT):
            raise DataError("learning filter state: residuals must be finite, and their weights within range")
        if magic != _MAGIC or part > PARTS or ranks.size != 4 * cells:
            raise DataError("learning filter state: head does not fit the configuration")
        noisy = np.ascontiguousarray(ranks.reshape(4, -1).T).view(_NOISY).astype(np.int64)
        rows = noisy.reshape(windows, len(self.filter.capacities))
        log = tuple(FilterItem(*each) for each in zip(rows, slots, strict=True))
        coming, place = (
            self.filter.form.decode_learnt(data, place + ranks.size) if part < PARTS else ((), place + ranks.size)
        )
        if place != len(data):
            raise DataError("learning filter state: length does not fit the configuration")
        return LearningState(filtered, log, part, coming, Residuals(total, weight, squares))


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


def _learnt_after(before: Learnt, slots: Sequence[WeekSlot], known: Learning) -> Learnt:
    """Return the learnt state of some zones after one more day."""
    counted = (before.counted + known.counted).astype(np.float32)
    if before.calendar is None:
        return Learnt(counted, None)
    return Learnt(counted, filter_calendar.learnt(before.calendar, slots, known.history))


def _in_use(state: LearningState) -> LearningState:
    """Return the state in which the filter uses what was learnt on all parts."""
    return replace(state, filter=replace(state.filter, learnt=state.coming), log=_with_lead(state.log), coming=())
