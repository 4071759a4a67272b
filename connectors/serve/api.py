"""Handlers of the API under ``/api/v1``: parameters, roles, and queries.

A handler reads only what the caller's audiences may read. The first line of a handler's docstring is the
summary of its operation in the OpenAPI document.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from connectors.documents.month import Month, MonthReader
from connectors.documents.report import month_report, report_languages
from connectors.http.responses import RefusalError, answer
from connectors.operations.policy.guarantees import LANGUAGES
from connectors.serve.access import ACCOUNT, OPERATOR, audience_role
from connectors.serve.history.aggregates import NewestWindow, SpendRow
from connectors.serve.history.release_history import START
from connectors.serve.history.rows import RowsQuery
from connectors.serve.models import (
    Login,
    OfCoalition,
    OfDays,
    OfPolicy,
    OfRecords,
    OfRelease,
    OfReport,
    OfSite,
    OfSiteDay,
    OfStream,
    OfUsual,
    Play,
    PolicyPart,
    Releases,
    SiteFeed,
    Sites,
)
from connectors.serve.playback import Playback
from connectors.serve.policy_description import (
    described_plan,
    described_releases,
    described_site,
    published_zones,
    sites_of,
)
from connectors.serve.service import Service, body_of, check_secret, parsed, principal_of, release_of, role, service_of
from connectors.storage.site_metadata import site_metadata
from stream.errors import DataError
from stream.policy.sites import Site
from stream.records import SECOND, Micros
from stream.release.validation import Policy
from stream.schemas import parse_time, rfc3339

LIVE, LATE = 3, 12
"""The number of missing windows up to which a site counts as live, and as late; beyond that it is silent."""


async def health(request: Request) -> Response:
    """Return whether the service answers."""
    del request
    return answer({"status": "ok"})


async def sites(request: Request) -> Response:
    """Return the sites and zones with releases for the reader."""
    service, who = service_of(request), principal_of(request)
    names = sites_of(service.policy, who.audiences)
    described = [described_site(service.policy, name, service.plans, who.audiences) for name in names]
    return answer(Sites(sites=described).model_dump())


async def plan(request: Request) -> Response:
    """Return a floor's plan."""
    service, who = service_of(request), principal_of(request)
    site, floor = request.path_params["site"], request.path_params["floor"]
    if site in sites_of(service.policy, who.audiences) and (site, floor) in service.plans:
        published = published_zones(service.policy, site, who.audiences)
        if any(zone.floor == floor and zone.id in published for zone in service.policy.site[site].zones):
            return answer(described_plan(service.plans[site, floor], published).as_json())
    raise RefusalError(404, "plan", "must exist, for a floor with releases for the reader")


async def releases(request: Request) -> Response:
    """Return the releases for the reader's audiences, with their terms."""
    service, who = service_of(request), principal_of(request)
    listed = [each for name in who.audiences for each in described_releases(service.policy, name)]
    return answer(Releases(releases=listed).model_dump())


async def policy(request: Request) -> Response:
    """Return the privacy guarantees of the reader's audiences."""
    service, who, query = service_of(request), principal_of(request), parsed(request, OfPolicy)
    language = query.language if query.language in LANGUAGES else "en"
    parts = {name: await service.guarantees_for(name, language) for name in who.audiences}
    return answer(PolicyPart(audiences=parts, language=language, version=service.policy.version).model_dump())


async def records(request: Request) -> Response:
    """Return a release's history, as rows or as a file."""
    service, query = service_of(request), parsed(request, OfRecords)
    who = role(request, audience_role(query.audience))
    name = request.path_params["release"]
    release_of(service, query.audience, query.site, name)
    rows_query = _rows_query(query, name)
    if query.format != "json":
        pieces = await service.run_query(service.history.export, rows_query, query.format)
        return service.downloads.open(who, f"{name}-{query.site}-{query.granularity}", query.format, pieces)
    rows = await service.run_query(service.history.rows, rows_query)
    place = service.policy.site[query.site]
    return answer(
        {"release": name, "audience": query.audience, "site": query.site, "timezone": place.timezone,
         "granularity": query.granularity, "columns": rows.columns, "rows": rows.rows, "next": rows.next}
    )  # fmt: skip


