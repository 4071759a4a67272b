"""Start of the service: configuration checks, the tasks that follow its sources, and its shutdown."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from connectors.http.limits import AllowedHosts
from connectors.http.server import Server, Tls, is_loopback, listening, server_of
from connectors.runtime.signals import first_to_end
from connectors.serve import indexer, topics
from connectors.serve.access import ACCOUNT, OPERATOR, Access, TokenFile, audience_role, room_role
from connectors.serve.app import application
from connectors.serve.booked_rooms import BookedRooms, read_bookings
from connectors.serve.broker_contact import BrokerContact
from connectors.serve.event_streams import Streams
from connectors.serve.floor_plans import read_named_plans, read_plans
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import START, ReleaseHistory
from connectors.serve.ledger_views import ClusterView, Coalition, CoalitionUnits, OperatorView
from connectors.serve.policy_description import Plans
from connectors.serve.room import shown_to
from connectors.serve.service import Service
from connectors.storage.embedded.reader import ACCOUNT_OUTBOX, OPERATOR_OUTBOX, read_outbox
from stream.errors import UsageError
from stream.policy.attributes import AttributeRelease
from stream.records import Micros
from stream.release.validation import Policy
from stream.schemas import LEAKAGE, QUARANTINE

_ORIGIN = re.compile(
    r"https://[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?|http://(localhost|127\.0\.0\.1)(:[0-9]{1,5})?"
)
SWEEP_SECONDS = 1.0
"""The maximal number of seconds until a stream of a reader without authorisation ends."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What is served, to which roles, and at which address."""

    policy: Policy
    audiences: tuple[str, ...]
    store: Path | None = None
    kafka: str | None = None
    account: bool = False
    operator: bool = False
    listen: tuple[str, int] = ("127.0.0.1", 8050)
    tokens: Path | None = None
    opened: str | None = None
    """The audience that needs no token."""
    index: Path | None = None
    plans: Path | None = None
    """Folder of floor plans."""
    policy_folder: Path = Path()
    """Folder of the policy, which the plans of its files of names are relative to."""
    rooms: tuple[str, ...] = ()
    """Audiences by whose releases the page of rooms shows where there is room."""
    embedders: tuple[str, ...] = ()
    """Origins that may embed that page."""
    bookings: Path | None = None
    """The file of bookings."""
    play: float | None = None
    """Playback speed of the stored records."""
    names: tuple[str, ...] = ()
    """Accepted host names, besides those of loopback."""
    tls: Tls | None = None
    behind_proxy: bool = False
    simulated: bool = False
    """No real people: others may see it, with the link alone and without TLS."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles that are served."""
        more = [name for name, wanted in ((ACCOUNT, self.account), (OPERATOR, self.operator)) if wanted]
        return frozenset([*map(audience_role, self.audiences), *map(room_role, self.rooms), *more])


def check(config: ServeConfig) -> None:
    """Refuse a configuration that would serve nothing, or more than was meant.

    Raises:
        UsageError: an audience is not in the policy; nothing is served; an address that is reachable from other hosts
            has no tokens, or neither TLS nor a proxy; an audience that anybody is shown is not public, or receives
            attributes of single rooms' days.
    """
    known = [audience.name for audience in config.policy.audience]
    for name in (*config.audiences, *([config.opened] if config.opened else [])):
        if name not in known:
            msg = f"--audience: must be one of the policy's ({', '.join(known)}), got {name!r}"
            raise UsageError(msg)
    if not config.roles:
        msg = "--audience: must be given, or --account or --operator; otherwise nothing is served"
        raise UsageError(msg)
    _check_open(config)
    if config.bookings is not None:
        _check_bookings(config, read_bookings(config.bookings, config.policy).audience)
    host, _ = config.listen
    outside = not is_loopback(host) and not config.simulated
    rules = (
        (outside and config.tokens is None, f"--tokens: must be given with --listen {host}, which others can reach"),
        (
            outside and config.tls is None and not config.behind_proxy,
            f"--tls-cert: must be given with --listen {host}, or --behind-proxy if a proxy of yours provides TLS",
        ),
        (config.behind_proxy and not config.names, "--name: must be given with --behind-proxy: the name for clients"),
        (
            config.kafka is not None and config.index is None and bool(config.audiences),
            "--index: must be given with --kafka, so that event streams can be resumed after a restart",
        ),
        (config.kafka is not None and config.play is not None, "--play: must be given with --store"),
        (config.index is not None and config.play is not None, "--play: must not be given with --index"),
        (config.bookings is not None and config.play is not None, "--play: must not be given with --bookings"),
    )  # fmt: skip
    for broken, rule in rules:
        if broken:
            raise UsageError(rule)


