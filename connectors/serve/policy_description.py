"""The parts of a policy that concern some audiences; never an address."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import replace
from typing import TypedDict

from connectors.operations.policy.guarantees import (
    COUNTED,
    UNITS,
    describe_unit,
    guarantee_lines,
    not_protected,
    wording,
)
from connectors.serve import models
from connectors.serve.floor_plans import Plan
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import Release, audiences_of
from stream.policy.fields import decimal_string
from stream.policy.names import floor_level
from stream.policy.sites import Site, Zone
from stream.policy.thresholds import ThresholdRelease
from stream.records import SECOND
from stream.release.count_guarantees import CountGuarantee, count_guarantees
from stream.release.prices import RunPrice
from stream.release.threshold_guarantees import Say
from stream.release.validation import Policy

Plans = Mapping[tuple[str, str], Plan]
"""By site and floor."""


def releases_of(policy: Policy, audience: str) -> Iterator[Release]:
    """Yield an audience's releases."""
    return (release for release in policy.release if audience in audiences_of(release))


def sites_of(policy: Policy, audiences: Collection[str]) -> list[str]:
    """Return the sites with releases for any of the audiences."""
    return [site for site in policy.site if published_zones(policy, site, audiences)]


def published_zones(policy: Policy, site: str, audiences: Collection[str]) -> frozenset[str]:
    """Return the zones of a site with releases for any of the audiences."""
    releases = {release.name: release for name in audiences for release in releases_of(policy, name)}.values()
    return frozenset(zone.id for release in releases for zone in policy.zones_of(release, site))


def described_site(policy: Policy, name: str, plans: Plans, audiences: Collection[str]) -> models.Site:
    """Return a site with the floors, from the bottom up, and zones that have releases for any of the audiences."""
    site, published = policy.site[name], published_zones(policy, name, audiences)
    shown = {zone.floor for zone in site.zones if zone.id in published}
    floors = [floor for floor in site.floors or sorted(shown, key=floor_level) if floor in shown]
    return models.Site(
        site=name, name=site.title(name), timezone=site.timezone, tick_seconds=site.tick // SECOND,
        day_starts=site.day_starts, working_hours=list(site.working_hours),
        floors=[_floor((name, floor), site, plans, published) for floor in floors],
    )  # fmt: skip


def _floor(place: tuple[str, str], site: Site, plans: Plans, published: Container[str]) -> models.Floor:
    name, floor = place
    plan = f"/api/v1/sites/{name}/plans/{floor}" if place in plans else None
    zones = [_zone(zone) for zone in site.zones if zone.floor == floor and zone.id in published]
    return models.Floor(floor=floor, name=site.floor_title(floor), plan=plan, zones=zones)


def described_plan(plan: Plan, published: Container[str]) -> Plan:
    """Return a floor's plan with the names of these zones only; the shapes of other zones become walls."""
    named = {zone: shape for zone, shape in plan.zones.items() if zone in published}
    walls = [shape for zone, shape in plan.zones.items() if zone not in published]
    return replace(plan, zones=named, outline=(*plan.outline, *walls))


def _zone(zone: Zone) -> models.Zone:
    return models.Zone(
        zone=zone.id, floor=zone.floor, kind=zone.kind, capacity=zone.capacity, metadata=dict(zone.metadata)
    )  # fmt: skip


def described_releases(policy: Policy, audience: str) -> list[models.Release]:
    """Return an audience's releases with their terms."""
    return [described for release in releases_of(policy, audience) for described in _release(policy, release, audience)]


def _release(policy: Policy, release: Release, audience: str) -> Iterator[models.Release]:
    """Yield a release, and for counts its queries as releases with a base."""
    zones = {site: [zone.id for zone in found] for site in policy.site if (found := policy.zones_of(release, site))}
    tick = min(policy.site[site].tick for site in zones)
    described = models.Release(
        audience=audience, release=release.name, sites=list(zones), query=release.query, mechanism=release.mechanism,
        zones=zones, window_seconds=tick // SECOND, **_terms(policy, release, audience),
    )  # fmt: skip
    yield described
    for query in release.queries if isinstance(release, CountRelease) else ():
        changed = {"release": query.name, "query": query.kind, "revise": [], "base": release.name}
        yield described.model_copy(update=changed)
    for people in policy.people_of(release, audience) if isinstance(release, CountRelease) else ():
        changed = {"release": people.release_name, "query": "people", "revise": [], "base": release.name}
        given = people.model.provisional
        of_people = {
            "sites": [people.model.site],
            "provisional": given and models.ProvisionalPeople(counts=given.counts, days=given.days, until=given.until),
        }
        yield described.model_copy(update=changed | of_people)
    forecasts = policy.forecasts_of(release, audience) if isinstance(release, CountRelease) else ()
    if forecasts:
        changed = {"release": forecasts[0].release_name, "query": "forecast", "revise": [], "base": release.name}
        yield described.model_copy(update=changed | {"sites": [each.site for each in forecasts]})


