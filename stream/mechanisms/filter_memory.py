"""A filter's posterior in half of its size, for those who only have to begin there again.

Cells below a ten-thousandth of a zone's largest are 0, and the others keep eleven binary digits. That changes no
history that could be told apart; but a run that begins from it is another run, so whoever holds a posterior in this
form rounds it when it is taken up, and not first when it is written. What the filter has learnt is not held: it is
the same before and after, but for one window of a day.
"""

from __future__ import annotations

from math import prod

import numpy as np

from stream.errors import DataError
from stream.mechanisms.active import Posterior, trimmed
from stream.mechanisms.filter import FilterState, RegimeFilter
from stream.mechanisms.filter_model import Cells

_LEAST = 1e-4
_HALF, _PLACE = "<f2", "<i4"


def rounded(state: FilterState) -> Posterior | None:
    """Return a state's posterior as it is remembered; None before the first tick."""
    if not state.started:
        return None
    held = state.posterior
    spans = (slice(start, start + width) for start, width in zip(held.start, held.width, strict=True))
    return trimmed(held.low, [_rounded(held.values[:, span]) for span in spans])


def _rounded(cells: Cells) -> Cells:
    share = cells / cells.max()
    return np.asarray(np.where(share < _LEAST, np.float32(0), share).astype(_HALF).astype(np.float32))


def begun_again(posterior: Posterior | None, now: FilterState, initial: FilterState) -> FilterState:
    """Return the state that has a remembered posterior, and goes by what the filter goes by now."""
    if posterior is None:
        return FilterState(False, initial.posterior, now.learnt)
    return FilterState(True, posterior, now.learnt)


def encode_rounded(posterior: Posterior | None) -> bytes:
    """Return the stable byte form of a rounded posterior."""
    if posterior is None:
        return b""
    places = np.concatenate((posterior.low, posterior.width)).astype(_PLACE).tobytes()
    return places + posterior.values[:, :-1].astype(_HALF).tobytes()


def decode_rounded(filtered: RegimeFilter, data: bytes) -> Posterior | None:
    """Return the posterior of a byte form; DataError where it is not one of this filter."""
    if not data:
        return None
    zones, rows = len(filtered.capacities), len(filtered.initial().posterior.values)
    begin = 8 * zones
    if len(data) < begin:
        raise DataError("remembered filter state: length does not fit the configuration")
    low, width = np.frombuffer(data[:begin], _PLACE).astype(np.int64).reshape(2, zones)
    filtered.grids.refuse_windows(low, width)
    if len(data) != begin + 2 * rows * int(width.sum()):
        raise DataError("remembered filter state: length does not fit the configuration")
    values = np.zeros((rows, int(width.sum()) + 1), np.float32)
    values[:, :-1] = np.frombuffer(data, _HALF, -1, begin).reshape(rows, -1)
    return Posterior(low, width, np.arange(zones), values)


def remembered_size(filtered: RegimeFilter) -> int:
    """Return the most bytes that a rounded posterior takes, before they are compressed."""
    cells = sum(prod(filtered.shape(capacity, len(zones))) for capacity, zones in filtered.families)
    return 8 * len(filtered.capacities) + 2 * cells
