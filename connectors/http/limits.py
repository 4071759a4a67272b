"""Limits in front of an HTTP service: host names, origins, sizes, rates, and how much is in progress at once.

- ``ConnectionLimiter`` limits connections as they are accepted, before a handshake or a request. When the limit is
  reached, a connection without a request in progress is closed: the oldest one of the address that has most
  connections.
  So no client keeps others out with idle connections. Requests in progress have limits of their own, far below that
  one.
- ``Bodies`` reads a whole body before its request counts among those in progress; ``paced`` sends an answer only as
  fast as the client reads it.
- ``RequestLimits`` checks a request's head, rates and size before the application sees it.

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

from connectors.http.responses import HEADERS, RefusalError

MOST_CONNECTIONS = 1024
SPARE_FILES = 256
"""Open files that are reserved for everything but connections."""
EVICTED_AT_ONCE = 8
"""Maximum number of connections that are closed before the event loop gets a turn."""
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
        self._inside: dict[Peer, socket.socket] = {}
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
        self._inside = {peer: held for peer, held in self._inside.items() if held.fileno() != -1}
        if len(self._inside) >= self.most and not self._make_room():
            connection.close()
            raise ConnectionAbortedError
        self._inside[address[:2]] = connection
        return connection, address

    def _make_room(self) -> bool:
        of_host = Counter(host for host, _ in self._inside)
        waiting = (peer for peer in self._inside if peer not in self.busy)
        idle = max(waiting, key=lambda peer: of_host[peer[0]], default=None)
        if idle is None:
            return False
        with suppress(OSError):  # it may have ended meanwhile
            self._inside.pop(idle).shutdown(socket.SHUT_RDWR)  # its owner closes it when it sees the end
        self._evicted += 1
        return True


def most_connections() -> int:
    """Return the maximum number of connections: ``MOST_CONNECTIONS``, or what the limit of open files allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(files - SPARE_FILES, 64))


# --- slow clients -----------------------------------------------------------------------------------

LARGEST_BODY = 64 << 10
"""Maximum number of bytes of a request's body, unless the application expects larger ones."""
ALL_BODIES = 16 << 20
"""Bytes of all bodies together."""
BODY_WITHIN = 10.0
"""Seconds within which a body must be complete."""
PATIENCE = 30
"""Seconds for which a client may read nothing of an answer."""
PIECE = 64 << 10
"""Bytes of an answer that are sent at once."""


class ClientGoneError(Exception):
    """The client has disconnected, or reads nothing."""


@dataclass(slots=True, eq=False)
class _Arriving:
    """A body that is not complete yet."""

    client: str
    scope: anyio.CancelScope
    came: bytearray = field(default_factory=bytearray)
    evicted: bool = False


class Bodies:
    """Reads bodies: each has a size limit and a deadline, and all together have a memory budget.

    A body counts until its request is answered. When the budget is used up, a reader waits while there are complete
    bodies,
    which will soon be answered. If all bodies are incomplete, the oldest one of the client that uses most is dropped.
    """

    def __init__(self, largest: int, budget: int) -> None:
        """``largest`` is the limit of one body, ``budget`` that of all bodies together, in bytes."""
        if budget < largest:
            raise ValueError("budget must have room for the largest body")
        self.largest, self.budget = largest, budget
        self.used, self._complete = 0, 0
        self._by_client: Counter[str] = Counter()
        self._arriving: dict[_Arriving, None] = {}
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def read(self, receive: Receive, client: str) -> AsyncIterator[bytes]:
        """Read a whole body and count it until the context ends; the declared length may be missing or wrong.

        Raises:
            RefusalError: it is too large, is not complete in time, or was dropped in favour of others.
            GoneError: the client has disconnected.
        """
        one = _Arriving(client, anyio.CancelScope(deadline=anyio.current_time() + BODY_WITHIN))
        self._arriving[one] = None
        try:
            complete = False
            with one.scope:
                await self._receive(receive, one)
                complete = True
            if one.evicted:
                raise RefusalError(503, "body", "must come while there is room for it", retry=1)
            if not complete:
                raise RefusalError(408, "body", f"must come within {BODY_WITHIN:g} s")
            self._arriving.pop(one)
            size = len(one.came)
            self._complete += size
            try:
                yield bytes(one.came)
            finally:
                self._complete -= size
        finally:
            self._arriving.pop(one, None)
            self._free(one)

    async def _receive(self, receive: Receive, one: _Arriving) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            more = message.get("more_body", False)
            if len(one.came) + len(piece) > self.largest:
                raise too_large(self.largest)
            one.came += piece
            self.used += len(piece)
            self._by_client[one.client] += len(piece)
            while self.used > self.budget:
                await self._make_room(one)

    async def _make_room(self, one: _Arriving) -> None:
        """Wait until a complete body is answered; if there is none, drop an incomplete one."""
        if self._complete:
            self._freed.clear()
            await self._freed.wait()
            return
        victim = max(self._arriving, key=lambda each: self._by_client[each.client])  # of equals the oldest
        victim.evicted = True
        victim.scope.cancel()
        self._arriving.pop(victim)
        self._free(victim)
        if victim is one:
            await anyio.lowlevel.checkpoint()  # raises this reader's cancellation

    def _free(self, one: _Arriving) -> None:
        self.used -= len(one.came)
        self._by_client[one.client] -= len(one.came)
        if self._by_client[one.client] <= 0:
            del self._by_client[one.client]
        one.came = bytearray()
        self._freed.set()


