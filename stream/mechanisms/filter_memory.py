"""A filter's state in half of its size, for those who only have to begin there again.

Cells below a ten-thousandth of a zone's largest are 0, and the others, with the calendar's history, keep eleven binary
digits. That changes no history that could be told apart; but a run that begins from it is another run, so whoever
holds a state in this form rounds it when it is taken up, and not first when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from stream.errors import DataError
from stream.mechanisms import filter_calendar
from stream.mechanisms.filter import FilterState, RegimeFilter
from stream.mechanisms.filter_calendar import Calendar
from stream.mechanisms.filter_model import Cells

_LEAST = 1e-4
_HALF, _WHOLE = "<f2", "<f4"


def rounded(state: FilterState) -> FilterState:
    """Return a state as it is remembered."""
    calendars = tuple(Calendar(_half(each.history), each.sums) for each in state.calendars)
    return FilterState(state.started, tuple(_rounded_cells(cells) for cells in state.cells), calendars)


def _rounded_cells(cells: Cells) -> Cells:
    share = cells / cells.max(axis=(0, 1, 2))
    return _half(np.where(share < _LEAST, np.float32(0), share))


def _half(values: Cells) -> Cells:
    return np.asarray(values.astype(_HALF).astype(np.float32))


def encode_rounded(state: FilterState) -> bytes:
    """Return the stable byte form of a rounded state."""
    arrays = (array.astype(form).tobytes() for array, form in _arrays(state))
    return b"".join((bytes((state.started,)), *arrays))


def _arrays(state: FilterState) -> Iterator[tuple[Cells, str]]:
    for cells in state.cells:
        yield cells, _HALF
    for memory in state.calendars:
        yield memory.history, _HALF
        yield memory.sums, _WHOLE


def decode_rounded(filtered: RegimeFilter, data: bytes) -> FilterState:
    """Return the state of a byte form; DataError where it is not one of this filter."""
    template = list(_arrays(filtered.initial()))
    if len(data) != 1 + sum(array.size * np.dtype(form).itemsize for array, form in template):
        raise DataError("remembered filter state: length does not fit the configuration")
    place, read = 1, list[Cells]()
    for array, form in template:
        flat = np.frombuffer(data, dtype=form, count=array.size, offset=place)
        read.append(flat.reshape(array.shape).astype(np.float32))
        place += array.size * flat.itemsize
    families = len(filtered.families)
    calendars = tuple(Calendar(*pair) for pair in zip(read[families::2], read[families + 1 :: 2], strict=True))
    return FilterState(bool(data[0]), tuple(read[:families]), calendars)


def remembered_size(filtered: RegimeFilter) -> int:
    """Return the bytes that a rounded state takes, before they are compressed."""
    size = 1
    for capacity, zones in filtered.families:
        size += 2 * prod(filtered.shape(capacity, len(zones)))
        if filtered.calendar:
            memory = filter_calendar.empty(capacity, len(zones))
            size += 2 * memory.history.size + memory.sums.nbytes
    return size
