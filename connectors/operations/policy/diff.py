"""The differences between two policies in words: prices first, then which states restart and when.

Prices are compared by unit and reader, as ``policy show`` prints them. ``effects`` lists what the change does to a
running site. Ledger, presence and paid days continue. Filters, groups, the current local day's attributes, and
publications that are no longer the same restart from an empty state (``stream.pipeline.Pipeline.migrate``). What is
charged per day changes when the next privacy day begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import isclose
from typing import Any, Literal, TypeVar

from connectors.operations.policy.guarantees import COUNTED, describe_unit
from stream.pipeline import definition_of, visits_of
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import Release, audiences_of
from stream.policy.fields import decimal_string
from stream.policy.sites import Site, zones_now
from stream.records import MINUTE, JsonObject
from stream.release.attribute_guarantees import AttributeGuarantee, attribute_guarantees
from stream.release.count_guarantees import CountGuarantee, count_guarantees
from stream.release.prices import paid_thresholds, terms_digest
from stream.release.state import PublicationKey, continued, publication_key
from stream.release.thresholds import run_plans
from stream.release.validation import Policy

# Releases that only have another name.


def renamed(old: Policy, new: Policy) -> dict[str, str]:
    """Return former name -> new name of each release that differs by its name only.

    A release that refers to counts of another release (``counts``) matches if those differ by name only, too.
    """
    names: dict[str, str] = {}
    former, present = ({release.name for release in policy.release} for policy in (old, new))
    come = [release for release in new.release if release.name not in former]
    gone = [release for release in old.release if release.name not in present]
    for release in sorted(gone, key=lambda each: getattr(each, "counts", None) is not None):
        described = _fields_but_name(release, names)
        same = next((each for each in come if _fields_but_name(each) == described), None)
        if same is not None:
            names[release.name] = same.name
            come.remove(same)
    return names


def _fields_but_name(release: Release, names: Mapping[str, str] = {}) -> dict[str, object]:
    """Return all fields of a release except its name."""
    described = release.model_dump(exclude={"name"})
    counts = described.get("counts")
    return described if counts is None else described | {"counts": names.get(counts, counts)}


# Effects of the change on a running site.


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of the change on a site."""

    kind: Literal["anew", "day_starts", "otherwise"]
    where: str
    text: str


def effects(old: Policy, new: Policy) -> Iterator[Effect]:
    """Yield the effects of the change from one policy to another, of another version, site by site."""
    yield from _audiences(old, new)
    for site in dict.fromkeys([*old.site, *new.site]):
        if site not in new.site:
            yield Effect("anew", site, "no longer released; its ledger is kept, and continues if the site returns")
        elif site not in old.site:
            yield Effect("otherwise", site, "begins with the first window that its sources reach")
        else:
            yield from _site(old, new, site)


def _audiences(old: Policy, new: Policy) -> Iterator[Effect]:
    before, now = ({audience.name for audience in policy.audience} for policy in (old, new))
    for name in sorted(now - before):
        yield Effect("otherwise", f"audience {name}", "begins with the next window, on its own topics")
    for name in sorted(before - now):
        yield Effect("otherwise", f"audience {name}", "receives nothing more, and keeps what it has received")


def _site(old: Policy, new: Policy, site: str) -> Iterator[Effect]:
    before, now = old.site[site], new.site[site]
    yield from _grid(site, before, now)
    yield from _zones(site, before, now)
    yield from _names(old, new, site)
    for release in new.release:
        if not new.zones_of(release, site):
            continue
        if isinstance(release, AttributeRelease):
            yield Effect("anew", f"{site}/{release.name}", "the current local day is not queried; the next one is")
        elif isinstance(release, CountRelease) and release.by_day:
            yield from _by_day(old, new, site, release)
        yield from _learning(old, new, site, release)
    yield from _thresholds(old, new, site)
    yield from _carried_state(old, new, site)
    yield from _ended(old, new, site)


