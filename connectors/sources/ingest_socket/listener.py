"""Where sightings come in that ``tacet hooks`` has checked: a socket of the file system, one sender at a time.

Who may open it is the file system's matter: its folder and its mode, 0660. What comes through it is answered when it
is durable. The ingest bounds its times once more, so that a sender that was taken over from outside can place devices
at this moment, and do nothing else. While nobody is connected, or who is says that it cannot hear, the connector
vouches for nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from connectors.handover.frames import LONGEST_LINE, Batch, Dated, FrameError, decode, encode_answer
from connectors.intake.admission import QUEUE_FULL, UNKNOWN_SOURCE
from connectors.intake.ingest import CLOCKS_APART, WRONG_TIME
from connectors.intake.waiting import Arrival, WaitingRoom
from stream.errors import UsageError
from stream.records import SECOND, Micros

SPAN: Micros = 180 * SECOND
"""How old what is handed over may be: systems of the cloud gather for a minute, and try again."""
MALFORMED = "malformed"
MODE = 0o660


class _Pending:
    """The answer that one batch waits for; each of its rows calls ``give`` or ``withhold`` once."""

    __slots__ = ("_kept", "_left", "_number", "_writer")

    def __init__(self, writer: asyncio.StreamWriter, batch: Batch) -> None:
        self._writer, self._number = writer, batch.number
        self._left, self._kept = len(batch.rows), True
        if not self._left:
            self._send()

    def give(self) -> None:
        self._part()

    def withhold(self) -> None:
        self._kept = False
        self._part()

    def _part(self) -> None:
        self._left -= 1
        if not self._left:
            self._send()

    def _send(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_answer(self._number, kept=self._kept))


class HandoverEntrance:
    """A socket of the file system."""

    reasons = (MALFORMED, UNKNOWN_SOURCE, WRONG_TIME, QUEUE_FULL)
    everyday: frozenset[str] = frozenset()
    kernel_drops = 0
    receive_buffer = 0

    def __init__(self, path: Path, sources: Collection[str]) -> None:
        """Take where to listen, and the policy's sources."""
        self._path, self._sources = path, frozenset(sources)
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._told = False

    @property
    def address(self) -> tuple[str, int]:
        """The socket's path, and no port."""
        return str(self._path), 0

    @property
    def hearing(self) -> bool:
        """Whether somebody is connected who can hear."""
        return self._writer is not None and self._told

    async def open(self, room: WaitingRoom) -> None:
        """Make the socket; UsageError where that is impossible, or another process listens there."""
        self.room = room
        self._server = await asyncio.start_unix_server(self._meet, sock=bound(self._path), limit=LONGEST_LINE)

    async def finish(self) -> None:
        """Read no more: who is not answered hands over again."""
        self.stop()

    def stop(self) -> None:
        """Read no more; answers can still be given."""
        if self._server is not None:
            self._server.close()
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        """Give the socket back."""
        self.stop()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._server is not None:
            self._server = None
            self._path.unlink(missing_ok=True)

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:  # one sender: two would each remember only what they have sent themselves
            writer.close()
            return
        self._writer, self._told = writer, False
        self._reading = asyncio.create_task(self._read(reader, writer))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._take(decode(line), writer)
                await asyncio.sleep(0)
        except (FrameError, ValueError):  # or a line without end
            self.room.counters.datagrams += 1
            self.room.drop(MALFORMED)
        except OSError:
            pass  # it has gone
        except asyncio.CancelledError:
            return  # the writer is still needed for answers
        except Exception as error:  # a clock that was set, a fault: else nobody would look at the socket again
            self.room.fail(error)
            self.room.call_worker()
        self._told = False
        self._writer = None
        writer.close()

    def _take(self, told: Batch | bool, writer: asyncio.StreamWriter) -> None:
        if isinstance(told, bool):
            self._told = told
            return
        now, pending = self.room.clock.now(), _Pending(writer, told)
        for row in told.rows:
            self.room.counters.datagrams += 1
            self._queue(row, told.source, now, pending)
        self.room.call_worker()

    def _queue(self, row: Dated, source: str, now: Micros, pending: _Pending) -> None:
        age = now - row.at
        if source not in self._sources:
            self._drop(UNKNOWN_SOURCE, pending)
        elif not -CLOCKS_APART <= age <= SPAN:
            self._drop(WRONG_TIME, pending)
        else:
            sighting = row.sighting._replace(age=min(age, CLOCKS_APART))
            if not self.room.take(Arrival(now, source, source, sighting, pending)):
                pending.withhold()

    def _drop(self, reason: str, pending: _Pending) -> None:
        self.room.drop(reason)
        pending.give()


def bound(path: Path) -> socket.socket:
    """Return a socket at a path, open to its owner and group; UsageError where that cannot be."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            _clear(path)
        before = os.umask(0o777 & ~MODE)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        made.close()
        msg = f"--hooks: must be a socket in a folder of yours, got {path} ({error.strerror or error})"
        raise UsageError(msg) from None
    except UsageError:
        made.close()
        raise
    return made


def _clear(path: Path) -> None:
    """Remove what a process that has ended left behind; UsageError where one is alive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(FileNotFoundError):
                path.unlink()
            return
    msg = f"--hooks: must be a socket of this process alone, but another one listens at {path}"
    raise UsageError(msg)
