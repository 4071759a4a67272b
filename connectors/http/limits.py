"""Limits in front of an HTTP service: connections, heads, bodies, rates, requests and slow clients.

All limits are constants at the head of this module. They are enforced in this order:

1. ``ConnectionLimiter`` limits connections as they are accepted, before a handshake or a request. When the limit is
   reached, a connection without a request in progress is closed: the oldest one of the address that has most
   connections. Idle connections therefore keep no client out. Requests in progress have a far lower limit.
2. The server closes a connection that has not sent a complete head in time (:mod:`connectors.http.server`).
3. ``RequestLimits`` checks host name, origin, length and rate of a request, before the application sees it.
4. ``Bodies`` reads a whole body before its request counts among those in progress.
5. ``paced`` sends an answer only as fast as the client reads it.

Nothing here interprets a request. A refusal costs little and names the broken rule.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network
from typing import Any

import anyio
import anyio.lowlevel
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectors.http.responses import RefusalError, common_headers

# Connections.
MOST_CONNECTIONS = 1024
SPARE_FILES = 256
"""Open files that are reserved for everything but connections."""
EVICTED_AT_ONCE = 8
"""Maximum number of connections that are closed before the event loop gets a turn."""

# Heads.
LARGEST_HEAD = 16 << 10
"""Maximum number of bytes of a request's head."""
LARGEST_TARGET = 4096
"""Maximum number of bytes of path and query."""
HEAD_WITHIN = 10.0
"""Seconds within which a connection must have sent a complete head."""

# Bodies.
LARGEST_BODY = 64 << 10
"""Maximum number of bytes of a request's body, unless the application expects larger ones."""
ALL_BODIES = 16 << 20
"""Maximum number of bytes of all bodies together."""
BODY_WITHIN = 10.0
"""Seconds within which a body must be complete."""

# Rates.
BURST, EACH_SECOND = 400.0, 100.0
"""Requests that a client may send at once, and each second after that."""
WRONG_SECRETS, WRONG_SECRETS_EACH_SECOND = 10.0, 0.2
"""Wrong tokens, links and cookies that a client may send at once, and each second after that."""
MOST_CLIENTS = 10_000
"""Number of clients whose rates are stored; the one that has been idle longest is forgotten."""

# Answers.
AT_ONCE = 64
"""Requests in progress at a time, without event streams."""
PATIENCE = 30
"""Seconds for which a client may read nothing of an answer or of an event stream."""
PIECE = 64 << 10
"""Bytes of an answer that are sent at once."""
GRACE = 3
"""Seconds for requests in progress when the service stops."""

Peer = tuple[str, int]
"""Address and port at the other end of a connection."""


class ConnectionLimiter(socket.socket):
    """A listening socket with at most ``most`` connections.

    ``busy`` contains the peers with a request in progress; it may change at any time.
    """

    def __init__(self, *kind: Any) -> None:
        super().__init__(*kind)
        self.most = most_connections()
        self.busy: Collection[Peer] = ()
        self._open: dict[Peer, socket.socket] = {}
        self._evicted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection.

        Raises:
            ConnectionAbortedError: every connection has a request in progress.
            BlockingIOError: the event loop must first notice closed connections and free their memory.
        """
        if self._evicted >= EVICTED_AT_ONCE:
            self._evicted = 0
            raise BlockingIOError
        connection, address = super().accept()
        self._open = {peer: each for peer, each in self._open.items() if each.fileno() != -1}
        if len(self._open) >= self.most and not self._make_room():
            connection.close()
            raise ConnectionAbortedError
        self._open[address[:2]] = connection
        return connection, address

    def _make_room(self) -> bool:
        of_host = Counter(host for host, _ in self._open)
        waiting = (peer for peer in self._open if peer not in self.busy)
        idle = max(waiting, key=lambda peer: of_host[peer[0]], default=None)
        if idle is None:
            return False
        with suppress(OSError):  # it may have ended meanwhile
            self._open.pop(idle).shutdown(socket.SHUT_RDWR)  # its owner closes it when it sees the end
        self._evicted += 1
        return True


def most_connections() -> int:
    """Return the maximum number of connections: ``MOST_CONNECTIONS``, or what the limit of open files allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(files - SPARE_FILES, 64))