def _grid(site: str, before: Site, now: Site) -> Iterator[Effect]:
    if before.tick != now.tick:
        length = f"{now.tick // MINUTE} min instead of {before.tick // MINUTE} min"
        yield Effect("anew", f"{site}.tick", f"{length}: the next window is the first of the new grid")
    if before.presence != now.presence:
        how = "nobody is present at first: devices count from their next messages on"
        yield Effect("anew", f"{site}.presence", how)
    if before.login_terms != now.login_terms:
        what = "logins are counted under other rules" if before.identity == now.identity else f"{now.identity}s count"
        yield Effect("anew", f"{site}.identity", f"{what}, and nobody is present at first")
    kept = "session_limit" if now.has_sessions else "validity"
    for key in (kept, "lateness", "max_devices", "working_hours", "randomised", "opt_out", "sources"):
        if getattr(before, key) != getattr(now, key):
            yield Effect("otherwise", f"{site}.{key}", "changes with the next window")


def _zones(site: str, before: Site, now: Site) -> Iterator[Effect]:
    """Yield what became of each zone, by the access points that it shares with present zones."""
    become = zones_now(before.radios, now.zones)
    there = {zone.id for zone in now.zones}
    for name, after in become.items():
        others = ", ".join(sorted(after & there - {name}))
        if name in there and others:
            yield Effect(
                "otherwise",
                f"{site} zone {name}",
                f"shares radios with {others}: what was spent counts for all of them",
            )
        elif name not in there:
            text = f"is now {others}: its charges continue there" if others else "no longer counted; its charges stay"
            yield Effect("otherwise", f"{site} zone {name}", text)
    for name in sorted(there - set(before.radios)):
        if all(name not in after for after in become.values()):
            yield Effect("otherwise", f"{site} zone {name}", "counted from the next window on")
    for zone in now.zones:
        if zone.id in before.radios and set(zone.radios) != set(before.radios[zone.id]):
            yield Effect("otherwise", f"{site} zone {zone.id}", "has other access points from the next window on")


def _names(old: Policy, new: Policy, site: str) -> Iterator[Effect]:
    """Yield an effect if pseudonyms of devices change at other times, or counters of their days do."""
    before, now = old.site[site], new.site[site]
    if _epoch_settings(old, before) != _epoch_settings(new, now):
        yield Effect(
            "anew", f"{site} pseudonyms", "change at other times: at the first change a device may count twice"
        )
    counters = definition_of(before), definition_of(now)
    if None not in counters and counters[0] != counters[1]:
        when = f"at {now.day_starts} ({now.timezone})"
        yield Effect("day_starts", f"{site} contribution", f"counters restart with the next privacy day, {when}")
    visits = visits_of(old, site), visits_of(new, site)
    if None not in visits and visits[0] != visits[1]:
        when = f"at {now.day_starts} ({now.timezone})"
        yield Effect("day_starts", f"{site} visits", f"counters of visits restart with the next privacy day, {when}")


def _epoch_settings(policy: Policy, site: Site) -> tuple[int | str | None, ...]:
    if policy.pseudonym.ttl is not None or site.day_starts is None:
        return (policy.pseudonym.ttl,)
    return site.day_starts, site.timezone


def _by_day(old: Policy, new: Policy, site: str, release: CountRelease) -> Iterator[Effect]:
    former = next((r for r in old.release if isinstance(r, CountRelease) and r.name == release.name), None)
    place, where = new.site[site], f"{site}/{release.name}"
    when = f"at {place.day_starts} ({place.timezone})"
    if _counts_anew(old, new, site, release):
        yield Effect("day_starts", where, f"publishes nothing until the next complete privacy day begins, {when}")
    elif former is None or not former.by_day or not old.zones_of(former, site):
        yield Effect("otherwise", where, f"begins with the next window, which pays for the whole day that began {when}")
    elif terms_digest(old, former, site) != terms_digest(new, release, site):
        yield Effect(
            "day_starts",
            where,
            f"the current day was paid for on other terms: publishes nothing until the next one, {when}",
        )


def _counts_anew(old: Policy, new: Policy, site: str, release: CountRelease) -> bool:
    """Whether the counters of a release wait for the next privacy day."""
    before, now = old.site[site], new.site[site]
    if not release.by_changes:
        return definition_of(before) != definition_of(now)
    if visits_of(old, site) is None:
        return _epoch_settings(old, before) != _epoch_settings(new, now)
    return visits_of(old, site) != visits_of(new, site)


