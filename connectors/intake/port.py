"""One UDP socket that reads in bounded turns and knows what the kernel had to drop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

READS_PER_TURN = 64
PAUSE = 0.005
"""Seconds between two looks at a busy socket: short against what its buffer holds, long against a wake-up."""
ASK_EVERY = 0.1
"""Seconds between two looks at the kernel's table of sockets, which may be long."""
SMALLEST = 512
"""Octets of its buffer that a datagram takes at least, by Linux's reckoning: 768 or more."""
_LARGEST = 65_535
_INODE = 9
"""Where a line of /proc/net/udp has the socket's inode; its drops come last."""
_SO_RXQ_OVFL = 40
"""Linux: each datagram brings the socket's count of drops as a uint32."""


def _listed_drops(sock: socket.socket) -> int | None:
    """Return the drops of a socket as the kernel lists them in /proc/net, or None where it does not."""
    table = Path("/proc/net/udp6" if sock.family == socket.AF_INET6 else "/proc/net/udp")
    inode = str(os.fstat(sock.fileno()).st_ino)
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines():
            fields = line.split()
            if len(fields) > _INODE and fields[_INODE] == inode:
                return int(fields[-1])
    return None


class Port:
    """A bound socket; ``turn`` is called with a reader whenever datagrams wait.

    ``turn`` returns how many datagrams it read. asyncio's own datagram transport reads one datagram a
    wake-up; here one wake-up reads up to 64, and while datagrams keep coming the port looks every 5 ms.
    """

    def __init__(self, address: tuple[str, int], receive_buffer: int, turn: Callable[[], int]) -> None:
        """Bind to ``address`` and ask for a receive buffer; ``OSError`` when the address cannot be used."""
        self._drops, self._ask_again = 0, 0.0
        self._turn, self._reading = turn, False
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

    def _grow_buffer(self, wanted: int) -> int:
        """Ask for a buffer, read back what was granted, and say so when it is less."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
        granted = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        usable = granted // 2 if sys.platform == "linux" else granted  # Linux grants and reports the double
        if usable < wanted:
            structlog.get_logger("tacet.snmp").warning(
                "receive_buffer_small", asked=wanted, granted=usable, raise_with="net.core.rmem_max"
            )
        return granted

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel had no room for: at most 0.1 s ago on Linux, elsewhere as of the last one read."""
        if self._socket.fileno() >= 0 and time.monotonic() >= self._ask_again:
            self._ask_kernel()
        return self._drops

    def _ask_kernel(self) -> None:
        """Look the count up: the one beside a datagram says nothing of what is dropped after the last one read."""
        listed = _listed_drops(self._socket)
        self._drops = self._drops if listed is None else listed
        self._ask_again = time.monotonic() + ASK_EVERY

    def open(self) -> None:
        """Begin to read."""
        self._reading = True
        self._arm()

    def stop(self) -> None:
        """Read no more; sending still works."""
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._socket)

    async def finish(self) -> None:
        """Read what the kernel still holds, at once, then no more; a sender that never stops is not followed."""
        for _ in range(1 + self.receive_buffer // SMALLEST // READS_PER_TURN):
            if not self._reading or self._turn() < READS_PER_TURN:
                break
        self.stop()

    def close(self) -> None:
        """Give the address back."""
        self.stop()
        if self._socket.fileno() >= 0:
            self._ask_kernel()
        self._socket.close()

    def read(self, take: Callable[[bytes, Any], None]) -> None:
        """Hand up to 64 datagrams and their senders to ``take``."""
        receive = self._socket.recvfrom
        with contextlib.suppress(BlockingIOError):
            take(*self._first())
            for _ in range(READS_PER_TURN - 1):
                datagram, address = receive(_LARGEST)
                take(datagram, address)

    def _first(self) -> tuple[bytes, Any]:
        """Read one datagram with the kernel's count of drops beside it."""
        datagram, extras, _, address = self._socket.recvmsg(_LARGEST, 64)
        for level, kind, content in extras:
            if level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL:
                self._drops = max(self._drops, int.from_bytes(content, sys.byteorder))  # as it was queued
        return datagram, address

    def send(self, datagram: bytes, address: Any) -> bool:
        """Send one datagram if the kernel takes it; return whether it did."""
        try:
            self._socket.sendto(datagram, address)
        except OSError:
            return False
        return True

    def _arm(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket, self._on_readable)

    def _on_readable(self) -> None:
        """Go from being called for each datagram to looking now and then, until nothing comes."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._look()

    def _look(self) -> None:
        if not self._reading:
            return
        count, loop = self._turn(), asyncio.get_running_loop()
        if not self._reading:
            return
        if count == 0:
            self._arm()
        elif count == READS_PER_TURN:
            loop.call_soon(self._look)
        else:
            loop.call_later(PAUSE, self._look)
