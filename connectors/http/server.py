"""The HTTP server: one listening socket, optional TLS, and short timeouts for silent connections."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from connectors.http import limits
from connectors.http.limits import ConnectionLimiter
from stream.errors import UsageError


class Tls(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with a timeout for heads: a connection without a request in progress is closed after ``HEAD_WITHIN``."""

    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_a_head()

    def data_received(self, data: bytes) -> None:
        if self._is_idle():
            self._wait_for_a_head()
        super().data_received(data)
        if not self._is_idle():
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()  # it would keep all objects of the connection in memory
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_a_head(self) -> None:
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(limits.HEAD_WITHIN, self._refuse_silent)

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _refuse_silent(self) -> None:
        self._idle_timer = None
        if self._is_idle() and not self.transport.is_closing() and self.timeout_keep_alive_task is None:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 to bytes that are not HTTP. A request in progress ends as if the client had disconnected."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # another answer has begun, or the request was HEAD
            self.transport.close()


class Server(uvicorn.Server):
    """A server that its caller stops."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the caller."""
        yield


def listening(host: str, port: int) -> ConnectionLimiter:
    """Return a limiter that is bound to an address; UsageError if the address is in use or not this machine's."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        made = ConnectionLimiter(family, kind)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # the system buffers unread data no longer than this program would
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.PATIENCE * 1000)
            made.bind(address)
        except OSError:
            made.close()
            raise
    except OSError as error:
        msg = f"--listen: must be a free address of this machine, got {host}:{port} ({error.strerror or error})"
        raise UsageError(msg) from None
    return made


def free_port(preferred: int) -> int:
    """Return a free port of loopback: the preferred one, or 0 for any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return 0
    return preferred


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_of(app: ASGIApp, tls: Tls | None) -> Server:
    """Return a server of the application without a Server header; UsageError if its certificate cannot be used."""
    config = uvicorn.Config(
        app, http=_TimedProtocol, ws="none", lifespan="off", log_config=None, log_level="error", access_log=False,
        server_header=False, proxy_headers=False,
        h11_max_incomplete_event_size=limits.LARGEST_HEAD, timeout_keep_alive=15,
        timeout_graceful_shutdown=limits.GRACE,
        ssl_certfile=None if tls is None else str(tls.certificate), ssl_keyfile=None if tls is None else str(tls.key),
    )  # fmt: skip
    try:
        config.load()
    except (OSError, ValueError):
        msg = "--tls-cert: must be a certificate in PEM, with its key in --tls-key"
        raise UsageError(msg) from None
    return Server(config)
