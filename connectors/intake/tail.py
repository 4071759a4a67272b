"""A log file that another program writes: read as it grows, over rotation and truncation, on from where it was left.

Lines count when they end. A file that was renamed is read to its end, and left when the new one of its name is no
longer empty: from then on nothing is written into the old one. On the next start what is left of a renamed file is
read first, if it lies beside the log under a name that begins like it.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from connectors.held_file import HeldFile
from connectors.intake.followed import Piece
from stream.errors import UsageError
from stream.records import Micros

READ_AT_ONCE = 65_536
PAUSE = 0.1
"""Seconds between two looks at a file that has not grown."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY CHECK (one = 1), device INTEGER, inode INTEGER, offset INTEGER, said INTEGER
);
"""
_OTHERS = stat.S_IRWXO


class Place(NamedTuple):
    """How far a file was read, as it outlives a crash."""

    device: int
    inode: int
    offset: int
    said: Micros
    """When the line before it was written, -1 where that does not say so: by that a file is known that has taken
    another's place. Nothing else of a line is kept."""


class TailedFile:
    """The file; positions are octets, counted on over all files of its name."""

    def __init__(self, path: Path, state: Path, longest: int, written_at: Callable[[bytes], Micros | None]) -> None:
        """Take the log, the file in which its place is kept, how long a line may be, and how one says when it was."""
        self._path, self._state, self._longest, self._written_at = path, state, longest, written_at
        self._held: HeldFile | None = None
        self._file, self._known = -1, (0, 0)
        self._base = self._offset = 0
        """Where the open file begins, and how far it was read, a line that has not ended included."""
        self._begun, self._lost = b"", False
        self._places: deque[tuple[int, Place]] = deque()
        """What is to be kept of each end of a line that is not durable yet."""

    @property
    def name(self) -> str:
        """Its path."""
        return str(self._path)

    async def open(self) -> None:
        """Go on where it was left; the first time at the end of its last line.

        Raises:
            UsageError: it is no file, or others than its owner and group can read or write it.
            KeyFileError: its state cannot be used, or another process holds it.
        """
        self._held = HeldFile(self._state, _SCHEMA, whose="a reader of this log", by="another one reads it")
        with self._held.usable():
            row = self._held.database.execute("SELECT device, inode, offset, said FROM place").fetchone()
        if row is None:
            self._enter(self._path)
            self._offset = self._last_end(os.fstat(self._file).st_size)
        else:
            self._resume(Place(*row))

    def _resume(self, place: Place) -> None:
        beside = sorted(self._path.parent.glob(f"{self._path.name}*"), key=lambda path: path != self._path)
        for path in beside:
            try:
                found = path.stat()
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (place.device, place.inode) and found.st_size >= place.offset:
                self._enter(path)
                self._offset = place.offset
                if self._said_before(place.offset) == place.said:
                    return
        self._enter(self._path)

    def _enter(self, path: Path) -> None:
        """Open a file at its beginning; it counts on from where the one before was left."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            msg = f"{path}: must be a log that can be read ({error.strerror})"
            raise UsageError(msg) from None
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & _OTHERS:
            os.close(file)
            msg = (
                f"{path}: must be a file that only its owner and group can read (mode 0640), for it says who was where"
            )
            raise UsageError(msg)
        if self._file >= 0:
            os.close(self._file)
        self._base += self._offset
        self._file, self._known, self._offset = file, (found.st_dev, found.st_ino), 0

    def _last_end(self, size: int) -> int:
        """Return where the last line ends that has ended."""
        start = max(0, size - self._longest)
        _, newline, rest = os.pread(self._file, size - start, start).rpartition(b"\n")
        return size - len(rest) if newline else start

    def _said_before(self, offset: int) -> Micros:
        start = max(0, offset - self._longest - 1)
        before = os.pread(self._file, offset - start, start)
        return self._said(before[:-1].rpartition(b"\n")[2]) if before.endswith(b"\n") else -1

    def _said(self, line: bytes) -> Micros:
        said = self._written_at(line)
        return -1 if said is None else said

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return lines that have ended, and whether there is nothing else."""
        del most  # bounded by what is read at once
        renamed = self._is_renamed()  # before the last look at the old file
        if data := os.pread(self._file, READ_AT_ONCE, self._offset):
            return self._lines(data), len(data) < READ_AT_ONCE
        if os.fstat(self._file).st_size < self._offset:
            return self._broken_off(self._path if renamed else None), False
        if renamed:
            return self._broken_off(self._path), False
        await asyncio.sleep(PAUSE)
        return [], True

    def _is_renamed(self) -> bool:
        """Whether a file that is not empty has taken the name."""
        try:
            found = self._path.stat()
        except OSError:
            return False  # about to be made anew
        return (found.st_dev, found.st_ino) != self._known and found.st_size > 0

    def _lines(self, data: bytes) -> list[Piece]:
        self._offset += len(data)
        end = self._base + self._offset - len(self._begun) - len(data)
        *lines, self._begun = (self._begun + data).split(b"\n")
        pieces = []
        for line in lines:
            end += len(line) + 1
            pieces.append(self._piece(end, None if self._lost or len(line) > self._longest else line))
            self._lost = False
        if len(self._begun) > self._longest:  # its end is waited for, and what it says no more
            self._begun, self._lost = b"", True
        return pieces

    def _piece(self, end: int, line: bytes | None) -> Piece:
        said = -1 if line is None else self._said(line)
        self._places.append((end, Place(*self._known, end - self._base, said)))
        return Piece("", end, line)

    def _broken_off(self, path: Path | None) -> list[Piece]:
        """Go on with a file's beginning; a line that had begun in the one before will not end."""
        pieces = [self._piece(self._base + self._offset, None)] if self._begun or self._lost else []
        self._begun, self._lost = b"", False
        if path is None:  # it was cut off
            self._base += self._offset
            self._offset = 0
        else:
            self._enter(path)
        return pieces

    async def keep(self, reached: Mapping[Hashable, int]) -> bool:
        """Make durable how far it was read."""
        place = None
        while self._places and self._places[0][0] <= reached[""]:
            place = self._places.popleft()[1]
        if place is not None and self._held is not None:
            with self._held.changing() as database:
                database.execute("REPLACE INTO place VALUES (1, ?, ?, ?, ?)", place)
        return True

    async def close(self) -> None:
        """Let it go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._held is not None:
            self._held.close()
            self._held = None
