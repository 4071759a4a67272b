"""Listeners that follow another program's log, and resume after a restart.

- ``FollowedListener`` reads any ``FollowedLog``. The position moves past a piece only when its sighting is durable, so
  the rest is read again after a restart. A piece that is read twice has the time that the log gives it, so the copy
  changes nothing. If the queue is full, the log waits, so nothing is dropped.
- ``TailedFile`` is a log file, read as it grows, over rotation and truncation. A line counts when it ends. A renamed
  file is read to its end, and left when the new file of its name is no longer empty: from then on nothing is written to
  the old one. After a restart the rest of a renamed file is read first, if it lies beside the log under a name that
  begins with the log's name.
"""

from __future__ import annotations

import asyncio
import glob
import os
import stat
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from connectors.runtime.signals import raise_if_cancelled
from connectors.secrets.locked_file import LockedFile
from connectors.sources.ingest.queue import IngestQueue, QueuedSighting
from connectors.sources.ingest.sighting import Sighting
from stream.errors import UsageError
from stream.records import SECOND, Micros

AT_ONCE = 500
BREATH = 0.05
"""Seconds to wait for free space in the queue."""
LONGEST_AGE: Micros = 1_000_000 * SECOND
"""Ages beyond it are reduced to it."""
BEHIND = 15.0
"""Seconds since the end of the log was last reached. After that, heartbeats confirm no coverage."""


class Piece(NamedTuple):
    """A line, or a message, of one part of a log; its repr hides the content."""

    part: Hashable
    end: int
    """Position in its part after it."""
    content: bytes | None
    """None: the line was too long."""
    at: Micros | None = None
    """The time at which it was written, if the log contains it."""

    def __repr__(self) -> str:
        """Show the position and nothing else."""
        return f"Piece({self.part}, {self.end})"


