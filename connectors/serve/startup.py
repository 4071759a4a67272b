"""From what was asked for to a service that runs: what is refused, what follows what, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from connectors.embedded.readings import ACCOUNT_BOX, OPERATOR_BOX, read_outbox
from connectors.serve import feed, topics
from connectors.serve.access import Access
from connectors.serve.app import application
from connectors.serve.books import OperatorBook
from connectors.serve.cluster import ClusterBook
from connectors.serve.coalitions import Coalition
from connectors.serve.contract import ReleasedHistory
from connectors.serve.described import Plans
from connectors.serve.guard import Names
from connectors.serve.history import History
from connectors.serve.local_clock import SiteClock
from connectors.serve.plans import read_plans
from connectors.serve.server import Server, Tls, is_loopback, listening, server_of
from connectors.serve.service import Service
from connectors.serve.streams import Streams
from connectors.serve.tokens import ACCOUNT, OPERATOR, TokenFile, audience_role
from connectors.signals import first_to_end
from stream.errors import UsageError
from stream.policy.document import AttributeRelease, Policy
from stream.records import Micros

SWEEP_SECONDS = 1.0
"""After so long at the latest an open stream ends of who may not see it any more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be served, to whom, and where."""

    policy: Policy
    audiences: tuple[str, ...]
    store: Path | None = None
    kafka: str | None = None
    account: bool = False
    operator: bool = False
    listen: tuple[str, int] = ("127.0.0.1", 8050)
    tokens: Path | None = None
    opened: str | None = None
    """The audience that anyone may read."""
    index: Path | None = None
    plans: Path | None = None
    """Folder of floor plans."""
    play: float | None = None
    """Speed at which what is there is played."""
    names: tuple[str, ...] = ()
    """By which the service may be asked, besides those of loopback."""
    tls: Tls | None = None
    behind_proxy: bool = False
    simulated: bool = False
    """Nobody was ever there: others may see it, by the link alone and in the clear."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles that are served."""
        more = [name for name, wanted in ((ACCOUNT, self.account), (OPERATOR, self.operator)) if wanted]
        return frozenset([*map(audience_role, self.audiences), *more])


def check(wanted: Wanted) -> None:
    """Refuse what would show more than was meant, or nothing.

    Raises:
        UsageError: an audience is none of the policy's; nothing is served; an address that others reach has no tokens,
            or neither TLS nor a proxy; an open audience is told of single rooms' days.
    """
    known = [audience.name for audience in wanted.policy.audience]
    for name in (*wanted.audiences, *([wanted.opened] if wanted.opened else [])):
        if name not in known:
            msg = f"--audience: must be one of the policy's ({', '.join(known)}), got {name!r}"
            raise UsageError(msg)
    if not wanted.roles:
        msg = "--audience: must be given, or --account or --operator: nobody would see anything"
        raise UsageError(msg)
    _check_open(wanted)
    host, _ = wanted.listen
    outside = not is_loopback(host) and not wanted.simulated
    rules = (
        (outside and wanted.tokens is None, f"--tokens: must be given with --listen {host}, which others reach"),
        (
            outside and wanted.tls is None and not wanted.behind_proxy,
            f"--tls-cert: must be given with --listen {host}, or --behind-proxy where a proxy of yours has TLS",
        ),
        (wanted.behind_proxy and not wanted.names, "--name: must be given with --behind-proxy, as its clients know it"),
        (
            wanted.kafka is not None and wanted.index is None and bool(wanted.audiences),
            "--index: must be given with --kafka, so that event streams go on where they were after a restart",
        ),
        (wanted.kafka is not None and wanted.play is not None, "--play: must go with --store"),
        (wanted.index is not None and wanted.play is not None, "--play: must go without --index"),
    )  # fmt: skip
    for broken, rule in rules:
        if broken:
            raise UsageError(rule)


def _check_open(wanted: Wanted) -> None:
    if wanted.opened is None:
        return
    if wanted.opened not in wanted.audiences:
        msg = f"--open: must be an audience that is served, got {wanted.opened!r}"
        raise UsageError(msg)
    for release in wanted.policy.release:
        if isinstance(release, AttributeRelease) and wanted.opened in release.audiences:
            msg = f"--open: must be an audience of counts only, {wanted.opened!r} is told attributes ({release.name})"
            raise UsageError(msg)


def clocks_of(policy: Policy) -> dict[str, SiteClock]:
    """Return the local clock of each site."""
    return {name: SiteClock(site.timezone, site.day_starts) for name, site in policy.site.items()}


def plans_of(wanted: Wanted) -> Plans:
    """Return the plan of each floor that has one, as the page is given it."""
    if wanted.plans is None:
        return {}
    zones: dict[tuple[str, str], list[str]] = {}
    for name, site in wanted.policy.site.items():
        for zone in site.zones:
            zones.setdefault((name, zone.floor), []).append(zone.id)
    return {place: plan.as_json() for place, plan in read_plans(wanted.plans, zones).items()}