def _thresholds(old: Policy, new: Policy, site: str) -> Iterator[Effect]:
    """Yield an effect if the terms of decisions change: for all of a site's together, since a day is queried once."""
    before, now = ([plan.terms for plan in run_plans(policy, site)] for policy in (old, new))
    place = new.site[site]
    if not now or before == now:
        return
    names = ", ".join(release.name for release in paid_thresholds(new, site))
    when = f"at {place.day_starts} ({place.timezone})"
    if before:
        text = f"the current day began on other terms: publish nothing until the next one, {when}"
        yield Effect("day_starts", f"{site}/{names}", text)
    else:
        yield Effect("otherwise", f"{site}/{names}", f"begins with the next window; its day began {when}")


def _learning(old: Policy, new: Policy, site: str, release: Release) -> Iterator[Effect]:
    if not isinstance(release, CountRelease) or release.declared.learnt is None:
        return
    if any(r.name == release.name and isinstance(r, CountRelease) and old.zones_of(r, site) for r in old.release):
        unrevised = "; earlier windows are not revised" if release.revise else ""
        text = f"{release.declared.learnt} restarts, and learns from new windows only{unrevised}"
        yield Effect("anew", f"{site}/{release.name}", text)


def _owners(policy: Policy, site: str) -> dict[str, PublicationKey]:
    """Return the publication key of each release that carries publications from window to window."""
    return {
        release.name: publication_key(policy, release, site)
        for release in policy.release
        if isinstance(release, CountRelease) and release.declared.carries and policy.zones_of(release, site)
    }


def _carried_state(old: Policy, new: Policy, site: str) -> Iterator[Effect]:
    before, now = _owners(old, site), _owners(new, site)
    kept = continued(before, now)
    ended = {name: owner for name, owner in before.items() if name not in kept.values()}
    begun = {name: owner for name, owner in now.items() if name not in kept}
    wait = max((owner.w for owner in (*ended.values(), *begun.values())), default=1) - 1
    for name in ended:
        yield Effect("anew", f"{site}/{name}", "its current publication ends")
    for name in begun:
        yield Effect("anew", f"{site}/{name}", f"restarts and waits for {wait} windows")


def _ended(old: Policy, new: Policy, site: str) -> Iterator[Effect]:
    """Yield releases that no longer cover zones of the site."""
    there = {release.name for release in new.release if new.zones_of(release, site)}
    for release in old.release:
        if old.zones_of(release, site) and release.name not in there:
            to = ", ".join(audiences_of(release))
            yield Effect("otherwise", f"{site}/{release.name}", f"no longer released to {to}; its charges remain")


Kind = Literal["cheaper", "dearer", "anew", "day_starts", "otherwise"]
COMPARED = ("presence_tuple", "device_day", "person_day")
Held = TypeVar("Held")
Key = TypeVar("Key", bound=Hashable)
Figure = Fraction | float
Prices = tuple[Figure | None, Figure | None]
"""Before, and now."""
Names = Mapping[str, str]
"""Old name -> new name of releases that differ by name only."""
SAME: Names = {}
_SUPPRESSED = "suppressing a value, with counts of its zone,"


@dataclass(frozen=True, slots=True)
class Change:
    """One relevant difference."""

    kind: Kind
    where: str
    """Key of the policy, or site, release and reader."""
    text: str


@dataclass(frozen=True, slots=True)
class Difference:
    """All differences of one policy from another."""

    old: str
    new: str
    """Policy versions."""
    changes: tuple[Change, ...]

    @property
    def loses_state(self) -> bool:
        """Whether learnt state, paid days or pending windows are lost."""
        return any(change.kind in {"anew", "day_starts"} for change in self.changes)

    def figures(self) -> JsonObject:
        """Return the JSON form."""
        changes = [asdict(change) for change in self.changes]
        return {"old": self.old, "new": self.new, "begins_anew": self.loses_state, "changes": changes}


def difference(old: Policy, new: Policy) -> Difference:
    """Return the differences of ``new`` from ``old``; nothing if they are equivalent."""
    if old.version == new.version:
        return Difference(old.version, new.version, ())
    names = renamed(old, new)
    changes = [*_counts(old, new, names), *_attributes(old, new, names), *_budgets(old, new, names), *_bounds(old, new)]
    changes += [_by_another_name(new, former, name) for former, name in names.items()]
    changes += _forecasts(old, new)
    changes += [_change_of(turn) for turn in effects(old, new)]
    return Difference(old.version, new.version, tuple(changes))


