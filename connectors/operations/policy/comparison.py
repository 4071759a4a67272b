"""Ticks or changes: what a day's price is worth under either, at each level.

Both are tried on a day without real people, with the filter and one audience, and compared with all devices that are
present, residents left out: devices that a bound hides are errors. Ticks are bounded by the site's contribution, or not
at all if it has none; changes by its visits and gap. A site that has classrooms, open areas or corridors is tried on
the simulated day, where people come and go; every other on a day at desks, where they stay. The errors are those of the
site's working hours: most counts of a night are 0, whatever is published.

``preferred`` chooses for a policy that is being written: first the gap, by how far the counts of the building are from
the devices present before there is noise, as noise does not depend on it; then ticks or changes for each level, by
their errors in units of the mean count, added over the prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, TypedDict, get_args
from zoneinfo import ZoneInfo

from connectors.operations.policy.quality import (
    ByLevelQuality,
    by_level_quality,
    desk_site,
    is_passed_through,
    published_counts,
    simulated_site,
    tried_windows,
)
from stream.pipeline import visits_of
from stream.policy.counts import Count, CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.sites import Site
from stream.records import DAY, EPOCH, MINUTE, Micros, OccupancyWindow
from stream.release.count_plan import count_plan
from stream.release.validation import Policy
from stream.sensing.visits import VisitBound

COUNTS: tuple[Count, ...] = get_args(Count)


def comparable(policy: Policy) -> Iterator[tuple[str, CountRelease, str]]:
    """Yield site, release and audience of all that could pay for ticks as well as for changes."""
    for name, site in policy.site.items():
        for release in policy.release:
            if isinstance(release, CountRelease) and policy.zones_of(release, name) and fits(release, site):
                yield from ((name, release, audience) for audience in audiences_of(release))


def fits(release: CountRelease, site: Site) -> bool:
    """Whether a release of a site could pay for ticks as well as for changes."""
    whole = all(release.zones.covers(zone) for zone in site.zones)
    levels = release.levels == ("zone",) or (bool(release.shares) and whole)
    return release.by_day and release.noise == "gaussian" and site.feed == "devices" and levels


class ComparedLevel(TypedDict):
    """The mean errors of both counts at one level of a release, for one audience."""

    site: str
    day: str
    unit: str
    release: str
    audience: str
    level: str
    mean: float
    """Mean count."""
    ticks: float
    changes: float
    better: Count


def comparison(policy: Policy, tick: Callable[[], None] = lambda: None) -> list[ComparedLevel]:
    """Return the mean errors of both at each level, on which day (``day_of``) and of what (``unit_of``).

    ``tick`` is called after each release, audience and count that was tried.
    """
    rows = list[ComparedLevel]()
    for name, release, audience in comparable(policy):
        tried: dict[Count, ByLevelQuality] = {}
        for count in COUNTS:
            tried[count] = _tried(policy, name, release, release.epsilon[audience], count)
            tick()
        for level, ticks in tried["ticks"].items():
            changes = tried["changes"][level]
            rows.append(
                {
                    "site": name, "day": day_of(policy.site[name]), "unit": unit_of(policy.site[name]),
                    "release": release.name, "audience": audience, "level": level,
                    "mean": round(ticks.mean, 4), "ticks": round(ticks.error, 4), "changes": round(changes.error, 4),
                    "better": _better(tried, level),
                }
            )  # fmt: skip
    return rows


GAPS: tuple[Micros, ...] = (0, 10 * MINUTE)
"""No gap, as events hold for their validity anyway, and the default."""


@dataclass(frozen=True, slots=True)
class Preferred:
    """What suits a release best."""

    counts: Mapping[str, Count]
    """Of each level."""
    gap: Micros
    """For changes."""


def preferred(policy: Policy, name: str, release: CountRelease, count: Count | None = None) -> Preferred:
    """Return what a release of a site should count at each level, with the gap that suits changes best.

    Args:
        policy: the release counts ticks in it.
        name: of the site.
        release: of the policy.
        count: None to choose; otherwise the count that is wanted.
    """
    gap = 10 * MINUTE if count == "ticks" else min(GAPS, key=lambda each: _off(policy, name, release, each))
    if count is not None:
        return Preferred(dict.fromkeys(release.levels, count), gap)
    with_gap = _with_site(policy, name, policy.site[name].model_copy(update={"gap": gap}), release)
    epsilon = max(release.epsilon.values())
    tried = {each: _tried(with_gap, name, release, epsilon, each) for each in COUNTS}
    return Preferred({level: _better(tried, level) for level in release.levels}, gap)


def _better(tried: Mapping[Count, ByLevelQuality], level: str) -> Count:
    """Return what has the smaller error at a level; ticks where both have the same."""
    return min(COUNTS, key=lambda each: tried[each][level].error)


def day_of(site: Site) -> str:
    """Return the day on which a site is tried: ``simulated`` or ``desks``."""
    return "simulated" if is_passed_through(site) else "desks"


def unit_of(site: Site) -> str:
    """Return what a site counts once: a ``device`` or a ``login``."""
    return "login" if site.counts_logins else "device"


def _day(name: str, site: Site, visits: VisitBound | None) -> list[OccupancyWindow]:
    return (simulated_site if is_passed_through(site) else desk_site)(name, site, visits)


def _off(policy: PolicyDocument, name: str, release: CountRelease, gap: Micros) -> float:
    """Return how far the building's counts by visits are from the devices present, in the mean."""
    site = policy.site[name].model_copy(update={"contribution": DAY, "residents": "ignore", "gap": gap})
    changes = release.model_copy(update={"count": "changes"})
    windows = _day(name, site, visits_of(_with_site(policy, name, site, changes), name))
    off = [
        abs(window.by_visits.building[0] - sum(window.bounded))
        for window in windows
        if window.by_visits is not None and window.bounded is not None
    ]
    return sum(off) / len(off)


