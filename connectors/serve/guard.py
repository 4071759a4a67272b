"""What stands before the service: names it is asked by, origins, sizes, rates, and how much is under way at once.

Nothing here reads a request's meaning. What is turned away costs little, and says which rule it broke.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectors.serve.answers import HEADERS, RefusalError
from connectors.serve.slow import LARGEST_BODY, GoneError, already, as_taken, body_of, too_large

LARGEST_TARGET = 4096
"""Bytes of a path and query at most."""
AT_ONCE = 64
"""Requests that are answered at a time, event streams aside."""
STREAM = "/api/v1/stream"
_UNSURE = frozenset({400, 408, 413})
"""Refusals after which nobody knows where the next question begins."""
MOST_CLIENTS = 10_000
"""Clients whose rates are known; the one that has been quiet for longest is forgotten."""


Known = Callable[[Request], str | None]


@dataclass(slots=True)
class Bucket:
    """Requests that a client has left."""

    left: float
    at: float


@dataclass(slots=True)
class Rates:
    """How many requests a client may send: ``burst`` at once, ``each_second`` from then on."""

    burst: float = 400.0
    each_second: float = 100.0
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def take(self, client: str) -> bool:
        """Return whether a client may send one more now, and count it."""
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
    """The names by which the service may be asked, and how."""

    hosts: frozenset[str]
    """``name:port`` as a Host header has it, lower case; without the port where that is the scheme's own."""
    scheme: str = "http"
    port: int = 0
    """On which it listens: what tells it from other services of the host."""
    behind_proxy: bool = False
    """Whether a proxy of ours stands before it, whose word on the client's address counts."""

    @classmethod
    def of(cls, names: tuple[str, ...], port: int, scheme: str, *, behind_proxy: bool = False) -> Names:
        """Return the names with the port, where they have none; and those of loopback."""
        own = 443 if scheme == "https" else 80
        given = {name.lower() if _has_port(name) else f"{name.lower()}:{port}" for name in names}
        hosts = given | {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        bare = {host.removesuffix(f":{own}") for host in hosts}
        proxied = {name.lower() for name in names} if behind_proxy else set()
        return cls(frozenset(hosts | bare | proxied), scheme, port, behind_proxy)

    def origins(self) -> frozenset[str]:
        """Return the origins whose pages may ask."""
        return frozenset(f"{self.scheme}://{host}" for host in self.hosts)


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]")


class FaultError(Exception):
    """An answer that has begun cannot be ended well."""


class Guard:
    """Turns away what no honest client sends, before anything else sees it."""

    def __init__(
        self, app: ASGIApp, names: Names, rates: Rates | None = None, known: Known = lambda request: None,
        at_once: int = AT_ONCE, largest: int = LARGEST_BODY,
    ) -> None:  # fmt: skip
        """``known``: under what name a reader counts who shows that they are let in; others count by their address."""
        self._app, self._names, self._origins = app, names, names.origins()
        self._rates, self._known = rates or Rates(), known
        self._left, self._largest = at_once, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        sending = _with_headers(send)
        try:
            self._check(Request(scope))
            body = await body_of(receive, self._largest)  # who is slow with it holds no place meanwhile
        except RefusalError as refusal:
            refused = refusal.answer()
            if refusal.status in _UNSURE:
                refused.headers["connection"] = "close"
            await refused(scope, receive, sending)
            return
        except GoneError:
            return
        await self._answered(scope, already(body, receive), sending)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == STREAM:  # counts among the streams, which have a bound of their own
            await self._safely(scope, receive, send)
            return
        if self._left <= 0:
            refusal = RefusalError(503, "service", "must not be asked more at once than it can answer", retry=1)
            await refusal.answer()(scope, receive, send)
            return
        self._left -= 1
        try:
            await self._safely(scope, receive, as_taken(send))
        finally:
            self._left += 1

    async def _safely(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the service answer; a fault of its own is told by its kind alone."""
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except GoneError:
            raise FaultError from None
        except Exception as error:
            structlog.get_logger("tacet.serve").error("a request failed", error=type(error).__name__)
            if begun:
                raise FaultError from None  # the connection is cut, so that nobody takes a part for the whole
            await RefusalError(500, "service", "has a fault; its log says where").answer()(scope, receive, send)

    def _check(self, request: Request) -> None:
        target = len(request.scope.get("raw_path") or b"") + len(request.scope["query_string"])
        if target > LARGEST_TARGET:
            raise RefusalError(413, "path", f"must have at most {LARGEST_TARGET} bytes with its query")
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._names.hosts:
            raise RefusalError(400, "Host", "must be a name of this service; --name adds one")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise RefusalError(403, "Origin", "must be this service's own")
        if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and _asks(request):
            raise RefusalError(403, "Sec-Fetch-Site", "must be same-origin")
        _check_length(request, self._largest)
        if not self._rates.take(self._client(request)):
            raise RefusalError(429, "rate", "must stay within what a client may ask", retry=1)

    def _client(self, request: Request) -> str:
        """Return who asks: a reader who is known, wherever they are; else an address, which many may share."""
        return self._known(request) or client_of(request, behind_proxy=self._names.behind_proxy)


def client_of(request: Request, *, behind_proxy: bool) -> str:
    """Return the address that asks: the one that our proxy saw, where there is one, else the connection's."""
    if behind_proxy:
        lines = request.headers.getlist("x-forwarded-for") or [""]  # some proxies add a line of their own
        return lines[-1].rpartition(",")[2].strip()[:64]
    return "" if request.client is None else request.client.host


def _asks(request: Request) -> bool:
    """Whether a request asks for figures; a link to the page may stand anywhere."""
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
    """Give every answer its headers."""
    extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending
