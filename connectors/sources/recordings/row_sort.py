"""Sorts more rows than memory can hold, in a private temporary file.

Rows are sorted by time, and rows of equal times by place and pseudonym, so that the order is fully determined. Rows
have a fixed width. They are sorted in runs. If there is more than one run, the runs are written to a temporary file and
merged from there. Consecutive runs that are already in order are joined, so a sorted file needs no merge.

The temporary file contains data about people. It has no name if the system supports that (otherwise it loses its name
at once), and every block is encrypted under a key that exists in memory only (XOR with SHAKE-256 of key and place).
When the process ends, however it ends, the file is gone, and its blocks cannot be read back. The file lies in the
folder for temporary files (``TMPDIR``).

That promise is why DuckDB does not sort the rows. It spills to files with names, which a killed process leaves behind,
and it encrypts them only with the extension ``httpfs``, which its wheel lacks and which it would download.
"""

from __future__ import annotations

import hashlib
import heapq
import secrets
import struct
import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from stream.errors import TacetError
from stream.records import Micros

RUN_ROWS = 1 << 17
"""Rows, of 36 octets, that are buffered and sorted at once."""
BLOCK_ROWS = 1 << 10
"""Rows of a run that are read back at once."""

Packed = tuple[Micros, int, bytes, int, int]
"""(time, place, pseudonym, line, device) of a row; rows are sorted by these, and lines are distinct."""

_ROW = struct.Struct("<qI8sqq")
PACKED = np.dtype([("time", "<i8"), ("place", "<u4"), ("name", ">u8"), ("line", "<i8"), ("device", "<i8")])
"""A buffered row, by column; ``name`` is the number that its octets form."""


def unpacked(rows: npt.NDArray[np.void]) -> Iterator[Packed]:
    """Yield the rows of an array of ``PACKED`` one by one."""
    return _ROW.iter_unpack(rows.tobytes())


class _Run(NamedTuple):
    """Sorted rows in the file."""

    offset: int
    rows: int
    last: Packed


class RowSort:
    """Accepts rows in any order and yields them once, sorted."""

    def __init__(self, run_rows: int = RUN_ROWS, block_rows: int = BLOCK_ROWS) -> None:
        self.rows = 0
        self._run_rows, self._block_rows = run_rows, block_rows
        self._buffer = bytearray()
        self._lanes: list[list[_Run]] = []
        """Runs that follow one another in order."""
        self._file: IO[bytes] | None = None
        self._key = secrets.token_bytes(32)

    def add(self, row: Packed) -> None:
        """Add a row.

        Raises:
            TacetError: the temporary file cannot be written.
        """
        self._buffer += _ROW.pack(*row)
        self.rows += 1
        if len(self._buffer) >= self._run_rows * _ROW.size:
            self._spill()

    def add_all(self, rows: npt.NDArray[np.void]) -> None:
        """Add rows of ``PACKED``; raises the same errors as ``add``."""
        self._buffer += rows.tobytes()
        self.rows += len(rows)
        if len(self._buffer) >= self._run_rows * _ROW.size:
            self._spill()

    def blocks(self) -> Iterator[npt.NDArray[np.void]]:
        """Yield all rows in order, as arrays of ``PACKED``; to be called once, after the last row was added."""
        if self._lanes and self._buffer:
            self._spill()
        run = np.frombuffer(self._sorted_run(), dtype=PACKED)
        for start in range(0, len(run), self._block_rows):
            yield run[start : start + self._block_rows]
        if len(self._lanes) == 1:
            yield from chain.from_iterable(map(self._read, self._lanes[0]))
        elif self._lanes:
            yield from self._merged()
        self.close()

    def _merged(self) -> Iterator[npt.NDArray[np.void]]:
        rows = heapq.merge(*(self._of_lane(lane) for lane in self._lanes))
        while data := b"".join([_ROW.pack(*row) for row in islice(rows, self._block_rows)]):
            yield np.frombuffer(data, dtype=PACKED)

    def _of_lane(self, lane: list[_Run]) -> Iterator[Packed]:
        return chain.from_iterable(unpacked(block) for run in lane for block in self._read(run))

    def close(self) -> None:
        """Release the buffer and the file."""
        self._buffer = bytearray()
        if self._file is not None:
            self._file.close()

    def _sorted_run(self) -> bytes:
        """Return the sorted buffer and empty it."""
        rows = np.frombuffer(self._buffer, dtype=PACKED)
        self._buffer = bytearray()
        order = np.lexsort((rows["line"], rows["name"], rows["place"], rows["time"]))
        return rows.view(np.dtype((np.void, _ROW.size)))[order].tobytes()

    def _spill(self) -> None:
        data = self._sorted_run()
        first, last = _ROW.unpack_from(data), _ROW.unpack_from(data, len(data) - _ROW.size)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed after the last row
            offset = self._file.seek(0, 2)
            for start in range(0, len(data), self._block_rows * _ROW.size):
                self._file.write(self._seal(data[start : start + self._block_rows * _ROW.size], offset + start))
            self._file.flush()
        except OSError as error:
            msg = f"{tempfile.gettempdir()}: rows cannot be written here for sorting ({error.strerror})"
            raise TacetError(msg) from None
        run = _Run(offset, len(data) // _ROW.size, last)
        lane = next((lane for lane in self._lanes if lane[-1].last < first), None)
        self._lanes.append([run]) if lane is None else lane.append(run)

    def _read(self, run: _Run) -> Iterator[npt.NDArray[np.void]]:
        file = self._file
        assert file is not None  # noqa: S101
        end = run.offset + run.rows * _ROW.size
        for place in range(run.offset, end, self._block_rows * _ROW.size):
            file.seek(place)
            data = self._seal(file.read(min(self._block_rows * _ROW.size, end - place)), place)
            yield np.frombuffer(data, dtype=PACKED)

    def _seal(self, data: bytes, place: int) -> bytes:
        """Encrypt or decrypt a block."""
        stream = hashlib.shake_256(self._key + place.to_bytes(8, "big")).digest(len(data))
        return (np.frombuffer(data, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()
