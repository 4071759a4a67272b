"""What the records of each private topic cost whom, as a policy says it: the ``x-privacy`` of a contract."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from stream.policy.attribute_release import AttributeRelease
from stream.policy.count_release import CountRelease
from stream.policy.document import Policy, ThresholdRelease, decimal_string
from stream.policy.releases import Release
from stream.records import SECOND
from stream.release.run_prices import RunPrice

Terms = dict[str, Any]


def privacy_terms(policy: Policy) -> Iterator[tuple[str, str, Terms]]:
    """Yield (audience, name of the topic's release, what it costs) of each private topic, in the policy's order.

    Prices are decimal strings. ``unit`` is what one epsilon pays for: ``window``, any ``w_windows``, ``device_day``, or
    ``zone_day`` of each attribute. What is made of released values alone says ``free_with``.
    """
    for release in policy.release:
        if isinstance(release, AttributeRelease):
            yield from _attribute_topics(policy, release)
        elif isinstance(release, CountRelease):
            yield from _count_topics(policy, release)
        else:
            yield from ((who, release.name, _decided(policy, release, who)) for who in release.audiences)


def _sites(policy: Policy, release: Release) -> dict[str, Any]:
    return {
        name: {"tick_seconds": site.tick // SECOND, "window_seconds": site.tick // SECOND, "timezone": site.timezone}
        for name, site in policy.site.items()
        if policy.zones_of(release, name)
    }


def _attribute_topics(policy: Policy, release: AttributeRelease) -> Iterator[tuple[str, str, Terms]]:
    for audience in dict.fromkeys(name for each in release.attributes.values() for name in each.epsilon):
        yield audience, release.name, {
            "unit": "zone_day", "mechanism": release.mechanism, "delta": "0", "sites": _sites(policy, release),
            "absent": release.absent,
            "attributes": {
                name: {
                    "epsilon": decimal_string(each.epsilon[audience]),
                    "sensitive": each.sensitive.model_dump(exclude_none=True),
                }
                for name, each in release.attributes.items() if audience in each.epsilon
            },
        }  # fmt: skip


def _count_topics(policy: Policy, release: CountRelease) -> Iterator[tuple[str, str, Terms]]:
    for audience, epsilon in release.epsilon.items():
        terms = _count_terms(policy, release, audience, epsilon)
        yield audience, release.name, terms
        free = terms | {"free_with": release.name}
        if release.revise:
            yield audience, release.revised_name, free | {"revised": list(release.revise)}
        for query in release.queries:
            yield audience, query.name, free | {"query": query.model_dump(exclude_none=True, exclude={"name"})}


def _count_terms(policy: Policy, release: CountRelease, audience: str, epsilon: Fraction) -> Terms:
    unit = "device_day" if release.by_day else "w_windows" if release.w else "window"
    terms: Terms = {
        "unit": unit, "epsilon": decimal_string(epsilon), "delta": _delta(policy, release),
        "mechanism": release.mechanism, "noise": release.noise, "levels": list(release.levels_up),
        "sites": _sites(policy, release),
    }  # fmt: skip
    if release.w:
        terms["w"] = release.w
    if audience in release.daily_budget:
        terms["budget"] = {"days": release.refresh_days, "epsilon": decimal_string(release.daily_budget[audience])}
    return terms


def _decided(policy: Policy, release: ThresholdRelease, audience: str) -> Terms:
    """Return the terms of decisions: what a run costs, and what a day at most; or with which counts they are free."""
    asked: Terms = {
        "alert": release.alert, "level": release.level, "miss": decimal_string(release.miss),
        "sites": _sites(policy, release),
    }  # fmt: skip
    held = next((r for r in policy.release if r.name == release.counts and isinstance(r, CountRelease)), None)
    if held is not None:
        counts = _count_terms(policy, held, audience, held.epsilon[audience])
        return counts | {"free_with": held.name, "threshold": asked}
    prices = {site: RunPrice.of(policy, release, site) for site in asked["sites"]}
    return {
        "unit": "device_day", "mechanism": release.mechanism, "delta": "0", "sites": asked.pop("sites"),
        "epsilon": decimal_string(max(price.day for price in prices.values())), "threshold": asked,
        "runs": {
            site: {"epsilon": decimal_string(price.run), "most_a_day": price.most} for site, price in prices.items()
        },
    }  # fmt: skip


def _delta(policy: Policy, release: CountRelease) -> str:
    """Return with which delta epsilon holds; 0 with Laplace noise, whose epsilon is pure."""
    if release.noise == "laplace":
        return "0"
    return decimal_string(release.delta or policy.privacy.delta)