@contextmanager
def made(wanted: Wanted, clock: Callable[[], Micros], names: Names) -> Iterator[Service]:
    """Open a history with its service, and close it."""

    def anew() -> ReleasedHistory:
        return History(wanted.index, clocks_of(wanted.policy))

    opened = None if wanted.opened is None else audience_role(wanted.opened)
    tokens = None if wanted.tokens is None else TokenFile(wanted.tokens)
    if tokens is not None:
        tokens.tokens()  # refused now, where they cannot be read
    access = Access(wanted.roles, clock=clock, tokens=tokens, opened=opened)
    plans = plans_of(wanted)
    history = anew()
    streams = Streams(access, history)
    service = Service(wanted.policy, access, history, streams, names, clock, wanted.store, plans, begin_anew=anew)
    try:
        yield service
    finally:
        service.history.close()


def feeds(wanted: Wanted, service: Service) -> list[Coroutine[Any, Any, None]]:
    """Return what keeps the service up with its sources; each ends by an error only."""
    intake = feed.Intake(service)
    if wanted.store is None:
        return topic_feeds(wanted, wanted.kafka or "", service, intake)
    return box_feeds(wanted, wanted.store, service, intake)


def topic_feeds(wanted: Wanted, kafka: str, service: Service, intake: feed.Intake) -> list[Coroutine[Any, Any, None]]:
    """Return what keeps the service up with a cluster."""
    found = [topics.follow_private(kafka, wanted.audiences, intake)] if wanted.audiences else []
    if wanted.account or wanted.operator:
        found.append(topics.follow_account(kafka, service.account))
    if wanted.account:
        service.coalition = partial(topics.together, wanted.policy, kafka)
    if wanted.operator:
        service.operator = cluster = ClusterBook(service.account, wanted.policy, service.clock)
        found += [topics.follow_quarantine(kafka, cluster), topics.follow_control(kafka, cluster, service.clock)]
    return found


def box_feeds(wanted: Wanted, store: Path, service: Service, intake: feed.Intake) -> list[Coroutine[Any, Any, None]]:
    """Return what keeps the service up with a store."""
    book = OperatorBook()
    service.operator = book
    service.coalition = partial(together, wanted.policy, store) if wanted.account else None
    boxes = [(ACCOUNT_BOX, service.account.take)] if wanted.account or wanted.operator else []
    boxes += [(OPERATOR_BOX, book.take)] if wanted.operator else []
    feed.refuse_absent(store, [*wanted.audiences, *(box for box, _ in boxes)])
    if wanted.play is not None:
        service.playback = feed.played(store, wanted.audiences, wanted.play)
    books = [feed.follow_book(store, box, take) for box, take in boxes]
    if service.playback is not None:
        return [feed.follow_play(service.playback, intake), *books]
    return [*(feed.follow_outbox(store, audience, intake) for audience in wanted.audiences), *books]


def together(policy: Policy, store: Path, audiences: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Return what some audiences have been told together, by their outboxes."""
    coalition = Coalition(policy, audiences)
    for name in sorted(audiences):
        for _, value in read_outbox(store, name, 0):
            coalition.take(value)
    return coalition.units()


Beside = Callable[[Service], list[Coroutine[Any, Any, None]]]
"""What is to be done beside a service for as long as it runs."""


def _nothing(service: Service) -> list[Coroutine[Any, Any, None]]:
    del service
    return []


async def serve(
    wanted: Wanted, clock: Callable[[], Micros], stop: asyncio.Event, say: Callable[[str], None],
    beside: Beside = _nothing,
) -> None:  # fmt: skip
    """Serve until told to stop. ``say`` is given the address, and links that let people in.

    Raises:
        UsageError: what is wanted is not to be had (``check``), or its sources are not there.
        FinalityError: a source contradicts the history.
    """
    check(wanted)
    bound = listening(*wanted.listen)
    try:
        scheme = "https" if wanted.tls is not None or wanted.behind_proxy else "http"
        names = Names.of(wanted.names, bound.getsockname()[1], scheme, behind_proxy=wanted.behind_proxy)
        with made(wanted, clock, names) as service:
            server = server_of(application(service), wanted.tls)
            bound.busy = service.busy
            following = feeds(wanted, service)
            _invite(wanted, service, bound, say)
            await first_to_end(_served(server, bound, service, stop), _sweep(service), *beside(service), *following)
    finally:
        bound.close()


def _invite(wanted: Wanted, service: Service, bound: socket.socket, say: Callable[[str], None]) -> None:
    """Say where the service is, and where nobody has a token, by which link one comes in; each link is good once."""
    host, port = bound.getsockname()[:2]
    shown = "localhost" if ip_address(host).is_unspecified else f"[{host}]" if ":" in host else host
    address = f"{'http' if wanted.tls is None else 'https'}://{shown}:{port}/"
    if wanted.tokens is not None:
        say(f"Serving at {address}")
        return

    def link() -> None:
        say(f"Open {address}#link={service.access.new_link()}")

    service.link_used = link
    link()


async def _served(server: Server, bound: socket.socket, service: Service, stop: asyncio.Event) -> None:
    serving = asyncio.create_task(server.serve([bound]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        service.streams.stop("stopping")
        server.should_exit = True
        stopping.cancel()
        await serving


async def _sweep(service: Service) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        service.streams.sweep()