async def report(request: Request) -> Response:
    """Return a month's report, a printable page made from the reader's records."""
    service, query = service_of(request), parsed(request, OfReport)
    who = role(request, audience_role(query.audience))
    known = site_metadata(service.policy)
    if query.site not in sites_of(service.policy, (query.audience,)):
        raise RefusalError(404, "site", "must be one with releases for the reader")
    if query.language not in report_languages():
        raise RefusalError(422, "language", f"must be one of {', '.join(report_languages())}")
    reader = MonthReader(known[query.site], Month.parse(query.month))
    pieces = _report_of(service, reader, query.audience, query.language)
    return service.downloads.open(who, f"{query.site}-{query.month}", "html", pieces)


def _report_of(service: Service, reader: MonthReader, audience: str, language: str) -> Generator[bytes, None, None]:
    """Yield the page; it is made when it is sent, by one of the few downloads at a time."""
    start, _ = reader.month.before.span(reader.timezone)
    _, end = reader.month.span(reader.timezone)
    for body in service.history.bodies(audience, start, end):
        reader.add(body)
    yield month_report(reader, audience, language=language).page.encode()


def _rows_query(query: OfRecords, release: str) -> RowsQuery:
    start, end = instant("from", query.start), instant("to", query.end)
    if start is not None and end is not None and start > end:
        raise RefusalError(400, "from", "must not be later than to")
    return RowsQuery(
        audience=query.audience, release=release, site=query.site, granularity=query.granularity, start=start, end=end,
        nodes=nodes_in(query.nodes), limit=query.limit, after=query.after,
    )  # fmt: skip


def nodes_in(text: str) -> tuple[str, ...]:
    """Return the comma-separated nodes."""
    return tuple(node for node in text.split(",") if node)


def instant(name: str, text: str | None) -> Micros | None:
    """Parse an RFC 3339 time. A space stands for a ``+`` that was not percent-encoded in the query."""
    try:
        return None if text is None else parse_time(text.replace(" ", "+"))
    except ValueError as error:
        raise RefusalError(400, name, str(error)) from None


async def latest(request: Request) -> Response:
    """Return the newest value of each node of each release, and whether releases arrive."""
    service, query = service_of(request), parsed(request, OfSite)
    role(request, audience_role(query.audience))
    release_of(service, query.audience, query.site)
    newest = await service.cached(service.history.latest, query.audience, query.site)
    feed = _feed(service, query.site, newest["feed"])
    return answer({"now": rfc3339(service.now()), "rows": newest["rows"], "feed": [feed],
                   "outage_seconds": service.outage_seconds()})  # fmt: skip


def _feed(service: Service, site: str, newest: NewestWindow | None) -> dict[str, object]:
    if newest is None:
        silent = SiteFeed(
            site=site, window_end=None, age_seconds=None, coverage=None, denied=False, state="silent"
        )  # fmt: skip
        return silent.model_dump()
    age = max(0, service.now() - parse_time(newest["window_end"]))
    feed = SiteFeed(site=site, **newest, age_seconds=age / SECOND, state=_progress(service.policy.site[site], age))
    return feed.model_dump()


def _progress(place: Site, age: Micros) -> Literal["live", "late", "silent"]:
    """Return whether releases arrive, from the age of the newest window."""
    windows = (age - place.lateness) / place.tick
    return "live" if windows <= LIVE else "late" if windows <= LATE else "silent"


async def usual(request: Request) -> Response:
    """Return the usual values of nodes, computed from released values."""
    service, query = service_of(request), parsed(request, OfUsual)
    role(request, audience_role(query.audience))
    release_of(service, query.audience, query.site, query.release)
    table = await service.cached(service.history.usual, query.audience, query.release, query.site)
    nodes = nodes_in(query.nodes)
    if not nodes:
        return answer(table)
    wanted = {node: values for node, values in table["nodes"].items() if node in nodes}
    return answer({"nodes": wanted, "slot_seconds": table["slot_seconds"]})


