"""Handlers of the API under ``/api/v1``: parameters are validated, roles are checked, and the history is queried.

A handler has access to nothing but what its audiences may read. The first line of a handler's docstring is the
summary of its operation in the OpenAPI document.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from connectors.http.responses import RefusalError, answer
from connectors.serve.access import ACCOUNT, OPERATOR, audience_role
from connectors.serve.history.release_history import START
from connectors.serve.history.rows import RowsQuery
from connectors.serve.models import Login, OfCoalition, OfDays, OfRecords, OfSite, OfSiteDay, OfStream, OfUsual, Play
from connectors.serve.playback import Playback
from connectors.serve.policy_description import (
    described_plan,
    described_releases,
    described_site,
    published_zones,
    sites_of,
)
from connectors.serve.service import Service, body_of, parsed, principal_of, recognised, release_of, role, service_of
from stream.errors import DataError
from stream.policy.sites import Site
from stream.records import SECOND, Micros
from stream.release.validation import Policy
from stream.schemas import parse_time, rfc3339

LIVE, LATE = 3, 12
"""The number of missing windows up to which a site counts as live, and as late; beyond that it is silent."""


async def health(request: Request) -> Response:
    """Say that the service answers."""
    del request
    return answer({"status": "ok"})


async def sites(request: Request) -> Response:
    """Return the sites of which the reader gets anything, with the zones of which they do."""
    service, who = service_of(request), principal_of(request)
    names = sites_of(service.policy, who.audiences)
    return answer({"sites": [described_site(service.policy, name, service.plans, who.audiences) for name in names]})


async def plan(request: Request) -> Response:
    """Return a floor's plan."""
    service, who = service_of(request), principal_of(request)
    site, floor = request.path_params["site"], request.path_params["floor"]
    if site in sites_of(service.policy, who.audiences) and (site, floor) in service.plans:
        told = published_zones(service.policy, site, who.audiences)
        if any(zone.floor == floor and zone.id in told for zone in service.policy.site[site].zones):
            return answer(described_plan(service.plans[site, floor], told))
    raise RefusalError(404, "plan", "must be one that there is, of a floor that the reader sees")


async def releases(request: Request) -> Response:
    """Return what the reader's audiences get, and on which terms."""
    service, who = service_of(request), principal_of(request)
    listed = [each for name in who.audiences for each in described_releases(service.policy, name)]
    return answer({"releases": listed})


async def policy(request: Request) -> Response:
    """Return each audience's own part of the policy."""
    service, who = service_of(request), principal_of(request)
    parts = {name: await service.promised_to(name) for name in who.audiences}
    return answer({"audiences": parts, "version": service.policy.version})


async def records(request: Request) -> Response:
    """Return a release's history, as rows or as a file."""
    service, asked = service_of(request), parsed(request, OfRecords)
    who = role(request, audience_role(asked.audience))
    name = request.path_params["release"]
    release_of(service, asked.audience, asked.site, name)
    query = _rows_query(asked, name)
    if asked.format != "json":
        pieces = await service.reading(service.history.export, query, asked.format)
        return service.downloads.open(who, f"{name}-{asked.site}-{asked.granularity}", asked.format, pieces)
    rows = await service.reading(service.history.rows, query)
    place = service.policy.site[asked.site]
    return answer(
        {"release": name, "audience": asked.audience, "site": asked.site, "timezone": place.timezone,
         "granularity": asked.granularity, "columns": rows.columns, "rows": rows.rows, "next": rows.next}
    )  # fmt: skip


