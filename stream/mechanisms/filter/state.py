"""The state of the filter between two ticks, and its stable byte form.

A state is encoded as a head, the windows of the posterior, its cells, and the learnt parameters. Cells and parameters
are arrays of 32 bits that are mostly zeros (``pack``):

    bytes                   content
    ⌈cells / 8⌉             one bit per cell, the first cell highest: whether it is not 0
    4 times the bits set    the cells that are not 0, in order: all first bytes, then all second ones, and so on

Bytes of equal rank are adjacent because neighbouring cells are of similar size: so they compress better.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.domains import Magic
from stream.errors import DataError
from stream.mechanisms.filter import calendar as filter_calendar
from stream.mechanisms.filter.calendar import Calendar
from stream.mechanisms.filter.model import REGIMES, Cells, none_counted
from stream.mechanisms.filter.support import Grids, Posterior, nothing

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


@dataclass(frozen=True)
class FilterState:
    """The posterior, and the learnt parameters, one entry per distinct capacity."""

    started: bool
    posterior: Posterior
    learnt: tuple[Learnt, ...]


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

    def nothing_learnt(self) -> tuple[Learnt, ...]:
        """Return the parameters before any learning."""
        return tuple(
            Learnt(none_counted(len(zones)), filter_calendar.empty(capacity, len(zones)) if self.calendar else None)
            for capacity, zones in self.grids.families
        )

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
        self.grids.refuse_windows(low, width)
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