async def forecast(request: Request) -> Response:
    """Return the hours to come as the newest records of a forecast tell them."""
    service, query = service_of(request), parsed(request, OfRelease)
    role(request, audience_role(query.audience))
    release_of(service, query.audience, query.site, query.release)
    return answer(await service.cached(service.history.forecast, query.audience, query.release, query.site))


async def attributes(request: Request) -> Response:
    """Return the attributes of local days, published and withheld."""
    service, query = service_of(request), parsed(request, OfDays)
    role(request, audience_role(query.audience))
    release_of(service, query.audience, query.site)
    days = query.first_day, query.last_day
    return answer({"rows": await service.run_query(service.history.attributes, query.audience, query.site, *days)})


async def spends(request: Request) -> Response:
    """Return the cost of each day's releases, from the audience's own records."""
    service, query = service_of(request), parsed(request, OfDays)
    role(request, audience_role(query.audience))
    release_of(service, query.audience, query.site)
    days = query.first_day, query.last_day
    rows = await service.run_query(service.history.spends, query.audience, query.site, *days)
    charged = charged_rows(service.policy, query.audience, rows)
    return answer({"rows": charged, "left": _windows_left(service, query, charged)})


def charged_rows(policy: Policy, audience: str, rows: Sequence[SpendRow]) -> list[SpendRow]:
    """Return the rows of charged releases: queries are free, and a query that waits for its windows is not denied."""
    free = {release.release for release in described_releases(policy, audience) if release.base is not None}
    return [row for row in rows if row["release"] not in free]


def _windows_left(service: Service, query: OfSite, rows: Sequence[SpendRow]) -> dict[str, int | None]:
    """Return for how many more windows each release's budget suffices on its last day; None if it is unbounded."""
    left: dict[str, int | None] = {}
    for release in described_releases(service.policy, query.audience):
        if query.site not in release.sites or release.query != "count":
            continue
        spent = [row for row in rows if row["release"] == release.release]
        if release.daily_budget is None or release.epsilon is None:
            left[release.release] = None
        else:
            last = float(spent[-1]["spend"]) if spent else 0.0
            left[release.release] = int((float(release.daily_budget) - last) / float(release.epsilon) + 1e-9)
    return left


async def stream(request: Request) -> Response:
    """Open an event stream of an audience's releases."""
    service, query = service_of(request), parsed(request, OfStream)
    who = role(request, audience_role(query.audience))
    service.streams.refuse_more(who)
    after = request.headers.get("last-event-id") or query.after
    if after is None:
        after = await service.run_query(service.history.newest, query.audience)
    elif after != START:
        try:
            await service.run_query(service.history.since, query.audience, after, 1)
        except (RefusalError, DataError):
            raise RefusalError(404, "after", "must be the id of a release of this audience, or 'start'") from None
    return service.streams.open(who, query.audience, after)


# Handlers for the roles of account reader and operator.


async def account(request: Request) -> Response:
    """Return the newest account of each site, and the privacy guarantee of each audience's releases."""
    service = service_of(request)
    role(request, ACCOUNT)
    names = [audience.name for audience in service.policy.audience]
    promise = {name: (await service.guarantees_for(name)).promise for name in names}
    outage = service.outage_seconds()
    return answer({"sites": service.account.newest(), "promise": promise, "outage_seconds": outage})


async def account_coalition(request: Request) -> Response:
    """Return the combined cost of some audiences' releases, by site, in every privacy unit."""
    service, query = service_of(request), parsed(request, OfCoalition)
    role(request, ACCOUNT)
    names = frozenset(query.audiences.split(","))
    if not names <= {audience.name for audience in service.policy.audience}:
        raise RefusalError(422, "audiences", "must be names of the policy's audiences, separated by commas")
    if service.coalition is None:
        raise RefusalError(404, "coalition", "must be requested from a service with --account")
    async with service.coalition_lock:
        return answer({"audiences": sorted(names), "sites": await service.run_query(service.coalition, names)})


async def account_attributes(request: Request) -> Response:
    """Return what a day's attributes have revealed, by audience."""
    service, query = service_of(request), parsed(request, OfSiteDay)
    role(request, ACCOUNT)
    return answer({"attributes": service.account.attributes(query.site, query.day)})


