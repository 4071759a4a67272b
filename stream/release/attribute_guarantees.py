"""The guarantees of attribute releases, and the checks that they hold together with one another and with counts.

**Counts and attributes.** A count release weakens the guarantee of an attribute of the same zone: a reader of both can
raise the odds of a sensitive value by exp(ε_attribute + Σ k n ε), where k devices of one person are counted at n ticks
by which a sensitive and a non-sensitive day may differ, and ε is the amount that the coalition pays per tick. Each
audience's own factor is at most that of all together, so ``check_attribute_guarantees`` bounds the largest coalition.

A policy bounds only the charges that it plans. Other charges (a second attempt, a release of an earlier policy) are
added up from the ledger (``accounting.count_exponent``); a query that would then exceed ``max_factor`` is not run.

**Attributes of one day.** All attributes of a zone's day are computed from the same occupied ticks. If a value of one
attribute may be shown and leaves another attribute only sensitive values, showing the first proves the second
sensitive, at any epsilon. ``check_attribute_logic`` rejects such sets of attributes, whether they belong to one
release or to several. Each attribute declares in ``policy.attributes`` which values it leaves possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.attribute_leakage import day_model, queried_attributes
from stream.accounting.costs import readers_of
from stream.accounting.leakage.entries import exp_or_inf
from stream.errors import PolicyError
from stream.policy.attributes import ATTRIBUTES, BREAK, AttributeRelease, DayShape, Logic, Sensitive, Value
from stream.policy.document import PolicyDocument
from stream.policy.fields import EVERYBODY
from stream.policy.sites import Site
from stream.records import DAY
from stream.release.count_guarantees import counts_exponent

# The odds of a sensitive value.


@dataclass(frozen=True, slots=True)
class AttributeGuarantee:
    """The largest factor by which one reader's view can raise the odds that a suppressed attribute is sensitive."""

    site: str
    release: str
    attribute: str
    reader: str
    epsilon: Fraction
    factor: float
    """From this record alone (Theorem 1): e^epsilon; more where other attributes depend on it."""
    exact: float | None
    """The largest factor of any outcome of the day under the declared model, with shown values; None without model."""
    with_counts: float
    """The larger of ``factor`` and ``exact``, combined with every count release of the zone that this reader sees."""
    habit: dict[int, float]
    """Days -> odds factor of a constant habit, where each day reveals the larger of ``factor`` and ``exact``."""


def attribute_guarantees(policy: PolicyDocument) -> list[AttributeGuarantee]:
    """Return the worst factor over zones of every attribute, for each of its audiences and all together."""
    guarantees = []
    for site in policy.site:
        for release in policy.release:
            if isinstance(release, AttributeRelease) and policy.zones_of(release, site):
                guarantees += _of_release(policy, site, release)
    return guarantees


def _of_release(policy: PolicyDocument, site: str, release: AttributeRelease) -> list[AttributeGuarantee]:
    guarantees, readers = [], readers_of(audience.name for audience in policy.audience)
    zones, worst = policy.zones_of(release, site), _worst_factors(release, readers)
    for name, attribute in release.attributes.items():
        largest = [*sorted(attribute.epsilon.items()), (EVERYBODY, max(attribute.epsilon.values()))]
        for reader, epsilon in largest:
            counts = max(counts_exponent(policy, site, zone.id, readers[reader]) for zone in zones)
            exact = worst[reader][name] if worst else None
            with_counts = max(_exp(epsilon), exact or 0.0) * _exp(counts)
            daily = max(float(epsilon), math.log(exact) if exact else 0.0)
            habit = {days: exp_or_inf(days * daily) for days in (5, 20)}
            guarantees.append(
                AttributeGuarantee(site, release.name, name, reader, epsilon, _exp(epsilon), exact, with_counts, habit)
            )
    return guarantees


