"""The interface: what is asked and answered, all under ``/api/v1``. Nothing here knows more than audiences do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.answers import RefusalError, answer
from connectors.serve.contract import START, RowsQuery
from connectors.serve.described import described_plan, described_releases, described_site, sites_of, zones_told
from connectors.serve.questions import (
    OfDays,
    OfRecords,
    OfSite,
    OfStream,
    OfUsual,
)
from connectors.serve.service import Service, parsed, release_of, role, service_of, who_asks
from connectors.serve.tokens import audience_role
from stream.errors import DataError
from stream.policy.document import Policy
from stream.records import SECOND, Micros
from stream.schemas import parse_time, rfc3339

LIVE, LATE = 3, 12
"""Windows without which a site still counts as live, and as late; beyond that it is silent."""


async def health(request: Request) -> Response:
    """Say that the service answers."""
    del request
    return answer({"status": "ok"})


async def sites(request: Request) -> Response:
    """Return the sites of which the reader gets anything, with the zones of which they do."""
    service, who = service_of(request), who_asks(request)
    names = sites_of(service.policy, who.audiences)
    return answer({"sites": [described_site(service.policy, name, service.plans, who.audiences) for name in names]})


async def plan(request: Request) -> Response:
    """Return a floor's plan."""
    service, who = service_of(request), who_asks(request)
    site, floor = request.path_params["site"], request.path_params["floor"]
    if site in sites_of(service.policy, who.audiences) and (site, floor) in service.plans:
        told = zones_told(service.policy, site, who.audiences)
        if any(zone.floor == floor and zone.id in told for zone in service.policy.site[site].zones):
            return answer(described_plan(service.plans[site, floor], told))
    raise RefusalError(404, "plan", "must be one that there is, of a floor that the reader sees")


async def releases(request: Request) -> Response:
    """Return what the reader's audiences get, and on which terms."""
    service, who = service_of(request), who_asks(request)
    listed = [each for name in who.audiences for each in described_releases(service.policy, name)]
    return answer({"releases": listed})


async def policy(request: Request) -> Response:
    """Return each audience's own part of the policy."""
    service, who = service_of(request), who_asks(request)
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
    """Return the nodes that are named with commas between."""
    return tuple(node for node in text.split(",") if node)


def instant(name: str, text: str | None) -> Micros | None:
    """Return an RFC 3339 time; a space is the + that a query has lost."""
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
    return answer({"now": rfc3339(service.now()), "rows": known["rows"], "feed": [feed]})


def _feed(service: Service, site: str, newest: Mapping[str, Any] | None) -> dict[str, Any]:
    if newest is None:
        silent = {"window_end": None, "age_seconds": None, "coverage": None, "denied": False}
        return {"site": site, **silent, "state": "silent"}
    place = service.policy.site[site]
    age = max(0, service.now() - parse_time(newest["window_end"]))
    windows = (age - place.lateness) / place.tick
    state = "live" if windows <= LIVE else "late" if windows <= LATE else "silent"
    told = {name: newest[name] for name in ("window_end", "coverage", "denied")}
    return {"site": site, **told, "age_seconds": age / SECOND, "state": state}


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
    """Return the rows of releases that are paid for: a question is free, and waiting for its windows is no denial."""
    free = {release["release"] for release in described_releases(policy, audience) if release["base"] is not None}
    return [row for row in rows if row["release"] not in free]


def _left(service: Service, asked: OfSite, rows: list[dict[str, Any]]) -> dict[str, int | None]:
    """Return how many windows more each release's budget pays on its last day; None where nothing bounds it."""
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
