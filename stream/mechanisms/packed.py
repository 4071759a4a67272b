"""A short byte form of arrays of 32 bits that are mostly zeros, such as the posterior of the filter.

    bytes                   what
    ⌈cells / 8⌉             one bit a cell, the first cell highest: whether it is not 0
    4 times the bits set    the cells that are not 0, in order: all first bytes, then all second ones, and so on

Bytes of equal rank lie together because neighbours are of like size: so they compress better.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from stream.errors import DataError

Cells = NDArray[np.float32]
_BYTES = 4


def pack(values: Cells) -> bytes:
    """Return the byte form of an array of any shape; -0 counts as 0."""
    cells = np.ascontiguousarray(values, dtype="<f4").ravel()
    is_kept = cells != 0
    ranks = np.ascontiguousarray(cells[is_kept].view(np.uint8).reshape(-1, _BYTES).T)
    return b"".join((np.packbits(is_kept).data, ranks.data))


def unpack(data: bytes, place: int, shape: tuple[int, ...]) -> tuple[Cells, int]:
    """Return the array of this shape whose byte form begins at ``place``, and where that ends.

    Raises:
        DataError: where the bytes end before it does.
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