def _worst_factors(release: AttributeRelease, readers: Mapping[str, frozenset[str]]) -> dict[str, dict[str, float]]:
    """Return, per reader and attribute, the largest factor under the declared model; empty without a model.

    Before each query the adaptive guard ensures that no answer exceeds the cap, so the cap is the largest factor.
    """
    model = day_model(release)
    if model is None:
        return {}
    if release.guard == "adaptive" and release.cap is not None:
        return {reader: dict.fromkeys(model.order, math.exp(release.cap)) for reader in readers}
    queried = queried_attributes(release, model)
    return {
        reader: model.worst(_epsilons_seen_by(release, queried, audiences)) for reader, audiences in readers.items()
    }


def _epsilons_seen_by(
    release: AttributeRelease, queried: frozenset[str], audiences: frozenset[str]
) -> dict[str, float]:
    seen: dict[str, float] = {}
    for name, rule in release.attributes.items():
        epsilons = [float(epsilon) for audience, epsilon in rule.epsilon.items() if audience in audiences]
        if name in queried and epsilons:
            seen[name] = max(epsilons)
    return seen


def log_largest_factor(release: AttributeRelease) -> float:
    """Return ln of the largest factor that all readers together reach on one of a release's attributes, without counts.

    Equals what ``AttributeGuarantee.factor`` and ``exact`` state: e^epsilon, or more under the declared model.
    """
    together = {EVERYBODY: frozenset(release.audiences)}
    worst = _worst_factors(release, together)
    exact = max(worst[EVERYBODY].values(), default=0.0) if worst else 0.0
    alone = max(float(max(attribute.epsilon.values())) for attribute in release.attributes.values())
    return max(alone, math.log(exact) if exact else 0.0)