# --- bodies and slow clients -----------------------------------------------------------------------


class ClientGoneError(Exception):
    """The client has disconnected, or reads nothing."""


@dataclass(slots=True, eq=False)
class _Body:
    """A body that is being read."""

    client: str
    scope: anyio.CancelScope
    received: bytearray = field(default_factory=bytearray)
    evicted: bool = False


class Bodies:
    """Reads bodies: each has a size limit and a deadline, and all together have a memory budget.

    A body counts until its request is answered. When the budget is used up, a reader waits while there are complete
    bodies, which will soon be answered. If all bodies are incomplete, the oldest one of the client that uses most
    memory is dropped.
    """

    def __init__(self, largest: int, budget: int) -> None:
        """``largest`` is the limit of one body, ``budget`` that of all bodies together, in bytes."""
        if budget < largest:
            raise ValueError("budget must have room for the largest body")
        self.largest, self.budget = largest, budget
        self.used, self._complete = 0, 0
        self._by_client: Counter[str] = Counter()
        self._incomplete: dict[_Body, None] = {}
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def read(self, receive: Receive, client: str) -> AsyncIterator[bytes]:
        """Read a whole body and count it until the context ends; the declared length may be missing or wrong.

        Raises:
            RefusalError: it is too large, is not complete in time, or was dropped in favour of others.
            ClientGoneError: the client has disconnected.
        """
        body = _Body(client, anyio.CancelScope(deadline=anyio.current_time() + BODY_WITHIN))
        self._incomplete[body] = None
        try:
            complete = False
            with body.scope:
                await self._receive(receive, body)
                complete = True
            if body.evicted:
                raise RefusalError(
                    503, "body", "must be sent again later: too many request bodies are arriving", retry=1
                )
            if not complete:
                raise RefusalError(408, "body", f"must be complete within {BODY_WITHIN:g} s")
            self._incomplete.pop(body)
            size = len(body.received)
            self._complete += size
            try:
                yield bytes(body.received)
            finally:
                self._complete -= size
        finally:
            self._incomplete.pop(body, None)
            self._free(body)

    async def _receive(self, receive: Receive, body: _Body) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            more = message.get("more_body", False)
            if len(body.received) + len(piece) > self.largest:
                raise too_large(self.largest)
            body.received += piece
            self.used += len(piece)
            self._by_client[body.client] += len(piece)
            while self.used > self.budget:
                await self._make_room(body)

    async def _make_room(self, body: _Body) -> None:
        """Wait until a complete body is answered; if there is none, drop an incomplete body."""
        if self._complete:
            self._freed.clear()
            await self._freed.wait()
            return
        victim = max(self._incomplete, key=lambda each: self._by_client[each.client])  # of equals the oldest
        victim.evicted = True
        victim.scope.cancel()
        self._incomplete.pop(victim)
        self._free(victim)
        if victim is body:
            await anyio.lowlevel.checkpoint()  # raises this reader's cancellation

    def _free(self, body: _Body) -> None:
        self.used -= len(body.received)
        self._by_client[body.client] -= len(body.received)
        if self._by_client[body.client] <= 0:
            del self._by_client[body.client]
        body.received = bytearray()
        self._freed.set()


