"""Where there is room: free, filling up or full, by floor or hall, from released bands; no figure leaves this module.

    state     share of the capacity that the whole band is in
    free      below ``FILLING``
    filling   from ``FILLING``, below ``FULL``
    full      from ``FULL``

A band that reaches into two of them gives no state, unless it lies within the last state's span with ``SLACK`` on
either side: so a place does not change to and fro at a limit. The last state is that of the windows before, so the
answer depends on released values alone. A feed that is late gives no state at all.

Counts of devices that each count for a part of the day only (``bounded_to``) bound from below: such a place can be
full, and is never said to be anything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from connectors.http.responses import RefusalError, answer
from connectors.serve.access import audience_role, room_role
from connectors.serve.history.rows import COLUMNS, RowsQuery
from connectors.serve.models import OfRoom
from connectors.serve.policy_description import described_site, published_zones, releases_of, sites_of
from connectors.serve.service import Service, parsed, principal_of, release_of, service_of
from stream.policy.counts import CountRelease
from stream.records import HOUR, MINUTE, Micros
from stream.release.validation import Policy
from stream.schemas import parse_time, rfc3339

State = Literal["free", "filling", "full"]
FILLING, FULL = 0.5, 0.85
SLACK = 0.05
"""Share of the capacity by which a band may leave a state's span before the state ends."""
SPANS: Mapping[State, tuple[float, float]] = {
    "free": (-math.inf, FILLING), "filling": (FILLING, FULL), "full": (FULL, math.inf),
}  # fmt: skip
LOOK_BACK: Micros = HOUR
"""Time of released windows that a state depends on."""
STALE_WINDOWS = 3
"""Missing windows from which figures are stale."""
HALL = "hall"
"""Kind of the zones that are shown besides floors."""


class Share(NamedTuple):
    """A window's band, in shares of the capacity."""

    low: float
    high: float


def state_of(bands: Iterable[Share | None]) -> State | None:
    """Return the state after some windows, the last of which is shown; None if it gives none.

    A window without values (None) ends the state.
    """
    state: State | None = None
    for band in bands:
        state = None if band is None else _next(state, band)
    return state


def _next(last: State | None, band: Share) -> State | None:
    if last is not None:
        low, high = SPANS[last]
        if _within(band, low - SLACK, high + SLACK):
            return last
    return next((state for state, span in SPANS.items() if _within(band, *span)), None)


def _within(band: Share, low: float, high: float) -> bool:
    return low <= band.low and (band.high < high or high == math.inf)


class Place(NamedTuple):
    """A floor or a hall, with the release that tells of it."""

    node: str
    name: str
    capacity: int
    release: str


def places_of(policy: Policy, site: str, audience: str) -> list[Place]:
    """Return the places of a site that an audience's releases tell of, the highest floor first.

    Floors and halls; all zones if no floor is published. Of several releases with a place the first one counts, and
    one of people before one of devices, unless its model is provisional: that band is too wide for a state.
    """
    described = described_site(policy, site, {}, (audience,))
    found: dict[str, Place] = {}
    counts = [each for each in releases_of(policy, audience) if isinstance(each, CountRelease)]
    for release in counts:
        people = [
            each.release_name for each in policy.people_of(release, audience)
            if each.model.site == site and each.model.provisional is None
        ]  # fmt: skip
        name = people[0] if people else release.name
        zones = policy.zones_of(release, site)
        if "floor" in release.levels_up:
            for floor in dict.fromkeys(zone.floor for zone in zones):
                room = sum(zone.capacity for zone in zones if zone.floor == floor)
                found.setdefault(
                    f"floor:{floor}", Place(f"floor:{floor}", policy.site[site].floor_title(floor), room, name)
                )
        if "zone" in release.levels_up:
            for zone in zones:
                place = Place(f"zone:{zone.id}", zone.title, zone.capacity, name)
                found.setdefault(place.node, place)
    halls = {f"zone:{zone.id}" for zone in policy.site[site].zones if zone.kind == HALL}
    floors = [f"floor:{floor.floor}" for floor in reversed(described.floors)]
    of_floor = {f"zone:{zone.zone}": f"floor:{floor.floor}" for floor in described.floors for zone in floor.zones}
    whole = not any(floor in found for floor in floors)
    listed: list[Place] = []
    for floor in floors:
        listed += [found[floor]] if floor in found else []
        listed += [
            place for node, place in found.items() if of_floor.get(node) == floor and (whole or node in halls)
        ]  # fmt: skip
    return listed


async def room(request: Request) -> Response:
    """Return where there is room: a state of each floor and hall, without figures."""
    service, query = service_of(request), parsed(request, OfRoom)
    who = principal_of(request, room=True)
    if not who.roles & {audience_role(query.audience), room_role(query.audience)}:
        raise RefusalError(403, "audience", "must be a role of the caller")
    if query.audience not in service.rooms:
        raise RefusalError(404, "audience", "must be an audience that this service shows with --room")
    sites = sites_of(service.policy, (query.audience,))
    name = query.site or (sites[0] if len(sites) == 1 else "")
    release_of(service, query.audience, name)
    site = service.policy.site[name]
    shown = await service.run_query(_states, service, query.audience, name)
    end = await service.run_query(service.history.newest_end, query.audience, name)
    stale = end is None or service.now() - end > site.lateness + STALE_WINDOWS * site.tick
    places = [
        {"node": place.node, "name": place.name, "state": None if stale else state} for place, state in shown
    ]  # fmt: skip
    body = {"site": name, "name": site.title(name), "timezone": site.timezone, "stale": stale}
    return answer(body | {"window_end": None if end is None else rfc3339(end), "places": places})


def _states(service: Service, audience: str, site: str) -> list[tuple[Place, State | None]]:
    """Return the states of a site's places in the newest window."""
    end = service.history.newest_end(audience, site)
    places = places_of(service.policy, site, audience)
    if end is None:
        return [(place, None) for place in places]
    windows = range(end - LOOK_BACK // MINUTE * MINUTE, end + 1, service.policy.site[site].tick)
    bands: dict[tuple[str, str], dict[Micros, Share]] = {}
    capacities = {place.node: place.capacity for place in places}
    for release in dict.fromkeys(place.release for place in places):
        nodes = tuple(place.node for place in places if place.release == release)
        query = RowsQuery(audience, release, site, "5min", start=windows[0] - 1, end=end, nodes=nodes, limit=100_000)
        for values in service.history.rows(query).rows:
            row = dict(zip(COLUMNS, values, strict=True))
            if (band := _share(row, capacities[row["node"]])) is not None:
                bands.setdefault((release, row["node"]), {})[parse_time(row["end"])] = band
    return [
        (place, state_of(bands.get((place.release, place.node), {}).get(at) for at in windows)) for place in places
    ]  # fmt: skip


def _share(row: Mapping[str, Any], capacity: int) -> Share | None:
    """Return a row's band; None for a denied window, and one that a source did not cover."""
    if row["low"] is None or row["high"] is None or row["coverage"] != 1:
        return None
    return Share(row["low"] / capacity, math.inf if row["bounded_to"] else row["high"] / capacity)


def shown_to(policy: Policy, audience: str) -> bool:
    """Return whether an audience has a place to show at some site."""
    return any(published_zones(policy, site, (audience,)) and places_of(policy, site, audience) for site in policy.site)
