"""Listeners receive one protocol's messages, check them, and put sightings into the queue.

- ``Port``: one UDP socket that reads in bounded turns and counts the kernel's drops.
- ``Listener``: the interface that the receiver uses.
- ``UdpListener``: a listener on a UDP port.
- ``PipeListener``: a listener on a pipe, with lines that another program writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import stat
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import structlog

from connectors.sources.ingest.queue import IngestQueue
from stream.errors import DataError
from stream.records import Micros

READS_PER_TURN = 64
PAUSE = 0.005
"""Seconds between two polls of a busy socket: short compared with the time its buffer covers, long compared with a
wake-up.
"""
ASK_EVERY = 0.1
"""Seconds between two reads of the kernel's table of sockets, which may be long."""
SMALLEST = 512
"""Minimum number of octets of the buffer that a datagram uses, as Linux counts: 768 or more."""
_LARGEST = 65_535
_INODE = 9
"""Column of the socket's inode in a line of /proc/net/udp; the drops are in the last column."""
_SO_RXQ_OVFL = 40
"""Linux: each datagram carries the socket's count of drops as a uint32."""


def _listed_drops(sock: socket.socket) -> int | None:
    """Return the drops of a socket as the kernel lists them in /proc/net, or None if it does not."""
    table = Path("/proc/net/udp6" if sock.family == socket.AF_INET6 else "/proc/net/udp")
    inode = str(os.fstat(sock.fileno()).st_ino)
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines():
            fields = line.split()
            if len(fields) > _INODE and fields[_INODE] == inode:
                return int(fields[-1])
    return None