def too_large(largest: int) -> RefusalError:
    """Return the refusal of a body that is too large."""
    return RefusalError(413, "body", f"must have at most {largest} bytes")


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that returns a body that was already read, and then the following messages."""
    returned = False

    async def receiving() -> Message:
        nonlocal returned
        if returned:
            return await receive()
        returned = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


def paced(send: Send) -> Send:
    """Return a send function that splits an answer into pieces and sends each one when earlier ones have been read.

    It raises ClientGoneError if the client reads nothing for ``PATIENCE`` seconds.
    """

    async def send_in_time(message: Message) -> None:
        try:
            with anyio.fail_after(PATIENCE):
                await send(message)
        except TimeoutError:
            raise ClientGoneError from None

    async def sending(message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        last = max(0, len(body) - 1) // PIECE * PIECE
        for first in range(0, last, PIECE):
            await send_in_time({**message, "body": body[first : first + PIECE], "more_body": True})
        await send_in_time(message if last == 0 else {**message, "body": body[last:], "more_body": more})

    return sending


# --- rates ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Bucket:
    """The number of requests that a client may still send."""

    left: float
    at: float


@dataclass(slots=True)
class Rates:
    """Rate limit of a client's requests: ``burst`` at once, then ``each_second`` (a token bucket)."""

    burst: float = BURST
    each_second: float = EACH_SECOND
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def allow(self, client: str) -> bool:
        """Return whether a client may send one more request now, and count it."""
        now = self.clock()
        bucket = self._buckets.setdefault(client, Bucket(self.burst, now))
        self._buckets.move_to_end(client)
        while len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        bucket.left = min(self.burst, bucket.left + (now - bucket.at) * self.each_second)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True


# --- requests ---------------------------------------------------------------------------------------

_UNSURE = frozenset({400, 408, 413, 503})
"""Refusals after which the beginning of the next request is unknown."""
RateLimitKey = Callable[[Request], str | None]
EarlyAnswer = Callable[[Request], Response | None]


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The host names and origins that the service accepts."""

    hosts: frozenset[str]
    """``name:port`` as in a Host header, lower case; without the port if it is the scheme's default."""
    scheme: str = "http"
    port: int = 0
    """The port on which it listens: it distinguishes this service from others on the host."""
    behind_proxy: bool = False
    """Whether a trusted proxy is in front of it, whose header with the client's address is used."""

    @classmethod
    def of(cls, names: tuple[str, ...], port: int, scheme: str, *, behind_proxy: bool = False) -> AllowedHosts:
        """Return the names, with the port where they have none, and the names of loopback."""
        own = 443 if scheme == "https" else 80
        given = {name.lower() if _has_port(name) else f"{name.lower()}:{port}" for name in names}
        hosts = given | {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        bare = {host.removesuffix(f":{own}") for host in hosts}
        proxied = {name.lower() for name in names} if behind_proxy else set()
        return cls(frozenset(hosts | bare | proxied), scheme, port, behind_proxy)

    def origins(self) -> frozenset[str]:
        """Return the origins whose pages may send requests."""
        return frozenset(f"{self.scheme}://{host}" for host in self.hosts)


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]")


class FaultError(Exception):
    """An answer that has begun cannot be completed."""


