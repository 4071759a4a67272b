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
from stream.mechanisms.active import Posterior, trimmed
from stream.mechanisms.filter import FilterState, RegimeFilter
from stream.mechanisms.filter_calendar import Calendar
from stream.mechanisms.filter_model import Cells

_LEAST = 1e-4
_HALF, _WHOLE, _PLACE = "<f2", "<f4", "<i4"


def rounded(state: FilterState) -> FilterState:
    """Return a state as it is remembered."""
    calendars = tuple(Calendar(_half(each.history), each.sums) for each in state.calendars)
    return FilterState(state.started, _rounded(state.posterior) if state.started else state.posterior, calendars)


def _rounded(held: Posterior) -> Posterior:
    spans = (slice(start, start + width) for start, width in zip(held.start, held.width, strict=True))
    return trimmed(held.low, [_rounded_cells(held.values[:, span]) for span in spans])


def _rounded_cells(cells: Cells) -> Cells:
    share = cells / cells.max()
    return _half(np.where(share < _LEAST, np.float32(0), share))


def _half(values: Cells) -> Cells:
    return np.asarray(values.astype(_HALF).astype(np.float32))


def encode_rounded(state: FilterState) -> bytes:
    """Return the stable byte form of a rounded state."""
    held = state.posterior
    places = np.concatenate((held.low, held.width)).astype(_PLACE).tobytes()
    learnt = (array.astype(form).tobytes() for array, form in _arrays(state.calendars))
    return b"".join((bytes((state.started,)), places, held.values[:, :-1].astype(_HALF).tobytes(), *learnt))


def _arrays(calendars: tuple[Calendar, ...]) -> Iterator[tuple[Cells, str]]:
    for memory in calendars:
        yield memory.history, _HALF
        yield memory.sums, _WHOLE


def decode_rounded(filtered: RegimeFilter, data: bytes) -> FilterState:
    """Return the state of a byte form; DataError where it is not one of this filter."""
    zones, empty = len(filtered.capacities), filtered.initial()
    template = list(_arrays(empty.calendars))
    begin, rows = 1 + 8 * zones, len(empty.posterior.values)
    if len(data) < begin:
        raise DataError("remembered filter state: length does not fit the configuration")
    low, width = np.frombuffer(data[1:begin], _PLACE).astype(np.int64).reshape(2, zones)
    filtered.grids.refuse_windows(low, width)
    size = rows * int(width.sum())
    if len(data) != begin + 2 * size + sum(array.size * np.dtype(form).itemsize for array, form in template):
        raise DataError("remembered filter state: length does not fit the configuration")
    values = np.zeros((rows, int(width.sum()) + 1), np.float32)
    values[:, :-1] = np.frombuffer(data, _HALF, size, begin).reshape(rows, -1)
    place, read = begin + 2 * size, list[Cells]()
    for array, form in template:
        flat = np.frombuffer(data, dtype=form, count=array.size, offset=place)
        read.append(flat.reshape(array.shape).astype(np.float32))
        place += array.size * flat.itemsize
    calendars = tuple(Calendar(*pair) for pair in zip(read[::2], read[1::2], strict=True))
    return FilterState(bool(data[0]), Posterior(low, width, np.arange(zones), values), calendars)


def remembered_size(filtered: RegimeFilter) -> int:
    """Return the most bytes that a rounded state takes, before they are compressed."""
    size = 1 + 8 * len(filtered.capacities)
    for capacity, zones in filtered.families:
        size += 2 * prod(filtered.shape(capacity, len(zones)))
        if filtered.calendar:
            memory = filter_calendar.empty(capacity, len(zones))
            size += 2 * memory.history.size + memory.sums.nbytes
    return size