def _by_another_name(new: Policy, former: str, name: str) -> Change:
    same = f"is {former!r} under another name, at the same price:"
    (release,) = (each for each in new.release if each.name == name)
    if isinstance(release, CountRelease) and release.declared.carries:
        return Change("otherwise", name, f"{same} continues its publications, on its own topics")
    budgeted = any(getattr(release, budget, None) for budget in ("daily_budget", "w_budget"))
    whole = f", and with full budgets in addition to what {former!r} has spent" if budgeted else ""
    return Change("anew", name, f"{same} restarts as a new release, on its own topics{whole}")


def _forecasts(old: Policy, new: Policy) -> Iterator[Change]:
    """Yield the forecasts that come, go, or have other closed days."""
    before, now = (
        {(each.site, each.release_name, each.audience): each for each in policy.forecast} for policy in (old, new)
    )
    for (site, name, reader), was, becomes in paired(before, now):
        if was == becomes:
            continue
        if becomes is None:
            text = "no longer forecast"
        elif was is None:
            text = f"new: computed from released values of {becomes.release}, free"
        else:
            text = f"other closed days: computed from released values of {becomes.release}, free"
        yield Change("otherwise", f"{site}/{name} for {reader}", text)


def _change_of(turn: Effect) -> Change:
    return Change(turn.kind, turn.where, turn.text)


def paired(old: Mapping[Key, Held], new: Mapping[Key, Held]) -> Iterator[tuple[Key, Held | None, Held | None]]:
    """Yield each key of either mapping with both values, the old mapping's keys first."""
    for key in dict.fromkeys([*old, *new]):
        yield key, old.get(key), new.get(key)


# --- prices -------------------------------------------------------------------------------------------


NEARLY = 0.01
"""Computed prices that differ by a smaller part, in the third digit, are the same; those that are stated are not."""


def _compared(where: str, what: str, prices: Prices, unit: str = "epsilon ", *, stated: bool = False) -> list[Change]:
    """Return the change of one price; None stands for a price that nobody pays.

    ``stated`` says that epsilon or delta themselves differ, so that no difference is too small.
    """
    before, now = prices
    if before == now:
        return []
    if isinstance(before, float) and isinstance(now, float) and not stated and isclose(before, now, rel_tol=NEARLY):
        return []
    if before is None:
        return [Change("dearer", where, f"{what} costs {unit}{_number(now)} now")]
    if now is None:
        return [Change("cheaper", where, f"{what} no longer costs {unit}{_number(before)}")]
    kind: Kind = "dearer" if now > before else "cheaper"
    return [Change(kind, where, f"{what} costs {unit}{_number(now)} instead of {_number(before)}")]


def _counts(old: Policy, new: Policy, names: Names) -> Iterator[Change]:
    for (site, release, reader), before, now in paired(_guaranteed(old, names), _guaranteed(new)):
        stated = _stated(old, before) != _stated(new, now)
        delta = next((float(p.delta) for p in (now, before) if p is not None and p.delta), None)
        at_delta = "" if delta is None else f", at delta {delta:g},"
        place = new.site.get(site)
        counted, logins = place is not None and place.feed == "counts", place is not None and place.counts_logins
        for unit in (unit for unit in COMPARED if not counted or unit in COUNTED):
            prices = _price(before, unit), _price(now, unit)
            words = describe_unit(unit, counted=counted, logins=logins)
            if unit == "presence_tuple" and delta is not None:
                words = f"any part of one {'login' if logins else 'device'}'s day"
            yield from _compared(f"{site}/{release} for {reader}", f"{words}{at_delta}", prices, stated=stated)


def _stated(policy: Policy, guarantee: CountGuarantee | None) -> tuple[object, object] | None:
    """Return epsilons and delta of a promise, as its policy states them."""
    if guarantee is None:
        return None
    release = next(each for each in policy.release if each.name == guarantee.release)
    epsilons: Mapping[str, object] = getattr(release, "epsilon", {})
    return guarantee.delta, epsilons.get(guarantee.reader, epsilons)


