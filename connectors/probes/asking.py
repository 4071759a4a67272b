"""What a way of asking a source must do."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, NamedTuple, Protocol

TRIES, WAIT = 3, 1.5
"""A question that may be lost on the way is sent so often, each time so many seconds after the last."""


class Answer(NamedTuple):
    """A source is alive."""

    uptime: int | None = None
    """Its sysUpTime in hundredths of a second, where it told it."""


class Asking(Protocol):
    """One source and how it is asked."""

    async def ask(self) -> Answer | None:
        """Ask once; None where no answer came within a few seconds, or none that can be believed. Never raises."""


async def exchange(sock: socket.socket, question: bytes) -> bytes | None:
    """Send a datagram over a connected socket; return the next one that comes back in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(WAIT):
            await loop.sock_sendall(sock, question)
            return await loop.sock_recv(sock, 65_535)
    except OSError:  # a timeout is one as well; a closed port is told by ICMP
        return None


def connected(host: str, port: int, kind: int = socket.SOCK_DGRAM, protocol: int = 0) -> socket.socket:
    """Return a socket that hears this address only; ``OSError`` where there is no way to it."""
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.connect((host, port))
    except OSError:
        sock.close()
        raise
    return sock
