"""The state of the filter between two ticks, and its stable byte forms: exact, and rounded.

A state is encoded as a head, the ranges of the posterior, its cells, and the learnt parameters. Cells and parameters
are arrays of 32 bits that are mostly zeros (``pack``):

    bytes                   content
    ⌈cells / 8⌉             one bit per cell, the first cell highest: whether it is not 0
    4 times the bits set    the cells that are not 0, in order: all first bytes, then all second ones, and so on

Bytes of equal rank are adjacent because neighbouring cells are of similar size: so they compress better.

**Rounded posteriors** have half the size, and serve only to restart a filter at that point. Cells below a
ten-thousandth of a zone's largest are 0, and the others keep eleven binary digits. The effect on revised values is
negligible, but a run that starts from a rounded posterior is a different run. So a posterior is rounded when it
enters the state of a revision, not only when it is written. It does not contain what the filter has learnt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.domains import Magic
from stream.errors import DataError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter.calendar import Calendar
from stream.mechanisms.filter.model import REGIMES, Cells, none_counted
from stream.mechanisms.filter.posterior import Posterior, nothing, trimmed
from stream.mechanisms.filter.support import Grids

Array = NDArray[np.float32]


_BYTES = 4


def pack(values: Array) -> bytes:
    """Return the byte form of an array of any shape; -0 counts as 0."""
    cells = np.ascontiguousarray(values, dtype="<f4").ravel()
    is_kept = cells != 0
    ranks = np.ascontiguousarray(cells[is_kept].view(np.uint8).reshape(-1, _BYTES).T)
    return b"".join((np.packbits(is_kept).data, ranks.data))


def unpack(data: bytes, place: int, shape: tuple[int, ...]) -> tuple[Array, int]:
    """Return the array of this shape whose byte form begins at ``place``, and the end of its byte form.

    Raises:
        DataError: the bytes end too early.
    """
    cells = np.zeros(prod(shape), np.float32)
    start = place + -(-cells.size // 8)
    is_kept = np.unpackbits(_within(data, place, start), count=cells.size).astype(bool)
    end = start + _BYTES * int(np.count_nonzero(is_kept))
    ranks = _within(data, start, end).reshape(_BYTES, -1)
    cells[is_kept] = np.ascontiguousarray(ranks.T).view("<f4").ravel()
    return cells.reshape(shape), end


def _within(data: bytes, start: int, end: int) -> NDArray[np.uint8]:
    if end > len(data):
        msg = f"packed array: must have {end} bytes at least, got {len(data)}"
        raise DataError(msg)
    return np.frombuffer(data[start:end], np.uint8)


class Learnt(NamedTuple):
    """What has been learnt about the zones of one capacity; ticks do not change it (``learning``)."""

    counted: Cells
    """N, shape [76, zones]: see ``model``."""
    calendar: Calendar | None
    """None where the calendar is off."""


def copied(learnt: Learnt) -> Learnt:
    """Return a copy that may be changed in place."""
    calendar = learnt.calendar
    return Learnt(learnt.counted.copy(), calendar and Calendar(calendar.history.copy(), calendar.sums.copy()))


class Prepared(NamedTuple):
    """What follows from the learnt parameters alone, and is the same for all ticks of a half hour."""

    learnt: tuple[Learnt, ...]
    slot: WeekSlot
    """The tick for which it was computed; its day is of no importance."""
    rate: Cells
    """The regimes' transition rates, shape [76, zones]."""
    weight: Cells | None
    """The calendar's weight h of every count of every zone, in the layout of ``Grids``; None where it is off."""

    def is_for(self, learnt: tuple[Learnt, ...], slot: WeekSlot) -> bool:
        """Return whether it holds for a tick."""
        return self.learnt is learnt and self.slot._replace(day=slot.day) == slot


@dataclass(frozen=True)
class FilterState:
    """The posterior, and the learnt parameters, one entry per distinct capacity."""

    started: bool
    posterior: Posterior
    learnt: tuple[Learnt, ...]
    prepared: Prepared | None = field(default=None, compare=False, repr=False)
    """Of the last tick. The byte form does not contain it; after decoding it is computed again."""


_HEAD = struct.Struct("<4sI??")
_MAGIC = Magic.FILTER