def check_attribute_guarantees(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError when a coalition's factor on some attribute exceeds ``privacy.max_factor``."""
    limit = policy.privacy.max_factor
    for guarantee in attribute_guarantees(policy):
        if guarantee.with_counts > limit * (1 + 1e-9):
            msg = (
                f"{file}: release '{guarantee.release}', attribute {guarantee.attribute}: its odds factor together "
                f"with the counts of the same zones must be at most privacy.max_factor = {limit:.4g}, got "
                f"{guarantee.with_counts:.4g} for {guarantee.reader} at {guarantee.site}; leave these zones out of "
                "the count releases, lower the epsilons or set a cap"
            )
            raise PolicyError(msg)


def _exp(value: Fraction) -> float:
    return math.exp(value) if value < 700 else math.inf


# Values of one attribute that prove another sensitive.


class Implication(NamedTuple):
    """``shown`` at ``value`` proves ``hidden`` sensitive."""

    shown: str
    value: Value
    hidden: str


def unknown_beside_others(*releases: AttributeRelease) -> str | None:
    """Return an attribute whose relation to another released attribute of the zone's day is not declared; else None."""
    names = [name for release in releases for name in release.attributes]
    known = {name: {name, *(logic.reach if (logic := ATTRIBUTES[name].logic) else ())} for name in names}
    missing = [name for name in names if not known[name].issuperset(names)]
    return min(missing, key=lambda name: ATTRIBUTES[name].logic is not None, default=None)


def implications(site: Site, *releases: AttributeRelease) -> Iterator[Implication]:
    """Yield every pair of attributes, once each, in which a value that may be shown proves the other sensitive.

    Args:
        site: gives ticks and working hours.
        releases: all that publish attributes of one zone's day; each attribute belongs to one of them. There may be
            several attributes only where ``unknown_beside_others`` finds none.
    """
    day = _day(site)
    rules = {name: attribute.sensitive for release in releases for name, attribute in release.attributes.items()}
    logics = {name: logic for name in rules if (logic := ATTRIBUTES[name].logic) is not None}
    open_numbers = {name: _open(day, logic, rules[name]) for name, logic in logics.items()}
    for shown, numbers in open_numbers.items():
        for hidden, wanted in open_numbers.items():
            if hidden == shown:
                continue
            for number in sorted(numbers):
                low, high = logics[shown].reach[hidden](day, number)
                if wanted.isdisjoint(range(low, high + 1)):
                    yield Implication(shown, logics[shown].shown(day, number), hidden)
                    break


def _open(day: DayShape, logic: Logic, rule: Sensitive) -> frozenset[int]:
    """Return the numbers of an attribute whose values may be shown."""
    low, high = logic.numbers(day)
    return frozenset(number for number in range(low, high + 1) if not rule.holds(logic.shown(day, number)))


def _day(site: Site) -> DayShape:
    return DayShape(DAY // site.tick, *site.working_ticks, -(-BREAK // site.tick))


def check_attribute_logic(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError when a value that may be shown of a zone's day proves one of its attributes sensitive.

    All attribute releases of a zone are checked together, since their readers may combine their records.
    """
    for site_id, site in policy.site.items():
        for releases in _overlapping_releases(policy, site_id):
            _check_values(site, releases, file)
            _check_absence(releases, file)
            for release in releases:
                _check_model_logic(release, file)
            _check_models_cover(releases, file)


def _overlapping_releases(policy: PolicyDocument, site: str) -> list[tuple[AttributeRelease, ...]]:
    """Return the attribute releases that cover a zone, for every zone that has any, each set once."""
    groups: dict[tuple[str, ...], tuple[AttributeRelease, ...]] = {}
    for zone in policy.site[site].zones:
        covering = [r for r in policy.release if isinstance(r, AttributeRelease) and r.zones.covers(zone)]
        if covering:
            groups[tuple(release.name for release in covering)] = tuple(covering)
    return list(groups.values())


def _check_values(site: Site, releases: tuple[AttributeRelease, ...], file: str) -> None:
    owner = {name: release.name for release in releases for name in release.attributes}
    unknown = unknown_beside_others(*releases)
    if unknown is not None:
        msg = (
            f"{file}: release '{owner[unknown]}': {unknown} must be the only attribute that is released of a zone, "
            f"since it is not declared what it reveals about others, got {', '.join(owner)}"
        )
        raise PolicyError(msg)
    for found in implications(site, *releases):
        msg = (
            f"{file}: {_named(owner[found.shown], owner[found.hidden])}: no value of one attribute may prove another "
            f"sensitive, got {found.shown} = {found.value}, which leaves {found.hidden} only sensitive values"
        )
        raise PolicyError(msg)


def _check_absence(releases: tuple[AttributeRelease, ...], file: str) -> None:
    """Raise PolicyError when one release may show an empty day, which another release declares sensitive."""
    owner = {release.absent: release.name for release in releases}
    if len(owner) > 1:
        msg = (
            f"{file}: {_named(owner['public'], owner['sensitive'])}: absent must be the same in all releases of a "
            "zone, got 'public' and 'sensitive': a day without anybody that one shows is sensitive in the other"
        )
        raise PolicyError(msg)


def _check_models_cover(releases: tuple[AttributeRelease, ...], file: str) -> None:
    """Raise PolicyError when a declared model covers only some of the attributes that are released of a zone."""
    for release in releases:
        if release.model is not None and len(releases) > 1:
            other = next(each for each in releases if each is not release)
            msg = (
                f"{file}: {_named(release.name, other.name)}: a model must hold every attribute that is released of a "
                f"zone, got none of {', '.join(other.attributes)}; put them into one release"
            )
            raise PolicyError(msg)


def _named(one: str, other: str) -> str:
    return f"release '{one}'" if one == other else f"releases '{one}' and '{other}'"


def _check_model_logic(release: AttributeRelease, file: str) -> None:
    model = day_model(release)
    found = None if model is None else model.proves()
    if found is not None:
        shown, number, hidden = found
        msg = (
            f"{file}: release '{release.name}': model.joint: no class of one attribute may prove another sensitive, "
            f"got class {number} of {shown}, which comes with sensitive classes of {hidden} only"
        )
        raise PolicyError(msg)
