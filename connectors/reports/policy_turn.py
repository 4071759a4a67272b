"""What a site that runs gives up when its policy is replaced, and from when on it goes by the new one.

Books, presence and paid days go on; filters, groups, local days at hand and publications that no longer are the same
begin anew (``stream.pipeline.Pipeline.adopt``). What is paid by the day changes when the next privacy day begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from stream.pipeline import definition_of
from stream.policy.document import AttributeRelease, CountRelease, Policy, audiences_of
from stream.policy.releases import Release
from stream.policy.sites import Site, zones_now
from stream.records import MINUTE
from stream.release.carried import Owner, continued, owner_of
from stream.release.paid_days import terms_digest
from stream.release.run_prices import paid_thresholds
from stream.release.threshold_stage import run_plans

LEARNING = {"filter": "its filter begins anew", "pegasus": "its groups begin anew"}
"""Mechanism -> what becomes of that which it learns from window to window."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that the change does to a site."""

    kind: Literal["anew", "day_starts", "otherwise"]
    where: str
    text: str


def turns(old: Policy, new: Policy) -> Iterator[Turn]:
    """Yield what the change from one policy to another, of another version, does: site by site."""
    yield from _audiences(old, new)
    for site in dict.fromkeys([*old.site, *new.site]):
        if site not in new.site:
            yield Turn("anew", site, "released no longer; its books are kept, and go on should it come back")
        elif site not in old.site:
            yield Turn("otherwise", site, "begins with the first window that its sources have reached")
        else:
            yield from _site(old, new, site)


def _audiences(old: Policy, new: Policy) -> Iterator[Turn]:
    before, now = ({audience.name for audience in policy.audience} for policy in (old, new))
    for name in sorted(now - before):
        yield Turn("otherwise", f"audience {name}", "begins with the next window, on topics of its own")
    for name in sorted(before - now):
        yield Turn("otherwise", f"audience {name}", "gets nothing more; what it has been given stays with it")


def _site(old: Policy, new: Policy, site: str) -> Iterator[Turn]:
    before, now = old.site[site], new.site[site]
    yield from _grid(site, before, now)
    yield from _zones(site, before, now)
    yield from _names(old, new, site)
    for release in new.release:
        if not new.zones_of(release, site):
            continue
        if isinstance(release, AttributeRelease):
            yield Turn("anew", f"{site}/{release.name}", "the local day at hand is not asked; the next one is")
        elif isinstance(release, CountRelease) and release.by_day:
            yield from _by_day(old, new, site, release)
        yield from _learning(old, new, site, release)
    yield from _thresholds(old, new, site)
    yield from _carried(old, new, site)
    yield from _ended(old, new, site)


def _grid(site: str, before: Site, now: Site) -> Iterator[Turn]:
    if before.tick != now.tick:
        length = f"{now.tick // MINUTE} min instead of {before.tick // MINUTE} min"
        yield Turn("anew", f"{site}.tick", f"{length}: the next window is the first of the new grid")
    for key in ("validity", "lateness", "max_devices", "working_hours", "sources"):
        if getattr(before, key) != getattr(now, key):
            yield Turn("otherwise", f"{site}.{key}", "as the new policy says, from the next window on")


def _zones(site: str, before: Site, now: Site) -> Iterator[Turn]:
    """Yield what became of each zone, by the radios that it shares with those of now."""
    become = zones_now(before.radios, now.zones)
    there = {zone.id for zone in now.zones}
    for name, after in become.items():
        others = ", ".join(sorted(after & there - {name}))
        if name in there and others:
            yield Turn(
                "otherwise", f"{site} zone {name}", f"shares radios with {others}: what was spent counts for all"
            )
        elif name not in there:
            text = f"is {others} now: its books go on there" if others else "counted no longer; its books are kept"
            yield Turn("otherwise", f"{site} zone {name}", text)
    for name in sorted(there - set(before.radios)):
        if all(name not in after for after in become.values()):
            yield Turn("otherwise", f"{site} zone {name}", "counted from the next window on")
    for zone in now.zones:
        if zone.id in before.radios and set(zone.radios) != set(before.radios[zone.id]):
            yield Turn("otherwise", f"{site} zone {zone.id}", "has other access points from the next window on")


