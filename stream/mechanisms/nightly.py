"""The filter that learns at night: from a day's noisy values, on some zones a window, used from one window on.

When a day is over, its noisy values say more of it than they did one by one (``learning``). They are kept for that,
with those of the 144 windows before the day. With each of the first windows that are released of the next day one of 48
parts of the zones is learnt on, in the order of how far their noisy values reached (so that zones alike go together)
and then of the registry; parts cost about the same. Where the day had fewer windows than 288 there are more parts a
window, in proportion. What was learnt is used from the window behind these on (the 49th of the day where windows are
five minutes), for all zones at once. What is left when the next day begins is learnt then. So no window has much to
do, and which bytes are released follows from the noisy values and their days alone. A part needs nothing of the window
with which it is learnt, so it may be done ahead of it (``prepare``): then no window waits, and no byte is another.

Noisy values are what is released, so that nothing here costs anything, and each audience's filter learns from that
audience's own. A window that was denied has none and is not there. With the filter all of this begins anew.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from stream.errors import DataError
from stream.mechanisms import filter_calendar
from stream.mechanisms.filter import Estimate, FilterItem, FilterState, Learnt, RegimeFilter, arrays_of
from stream.mechanisms.filter_calendar import Calendar, Slot
from stream.mechanisms.learning import Learning, grids_of, learn, lessons
from stream.mechanisms.noise import Ints
from stream.mechanisms.packed import pack
from stream.mechanisms.revision import median_and_band

PARTS = 48
"""Parts of the zones that are learnt on one after another."""
WHOLE_DAY = 288
"""Windows of a day of which one part is learnt a window, or more windows."""
BEFORE = 144
"""Windows before a day in the light of which it is seen: half a day where windows are five minutes."""
MOST_WINDOWS = 1500
"""Of a day, the longest at the shortest windows. What is kept of a day has no more."""
_EACH = 16
"""What a zone costs beside its counts, in counts."""
FARTHEST = 1 << 30
"""Noisy values are kept within this: the filter takes one that is farther away for one at this distance."""


class History(NamedTuple):
    """What a part of the zones are known to have been on a day that is over."""

    day: int
    zones: Ints
    """Their places among the filter's."""
    median: Ints
    """Shape [windows of the day, zones]."""
    half_width: Ints
    """Likewise; see ``revision.median_and_band``."""
    is_last: bool
    """Whether this is the last part of the zones."""


class Told(NamedTuple):
    """What a window brings forth."""

    estimate: Estimate
    histories: list[History]


class Part(NamedTuple):
    """What has been learnt on one more part of the zones."""

    coming: tuple[Learnt, ...]
    """On this part and those before it."""
    history: History


@dataclass(frozen=True)
class NightlyState:
    """The filter, what it will learn from, and what it has learnt and does not use yet."""

    filter: FilterState
    log: tuple[FilterItem, ...] = ()
    """Windows with noisy values: up to 144, then a day that is learnt from, where one is, then the day at hand."""
    part: int = PARTS
    """How many parts of the zones have been learnt on since a day was over."""
    coming: tuple[Learnt, ...] = ()
    """What was learnt on these parts, 0 for the other zones; nothing where all is in use."""
    ahead: tuple[Part, ...] = field(default=(), compare=False)
    """The parts after these that are done already. Whoever reads the byte form again does them again."""


