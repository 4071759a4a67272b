"""Ticks or changes: what a day's price is worth under either.

Both are tried on the simulated day, with the filter and one audience, and compared with all devices that are present,
residents left out: devices that a bound hides are errors. Ticks are bounded by the site's contribution, or not at all
if it has none; changes by its visits and gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal, get_args

from connectors.operations.policy.quality import (
    ByLevelQuality,
    by_level_quality,
    published_counts,
    simulated_site,
    tried_windows,
)
from stream.pipeline import visits_of
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.sites import Site
from stream.records import DAY
from stream.release.count_plan import CountPlan
from stream.release.validation import Policy

Count = Literal["ticks", "changes"]
COUNTS: tuple[Count, ...] = get_args(Count)


def comparable(policy: Policy) -> Iterator[tuple[str, CountRelease, str]]:
    """Yield site, release and audience of all that could pay for ticks as well as for changes."""
    for name, site in policy.site.items():
        for release in policy.release:
            if isinstance(release, CountRelease) and policy.zones_of(release, name) and _fits(release, site):
                yield from ((name, release, audience) for audience in audiences_of(release))


def _fits(release: CountRelease, site: Site) -> bool:
    whole = all(release.zones.covers(zone) for zone in site.zones)
    levels = release.levels == ("zone",) or (bool(release.shares) and whole)
    return release.by_day and release.noise == "gaussian" and site.feed == "devices" and levels


def comparison(policy: Policy, tick: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """Return the mean errors of both at each level: site, release, audience, level, mean, ticks, changes, better.

    ``tick`` is called after each release, audience and count that was tried.
    """
    rows = []
    for name, release, audience in comparable(policy):
        tried: dict[Count, ByLevelQuality] = {}
        for count in COUNTS:
            tried[count] = _tried(policy, name, release, release.epsilon[audience], count)
            tick()
        for level, ticks in tried["ticks"].items():
            changes = tried["changes"][level]
            rows.append(
                {
                    "site": name, "release": release.name, "audience": audience, "level": level,
                    "mean": round(ticks.mean, 4), "ticks": round(ticks.error, 4), "changes": round(changes.error, 4),
                    "better": "changes" if changes.error < ticks.error else "ticks",
                }
            )  # fmt: skip
    return rows


def _tried(policy: Policy, name: str, release: CountRelease, epsilon: Fraction, count: Count) -> ByLevelQuality:
    """Return the errors of a release that counts ticks or changes."""
    own = policy.site[name]
    whole = own.model_copy(update={"contribution": DAY, "residents": "ignore"})
    bounded = whole.model_copy(update={"contribution": own.contribution or DAY})
    alone = {"epsilon": {next(iter(release.epsilon)): epsilon}, "queries": (), "revise": (), "mechanism": "filter"}
    ticks = release.model_copy(update=alone | {"count": "ticks"})
    wanted = ticks if count == "ticks" else ticks.model_copy(update={"count": "changes"})
    variant = _with_site(policy, name, bounded if count == "ticks" else whole, wanted)
    windows = tried_windows(wanted, simulated_site(name, variant.site[name], visits_of(variant, name)))
    present = {each.window_end: each for each in simulated_site(name, whole, None)}
    truth = CountPlan(_with_site(policy, name, whole, ticks), ticks, name)
    plan = CountPlan(variant, wanted, name)
    return by_level_quality(
        [truth.truth(present[window.window_end]) for window in windows],
        list(published_counts(variant, plan, epsilon, windows)),
    )


def _with_site(policy: Policy, name: str, site: Site, release: CountRelease) -> PolicyDocument:
    """Return a policy with another site and one release, which nothing is released under."""
    values: Mapping[str, Any] = dict(policy) | {"site": {**policy.site, name: site}, "release": (release,)}
    return PolicyDocument.model_construct(**values)