@dataclass(frozen=True)
class StateForm:
    """The shapes of a filter's state, which follow from its zones and from whether it has a calendar."""

    grids: Grids
    calendar: bool

    @property
    def copies(self) -> int:
        """The number of copies of the posterior."""
        return 2 if self.calendar else 1

    def initial(self) -> FilterState:
        """Return the state before the first tick: nothing is stored of any zone, and nothing learnt."""
        return FilterState(False, nothing(len(self.grids.capacities), self.copies), self.nothing_learnt())

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """For each zone: its capacity's position, and its own among the zones of that capacity."""
        found = {
            int(zone): (family, place)
            for family, (_, zones) in enumerate(self.grids.families)
            for place, zone in enumerate(zones)
        }
        return [found[zone] for zone in range(len(found))]

    def nothing_learnt(self) -> tuple[Learnt, ...]:
        """Return the parameters before any learning."""
        return tuple(
            Learnt(none_counted(len(zones)), filter_calendar.empty(capacity, len(zones)) if self.calendar else None)
            for capacity, zones in self.grids.families
        )

    def learnt_of(self, learnt: Sequence[Learnt], zones: Ints) -> Learnt:
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

    def put_learnt(self, learnt: Sequence[Learnt], zones: Ints, taught: Learnt) -> None:
        """Write, in place, what was learnt about some zones to their positions; the inverse of ``learnt_of``."""
        for column, (family, place) in enumerate(self._places[zone] for zone in zones):
            counted, calendar = learnt[family]
            counted[:, place] = taught.counted[:, column]
            if calendar is not None and taught.calendar is not None:
                bins = calendar.history.shape[2]
                calendar.history[..., place] = taught.calendar.history[:, :, :bins, column]
                calendar.sums[..., place] = taught.calendar.sums[..., column]

    def encode(self, state: FilterState) -> bytes:
        """Return the byte form of a state."""
        zones = len(self.grids.capacities)
        head = _HEAD.pack(_MAGIC, zones, self.calendar, state.started)
        stored = state.posterior.of(np.arange(zones))
        places = np.concatenate((stored.low, stored.width)).astype("<i4").tobytes()
        return b"".join((head, places, pack(stored.values), *map(pack, arrays_of(state.learnt))))

    def decode(self, data: bytes) -> FilterState:
        """Return the state of a byte form; DataError where it does not have these shapes."""
        zones = len(self.grids.capacities)
        begin = _HEAD.size + 8 * zones
        if len(data) < begin or _HEAD.unpack_from(data)[:3] != (_MAGIC, zones, self.calendar):
            raise DataError("filter state: head does not fit the configuration")
        low, width = np.frombuffer(data[_HEAD.size : begin], "<i4").astype(np.int64).reshape(2, zones)
        self.grids.refuse_ranges(low, width)
        values, place = unpack(data, begin, (REGIMES * self.copies, int(width.sum()) + 1))
        learnt, place = self.decode_learnt(data, place)
        if place != len(data):
            raise DataError("filter state: length does not fit the configuration")
        return FilterState(bool(_HEAD.unpack_from(data)[3]), Posterior(low, width, np.arange(zones), values), learnt)

    def decode_learnt(self, data: bytes, place: int) -> tuple[tuple[Learnt, ...], int]:
        """Return the learnt parameters, packed from ``place`` on, and their end."""
        read: list[Learnt] = []
        for template in self.nothing_learnt():
            arrays = []
            for shape in (array.shape for array in arrays_of((template,))):
                array, place = unpack(data, place, shape)
                arrays.append(array)
            read.append(Learnt(arrays[0], Calendar(*arrays[1:]) if self.calendar else None))
        return tuple(read), place


def arrays_of(learnt: Sequence[Learnt]) -> Iterator[Cells]:
    """Yield the arrays of the learnt parameters, in their stored order."""
    for counted, calendar in learnt:
        yield counted
        if calendar is not None:
            yield calendar.history
            yield calendar.sums


# Rounded posteriors.

_LEAST = 1e-4
_HALF, _PLACE = "<f2", "<i4"


def rounded(state: FilterState) -> Posterior | None:
    """Return a state's posterior, rounded; None before the first tick."""
    if not state.started:
        return None
    posterior = state.posterior
    spans = (slice(start, start + width) for start, width in zip(posterior.start, posterior.width, strict=True))
    return trimmed(posterior.low, [_rounded(posterior.values[:, span]) for span in spans])


def _rounded(cells: Cells) -> Cells:
    share = cells / cells.max()
    return np.asarray(np.where(share < _LEAST, np.float32(0), share).astype(_HALF).astype(np.float32))


def restarted_state(posterior: Posterior | None, now: FilterState, initial: FilterState) -> FilterState:
    """Return a state with a stored posterior and with what the filter has learnt by now."""
    if posterior is None:
        return FilterState(False, initial.posterior, now.learnt)
    return FilterState(True, posterior, now.learnt)


def encode_rounded(posterior: Posterior | None) -> bytes:
    """Return the stable byte form of a rounded posterior."""
    if posterior is None:
        return b""
    places = np.concatenate((posterior.low, posterior.width)).astype(_PLACE).tobytes()
    return places + posterior.values[:, :-1].astype(_HALF).tobytes()


def decode_rounded(form: StateForm, data: bytes) -> Posterior | None:
    """Return the posterior of a byte form; DataError where it is not one of this filter."""
    if not data:
        return None
    zones, rows = len(form.grids.capacities), REGIMES * form.copies
    begin = 8 * zones
    if len(data) < begin:
        raise DataError("remembered filter state: length does not fit the configuration")
    low, width = np.frombuffer(data[:begin], _PLACE).astype(np.int64).reshape(2, zones)
    form.grids.refuse_ranges(low, width)
    if len(data) != begin + 2 * rows * int(width.sum()):
        raise DataError("remembered filter state: length does not fit the configuration")
    values = np.zeros((rows, int(width.sum()) + 1), np.float32)
    values[:, :-1] = np.frombuffer(data, _HALF, -1, begin).reshape(rows, -1)
    return Posterior(low, width, np.arange(zones), values)


def rounded_size(form: StateForm) -> int:
    """Return the largest size of a rounded posterior in bytes, uncompressed."""
    counts = sum((capacity + 1) * len(zones) for capacity, zones in form.grids.families)
    return 8 * len(form.grids.capacities) + 2 * REGIMES * form.copies * counts