@dataclass(frozen=True)
class NightlyFilter:
    """A regime-switching filter that learns at night, a stage of the stream."""

    filter: RegimeFilter

    def initial(self) -> NightlyState:
        """Return the state that knows nothing."""
        return NightlyState(self.filter.initial())

    def step(self, state: NightlyState, item: FilterItem) -> tuple[NightlyState, list[Told]]:
        """Take one window of all zones; learn on the next part of them, where a day is over."""
        histories: list[History] = []
        if state.log and state.log[-1].slot.day != item.slot.day:
            state, histories = self._parts(state, _at_hand(state.log), PARTS)
            state = self._begun(state)
        filtered, [estimate] = self.filter.step(state.filter, item)
        kept = FilterItem(np.clip(item.noisy, -FARTHEST, FARTHEST), item.slot)
        state = replace(state, filter=filtered, log=(*state.log, kept)[-(MOST_WINDOWS + BEFORE + PARTS) :])
        if state.part < PARTS:
            at_hand = _at_hand(state.log)
            state, more = self._parts(state, at_hand, _parts_a_window(state.log[:-at_hand]))
            histories += more
        return state, [Told(estimate, histories)]

    def prepare(self, state: NightlyState) -> NightlyState:
        """Return the state with one more of the next window's parts done; itself where none is left."""
        done = state.part + len(state.ahead)
        if done >= PARTS:
            return state
        log = state.log[: len(state.log) - _at_hand(state.log)]
        if len(state.ahead) >= _parts_a_window(log):
            return state
        coming = state.ahead[-1].coming if state.ahead else state.coming
        part = self._learnt_on(replace(state, part=done, coming=coming), log)
        return replace(state, ahead=(*state.ahead, part))

    def rest(self, state: NightlyState) -> list[History]:
        """Return what is not told yet, of the day at hand too, where no window comes any more."""
        state, histories = self._parts(state, _at_hand(state.log), PARTS)
        return histories + (self._parts(self._begun(state), 0, PARTS)[1] if state.log else [])

    def _begun(self, state: NightlyState) -> NightlyState:
        """Return the state in which the day at hand is over, and nothing has been learnt from it."""
        return replace(state, log=_with_lead(state.log), part=0, coming=self.filter.nothing_learnt())

    def _parts(self, state: NightlyState, at_hand: int, parts: int) -> tuple[NightlyState, list[History]]:
        """Learn on so many parts, as far as any are left; ``at_hand`` as for ``next_part``."""
        histories: list[History] = []
        until = min(PARTS, state.part + parts)
        while state.part < until:
            state, history = self.next_part(state, at_hand)
            histories.append(history)
        return state, histories

    def next_part(self, state: NightlyState, at_hand: int) -> tuple[NightlyState, History]:
        """Learn on the next part from a day that is over, behind which the log has ``at_hand`` windows of another."""
        part, *ahead = state.ahead or (self._learnt_on(state, state.log[: len(state.log) - at_hand]),)
        state = replace(state, part=state.part + 1, coming=part.coming, ahead=tuple(ahead))
        return (_in_use(state) if part.history.is_last else state), part.history

    def _learnt_on(self, state: NightlyState, log: Sequence[FilterItem]) -> Part:
        """Learn on the state's next part from the last day of a log."""
        slots = [item.slot for item in log[-_at_hand(log) :]]
        every = np.array([item.noisy for item in log])
        zones = self._zones_of_part(every, state.part)
        median, half_width = np.zeros((2, len(slots), len(zones)), np.int64)
        coming = tuple(_copied(each) for each in state.coming) if len(zones) else state.coming
        noisy = every[:, zones]
        for few, grid in lessons(noisy, self._capacities[zones], self.filter.noise):
            before = self._taken(state.filter.learnt, zones[few])
            known = learn(self.filter.noise, grid, noisy[:, few], before.counted, len(slots))
            self._put(coming, zones[few], _taught(before, slots, known))
            for place, weights in enumerate(known.history):
                median[place, few], half_width[place, few] = median_and_band(weights)
        return Part(coming, History(slots[-1].day, zones, median, half_width, is_last=state.part + 1 == PARTS))

    def _zones_of_part(self, noisy: Ints, part: int) -> Ints:
        """Return which zones are learnt on in a part; fewer zones than parts leave some without any."""
        grids = grids_of(noisy, self._capacities, self.filter.noise)
        order = np.argsort(grids, kind="stable")
        costs = grids[order] + _EACH
        return np.asarray(order[(np.cumsum(costs) - costs) * PARTS // costs.sum() == part])

    @cached_property
    def _capacities(self) -> Ints:
        return np.array(self.filter.capacities)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Of each zone: its family, and its place in that."""
        found = {
            int(zone): (family, place)
            for family, (_, zones) in enumerate(self.filter.families)
            for place, zone in enumerate(zones)
        }
        return [found[zone] for zone in range(len(found))]

    def _taken(self, learnt: Sequence[Learnt], zones: Ints) -> Learnt:
        """Return what was learnt of some zones of any capacity, side by side.

        There are as many bins as the next power of two: so one zone's sums do not depend on which others there are.
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
        """Write what has been learnt of some zones to their places."""
        for column, (family, place) in enumerate(self._places[zone] for zone in zones):
            counted, calendar = coming[family]
            counted[:, place] = taught.counted[:, column]
            if calendar is not None and taught.calendar is not None:
                bins = calendar.history.shape[2]
                calendar.history[..., place] = taught.calendar.history[:, :, :bins, column]
                calendar.sums[..., place] = taught.calendar.sums[..., column]

    def encode(self, state: NightlyState) -> bytes:
        """Return the stable byte form: a head, the filter's, the log's days and places and noisy values, what comes."""
        filtered = self.filter.encode(state.filter)
        head = _HEAD.pack(_MAGIC, state.part, len(state.log), len(filtered))
        slots = [
            _SLOT.pack(item.slot.day, item.slot.half_hour, item.slot.hour, item.slot.weekend) for item in state.log
        ]
        noisy = np.array([item.noisy for item in state.log]).astype(_NOISY).view(np.uint8).reshape(-1, 4)
        ranks = np.ascontiguousarray(noisy.T)  # bytes of equal rank together: they compress better
        return b"".join((head, filtered, *slots, ranks.data, *map(pack, arrays_of(state.coming))))

    def decode(self, data: bytes) -> NightlyState:
        """Return the state of a byte form; DataError where it is not one of this filter."""
        try:
            magic, part, windows, length = _HEAD.unpack_from(data)
            start = _HEAD.size + length
            filtered = self.filter.decode(data[_HEAD.size : start])
            slots = [_slot(*_SLOT.unpack_from(data, start + n * _SLOT.size)) for n in range(windows)]
        except struct.error:
            raise DataError("nightly filter state: must not be cut off") from None
        place = start + windows * _SLOT.size
        cells = windows * len(self.filter.capacities)
        ranks = np.frombuffer(data[place : place + 4 * cells], np.uint8)
        if magic != _MAGIC or part > PARTS or ranks.size != 4 * cells:
            raise DataError("nightly filter state: head does not fit the configuration")
        noisy = np.ascontiguousarray(ranks.reshape(4, -1).T).view(_NOISY).astype(np.int64)
        rows = noisy.reshape(windows, len(self.filter.capacities))
        log = tuple(FilterItem(*each) for each in zip(rows, slots, strict=True))
        coming, place = self.filter.learnt_from(data, place + ranks.size) if part < PARTS else ((), place + ranks.size)
        if place != len(data):
            raise DataError("nightly filter state: length does not fit the configuration")
        return NightlyState(filtered, log, part, coming)


_HEAD = struct.Struct("<4sBII")
_MAGIC = b"NLF1"
_SLOT = struct.Struct("<iBB?")
_NOISY = "<i4"


def _slot(day: int, half_hour: int, hour: int, weekend: bool) -> Slot:
    return Slot(half_hour, hour, weekend, day)


def _at_hand(log: Sequence[FilterItem]) -> int:
    """Return how many windows of the last day the log has."""
    return sum(1 for _ in takewhile(lambda item: item.slot.day == log[-1].slot.day, reversed(log)))


def _parts_a_window(log: Sequence[FilterItem]) -> int:
    """Return on how many parts one window learns, from the last day of a log."""
    return max(1, WHOLE_DAY // _at_hand(log))


def _with_lead(log: tuple[FilterItem, ...]) -> tuple[FilterItem, ...]:
    """Return the last day of the log, and what it is seen in the light of."""
    return log[-(_at_hand(log) + BEFORE) :]


def _taught(before: Learnt, slots: Sequence[Slot], known: Learning) -> Learnt:
    """Return what has been learnt of some zones when a day of theirs is known."""
    counted = (before.counted + known.counted).astype(np.float32)
    if before.calendar is None:
        return Learnt(counted, None)
    return Learnt(counted, filter_calendar.learnt(before.calendar, slots, known.history))


def _copied(learnt: Learnt) -> Learnt:
    calendar = learnt.calendar
    return Learnt(learnt.counted.copy(), calendar and Calendar(calendar.history.copy(), calendar.sums.copy()))


def _in_use(state: NightlyState) -> NightlyState:
    """Return the state in which the filter goes by what was learnt on all parts."""
    return replace(state, filter=replace(state.filter, learnt=state.coming), log=_with_lead(state.log), coming=())