def _names(old: Policy, new: Policy, site: str) -> Iterator[Turn]:
    """Yield when names of devices change at other times, or counters of their days do."""
    before, now = old.site[site], new.site[site]
    if _turn_over(old, before) != _turn_over(new, now):
        yield Turn("anew", f"{site} pseudonyms", "change at other times: at the turn a device may count twice, once")
    counters = definition_of(before), definition_of(now)
    if None not in counters and counters[0] != counters[1]:
        when = f"at {now.day_starts} ({now.timezone})"
        yield Turn("day_starts", f"{site} contribution", f"counters begin anew with the next privacy day, {when}")


def _turn_over(policy: Policy, site: Site) -> tuple[int | str | None, ...]:
    if policy.pseudonym.ttl is not None or site.day_starts is None:
        return (policy.pseudonym.ttl,)
    return site.day_starts, site.timezone


def _by_day(old: Policy, new: Policy, site: str, release: CountRelease) -> Iterator[Turn]:
    held = next((r for r in old.release if isinstance(r, CountRelease) and r.name == release.name), None)
    place, where = new.site[site], f"{site}/{release.name}"
    when = f"at {place.day_starts} ({place.timezone})"
    if definition_of(old.site[site]) != definition_of(place):
        yield Turn(
            "day_starts", where, f"publishes nothing until the next privacy day that is seen whole begins, {when}"
        )
    elif held is None or not held.by_day or not old.zones_of(held, site):
        yield Turn("otherwise", where, f"begins with the next window, which pays for the whole day that began {when}")
    elif terms_digest(old, held, site) != terms_digest(new, release, site):
        yield Turn(
            "day_starts", where, f"the day at hand was paid on other terms: publishes nothing until the next, {when}"
        )


def _thresholds(old: Policy, new: Policy, site: str) -> Iterator[Turn]:
    """Yield when streams of decisions stand on other terms: all of a site's together, since a day is asked once."""
    before, now = ([plan.terms for plan in run_plans(policy, site)] for policy in (old, new))
    place = new.site[site]
    if not now or before == now:
        return
    names = ", ".join(release.name for release in paid_thresholds(new, site))
    when = f"at {place.day_starts} ({place.timezone})"
    if before:
        text = f"the day at hand was begun on other terms: publish nothing until the next, {when}"
        yield Turn("day_starts", f"{site}/{names}", text)
    else:
        yield Turn("otherwise", f"{site}/{names}", f"begins with the next window; its day began {when}")


def _learning(old: Policy, new: Policy, site: str, release: Release) -> Iterator[Turn]:
    if not isinstance(release, CountRelease) or release.mechanism not in LEARNING:
        return
    if any(r.name == release.name and isinstance(r, CountRelease) and old.zones_of(r, site) for r in old.release):
        held = "; what was held for revision is not revised" if release.revise else ""
        yield Turn("anew", f"{site}/{release.name}", f"{LEARNING[release.mechanism]}, from new windows alone{held}")


def _owners(policy: Policy, site: str) -> dict[str, Owner]:
    """Return what each release that carries publications from window to window belongs to."""
    return {
        release.name: owner_of(policy, release, site)
        for release in policy.release
        if isinstance(release, CountRelease) and release.declared.carries and policy.zones_of(release, site)
    }


def _carried(old: Policy, new: Policy, site: str) -> Iterator[Turn]:
    before, now = _owners(old, site), _owners(new, site)
    kept = continued(before, now)
    ended = {name: owner for name, owner in before.items() if name not in kept.values()}
    begun = {name: owner for name, owner in now.items() if name not in kept}
    wait = max((owner.w for owner in (*ended.values(), *begun.values())), default=1) - 1
    for name in ended:
        yield Turn("anew", f"{site}/{name}", "the publication that it carried ends")
    for name in begun:
        yield Turn("anew", f"{site}/{name}", f"begins anew and waits for {wait} windows")


def _ended(old: Policy, new: Policy, site: str) -> Iterator[Turn]:
    """Yield releases that cover zones of the site no longer."""
    there = {release.name for release in new.release if new.zones_of(release, site)}
    for release in old.release:
        if old.zones_of(release, site) and release.name not in there:
            to = ", ".join(audiences_of(release))
            yield Turn(
                "otherwise", f"{site}/{release.name}", f"released no longer to {to}; what it has cost stays spent"
            )