def _rows_query(asked: OfRecords, release: str) -> RowsQuery:
    start, end = instant("from", asked.start), instant("to", asked.end)
    if start is not None and end is not None and start > end:
        raise RefusalError(400, "from", "must not be later than to")
    return RowsQuery(
        audience=asked.audience, release=release, site=asked.site, granularity=asked.granularity, start=start, end=end,
        nodes=nodes_in(asked.nodes), limit=asked.limit, after=asked.after,
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
    """Return the newest value of each node of each release, and whether windows come."""
    service, asked = service_of(request), parsed(request, OfSite)
    role(request, audience_role(asked.audience))
    release_of(service, asked.audience, asked.site)
    known = await service.remembered(service.history.latest, asked.audience, asked.site)
    feed = _feed(service, asked.site, known["feed"])
    return answer({"now": rfc3339(service.now()), "rows": known["rows"], "feed": [feed],
                   "outage_seconds": service.outage_seconds()})  # fmt: skip


def _feed(service: Service, site: str, newest: Mapping[str, Any] | None) -> dict[str, Any]:
    if newest is None:
        silent = {"window_end": None, "age_seconds": None, "coverage": None, "denied": False}
        return {"site": site, **silent, "state": "silent"}
    place = service.policy.site[site]
    age = max(0, service.now() - parse_time(newest["window_end"]))
    told = {name: newest[name] for name in ("window_end", "coverage", "denied")}
    return {"site": site, **told, "age_seconds": age / SECOND, "state": _progress(place, age)}


def _progress(place: Site, age: Micros) -> str:
    """Return whether windows come, from the age of the newest one."""
    windows = (age - place.lateness) / place.tick
    return "live" if windows <= LIVE else "late" if windows <= LATE else "silent"


async def usual(request: Request) -> Response:
    """Return what is usual for each node, or for some, by released values."""
    service, asked = service_of(request), parsed(request, OfUsual)
    role(request, audience_role(asked.audience))
    release_of(service, asked.audience, asked.site, asked.release)
    told = await service.remembered(service.history.usual, asked.audience, asked.release, asked.site)
    if wanted := nodes_in(asked.nodes):
        told = {**told, "nodes": {node: usual for node, usual in told["nodes"].items() if node in wanted}}
    return answer(told)


async def attributes(request: Request) -> Response:
    """Return the attributes of days, shown and withheld."""
    service, asked = service_of(request), parsed(request, OfDays)
    role(request, audience_role(asked.audience))
    release_of(service, asked.audience, asked.site)
    days = asked.first_day, asked.last_day
    return answer({"rows": await service.reading(service.history.attributes, asked.audience, asked.site, *days)})


async def spends(request: Request) -> Response:
    """Return what each day's releases have cost, by the audience's own records."""
    service, asked = service_of(request), parsed(request, OfDays)
    role(request, audience_role(asked.audience))
    release_of(service, asked.audience, asked.site)
    days = asked.first_day, asked.last_day
    told = await service.reading(service.history.spends, asked.audience, asked.site, *days)
    rows = paid_for(service.policy, asked.audience, told)
    return answer({"rows": rows, "left": _left(service, asked, rows)})


def paid_for(policy: Policy, audience: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of charged releases: queries are free, and a query that waits for its windows is not denied."""
    free = {release["release"] for release in described_releases(policy, audience) if release["base"] is not None}
    return [row for row in rows if row["release"] not in free]


def _left(service: Service, asked: OfSite, rows: list[dict[str, Any]]) -> dict[str, int | None]:
    """Return for how many more windows each release's budget suffices on its last day; None if it is unbounded."""
    left: dict[str, int | None] = {}
    for release in described_releases(service.policy, asked.audience):
        budget, spent = release["daily_budget"], [row for row in rows if row["release"] == release["release"]]
        if asked.site not in release["sites"] or release["query"] != "count":
            continue
        if budget is None:
            left[release["release"]] = None
        else:
            last = float(spent[-1]["spend"]) if spent else 0.0
            left[release["release"]] = int((float(budget) - last) / float(release["epsilon"]) + 1e-9)
    return left


async def stream(request: Request) -> Response:
    """Open a stream of an audience's releases."""
    service, asked = service_of(request), parsed(request, OfStream)
    who = role(request, audience_role(asked.audience))
    service.streams.refuse_more(who)
    after = request.headers.get("last-event-id") or asked.after
    if after is None:
        after = await service.reading(service.history.newest, asked.audience)
    elif after != START:
        try:
            await service.reading(service.history.since, asked.audience, after, 1)
        except (RefusalError, DataError):
            raise RefusalError(404, "after", "must be the id of a release of this audience, or 'start'") from None
    return service.streams.open(who, asked.audience, after)


# Handlers for the roles of account reader and operator.


async def account(request: Request) -> Response:
    """Return each site's account as it stands, and what is promised to each audience."""
    service = service_of(request)
    role(request, ACCOUNT)
    names = [audience.name for audience in service.policy.audience]
    promise = {name: (await service.promised_to(name))["promise"] for name in names}
    outage = service.outage_seconds()
    return answer({"sites": service.account.newest(), "promise": promise, "outage_seconds": outage})


async def account_coalition(request: Request) -> Response:
    """Return what some audiences have been told together, site by site, in every privacy unit."""
    service, asked = service_of(request), parsed(request, OfCoalition)
    role(request, ACCOUNT)
    names = frozenset(asked.audiences.split(","))
    if not names <= {audience.name for audience in service.policy.audience}:
        raise RefusalError(422, "audiences", "must be names of the policy's audiences, with commas between")
    if service.coalition is None:
        raise RefusalError(404, "coalition", "must be asked of a service of the account")
    async with service.adding:
        return answer({"audiences": sorted(names), "sites": await service.reading(service.coalition, names)})


async def account_attributes(request: Request) -> Response:
    """Return what a day's attributes have given away, to whom."""
    service, asked = service_of(request), parsed(request, OfSiteDay)
    role(request, ACCOUNT)
    return answer({"attributes": service.account.attributes(asked.site, asked.day)})


async def operator(request: Request) -> Response:
    """Return what the services say of themselves, site by site, and what the books have denied."""
    service = service_of(request)
    role(request, OPERATOR)
    rows = [
        {"silent_sources": None} | row | _lag(service, site, row["window_end"])
        | {"denied": service.account.denials.of(site)}
        for site, row in service.operator.newest().items()
    ]  # fmt: skip
    free = None if service.store is None else shutil.disk_usage(service.store).free >> 20
    return answer({"sites": rows, "free_mib": free, "outage_seconds": service.outage_seconds()})


def _lag(service: Service, site: str, window_end: str | None) -> dict[str, Any]:
    """Return the age of the newest window in seconds (None before the first), and whether windows come."""
    place = service.policy.site.get(site)
    if window_end is None:
        return {"lag_seconds": None, "state": None if place is None else "silent"}
    age = max(0, service.now() - parse_time(window_end))
    return {"lag_seconds": age / SECOND, "state": None if place is None else _progress(place, age)}


# Browser sessions and playback of a day: the only requests that change state in the service.


async def session(request: Request) -> Response:
    """Return who asks, and what this service is."""
    service, who = service_of(request), principal_of(request)
    return answer(
        {"roles": sorted(who.roles), "audiences": list(who.audiences), "open": who.address is not None,
         "laboratory": service.laboratory, "version": version("tacet-occupancy"),
         "playback": service.playback is not None}
    )  # fmt: skip


async def begin(request: Request) -> Response:
    """Begin a session for the secret of a link or a token."""
    service, login = service_of(request), await body_of(request, Login)
    if (login.link is None) == (login.token is None):
        raise RefusalError(422, "session", "must be begun with either link or token")
    if login.link is not None:
        link = login.link
        who = recognised(request, lambda: service.access.by_link(link), "link")
        service.link_used()
    else:
        token = login.token or ""
        who = recognised(request, lambda: service.access.by_token(token), "token")
    cookie, held = service.access.begin(who)
    ending = Response(status_code=204, headers={"cache-control": "no-store"})
    ending.set_cookie(
        service.cookie, cookie, max_age=max(0, ((held.expires or 0) - service.clock()) // SECOND), path="/",
        secure=service.names.scheme == "https", httponly=True, samesite="strict",
    )  # fmt: skip
    return ending


async def end(request: Request) -> Response:
    """End the session, and its streams."""
    service, who = service_of(request), principal_of(request)
    service.access.end(who)
    service.streams.sweep()
    ending = Response(status_code=204, headers={"cache-control": "no-store"})
    ending.delete_cookie(
        service.cookie, path="/", secure=service.names.scheme == "https", httponly=True, samesite="strict"
    )
    return ending


async def playback(request: Request) -> Response:
    """Return how the day is being played."""
    principal_of(request)
    return answer(_state(_play_of(service_of(request))))


async def play(request: Request) -> Response:
    """Play otherwise; who goes back begins anew, and open streams end."""
    service = service_of(request)
    principal_of(request)
    playing, asked = _play_of(service), await body_of(request, Play)
    if playing.change(speed=asked.speed, paused=asked.paused, at=instant("at", asked.at)):
        await service.rewound()
    return answer(_state(playing))


def _play_of(service: Service) -> Playback:
    if service.playback is None:
        raise RefusalError(404, "playback", "must be asked of a service that plays a day ('--play')")
    return service.playback


def _state(playing: Playback) -> dict[str, object]:
    at, start, end = (rfc3339(each) for each in (playing.at(), playing.start, playing.end))
    return {"speed": playing.speed, "paused": playing.paused, "at": at, "start": start, "end": end}