def _check_open(config: ServeConfig) -> None:
    """Raise UsageError if ``--open`` or the page of rooms would show an audience that is not public."""
    shown = [("--room", name) for name in config.rooms]
    for option, name in [*([] if config.opened is None else [("--open", config.opened)]), *shown]:
        if name not in config.audiences:
            msg = f"{option}: must be an audience that is served, got {name!r}"
            raise UsageError(msg)
        _check_public(config.policy, option, name)
    for name in config.rooms:
        if not shown_to(config.policy, name):
            msg = f"--room: must be an audience that receives counts of floors or zones, got {name!r}"
            raise UsageError(msg)
    if config.embedders and not config.rooms:
        raise UsageError("--embed: must be used with --room, whose page it is about")
    for origin in config.embedders:
        if not _ORIGIN.fullmatch(origin):
            msg = f"--embed: must be an origin such as https://intranet.example.org, got {origin!r}"
            raise UsageError(msg)


def _check_bookings(config: ServeConfig, audience: str) -> None:
    """Refuse to show bookings to anybody: to an audience that the policy makes public."""
    if audience not in config.audiences:
        msg = f"--bookings: must be for an audience that is served, got {audience!r}"
        raise UsageError(msg)
    if any(each.name == audience and each.public for each in config.policy.audience):
        msg = f"--bookings: must be for an audience that is not public, got {audience!r}"
        raise UsageError(msg)


def booked_rooms(config: ServeConfig, clock: Callable[[], Micros]) -> BookedRooms | None:
    """Return the bookings that are to be read, if there is a file of them."""
    if config.bookings is None:
        return None
    timezones = {name: site.timezone for name, site in config.policy.site.items()}
    return BookedRooms(read_bookings(config.bookings, config.policy), config.bookings.parent, timezones, clock)


def _check_public(policy: Policy, option: str, name: str) -> None:
    """Refuse an audience that the policy does not make public, or that receives attributes of single rooms' days."""
    if not any(audience.name == name and audience.public for audience in policy.audience):
        rule = "must be an audience that the policy makes public ([[audience]] public = true)"
        msg = f"{option}: {rule}, got {name!r}"
        raise UsageError(msg)
    for release in policy.release:
        if isinstance(release, AttributeRelease) and name in release.audiences:
            msg = f"{option}: must be an audience of counts only, {name!r} receives attributes ({release.name})"
            raise UsageError(msg)


def clocks_of(policy: Policy) -> dict[str, SiteClock]:
    """Return the local clock of each site."""
    return {name: SiteClock(site.timezone, site.day_starts) for name, site in policy.site.items()}


def plans_of(config: ServeConfig) -> Plans:
    """Return the plan of each floor that has one; a plan of a file of names replaces that of the folder."""
    named = read_named_plans(config.policy, config.policy_folder)
    if config.plans is None:
        return named
    zones: dict[tuple[str, str], list[str]] = {}
    for name, site in config.policy.site.items():
        for zone in site.zones:
            zones.setdefault((name, zone.floor), []).append(zone.id)
    return read_plans(config.plans, zones) | named


@contextmanager
def open_service(config: ServeConfig, clock: Callable[[], Micros], allowed_hosts: AllowedHosts) -> Iterator[Service]:
    """Open a history with its service, and close it."""

    def open_history() -> ReleaseHistory:
        return ReleaseHistory(config.index, clocks_of(config.policy))

    opened = None if config.opened is None else audience_role(config.opened)
    tokens = None if config.tokens is None else TokenFile(config.tokens)
    if tokens is not None:
        tokens.tokens()  # fail at the start if they cannot be read
    access = Access(config.roles, clock=clock, tokens=tokens, opened=opened)
    plans = plans_of(config)
    history = open_history()
    streams = Streams(access, history)
    service = Service(
        config.policy,
        access,
        history,
        streams,
        allowed_hosts,
        clock,
        config.store,
        plans,
        new_history=open_history,
        rooms=frozenset(config.rooms),
        embedders=config.embedders,
        bookings=booked_rooms(config, clock),
    )
    try:
        yield service
    finally:
        service.history.close()


