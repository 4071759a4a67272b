"""The state that all handlers share, and the authentication and validation of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import anyio
import orjson
from pydantic import ValidationError
from starlette.requests import Request

from connectors.http.limits import WRONG_SECRETS, WRONG_SECRETS_EACH_SECOND, AllowedHosts, Peer, Rates, client_of
from connectors.http.responses import RefusalError, refused
from connectors.runtime.offload import offload
from connectors.serve.access import Access, Principal
from connectors.serve.booked_rooms import BookedRooms
from connectors.serve.broker_contact import BrokerContact
from connectors.serve.downloads import Downloads
from connectors.serve.event_streams import Streams
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.ledger_views import AccountView, ClusterView, CoalitionUnits, OperatorView
from connectors.serve.models import Promise, QueryParams
from connectors.serve.playback import Playback
from connectors.serve.policy_description import Plans, guarantees_of, releases_of, sites_of
from stream.errors import UsageError
from stream.records import Micros
from stream.release.validation import Policy

T = TypeVar("T")
M = TypeVar("M", bound=QueryParams)
COOKIE = "tacet"
THREADS = 4
"""Concurrent queries of the history."""


@dataclass(slots=True)
class Service:
    """State shared by all handlers."""

    policy: Policy
    access: Access
    history: ReleaseHistory
    streams: Streams
    allowed_hosts: AllowedHosts
    clock: Callable[[], Micros]
    store: Path | None = None
    """The store's folder, whose free disk space operators see. No file in it is opened."""
    plans: Plans = field(default_factory=dict)
    account: AccountView = field(default_factory=AccountView)
    coalition: Callable[[frozenset[str]], dict[str, CoalitionUnits]] | None = None
    """Computes the combined account of audiences; None if the account is not served."""
    coalition_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises that computation."""
    operator: OperatorView | ClusterView = field(default_factory=OperatorView)
    downloads: Downloads = field(default_factory=Downloads)
    contact: BrokerContact | None = None
    """Whether brokers answer; None where a store is served."""
    playback: Playback | None = None
    rooms: frozenset[str] = frozenset()
    """The audiences by whose releases it shows where there is room."""
    embedders: tuple[str, ...] = ()
    """Origins that may embed the page of rooms."""
    bookings: BookedRooms | None = None
    """What calendars of rooms say; None if there are none."""
    laboratory: bool = False
    """Whether the releases were made with a laboratory key."""
    new_history: Callable[[], ReleaseHistory] | None = None
    """Creates an empty history, for a playback that moves back."""
    guarantees: dict[tuple[str, str], Promise] = field(default_factory=dict)
    """Guarantees by audience and language, computed at the first request."""
    query_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked while records are added or the history is replaced."""
    cache: dict[Hashable, object] = field(default_factory=dict)
    """Results that are valid until the next record arrives."""
    arrivals: int = 0
    """The number of times that records have arrived."""
    busy: set[Peer] = field(default_factory=set)
    """Connections with a request in progress; the connection limiter keeps them open."""
    link_used: Callable[[], None] = lambda: None
    wrong_secrets: Rates = field(default_factory=lambda: Rates(WRONG_SECRETS, WRONG_SECRETS_EACH_SECOND))
    """Limits how many wrong secrets a client may send."""
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(THREADS))

    async def run_query(self, query: Callable[..., T], *arguments: object) -> T:
        """Run a query of the history, or a computation, in a thread."""
        try:
            return await offload(query, *arguments, limiter=self.threads)
        except UsageError as error:
            raise refused(str(error)) from None

    async def restart_playback(self) -> None:
        """Replace the history, because a playback moved back."""
        assert self.new_history is not None  # noqa: S101
        async with self.query_lock:
            self.history = self.new_history()  # readers in progress keep a reference to the old one
            self.drop_cache()
            self.streams.restart(self.history)

    async def cached(self, query: Callable[..., T], *arguments: Hashable) -> T:
        """Run a query whose result only changes with the next record, and share the result among all callers until
        then."""
        key, arrivals = (query.__name__, *arguments), self.arrivals
        if key not in self.cache:
            found = await self.run_query(query, *arguments)
            if arrivals != self.arrivals:
                return found
            self.cache[key] = found
        return cast(T, self.cache[key])

    def drop_cache(self) -> None:
        """Drop shared results, because records have arrived."""
        self.arrivals += 1
        self.cache.clear()

    async def guarantees_for(self, audience: str, language: str = "en") -> Promise:
        """Return the guarantees of an audience's releases in a language."""
        key = audience, language
        if key not in self.guarantees:
            self.guarantees[key] = await self.run_query(guarantees_of, self.policy, audience, language)
        return self.guarantees[key]

    @property
    def cookie(self) -> str:
        """The name of the session cookie. It contains the port, because browsers send a host's cookies to all ports;
        under TLS its prefix prevents other hosts and plain connections from setting it."""
        own = f"{COOKIE}-{self.allowed_hosts.port}"
        return f"__Host-{own}" if self.allowed_hosts.scheme == "https" else own

    def outage_seconds(self) -> float | None:
        """Return for how long no broker has answered; None if one does, or where a store is served."""
        return None if self.contact is None else self.contact.outage_seconds()

    def now(self) -> Micros:
        """Return the current time, or the playback's."""
        return self.clock() if self.playback is None else self.playback.at()


def service_of(request: Request) -> Service:
    """Return the service of a request."""
    service: Service = request.state.service
    return service


def principal_of(request: Request, *, room: bool = False) -> Principal:
    """Return the principal of a request; RefusalError if it cannot be authenticated.

    A screen's token is accepted with ``room`` only.
    """
    who = _authenticated(request)
    if who.is_screen and not room:
        raise RefusalError(403, "token", "must be a token of a reader; a screen's token only shows where there is room")
    return who


def _authenticated(request: Request) -> Principal:
    service, header = service_of(request), request.headers.get("authorization")
    if header is not None:
        if bearer(header) is None:
            raise RefusalError(401, "Authorization", "must be Bearer with a token")
        return check_secret(request, lambda: presented_principal(service, request), "token")
    address = client_of(request, behind_proxy=service.allowed_hosts.behind_proxy)
    known = presented_principal(service, request) or service.access.anyone(address)
    if known is None:
        raise RefusalError(401, "session", "must be started with a token or a one-time link")
    return known


def presented_principal(service: Service, request: Request) -> Principal | None:
    """Return the principal of a request's token or else of its session cookie; None if there is no valid one."""
    header, cookie = request.headers.get("authorization"), request.cookies.get(service.cookie)
    if header is not None:
        secret = bearer(header)
        return None if secret is None else service.access.by_token(secret)
    return None if cookie is None else service.access.by_session(cookie)


def bearer(header: str) -> str | None:
    """Return the token of an Authorization header; None for another scheme."""
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def rate_limit_key(service: Service, request: Request) -> str | None:
    """Return the key under which a known reader's requests are counted: a token with all its sessions, or one session.

    None if the reader is not known. With an unreadable token file no reader is known, and responses report that.
    """
    try:
        who = presented_principal(service, request)
    except UsageError:
        return None
    return None if who is None else who.token or who.session


def check_secret(request: Request, look_up: Callable[[], Principal | None], what: str) -> Principal:
    """Return the principal of a secret. A valid secret is accepted despite any number of wrong ones from the same
    address: 256 random bits cannot be guessed, and a caller must not be able to lock out others."""
    found = look_up()
    if found is not None:
        return found
    service = service_of(request)
    if service.wrong_secrets.allow(client_of(request, behind_proxy=service.allowed_hosts.behind_proxy)):
        raise RefusalError(401, what, "must be valid: it is unknown, expired, revoked or used up")
    raise RefusalError(429, what, "must be tried again later: too many wrong tokens were sent", retry=5)


def parsed(request: Request, model: type[M]) -> M:
    """Return the query parameters as a model; each may be given once.

    A request that cannot be authenticated is refused before its parameters are.
    """
    _authenticated(request)
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise RefusalError(400, "query", "must have each parameter once")
    return validated(model, given)


def validated(model: type[M], given: object) -> M:
    """Validate values from outside; the RefusalError names field and rule."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        what = ".".join(map(str, problem["loc"]))[:64] or "request"
        raise RefusalError(422, what, _rule(problem["type"], problem["msg"])) from None


def _rule(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "must not be given: it is unknown"
    return "must be given" if kind == "missing" else message[:1].lower() + message[1:]


def role(request: Request, name: str) -> Principal:
    """Return the principal if it has a role; RefusalError otherwise."""
    who = principal_of(request)
    if name not in who.roles:
        raise RefusalError(403, name.partition(":")[0], "must be a role of the caller")
    return who


def release_of(service: Service, audience: str, site: str, release: str | None = None) -> None:
    """Raise RefusalError for a site or release that is not published to an audience."""
    if site not in sites_of(service.policy, (audience,)):
        raise RefusalError(404, "site", "must be a site with releases for the audience")
    if release is None:
        return
    for each in releases_of(service.policy, audience):
        if release in service.policy.published_names(each, audience) and service.policy.zones_of(each, site):
            return
    raise RefusalError(404, "release", "must be a release for the audience at this site")


async def body_of(request: Request, model: type[M]) -> M:
    """Return a JSON body as its model. Other content types are refused unread: HTML forms of other origins send
    them."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusalError(400, "Content-Type", "must be application/json")
    try:
        given = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        raise RefusalError(400, "body", "must be JSON") from None
    return validated(model, given)