async def operator(request: Request) -> Response:
    """Return the status of the services, by site, and the denials of the last week."""
    service = service_of(request)
    role(request, OPERATOR)
    rows = [
        {"silent_sources": None, **row, **_lag(service, site, row["window_end"]),
         "denied": [denied.model_dump() for denied in service.account.denials.of(site)]}
        for site, row in service.operator.newest().items()
    ]  # fmt: skip
    free = None if service.store is None else await service.run_query(_free_mib, service.store)
    return answer({"sites": rows, "free_mib": free, "outage_seconds": service.outage_seconds()})


def _free_mib(store: Path) -> int | None:
    """Return the free space of the store's disk in MiB; None if the folder is not there at the moment."""
    try:
        return shutil.disk_usage(store).free >> 20
    except OSError:
        return None


def _lag(service: Service, site: str, window_end: str | None) -> dict[str, object]:
    """Return the age of the newest window in seconds (None before the first), and whether releases arrive."""
    place = service.policy.site.get(site)
    if window_end is None:
        return {"lag_seconds": None, "state": None if place is None else "silent"}
    age = max(0, service.now() - parse_time(window_end))
    return {"lag_seconds": age / SECOND, "state": None if place is None else _progress(place, age)}


# Browser sessions and playback of a day: the only requests that change state in the service.


async def session(request: Request) -> Response:
    """Return the caller's roles, and what this service offers."""
    service, who = service_of(request), principal_of(request)
    return answer(
        {"roles": sorted(who.roles), "audiences": list(who.audiences), "open": who.address is not None,
         "laboratory": service.laboratory, "version": version("tacet-occupancy"),
         "playback": service.playback is not None,
         "bookings": [name for name in who.audiences if service.bookings and name == service.bookings.content.audience]}
    )  # fmt: skip


async def begin(request: Request) -> Response:
    """Start a session with a one-time link or a token."""
    service, login = service_of(request), await body_of(request, Login)
    if (login.link is None) == (login.token is None):
        raise RefusalError(422, "session", "must be started with either link or token")
    if login.link is not None:
        link = login.link
        who = check_secret(request, lambda: service.access.by_link(link), "link")
        service.link_used()
    else:
        token = login.token or ""
        who = check_secret(request, lambda: service.access.by_token(token), "token")
    if who.is_screen:
        raise RefusalError(403, "token", "must be a token of a reader; a screen sends its token with each request")
    cookie, principal = service.access.begin(who)
    started = Response(status_code=204, headers={"cache-control": "no-store"})
    started.set_cookie(
        service.cookie, cookie, max_age=max(0, ((principal.expires or 0) - service.clock()) // SECOND), path="/",
        secure=service.allowed_hosts.scheme == "https", httponly=True, samesite="strict",
    )  # fmt: skip
    return started


async def end(request: Request) -> Response:
    """End the session and its event streams."""
    service, who = service_of(request), principal_of(request)
    service.access.end(who)
    service.streams.sweep()
    ended = Response(status_code=204, headers={"cache-control": "no-store"})
    ended.delete_cookie(
        service.cookie, path="/", secure=service.allowed_hosts.scheme == "https", httponly=True, samesite="strict"
    )
    return ended


async def playback(request: Request) -> Response:
    """Return the state of the playback."""
    principal_of(request)
    return answer(_state(_play_of(service_of(request))))


async def play(request: Request) -> Response:
    """Change the playback. A move back restarts it and ends open streams."""
    service = service_of(request)
    principal_of(request)
    playing, change = _play_of(service), await body_of(request, Play)
    if playing.change(speed=change.speed, paused=change.paused, at=instant("at", change.at)):
        await service.restart_playback()
    return answer(_state(playing))


def _play_of(service: Service) -> Playback:
    if service.playback is None:
        raise RefusalError(404, "playback", "must be requested from a service with --play")
    return service.playback


def _state(playing: Playback) -> dict[str, object]:
    at, start, end = (rfc3339(each) for each in (playing.at(), playing.start, playing.end))
    return {"speed": playing.speed, "paused": playing.paused, "at": at, "start": start, "end": end}