def _guaranteed(policy: Policy, names: Names = SAME) -> dict[tuple[str, str, str], CountGuarantee]:
    return {(p.site, names.get(p.release, p.release), p.reader): p for p in count_guarantees(policy)}


def _price(guarantee: CountGuarantee | None, unit: str) -> Figure | None:
    """Return an epsilon, at its delta if the unit of charge is the day."""
    return None if guarantee is None else guarantee.tight.get(unit, guarantee.units[unit])


def _attributes(old: Policy, new: Policy, names: Names) -> Iterator[Change]:
    for (site, release, attribute, reader), before, now in paired(_odds(old, names), _odds(new)):
        where = f"{site}/{release}/{attribute} for {reader}"
        yield from _compared(where, _SUPPRESSED, (_factor(before), _factor(now)), "an odds factor of ")
        if before is not None and now is not None:
            yield from _compared(where, "the attribute", (before.epsilon, now.epsilon))


def _factor(guarantee: AttributeGuarantee | None) -> float | None:
    return None if guarantee is None else max(guarantee.with_counts, guarantee.exact or 0.0)


def _odds(policy: Policy, names: Names = SAME) -> dict[tuple[str, str, str, str], AttributeGuarantee]:
    found = attribute_guarantees(policy)
    return {(p.site, names.get(p.release, p.release), p.attribute, p.reader): p for p in found}


# --- budgets and bounds -------------------------------------------------------------------------------


def _budgets(old: Policy, new: Policy, names: Names) -> Iterator[Change]:
    """Yield changes of spending limits: the budget of a period in days; no budget means no limit."""
    both: tuple[tuple[str, Callable[[CountRelease, str], Fraction | None]], ...] = (
        ("daily_budget", _a_day), ("w_budget", lambda release, audience: release.w_budget.get(audience)),
    )  # fmt: skip
    for name, before, now in paired(_count_releases(old, names), _count_releases(new)):
        if before is None or now is None:
            continue
        for audience in sorted({*audiences_of(before)} & {*audiences_of(now)}):
            for key, budget in both:
                yield from _limit(f"{name}.{key}.{audience}", budget(before, audience), budget(now, audience))


def _a_day(release: CountRelease, audience: str) -> Fraction | None:
    budget = release.daily_budget.get(audience)
    return None if budget is None else budget / release.refresh_days


def _limit(where: str, before: Fraction | None, now: Fraction | None) -> Iterator[Change]:
    if before != now:
        words = ["without limit" if each is None else f"epsilon {_number(each)}" for each in (before, now)]
        dearer = now is None or (before is not None and now > before)
        yield Change("dearer" if dearer else "cheaper", where, f"{words[1]} may be spent, instead of {words[0]}")


def _count_releases(policy: Policy, names: Names = SAME) -> dict[str, CountRelease]:
    return {names.get(r.name, r.name): r for r in policy.release if isinstance(r, CountRelease)}


def _bounds(old: Policy, new: Policy) -> Iterator[Change]:
    """Yield changes of the assumptions on people and adversaries, and of bounds on all releases; larger bounds cost
    more."""
    dearer_when_larger = {"max_factor", "delta", "factor_delta"}
    for key, before in old.privacy:
        now = getattr(new.privacy, key)
        if before == now:
            continue
        if key in dearer_when_larger:
            kind: Kind = "dearer" if (now or 0) > (before or 0) else "cheaper"
            yield Change(kind, f"privacy.{key}", f"{_as_text(now)} instead of {_as_text(before)}")
        else:
            yield Change(
                "otherwise", f"privacy.{key}", f"{_as_text(now)} instead of {_as_text(before)}: the account says so"
            )
    for key, before in old.restricted:
        now = getattr(new.restricted, key)
        if before != now:
            exactness = "is published: its readers have no privacy guarantee" if now else "is no longer published"
            yield Change("dearer" if now else "cheaper", f"restricted.{key}", f"the true {key} {exactness}")


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Fraction | float | int):
        return _number(value)
    return "another model" if value else "no model"


def _number(value: Figure | None) -> str:
    """Return a figure: exact for a fraction, else with six digits."""
    if value is None:
        return "none"
    return decimal_string(value) if isinstance(value, Fraction) else f"{value:.6g}"