class RequestLimits:
    """Refuses requests that no honest client sends, before the application sees them."""

    def __init__(
        self, app: ASGIApp, allowed_hosts: AllowedHosts, rates: Rates | None = None,
        rate_limit_key: RateLimitKey = lambda request: None, *,
        at_once: int = AT_ONCE, bodies: Bodies | None = None, early_answer: EarlyAnswer = lambda request: None,
        streams: Collection[str] = (), same_origin: str | None = None,
    ) -> None:  # fmt: skip
        """Set the application and its limits.

        Args:
            app: the application.
            allowed_hosts: the hosts and origins that it serves.
            rates: how many requests a client may send.
            rate_limit_key: returns the name under which a known reader is counted; others are counted by address.
            at_once: the maximal number of requests in progress.
            bodies: the limits of bodies.
            early_answer: may answer a request before its body is read.
            streams: the paths of event streams, which are not requests in progress; the application limits them.
            same_origin: the prefix of paths that pages of other sites may not request; None: there is none.
        """
        self._app, self._allowed_hosts, self._origins = app, allowed_hosts, allowed_hosts.origins()
        self._rates, self._rate_limit_key = rates or Rates(), rate_limit_key
        self._left, self._bodies = at_once, bodies or Bodies(LARGEST_BODY, ALL_BODIES)
        self._early_answer, self._streams, self._same_origin = early_answer, frozenset(streams), same_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        sending = _with_headers(send)
        request = Request(scope)
        try:
            client = self._check(request)
            if (early := self._early_answer(request)) is not None:
                early.headers["connection"] = "close"  # a body may follow that is not read
                await early(scope, receive, sending)
                return
            async with self._bodies.read(receive, client) as body:  # a slow body is no request in progress yet
                await self._answered(scope, replayed(body, receive), sending)
        except RefusalError as refusal:
            refused = refusal.answer()
            if refusal.status in _UNSURE:
                refused.headers["connection"] = "close"
            await refused(scope, receive, sending)
            return
        except ClientGoneError:
            return

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._streams:
            await self._safely(scope, receive, send)
            return
        if self._left <= 0:
            refusal = RefusalError(503, "service", "has too many requests in progress", retry=1)
            await refusal.answer()(scope, receive, send)
            return
        self._left -= 1
        try:
            await self._safely(scope, receive, paced(send))
        finally:
            self._left += 1

    async def _safely(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; of an internal error only its kind is reported."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientGoneError:
            raise FaultError from None
        except Exception as error:
            structlog.get_logger("tacet.serve").error("a request failed", error=type(error).__name__)
            if started:
                raise FaultError from None  # the connection is cut, so that no client takes a part for the whole
            await RefusalError(500, "service", "has an internal error; see its log").answer()(scope, receive, send)

    def _check(self, request: Request) -> str:
        """Return the client of a request; RefusalError if the request is not allowed."""
        target = len(request.scope.get("raw_path") or b"") + len(request.scope["query_string"])
        if target > LARGEST_TARGET:
            raise RefusalError(413, "path", f"must have at most {LARGEST_TARGET} bytes with its query")
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._allowed_hosts.hosts:
            raise RefusalError(400, "Host", "must be a name of this service; --name adds one")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise RefusalError(403, "Origin", "must be the origin of this service")
        if self._is_cross_site(request):
            raise RefusalError(403, "Sec-Fetch-Site", "must be same-origin")
        _check_length(request, self._bodies.largest)
        client = self._client(request)
        if not self._rates.allow(client):
            raise RefusalError(429, "rate", f"must be at most {self._rates.each_second:g} requests per second", retry=1)
        return client

    def _is_cross_site(self, request: Request) -> bool:
        """Return whether a page of another site requests what only the service's own pages may."""
        if self._same_origin is None or not request.url.path.startswith(self._same_origin):
            return False
        return request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}

    def _client(self, request: Request) -> str:
        """Return the identity for rate limits: a known reader's name, else an address, which several clients
        may share.
        """
        return self._rate_limit_key(request) or client_of(request, behind_proxy=self._allowed_hosts.behind_proxy)


def client_of(request: Request, *, behind_proxy: bool) -> str:
    """Return the client's address: the one that the trusted proxy reports, if there is one, else the connection's.

    For IPv6 it is the 64-bit network, because a single machine has every address of it.
    """
    if behind_proxy:
        lines = request.headers.getlist("x-forwarded-for") or [""]  # some proxies add a line of their own
        return _network(lines[-1].rpartition(",")[2].strip()[:64])
    return "" if request.client is None else _network(request.client.host)


def _network(address: str) -> str:
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed) >> 64 << 64, 64)))


def _check_length(request: Request, largest: int) -> None:
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        raise RefusalError(400, "Transfer-Encoding", "must come without Content-Length")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise RefusalError(400, "Content-Length", "must be a number")
    if len(length) > 12 or int(length) > largest:
        raise too_large(largest)


def _with_headers(send: Send) -> Send:
    """Add the common headers to every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.lower(), value) for name, value in message.get("headers", [])]
            extra = common_headers({name.decode("latin-1") for name, _ in own})
            more = [(name.encode(), value.encode()) for name, value in extra.items()]
            message = {**message, "headers": [*own, *more]}
        await send(message)

    return sending