def _tried(policy: PolicyDocument, name: str, release: CountRelease, epsilon: Fraction, count: Count) -> ByLevelQuality:
    """Return the errors of a release that counts ticks or changes, in the site's working hours."""
    own = policy.site[name]
    whole = own.model_copy(update={"contribution": DAY, "residents": "ignore"})
    bounded = whole.model_copy(update={"contribution": own.contribution or DAY})
    alone = {"epsilon": {next(iter(release.epsilon)): epsilon}, "queries": (), "revise": (), "mechanism": "filter"}
    ticks = release.model_copy(update=alone | {"count": "ticks"})
    wanted = ticks if count == "ticks" else ticks.model_copy(update={"count": "changes"})
    variant = _with_site(policy, name, bounded if count == "ticks" else whole, wanted)
    windows = tried_windows(wanted, _day(name, variant.site[name], visits_of(variant, name)))
    worked = max((place for place, each in enumerate(windows, 1) if _is_working(own, each.window_end)), default=0)
    windows = windows[:worked]  # what is published later says nothing of them
    present = {each.window_end: each for each in _day(name, whole, None)}
    truth = count_plan(_with_site(policy, name, whole, ticks), ticks, name)
    plan = count_plan(variant, wanted, name)
    published = zip(windows, published_counts(variant, plan, epsilon, windows), strict=True)
    working = [(window, counts) for window, counts in published if _is_working(own, window.window_end)]
    return by_level_quality(
        [truth.truth(present[window.window_end]) for window, _ in working], [counts for _, counts in working]
    )


def _is_working(site: Site, time: Micros) -> bool:
    """Whether a tick of a site is in its working hours."""
    local = (EPOCH + timedelta(microseconds=time)).astimezone(ZoneInfo(site.timezone))
    begin, end = site.working_hours
    return begin <= f"{local:%H:%M}" < end


def _with_site(policy: PolicyDocument, name: str, site: Site, release: CountRelease) -> PolicyDocument:
    """Return a policy with another site and one release, which nothing is released under."""
    values: Mapping[str, Any] = dict(policy) | {"site": {**policy.site, name: site}, "release": (release,)}
    return PolicyDocument.model_construct(**values)
