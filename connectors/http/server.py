"""The service listening: one socket, TLS where that is wanted, and no patience with connections that say nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from connectors.serve.door import Door
from connectors.serve.slow import PATIENCE
from stream.errors import UsageError

LARGEST_HEAD = 16 << 10
"""Bytes of a request's head at most."""
SAY_WITHIN = 10.0
"""Seconds within which a connection must have sent a whole head."""
GRACE = 3
"""Seconds that answers under way have when the service stops."""


class Tls(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


class _Prompt(H11Protocol):
    """HTTP/1.1 for those who speak: a connection without a request under way ends soon."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(SAY_WITHIN, self._refuse_silent, transport)

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(SAY_WITHIN, self._refuse_silent, self.transport)
        super().data_received(data)

    def _refuse_silent(self, transport: asyncio.Transport) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and not transport.is_closing() and self.timeout_keep_alive_task is None:
            transport.close()


class Server(uvicorn.Server):
    """A server that others tell when to stop."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to who started it."""
        yield


def listening(host: str, port: int) -> Door:
    """Return a door that is bound to an address; UsageError where the address is taken or none of this machine's."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        made = Door(family, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # what it has been handed, the system keeps no longer than we would
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PATIENCE * 1000)
        made.bind(address)
    except OSError as error:
        msg = f"--listen: must be an address that is free here, got {host}:{port} ({error.strerror or error})"
        raise UsageError(msg) from None
    return made


def free_port(preferred: int) -> int:
    """Return a port of loopback where nobody listens: the preferred one, or 0 for any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return 0
    return preferred


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_of(app: ASGIApp, tls: Tls | None) -> Server:
    """Return a server of the application, which says nothing of itself; UsageError where its certificate is none."""
    options: dict[str, Any] = {}
    if tls is not None:
        options = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    config = uvicorn.Config(
        app, http=_Prompt, ws="none", lifespan="off", log_config=None, log_level="error", access_log=False,
        server_header=False, proxy_headers=False,
        h11_max_incomplete_event_size=LARGEST_HEAD, timeout_keep_alive=15, timeout_graceful_shutdown=GRACE, **options,
    )  # fmt: skip
    try:
        config.load()
    except (OSError, ValueError):
        msg = "--tls-cert: must be a certificate in PEM, with its key in --tls-key"
        raise UsageError(msg) from None
    return Server(config)