class FollowedLog(Protocol):
    """A log that can be followed."""

    @property
    def name(self) -> str:
        """Its name, for operators."""

    async def open(self) -> None:
        """Resume at the last position, or at the end; ``OSError`` or ``TacetError`` if that is impossible."""

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return the next pieces, waiting a moment for them, and whether the end was reached."""

    async def store_positions(self, positions: Mapping[Hashable, int]) -> bool:
        """Store the position of each part durably; False if the caller must try again."""

    async def close(self) -> None:
        """Close it; harmless if it was never open."""


class FollowedLine(NamedTuple):
    """The decoded content of a piece."""

    source: str
    host: str
    sighting: Sighting
    at: Micros | None = None
    """Event time by the log; None: now."""


class PieceAcknowledgement:
    """The acknowledgement of one piece."""

    __slots__ = ("done", "end", "part")

    def __init__(self, part: LogPart, end: int) -> None:
        self.part, self.end, self.done = part, end, False

    def acknowledge(self) -> None:
        """Record that its sighting is durable, or that there was nothing to store."""
        self.done = True
        self.part.advance()

    def withhold(self) -> None:
        """Record that it will not be stored: nothing from here on counts as read, so it is read again."""
        self.part.broken = True


class LogPart:
    """The read position of one part, and the durable position."""

    def __init__(self) -> None:
        self.reached: int | None = None
        """Everything before it is durable; None: nothing has been read."""
        self.broken = False
        self._in_flight: deque[PieceAcknowledgement] = deque()

    def begin(self, end: int) -> PieceAcknowledgement:
        """Record a piece that was read and ends there."""
        mark = PieceAcknowledgement(self, end)
        if not self.broken:
            self._in_flight.append(mark)
        return mark

    def advance(self) -> None:
        """Advance past all leading pieces that are done."""
        while self._in_flight and self._in_flight[0].done and not self.broken:
            self.reached = self._in_flight.popleft().end


class FollowedListener(ABC):
    """One log; a protocol implements ``decode``."""

    reasons: ClassVar[tuple[str, ...]]
    harmless: ClassVar[frozenset[str]]
    kernel_drops = 0
    receive_buffer = 0

    def __init__(self, log: FollowedLog) -> None:
        """Set the log to follow."""
        self._log = log
        self._parts: dict[Hashable, LogPart] = {}
        self._stored_positions: dict[Hashable, int] = {}
        self._following: asyncio.Task[None] | None = None
        self._all_read = -BEHIND

    @abstractmethod
    def decode(self, now: Micros, content: bytes | None) -> FollowedLine | str:
        """Decode a piece that is read ``now``, or return why it is dropped; None: it was too long. Never blocks."""

    @property
    def address(self) -> tuple[str, int]:
        """The log's name; it has no port."""
        return self._log.name, 0

    @property
    def can_receive(self) -> bool:
        """Whether the end of the log was reached recently."""
        return time.monotonic() - self._all_read < BEHIND

    async def open(self, queue: IngestQueue) -> None:
        """Resume at the log's last position."""
        self.queue = queue
        await self._log.open()
        self._following = asyncio.create_task(self._follow())

    async def finish(self) -> None:
        """Stop reading; the rest is read after the next start."""
        self.stop()

    def stop(self) -> None:
        """Stop reading."""
        if self._following is not None:
            self._following.cancel()

    async def close(self) -> None:
        """Store the position and close the log."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
            self._following = None
            await self._store_positions()
        await self._log.close()

    async def _follow(self) -> None:
        try:
            while True:
                pieces, whole = await self._log.read(AT_ONCE)
                for piece in pieces:
                    while not self.queue.free:
                        self.queue.call_worker()
                        await asyncio.sleep(BREATH)
                    self._process(piece)
                if whole:
                    self._all_read = time.monotonic()
                self.queue.call_worker()
                await self._store_positions()
                raise_if_cancelled()  # a log may have lost the cancellation of its last read
        except Exception as error:  # without this the task would end silently
            raise_if_cancelled(error)
            self.queue.fail(error)
            self.queue.call_worker()

    def _process(self, piece: Piece) -> None:
        self.queue.counters.datagrams += 1
        mark = self._parts.setdefault(piece.part, LogPart()).begin(piece.end)
        now = self.queue.clock.now()
        decoded = self.decode(now, piece.content)
        if isinstance(decoded, str):
            self.queue.drop(decoded)
            mark.acknowledge()
            return
        at = piece.at if decoded.at is None else decoded.at
        age = 0 if at is None else max(-LONGEST_AGE, min(now - at, LONGEST_AGE))
        self.queue.put(QueuedSighting(now, decoded.source, decoded.host, decoded.sighting._replace(age=age), mark))

    async def _store_positions(self) -> None:
        reached = {part: state.reached for part, state in self._parts.items() if state.reached is not None}
        news = {part: end for part, end in reached.items() if self._stored_positions.get(part) != end}
        if news and await self._log.store_positions(news):
            self._stored_positions |= news


# --- log files --------------------------------------------------------------------------------------

READ_AT_ONCE = 65_536
PAUSE = 0.1
"""Seconds between two checks of a file that has not grown."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY CHECK (one = 1), device INTEGER, inode INTEGER, offset INTEGER, said INTEGER
);
"""
_OTHERS = stat.S_IRWXO


class LogPosition(NamedTuple):
    """The position in a file, as it is stored durably."""

    device: int
    inode: int
    offset: int
    last_time: Micros
    """When the line before it was written, -1 if that line has no time. It reveals whether another file has taken the
    name. Nothing else of a line is stored."""


class TailedFile:
    """The file; positions are octets, counted continuously over all files of its name."""

    def __init__(self, path: Path, state: Path, longest: int, written_at: Callable[[bytes], Micros | None]) -> None:
        """Set the log, the file that stores its position, the longest line, and a reader of a line's time."""
        self._path, self._state, self._longest, self._written_at = path, state, longest, written_at
        self._locked_file: LockedFile | None = None
        self._file, self._identity = -1, (0, 0)
        self._base = self._offset = 0
        """Where the open file begins, and how far it was read, including a line that has not ended."""
        self._partial_line, self._skipping_line = b"", False
        self._places: deque[tuple[int, LogPosition]] = deque()
        """The position to store for each end of a line that is not durable yet."""

    @property
    def name(self) -> str:
        """Its path."""
        return str(self._path)

    async def open(self) -> None:
        """Resume at the last position; the first time at the end of its last line.

        Raises:
            UsageError: it is no file, or others than its owner and group can read or write it.
            KeyFileError: its state cannot be used, or another process has locked it.
        """
        self._locked_file = LockedFile(
            self._state, _SCHEMA, whose="a reader of this log", by="another process reads it"
        )
        with self._locked_file.usable():
            row = self._locked_file.database.execute("SELECT device, inode, offset, said FROM place").fetchone()
        if row is None:
            self._enter(self._path)
            self._offset = self._last_end(os.fstat(self._file).st_size)
            # Otherwise a restart before the first line is durable would begin at a later end.
            self._store(LogPosition(*self._identity, self._offset, self._time_before(self._offset)))
        else:
            self._resume(LogPosition(*row))

    def _resume(self, place: LogPosition) -> None:
        beside = sorted(self._path.parent.glob(f"{glob.escape(self._path.name)}*"), key=lambda path: path != self._path)
        for path in beside:
            try:
                found = path.stat()
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (place.device, place.inode) and found.st_size >= place.offset:
                self._enter(path)
                self._offset = place.offset
                if self._time_before(place.offset) == place.last_time:
                    return
        self._enter(self._path)

    def _enter(self, path: Path) -> None:
        """Open a file at its beginning; positions continue from the end of the file before."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            msg = f"{path}: must be a log that can be read ({error.strerror})"
            raise UsageError(msg) from None
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & _OTHERS:
            os.close(file)
            msg = f"{path}: must be a file that only its owner and group can read (mode 0640): it shows who was where"
            raise UsageError(msg)
        if self._file >= 0:
            os.close(self._file)
        self._base += self._offset
        self._file, self._identity, self._offset = file, (found.st_dev, found.st_ino), 0

    def _last_end(self, size: int) -> int:
        """Return the end of the last complete line."""
        start = max(0, size - self._longest)
        _, newline, rest = os.pread(self._file, size - start, start).rpartition(b"\n")
        return size - len(rest) if newline else start

    def _time_before(self, offset: int) -> Micros:
        start = max(0, offset - self._longest - 1)
        before = os.pread(self._file, offset - start, start)
        return self._time_of(before[:-1].rpartition(b"\n")[2]) if before.endswith(b"\n") else -1

    def _time_of(self, line: bytes) -> Micros:
        time = self._written_at(line)
        return -1 if time is None else time

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return complete lines, and whether the end was reached."""
        del most  # bounded by the size of one read
        renamed = self._is_renamed()  # before the last read of the old file
        if data := os.pread(self._file, READ_AT_ONCE, self._offset):
            return self._lines(data), len(data) < READ_AT_ONCE
        if os.fstat(self._file).st_size < self._offset:
            return self._start_new_file(self._path if renamed else None), False
        if renamed:
            return self._start_new_file(self._path), False
        await asyncio.sleep(PAUSE)
        return [], True

    def _is_renamed(self) -> bool:
        """Return whether a file that is not empty has the name now."""
        try:
            found = self._path.stat()
        except OSError:
            return False  # about to be created again
        return (found.st_dev, found.st_ino) != self._identity and found.st_size > 0

    def _lines(self, data: bytes) -> list[Piece]:
        self._offset += len(data)
        end = self._base + self._offset - len(self._partial_line) - len(data)
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        pieces = []
        for line in lines:
            end += len(line) + 1
            pieces.append(self._piece(end, None if self._skipping_line or len(line) > self._longest else line))
            self._skipping_line = False
        if len(self._partial_line) > self._longest:  # the rest of the line is skipped up to its end
            self._partial_line, self._skipping_line = b"", True
        return pieces

    def _piece(self, end: int, line: bytes | None) -> Piece:
        time = -1 if line is None else self._time_of(line)
        self._places.append((end, LogPosition(*self._identity, end - self._base, time)))
        return Piece("", end, line)

    def _start_new_file(self, path: Path | None) -> list[Piece]:
        """Continue at a file's beginning; an incomplete line of the file before will never end."""
        pieces = [self._piece(self._base + self._offset, None)] if self._partial_line or self._skipping_line else []
        self._partial_line, self._skipping_line = b"", False
        if path is None:  # it was truncated
            self._base += self._offset
            self._offset = 0
        else:
            self._enter(path)
        return pieces

    async def store_positions(self, positions: Mapping[Hashable, int]) -> bool:
        """Store the position durably."""
        place = None
        while self._places and self._places[0][0] <= positions[""]:
            place = self._places.popleft()[1]
        if place is not None:
            self._store(place)
        return True

    def _store(self, place: LogPosition) -> None:
        if self._locked_file is not None:
            with self._locked_file.changing() as database:
                database.execute("REPLACE INTO place VALUES (1, ?, ?, ?, ?)", place)

    async def close(self) -> None:
        """Close it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._locked_file is not None:
            self._locked_file.close()
            self._locked_file = None