def too_large(largest: int) -> RefusalError:
    """Return the refusal of a body that is too large."""
    return RefusalError(413, "body", f"must have at most {largest} bytes")


def already(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that gives a body that was already read, and then the following messages."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


def paced(send: Send) -> Send:
    """Send an answer piece by piece, each when the earlier ones are on their way.

    GoneError if the client stops reading.
    """

    async def handed(message: Message) -> None:
        try:
            with anyio.fail_after(PATIENCE):
                await send(message)
        except TimeoutError:
            raise ClientGoneError from None

    async def sending(message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        last = max(0, len(body) - 1) // PIECE * PIECE
        for first in range(0, last, PIECE):
            await handed({**message, "body": body[first : first + PIECE], "more_body": True})
        await handed(message if last == 0 else {**message, "body": body[last:], "more_body": more})

    return sending


LARGEST_TARGET = 4096
"""Maximum number of bytes of path and query."""
AT_ONCE = 64
"""Requests in progress at a time, without event streams."""
STREAM = "/api/v1/stream"
_UNSURE = frozenset({400, 408, 413, 503})
"""Refusals after which the beginning of the next request is unknown."""
MOST_CLIENTS = 10_000
"""Number of clients whose rates are stored; the one that has been idle longest is forgotten."""


Known = Callable[[Request], str | None]
Ahead = Callable[[Request], Response | None]


@dataclass(slots=True)
class Bucket:
    """The number of requests that a client may still send."""

    left: float
    at: float


@dataclass(slots=True)
class Rates:
    """Rate limit of a client's requests: ``burst`` at once, then ``each_second``."""

    burst: float = 400.0
    each_second: float = 100.0
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


@dataclass(frozen=True, slots=True)
class Names:
    """The host names and origins that the service accepts."""

    hosts: frozenset[str]
    """``name:port`` as in a Host header, lower case; without the port if it is the scheme's default."""
    scheme: str = "http"
    port: int = 0
    """The port on which it listens: it distinguishes this service from others on the host."""
    behind_proxy: bool = False
    """Whether a trusted proxy is in front of it, whose header with the client's address is used."""

    @classmethod
    def of(cls, names: tuple[str, ...], port: int, scheme: str, *, behind_proxy: bool = False) -> Names:
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
        self, app: ASGIApp, names: Names, rates: Rates | None = None, known: Known = lambda request: None,
        at_once: int = AT_ONCE, bodies: Bodies | None = None, ahead: Ahead = lambda request: None,
    ) -> None:  # fmt: skip
        """Set the application and its limits.

        ``known`` returns the name under which an authenticated reader is counted; other clients are counted by address.
        ``ahead`` may answer a request before its body is read.
        """
        self._app, self._names, self._origins = app, names, names.origins()
        self._rates, self._known = rates or Rates(), known
        self._left, self._bodies, self._ahead = at_once, bodies or Bodies(LARGEST_BODY, ALL_BODIES), ahead

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
            if (early := self._ahead(request)) is not None:
                early.headers["connection"] = "close"  # a body may follow that is not read
                await early(scope, receive, sending)
                return
            async with self._bodies.read(receive, client) as body:  # a slow body takes no place meanwhile
                await self._answered(scope, already(body, receive), sending)
        except RefusalError as refusal:
            refused = refusal.answer()
            if refusal.status in _UNSURE:
                refused.headers["connection"] = "close"
            await refused(scope, receive, sending)
            return
        except ClientGoneError:
            return

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == STREAM:  # counts among the streams, which have their own limit
            await self._safely(scope, receive, send)
            return
        if self._left <= 0:
            refusal = RefusalError(503, "service", "must not be asked more at once than it can answer", retry=1)
            await refusal.answer()(scope, receive, send)
            return
        self._left -= 1
        try:
            await self._safely(scope, receive, paced(send))
        finally:
            self._left += 1

    async def _safely(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; of an internal error only its kind is reported."""
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientGoneError:
            raise FaultError from None
        except Exception as error:
            structlog.get_logger("tacet.serve").error("a request failed", error=type(error).__name__)
            if begun:
                raise FaultError from None  # the connection is cut, so that no client takes a part for the whole
            await RefusalError(500, "service", "has a fault; its log says where").answer()(scope, receive, send)

    def _check(self, request: Request) -> str:
        """Return the client of a request; RefusalError if the request is not allowed."""
        target = len(request.scope.get("raw_path") or b"") + len(request.scope["query_string"])
        if target > LARGEST_TARGET:
            raise RefusalError(413, "path", f"must have at most {LARGEST_TARGET} bytes with its query")
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._names.hosts:
            raise RefusalError(400, "Host", "must be a name of this service; --name adds one")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise RefusalError(403, "Origin", "must be this service's own")
        if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and _requests_data(request):
            raise RefusalError(403, "Sec-Fetch-Site", "must be same-origin")
        _check_length(request, self._bodies.largest)
        client = self._client(request)
        if not self._rates.allow(client):
            raise RefusalError(429, "rate", "must stay within what a client may ask", retry=1)
        return client

    def _client(self, request: Request) -> str:
        """Return the identity for rate limits: a known reader's name, else an address, which several clients
        may share.
        """
        return self._known(request) or client_of(request, behind_proxy=self._names.behind_proxy)


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


def _requests_data(request: Request) -> bool:
    """Return whether a request is for figures; a link to the page is allowed from everywhere."""
    return request.url.path.startswith("/api/")


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
    extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending
