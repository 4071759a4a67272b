"""All that the service is made of, as its handlers see it, and who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
import orjson
from pydantic import ValidationError
from starlette.requests import Request

from connectors.serve.access import Access, Principal
from connectors.serve.answers import RefusalError, refused
from connectors.serve.books import AccountBook, OperatorBook
from connectors.serve.cluster import ClusterBook
from connectors.serve.contract import ReleasedHistory
from connectors.serve.described import Plans, promised, releases_of, sites_of
from connectors.serve.door import Peer
from connectors.serve.downloads import Downloads
from connectors.serve.guard import Names, Rates, client_of
from connectors.serve.playback import Playback
from connectors.serve.questions import Asked
from connectors.serve.streams import Streams
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.records import Micros

T = TypeVar("T")
M = TypeVar("M", bound=Asked)
COOKIE = "tacet"
THREADS = 4
"""Questions that the history answers at a time."""


@dataclass(slots=True)
class Service:
    """What handlers use."""

    policy: Policy
    access: Access
    history: ReleasedHistory
    streams: Streams
    names: Names
    clock: Callable[[], Micros]
    store: Path | None = None
    """Folder of the store, of which the space on its disk is told to operators; nothing in it is opened."""
    plans: Plans = field(default_factory=dict)
    account: AccountBook = field(default_factory=AccountBook)
    coalition: Callable[[frozenset[str]], dict[str, dict[str, Any]]] | None = None
    """Adds up what audiences have been told together; None where the account is not served."""
    adding: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it does: one at a time."""
    operator: OperatorBook | ClusterBook = field(default_factory=OperatorBook)
    downloads: Downloads = field(default_factory=Downloads)
    playback: Playback | None = None
    laboratory: bool = False
    """Whether what is shown was made with a laboratory key."""
    begin_anew: Callable[[], ReleasedHistory] | None = None
    """Makes an empty history, where a play may go back."""
    promises: dict[str, dict[str, object]] = field(default_factory=dict)
    """By audience, what is promised: worked out when it is first asked for."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by who adds to the history, or takes another."""
    memory: dict[Hashable, object] = field(default_factory=dict)
    """Answers that hold until the next record comes."""
    came: int = 0
    """How many times records have come."""
    busy: set[Peer] = field(default_factory=set)
    """Who is being answered now; the door lets these stay."""
    link_used: Callable[[], None] = lambda: None
    wrong: Rates = field(default_factory=lambda: Rates(burst=10, each_second=0.2))
    """How many wrong secrets a client may show."""
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(THREADS))

    async def reading(self, question: Callable[..., T], *given: object) -> T:
        """Ask the history, or work something out, aside from the loop."""
        try:
            return await anyio.to_thread.run_sync(question, *given, limiter=self.threads)
        except UsageError as error:
            raise refused(str(error)) from None

    async def rewound(self) -> None:
        """Forget what a play has shown: it goes back."""
        assert self.begin_anew is not None  # noqa: S101
        async with self.turn:
            self.history = self.begin_anew()  # who is still reading the other one keeps it alive
            self.forget()
            self.streams.restart(self.history)

    async def remembered(self, question: Callable[..., T], *given: Hashable) -> T:
        """Ask the history what does not change before the next record comes, once for all who ask it meanwhile."""
        key, came = (question.__name__, *given), self.came
        if key not in self.memory:
            found = await self.reading(question, *given)
            if came != self.came:
                return found
            self.memory[key] = found
        return cast(T, self.memory[key])

    def forget(self) -> None:
        """Note that records have come."""
        self.came += 1
        self.memory.clear()

    async def promised_to(self, audience: str) -> dict[str, object]:
        """Return what an audience's releases promise."""
        if audience not in self.promises:
            self.promises[audience] = await self.reading(promised, self.policy, audience)
        return self.promises[audience]

    @property
    def cookie(self) -> str:
        """The name of the session's cookie: this service's alone, as a browser sends a host's cookies to each of its
        ports; under TLS one that no other host, and no plain connection, can set."""
        own = f"{COOKIE}-{self.names.port}"
        return f"__Host-{own}" if self.names.scheme == "https" else own

    def now(self) -> Micros:
        """Return the time: that of the day being played, where there is one."""
        return self.clock() if self.playback is None else self.playback.at()


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.state.service
    return service


def who_asks(request: Request) -> Principal:
    """Return who asks; refused where that is nobody who is known."""
    service, header = service_of(request), request.headers.get("authorization")
    if header is not None:
        if bearer(header) is None:
            raise RefusalError(401, "Authorization", "must be Bearer with a token")
        return recognised(request, lambda: shown(service, request), "token")
    known = shown(service, request) or service.access.anyone
    if known is None:
        raise RefusalError(401, "session", "must be begun with a token or a one-time link")
    return known


def shown(service: Service, request: Request) -> Principal | None:
    """Return whose token or, where none is shown, whose session's cookie comes with a request; None: nobody's."""
    header, cookie = request.headers.get("authorization"), request.cookies.get(service.cookie)
    if header is not None:
        secret = bearer(header)
        return None if secret is None else service.access.by_token(secret)
    return None if cookie is None else service.access.by_session(cookie)


def bearer(header: str) -> str | None:
    """Return the token of an Authorization header; None where it is of another kind."""
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def shown_by(service: Service, request: Request) -> str | None:
    """Return what a known reader's requests are counted under: one token with all of its sessions, or one session.

    None for whoever is not known; a file of tokens that cannot be read knows nobody, and answers say so.
    """
    try:
        who = shown(service, request)
    except UsageError:
        return None
    return None if who is None else who.token or who.session


def recognised(request: Request, look_up: Callable[[], Principal | None], what: str) -> Principal:
    """Return whose secret was shown. A good one is taken however many wrong ones came from the same address: none of
    256 random bits is guessed, and nobody shall lock others out."""
    found = look_up()
    if found is not None:
        return found
    service = service_of(request)
    if service.wrong.take(client_of(request, behind_proxy=service.names.behind_proxy)):
        raise RefusalError(401, what, "must be one that is good here and now")
    raise RefusalError(429, what, "must be tried again later: too many wrong ones", retry=5)


def parsed(request: Request, model: type[M]) -> M:
    """Return a question's parameters, each given once."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise RefusalError(400, "query", "must have each parameter once")
    return validated(model, given)


def validated(model: type[M], given: object) -> M:
    """Return what a model makes of values from outside; the refusal names the field and the rule."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        what = ".".join(map(str, problem["loc"]))[:64] or "request"
        raise RefusalError(422, what, _rule(problem["type"], problem["msg"])) from None


def _rule(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "must not be given: it is not known here"
    return "must be given" if kind == "missing" else message[:1].lower() + message[1:]


def role(request: Request, name: str) -> Principal:
    """Return who asks, if they have a role."""
    who = who_asks(request)
    if name not in who.roles:
        raise RefusalError(403, name.partition(":")[0], "must be a role of who asks")
    return who


def release_of(service: Service, audience: str, site: str, release: str | None = None) -> None:
    """Refuse a site or release of which an audience gets nothing."""
    if site not in sites_of(service.policy, (audience,)):
        raise RefusalError(404, "site", "must be one of which the audience gets something")
    if release is None:
        return
    for each in releases_of(service.policy, audience):
        names = each.published_names if each.query == "count" else (each.name,)
        if release in names and service.policy.zones_of(each, site):
            return
    raise RefusalError(404, "release", "must be one that the audience gets at this site")


async def body_of(request: Request, model: type[M]) -> M:
    """Return a JSON body as its model. Of another type nothing is read: forms come from pages of others."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusalError(400, "Content-Type", "must be application/json")
    try:
        given = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        raise RefusalError(400, "body", "must be JSON") from None
    return validated(model, given)