def feeds(config: ServeConfig, service: Service) -> list[Coroutine[Any, Any, None]]:
    """Return the tasks that keep the service up to date with its sources; each returns only by an error."""
    index = indexer.Indexer(service)
    booked = [] if service.bookings is None else [service.bookings.follow()]
    if config.store is None:
        return [*topic_feeds(config, config.kafka or "", service, index), *booked]
    return [*outbox_feeds(config, config.store, service, index), *booked]


def topic_feeds(
    config: ServeConfig, kafka: str, service: Service, index: indexer.Indexer
) -> list[Coroutine[Any, Any, None]]:
    """Return the tasks that follow a cluster. Once something was read, they outlive outages of the brokers."""
    service.contact = contact = BrokerContact(
        needed=not any(service.history.newest(name) != START for name in config.audiences)
    )
    found: list[Callable[[], Awaitable[None]]] = []
    if config.audiences:
        found.append(partial(topics.follow_private, kafka, config.audiences, index))
    if config.account or config.operator:
        found.append(topics.TopicOfView(kafka, LEAKAGE, service.account.add).follow)
    if config.account:
        service.coalition = partial(topics.combined_account, config.policy, kafka)
    if config.operator:
        service.operator = cluster = ClusterView(service.account, config.policy, service.clock)
        found.append(topics.TopicOfView(kafka, QUARANTINE, cluster.add_rejected).follow)
        found.append(partial(topics.follow_control, kafka, cluster, service.clock))
    return [contact.ask(kafka), *map(contact.lasting, found)]


def outbox_feeds(
    config: ServeConfig, store: Path, service: Service, index: indexer.Indexer
) -> list[Coroutine[Any, Any, None]]:
    """Return the tasks that follow a store."""
    operator = OperatorView()
    service.operator = operator
    service.coalition = partial(combined_account, config.policy, store) if config.account else None
    outboxes = [(ACCOUNT_OUTBOX, service.account.add)] if config.account or config.operator else []
    outboxes += [(OPERATOR_OUTBOX, operator.add)] if config.operator else []
    indexer.refuse_absent(store, [*config.audiences, *(outbox for outbox, _ in outboxes)])
    if config.play is not None:
        service.playback = indexer.played(store, config.audiences, config.play)
    views = [indexer.follow_records(store, outbox, add) for outbox, add in outboxes]
    if service.playback is not None:
        return [indexer.follow_play(service.playback, index), *views]
    return [*(indexer.follow_outbox(store, audience, index) for audience in config.audiences), *views]


def combined_account(policy: Policy, store: Path, audiences: frozenset[str]) -> dict[str, CoalitionUnits]:
    """Return the combined account of some audiences, from their outboxes."""
    coalition = Coalition(policy, audiences)
    for name in sorted(audiences):
        for _, value in read_outbox(store, name, 0):
            coalition.add(value)
    return coalition.units()


Beside = Callable[[Service], list[Coroutine[Any, Any, None]]]
"""Tasks that run beside the service."""


def _nothing(service: Service) -> list[Coroutine[Any, Any, None]]:
    del service
    return []


async def serve(
    config: ServeConfig, clock: Callable[[], Micros], stop: asyncio.Event, say: Callable[[str], None],
    beside: Beside = _nothing,
) -> None:  # fmt: skip
    """Serve until stopped. ``say`` receives the address, and the links for access.

    Raises:
        UsageError: the configuration is refused (``check``), or its sources do not exist.
        FinalityError: a source contradicts the history.
    """
    check(config)
    bound = listening(*config.listen)
    try:
        scheme = "https" if config.tls is not None or config.behind_proxy else "http"
        allowed_hosts = AllowedHosts.of(config.names, bound.getsockname()[1], scheme, behind_proxy=config.behind_proxy)
        with open_service(config, clock, allowed_hosts) as service:
            server = server_of(application(service), config.tls)
            bound.busy = service.busy
            following = feeds(config, service)
            _invite(config, service, bound, say)
            await first_to_end(_served(server, bound, service, stop), _sweep(service), *beside(service), *following)
    finally:
        bound.close()


def _invite(config: ServeConfig, service: Service, bound: socket.socket, say: Callable[[str], None]) -> None:
    """Print the service's address and, without a token file, the links for access; each link works once."""
    host, port = bound.getsockname()[:2]
    shown = "localhost" if ip_address(host).is_unspecified else f"[{host}]" if ":" in host else host
    address = f"{'http' if config.tls is None else 'https'}://{shown}:{port}/"
    if config.tokens is not None:
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
