"""A small HTTP server for probes and scrapes, in its own thread and loop.

A connection carries one request. One deadline covers all of it, from the connection's first moment to the answer's last
byte. When the limit of connections is reached, the oldest connection is closed, so slow clients keep no others out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable
from threading import Thread
from typing import NamedTuple, cast

import structlog

AT_ONCE = 64
"""Connections at a time; a Prometheus and a supervisor need one each."""
WITHIN = 5.0
"""Seconds for a whole request."""
LARGEST_HEAD = 8 << 10
"""Bytes of a request's head at most."""
PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip
log = structlog.get_logger("tacet.monitoring")


class Answer(NamedTuple):
    """The answer to a client."""

    status: int
    body: bytes
    kind: str = PLAIN


class PlainServer:
    """Answers ``GET`` requests until it is closed.

    A ``Host`` header is valid if it is an address, ``localhost``, this machine's name or one of ``names``. A page of
    another origin whose name resolves to this machine (DNS rebinding) has that name in the header.
    """

    def __init__(
        self, address: tuple[str, int], names: Iterable[str], answer: Callable[[str], Answer],
        answered: Callable[[str], None] = lambda path: None,
    ) -> None:  # fmt: skip
        """Bind and start answering; ``OSError`` if the address cannot be used.

        ``answer`` is called with a path; ``answered`` is called with it when a client has received the whole answer.
        """
        self.answer, self.answered = answer, answered
        self._names = {name.lower().rstrip(".") for name in (*names, address[0], "localhost", socket.gethostname())}
        self.open: dict[_Connection, None] = {}
        """The connections, the oldest first."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._bound = socket.create_server(address, family=family, backlog=AT_ONCE)
        self.address = cast(tuple[str, int], self._bound.getsockname()[:2])
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_failed)
        self._closing = asyncio.Event()
        self._thread = Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Release the address."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(WITHIN)

    def is_known(self, host: str) -> bool:
        """Return whether a ``Host`` header names this server; the port may be that of a proxy or a port mapping."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        try:
            ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await self._loop.create_server(lambda: _Connection(self), sock=self._bound, backlog=AT_ONCE)
        await self._closing.wait()
        server.close()
        for connection in list(self.open):
            connection.cut()
        await asyncio.sleep(0)


def _failed(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Log the kind of an error, nothing about the client."""
    del loop
    log.warning("metrics could not be shown", error=type(context.get("exception")).__name__)


class _Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: PlainServer) -> None:
        self._server = server
        self._head = bytearray()
        self._path: str | None = None
        """The path of the request in progress."""
        self._cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        while len(self._server.open) >= AT_ONCE:
            next(iter(self._server.open)).cut()
        self._server.open[self] = None
        self._deadline = asyncio.get_running_loop().call_later(WITHIN, self.cut)

    def cut(self) -> None:
        """Close the connection at once."""
        self._cut = True
        self._server.open.pop(self, None)
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._server.open.pop(self, None)
        if self._path is not None and error is None and not self._cut:
            self._server.answered(self._path)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._head += data
        head, ended, _ = bytes(self._head[: LARGEST_HEAD + 4]).partition(b"\r\n\r\n")
        if ended:
            self._send(self._answer(head.decode("latin-1").split("\r\n")))
        elif len(self._head) > LARGEST_HEAD:
            self._send(Answer(431, b"the request is too long\n"))

    def _answer(self, lines: list[str]) -> Answer:
        method, _, rest = lines[0].partition(" ")
        target, _, version = rest.partition(" ")
        if version not in {"HTTP/1.0", "HTTP/1.1"} or not target.startswith("/"):
            return Answer(400, b"not an HTTP request\n")
        if method != "GET":
            return Answer(501, b"only GET is answered\n")
        fields = [line.partition(":") for line in lines[1:]]
        hosts = [value.strip() for name, _, value in fields if name.lower() == "host"]
        if len(hosts) != 1 or not self._server.is_known(hosts[0]):
            return Answer(400, b"Host must be an address or a name of this service\n")
        path = target.partition("?")[0]
        answer = self._server.answer(path)
        self._path = path
        return answer

    def _send(self, answer: Answer) -> None:
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + answer.body)
        self._transport.close()
