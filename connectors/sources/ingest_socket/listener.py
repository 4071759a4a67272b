"""The listener of the ingest's socket, for one sender at a time.

The file system decides who may open it, by its folder and its mode, 0660. A batch is acknowledged when it is durable.
The ingest limits the times once more, so a compromised sender can place devices, under any login, at the present
moment, and do nothing else. While no sender is connected, or the sender reports that it cannot receive, heartbeats
confirm no coverage.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from connectors.sources.ingest.ingest import CLOCKS_APART, WRONG_TIME
from connectors.sources.ingest.queue import QUEUE_FULL, IngestQueue, QueuedSighting
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE
from connectors.sources.ingest_socket.frames import (
    LONGEST_LINE,
    Batch,
    FrameError,
    TimedSighting,
    decode,
    encode_answer,
)
from stream.errors import UsageError
from stream.records import SECOND, Micros

SPAN: Micros = 180 * SECOND
"""Maximum age of a sighting: cloud systems collect for a minute, and retry."""
MALFORMED = "malformed"
MODE = 0o660
ANSWERS_READ_WITHIN = 30.0
"""Seconds for which a sender may leave its acknowledgements unread."""


class _Pending:
    """The acknowledgement of one batch; each of its rows calls ``acknowledge`` or ``withhold`` once."""

    __slots__ = ("_kept", "_left", "_number", "_writer")

    def __init__(self, writer: asyncio.StreamWriter, batch: Batch) -> None:
        self._writer, self._number = writer, batch.number
        self._left, self._kept = len(batch.rows), True
        if not self._left:
            self._send()

    def acknowledge(self) -> None:
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


class SocketListener:
    """A Unix socket as a listener."""

    reasons = (MALFORMED, UNKNOWN_SOURCE, WRONG_TIME, QUEUE_FULL)
    harmless: frozenset[str] = frozenset()
    kernel_drops = 0
    receive_buffer = 0

    def __init__(self, path: Path, sources: Collection[str], option: str = "--hooks") -> None:
        """Set the socket's path, the policy's sources, and the option that names the path."""
        self._path, self._sources, self._option = path, frozenset(sources), option
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._can_receive = False

    @property
    def address(self) -> tuple[str, int]:
        """The socket's path, and no port."""
        return str(self._path), 0

    @property
    def can_receive(self) -> bool:
        """Whether a sender is connected that can receive."""
        return self._writer is not None and self._can_receive

    async def open(self, queue: IngestQueue) -> None:
        """Create the socket; UsageError if that is impossible, or another process listens there."""
        self.queue = queue
        self._server = await asyncio.start_unix_server(
            self._accept, sock=bound(self._path, self._option), limit=LONGEST_LINE
        )

    async def finish(self) -> None:
        """Stop reading: a sender without an acknowledgement sends again."""
        self.stop()

    def stop(self) -> None:
        """Stop reading; acknowledgements can still be sent."""
        if self._server is not None:
            self._server.close()
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        """Close and remove the socket."""
        self.stop()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._server is not None:
            self._server = None
            self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:  # one sender: each of two would know only its own copies
            writer.close()
            return
        self._writer, self._can_receive = writer, False
        self._reading = asyncio.create_task(self._read(reader, writer))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._process(decode(line), writer)
                async with asyncio.timeout(ANSWERS_READ_WITHIN):
                    await writer.drain()  # nothing more is read from a sender that leaves its acknowledgements unread
                await asyncio.sleep(0)
        except (FrameError, ValueError):  # ValueError: a line without end
            self.queue.counters.datagrams += 1
            self.queue.drop(MALFORMED)
        except OSError:
            writer.transport.abort()  # it has disconnected, or leaves its acknowledgements unread
        except asyncio.CancelledError:
            return  # the writer is still needed for acknowledgements
        except Exception as error:  # a clock step, an internal error: otherwise the task would end silently
            self.queue.fail(error)
            self.queue.call_worker()
        self._can_receive = False
        self._writer = None
        writer.close()

    def _process(self, frame: Batch | bool, writer: asyncio.StreamWriter) -> None:
        if isinstance(frame, bool):
            self._can_receive = frame
            return
        now, pending = self.queue.clock.now(), _Pending(writer, frame)
        for row in frame.rows:
            self.queue.counters.datagrams += 1
            self._queue(row, frame.source, now, pending)
        self.queue.call_worker()

    def _queue(self, row: TimedSighting, source: str, now: Micros, pending: _Pending) -> None:
        age = now - row.at
        if source not in self._sources:
            self._drop(UNKNOWN_SOURCE, pending)
        elif not -CLOCKS_APART <= age <= SPAN:
            self._drop(WRONG_TIME, pending)
        else:
            sighting = row.sighting._replace(age=min(age, CLOCKS_APART))
            if not self.queue.put(QueuedSighting(now, source, source, sighting, pending)):
                pending.withhold()

    def _drop(self, reason: str, pending: _Pending) -> None:
        self.queue.drop(reason)
        pending.acknowledge()


def bound(path: Path, option: str) -> socket.socket:
    """Return a socket at a path, accessible to its owner and group; UsageError if that is impossible."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            _clear(path, option)
        before = os.umask(0o777 & ~MODE)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        made.close()
        msg = f"{option}: must be a socket in a folder that you own, got {path} ({error.strerror or error})"
        raise UsageError(msg) from None
    except UsageError:
        made.close()
        raise
    return made


def _clear(path: Path, option: str) -> None:
    """Remove the socket of a process that has ended; UsageError if a process still listens on it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(FileNotFoundError):
                path.unlink()
            return
    msg = f"{option}: must be free, but another process listens at {path}"
    raise UsageError(msg)