class _Terms(TypedDict):
    """The terms of a release, which depend on its kind."""

    levels: list[str]
    epsilon: str | None
    unit: str
    noise: str | None
    delta: float
    revise: list[str]
    attributes: list[models.SharedAttribute]
    daily_budget: str | None
    base: str | None


def _terms(policy: Policy, release: Release, audience: str) -> _Terms:
    if isinstance(release, AttributeRelease):
        return _attribute_terms(release, audience)
    if isinstance(release, ThresholdRelease):
        return _threshold_terms(policy, release, audience)
    return _count_terms(policy, release, audience)


def _count_terms(policy: Policy, release: CountRelease, audience: str) -> _Terms:
    budget = release.daily_budget.get(audience)
    delta = (release.delta or policy.privacy.delta) if release.noise == "gaussian" else 0
    return {
        "levels": list(release.levels_up), "epsilon": decimal_string(release.epsilon[audience]), "unit": release.unit,
        "noise": release.noise, "delta": float(delta), "revise": list(release.revise), "attributes": [],
        "daily_budget": None if budget is None else decimal_string(budget), "base": None,
    }  # fmt: skip


def _threshold_terms(policy: Policy, release: ThresholdRelease, audience: str) -> _Terms:
    """Return the terms of decisions: the maximal cost of a device's day, or the terms of the compared counts."""
    counts = next((r for r in policy.release if r.name == release.counts and isinstance(r, CountRelease)), None)
    if counts is not None:
        return _count_terms(policy, counts, audience) | {"levels": [release.level], "revise": [], "base": counts.name}
    prices = [RunPrice.of(policy, release, site).day for site in policy.site if policy.zones_of(release, site)]
    return {
        "levels": [release.level], "epsilon": decimal_string(max(prices)), "unit": "device_day", "noise": "laplace",
        "delta": 0.0, "revise": [], "attributes": [], "daily_budget": None, "base": None,
    }  # fmt: skip


def _attribute_terms(release: AttributeRelease, audience: str) -> _Terms:
    shared = {name: each for name, each in release.attributes.items() if audience in each.epsilon}
    attributes = [
        models.SharedAttribute(
            attribute=name, epsilon=decimal_string(each.epsilon[audience]),
            sensitive=each.sensitive.model_dump(exclude_none=True),
        )
        for name, each in shared.items()
    ]  # fmt: skip
    return {
        "levels": ["zone"], "epsilon": None, "unit": "zone_day", "noise": None, "delta": 0.0, "revise": [],
        "attributes": attributes, "daily_budget": None, "base": None,
    }  # fmt: skip


def guarantees_of(policy: Policy, audience: str, language: str = "en") -> models.Promise:
    """Return an audience's guarantees to the people counted, as text and in privacy units."""
    say = wording(language)
    own = [guarantee for guarantee in count_guarantees(policy) if guarantee.reader == audience]
    return models.Promise(
        promise=list(guarantee_lines(policy, audience, say)),
        units=[unit for guarantee in own for unit in _units(policy, guarantee, say)],
        not_protected=list(not_protected(policy, audience, say)),
    )


def _units(policy: Policy, guarantee: CountGuarantee, say: Say) -> Iterator[models.Unit]:
    site = policy.site[guarantee.site]
    counted = site.feed == "counts"
    for unit in COUNTED if counted else UNITS:
        if unit not in guarantee.units:
            continue
        tight, bound = guarantee.tight.get(unit), float(guarantee.units[unit])
        yield models.Unit(
            site=guarantee.site, release=guarantee.release, unit=unit,
            words=describe_unit(unit, policy.privacy.w, counted=counted, logins=site.counts_logins, say=say),
            epsilon=tight if tight is not None else "inf" if math.isinf(bound) else bound,
            delta=float(guarantee.delta) if tight is not None else 0.0,
        )  # fmt: skip
