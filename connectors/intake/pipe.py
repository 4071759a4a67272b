"""An entrance that is a pipe: lines that another program writes, as they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from connectors.intake.waiting import WaitingRoom
from stream.errors import DataError
from stream.records import Micros

STANDARD_INPUT = Path("-")
READ_AT_ONCE = 65_536
LAST_READS = 256
"""At the end, what the pipe still holds is read; a writer that never stops must not prevent the end."""


class PipeEntrance(ABC):
    """Lines from a named pipe, or from standard input; ``hear`` is what a protocol adds.

    A named pipe stays open while its writer is started again. Where standard input ends, so does the receiver: a
    writer that is gone must not be vouched for.
    """

    reasons: ClassVar[tuple[str, ...]]
    everyday: ClassVar[frozenset[str]]
    hearing: ClassVar[bool] = True
    kernel_drops = 0
    receive_buffer = 0

    def __init__(self, path: Path, longest: int) -> None:
        """Take the pipe (``-``: standard input), and the octets that a line may have."""
        self._path, self._longest = path, longest
        self._file, self._begun, self._lost = -1, b"", False

    @abstractmethod
    def hear(self, now: Micros, line: bytes | None) -> None:
        """Take one line that was read at ``now``, or count why not; never waits. None: a line that was too long."""

    @property
    def address(self) -> tuple[str, int]:
        """The pipe; it has no port."""
        return str(self._path), 0

    async def open(self, room: WaitingRoom) -> None:
        """Open the pipe and read; ``OSError`` where it is none."""
        self.room = room
        if self._path == STANDARD_INPUT:
            self._file = os.dup(0)
        else:  # also for writing: so it never ends, and waits for no writer
            self._file = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        mode = os.fstat(self._file).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            await self.close()
            msg = f"{self._path}: must be a pipe that another program writes to"
            raise OSError(msg)
        os.set_blocking(self._file, False)
        asyncio.get_running_loop().add_reader(self._file, self._turn)

    async def finish(self) -> None:
        """Read what the pipe still holds, then no more."""
        with contextlib.suppress(DataError):  # its end is no surprise any more
            for _ in range(LAST_READS):
                if not self._read():
                    break
        self.stop()

    def stop(self) -> None:
        """Read no more."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)

    async def close(self) -> None:
        """Let the pipe go."""
        self.stop()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _turn(self) -> None:
        try:
            if not self._read():
                return
        except Exception as error:  # else the event loop would only log it
            self.room.fail(error)
            self.stop()
        self.room.call_worker()

    def _read(self) -> bool:
        """Take in some lines; return whether there may be more."""
        try:
            read = os.read(self._file, READ_AT_ONCE) if self._file >= 0 else b""
        except BlockingIOError:
            return False
        if not read:
            msg = f"{self._path}: must stay open while anything is heard, but its writer has gone"
            raise DataError(msg)
        now = self.room.clock.now()
        *lines, self._begun = (self._begun + read).split(b"\n")
        for line in lines:
            self.room.counters.datagrams += 1
            self.hear(now, None if self._lost or len(line) > self._longest else line)
            self._lost = False
        if len(self._begun) > self._longest:
            self._begun, self._lost = b"", True
        return True