class Port:
    """A bound socket; ``turn`` is called whenever datagrams wait, and returns how many it read.

    asyncio's own datagram transport reads one datagram per wake-up. Here one wake-up reads up to 64, and while
    datagrams keep coming the port polls every 5 ms.
    """

    def __init__(self, address: tuple[str, int], receive_buffer: int, read_batch: Callable[[], int]) -> None:
        """Bind to ``address`` and request a receive buffer; ``OSError`` if the address cannot be used."""
        self._drops, self._next_drop_check = 0, 0.0
        self._read_batch, self._reading = read_batch, False
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self.receive_buffer = self._grow_buffer(receive_buffer)
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            msg = f"cannot listen at {host}:{address[1]} (UDP): {error.strerror or error}"
            raise OSError(msg) from None
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def _grow_buffer(self, requested: int) -> int:
        """Request a buffer size, read back the granted size, and log it if it is smaller."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, requested)
        granted = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        usable = granted // 2 if sys.platform == "linux" else granted  # Linux doubles the size and reports the double
        if usable < requested:
            structlog.get_logger("tacet.snmp").warning(
                "receive_buffer_small", asked=requested, granted=usable, raise_with="net.core.rmem_max"
            )
        return granted

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped for lack of space: at most 0.1 s ago on Linux, elsewhere as of the last one
        read.
        """
        if self._socket.fileno() >= 0 and time.monotonic() >= self._next_drop_check:
            self._read_kernel_drops()
        return self._drops

    def _read_kernel_drops(self) -> None:
        """Read the kernel's count: the count beside a datagram misses drops after the last one read."""
        listed = _listed_drops(self._socket)
        self._drops = self._drops if listed is None else listed
        self._next_drop_check = time.monotonic() + ASK_EVERY

    def open(self) -> None:
        """Start reading."""
        self._reading = True
        self._arm()

    def stop(self) -> None:
        """Stop reading; sending still works."""
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._socket)

    async def finish(self) -> None:
        """Read the kernel's queue once, then stop; a sender that never stops does not delay this."""
        for _ in range(1 + self.receive_buffer // SMALLEST // READS_PER_TURN):
            if not self._reading or self._read_batch() < READS_PER_TURN:
                break
        self.stop()

    def close(self) -> None:
        """Release the address."""
        self.stop()
        if self._socket.fileno() >= 0:
            self._read_kernel_drops()
        self._socket.close()

    def read(self, on_datagram: Callable[[bytes, Any], None]) -> None:
        """Pass up to 64 datagrams and their senders to ``on_datagram``."""
        receive = self._socket.recvfrom
        with contextlib.suppress(BlockingIOError):
            on_datagram(*self._first())
            for _ in range(READS_PER_TURN - 1):
                datagram, address = receive(_LARGEST)
                on_datagram(datagram, address)

    def _first(self) -> tuple[bytes, Any]:
        """Read one datagram with the kernel's count of drops."""
        datagram, extras, _, address = self._socket.recvmsg(_LARGEST, 64)
        for level, kind, content in extras:
            if level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL:
                self._drops = max(self._drops, int.from_bytes(content, sys.byteorder))  # as of its queueing
        return datagram, address

    def send(self, datagram: bytes, address: Any) -> bool:
        """Send one datagram if the kernel accepts it; return whether it did."""
        try:
            self._socket.sendto(datagram, address)
        except OSError:
            return False
        return True

    def _arm(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket, self._on_readable)

    def _on_readable(self) -> None:
        """Switch from a call per datagram to polling, until no more datagrams come."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._read_datagrams()

    def _read_datagrams(self) -> None:
        if not self._reading:
            return
        count, loop = self._read_batch(), asyncio.get_running_loop()
        if not self._reading:
            return
        if count == 0:
            self._arm()
        elif count == READS_PER_TURN:
            loop.call_soon(self._read_datagrams)
        else:
            loop.call_later(PAUSE, self._read_datagrams)


RECEIVE_BUFFER = 4 * 1024 * 1024
"""Octets to request from the kernel."""


class Listener(Protocol):
    """The interface of a protocol for the receiver.

    Each message is counted once: accepted, or dropped for one reason.
    """

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason for a drop, in the order of the checks."""

    @property
    def harmless(self) -> frozenset[str]:
        """The reasons that indicate no fault."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on which it listens."""

    @property
    def kernel_drops(self) -> int:
        """Number of messages that were lost before they could be read."""

    @property
    def receive_buffer(self) -> int:
        """Size of the receive buffer in octets; 0 if it is unknown."""

    @property
    def can_receive(self) -> bool:
        """Whether a message sent now would be received; otherwise heartbeats confirm no coverage."""

    async def open(self, queue: IngestQueue) -> None:
        """Start listening; ``OSError`` if that is impossible."""

    async def finish(self) -> None:
        """Process what has already arrived, then stop listening; acknowledgements can still be sent."""

    def stop(self) -> None:
        """Stop listening at once."""

    async def close(self) -> None:
        """Send no more acknowledgements and release all resources; harmless if it was never open."""


class UdpListener(ABC):
    """A listener on one UDP port; a protocol implements ``on_datagram``."""

    reasons: ClassVar[tuple[str, ...]]
    harmless: ClassVar[frozenset[str]]
    can_receive: ClassVar[bool] = True

    def __init__(self, address: tuple[str, int], receive_buffer: int = RECEIVE_BUFFER) -> None:
        """Set the address to listen on, and the size of the receive buffer to request from the kernel."""
        self._requested_address, self._buffer = address, receive_buffer
        self._port: Port | None = None

    @abstractmethod
    def on_datagram(self, now: Micros, datagram: bytes, address: Any) -> None:
        """Process one datagram that was received at ``now``, or count why it is dropped; never blocks."""

    def after_batch(self) -> None:  # noqa: B027 - most protocols have nothing to do
        """Run once after a turn of datagrams, before the worker processes them."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the socket is bound to."""
        return self._requested_address if self._port is None else self._port.address

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped for lack of space."""
        return 0 if self._port is None else self._port.kernel_drops

    @property
    def receive_buffer(self) -> int:
        """The socket's buffer in octets, as the kernel granted it."""
        return 0 if self._port is None else self._port.receive_buffer

    async def open(self, queue: IngestQueue) -> None:
        """Bind the socket and start reading."""
        self.queue = queue
        self._port = Port(self._requested_address, self._buffer, self._read_batch)
        self._port.open()

    async def finish(self) -> None:
        """Read the kernel's queue, then stop."""
        if self._port is not None:
            await self._port.finish()

    def stop(self) -> None:
        """Stop reading; sending still works."""
        if self._port is not None:
            self._port.stop()

    async def close(self) -> None:
        """Release the address."""
        if self._port is not None:
            self._port.close()

    def send(self, datagram: bytes, address: Any) -> bool:
        """Send one datagram if the kernel accepts it; return whether it did."""
        return self._port is not None and self._port.send(datagram, address)

    def _read_batch(self) -> int:
        port, queue = self._port, self.queue
        before, waiting = queue.counters.datagrams, len(queue.sightings)
        if port is not None:
            try:
                port.read(functools.partial(self.on_datagram, queue.clock.now()))
                self.after_batch()
            except Exception as error:  # otherwise the event loop would only log it and never call the port again
                queue.drop_after(waiting)
                queue.fail(error)
                port.stop()
        queue.call_worker()
        return queue.counters.datagrams - before


# --- pipes ------------------------------------------------------------------------------------------

STANDARD_INPUT = Path("-")
READ_AT_ONCE = 65_536
LAST_READS = 256
"""At the end the rest of the pipe is read; a writer that never stops must not prevent the end."""


class PipeListener(ABC):
    """Lines from a named pipe, or from standard input; a protocol implements ``on_line``.

    A named pipe stays open while its writer restarts. At the end of standard input the receiver ends too: without a
    writer heartbeats must not confirm coverage.
    """

    reasons: ClassVar[tuple[str, ...]]
    harmless: ClassVar[frozenset[str]]
    can_receive: ClassVar[bool] = True
    kernel_drops = 0
    receive_buffer = 0

    def __init__(self, path: Path, longest: int) -> None:
        """Set the pipe (``-``: standard input), and the maximum length of a line in octets."""
        self._path, self._longest = path, longest
        self._file, self._partial_line, self._skipping_line = -1, b"", False

    @abstractmethod
    def on_line(self, now: Micros, line: bytes | None) -> None:
        """Process one line that was read at ``now``, or count why it is dropped; never blocks.

        None: the line was too long.
        """

    @property
    def address(self) -> tuple[str, int]:
        """The pipe; it has no port."""
        return str(self._path), 0

    async def open(self, queue: IngestQueue) -> None:
        """Open the pipe and start reading; ``OSError`` if it is not a pipe."""
        self.queue = queue
        if self._path == STANDARD_INPUT:
            self._file = os.dup(0)
        else:  # also for writing: so it never reaches an end, and opening does not wait for a writer
            self._file = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        mode = os.fstat(self._file).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            await self.close()
            msg = f"{self._path}: must be a pipe that another program writes to"
            raise OSError(msg)
        os.set_blocking(self._file, False)
        asyncio.get_running_loop().add_reader(self._file, self._read_batch)

    async def finish(self) -> None:
        """Read the rest of the pipe, then stop."""
        with contextlib.suppress(DataError):  # its end is expected now
            for _ in range(LAST_READS):
                if not self._read():
                    break
        self.stop()

    def stop(self) -> None:
        """Stop reading."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)

    async def close(self) -> None:
        """Close the pipe."""
        self.stop()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read_batch(self) -> None:
        try:
            if not self._read():
                return
        except Exception as error:  # otherwise the event loop would only log it
            self.queue.fail(error)
            self.stop()
        self.queue.call_worker()

    def _read(self) -> bool:
        """Read some lines; return whether there may be more."""
        try:
            read = os.read(self._file, READ_AT_ONCE) if self._file >= 0 else b""
        except BlockingIOError:
            return False
        if not read:
            msg = f"{self._path}: must stay open while it is read, but its writer has ended"
            raise DataError(msg)
        now = self.queue.clock.now()
        *lines, self._partial_line = (self._partial_line + read).split(b"\n")
        for line in lines:
            self.queue.counters.datagrams += 1
            self.on_line(now, None if self._skipping_line or len(line) > self._longest else line)
            self._skipping_line = False
        if len(self._partial_line) > self._longest:
            self._partial_line, self._skipping_line = b"", True
        return True
