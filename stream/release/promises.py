"""What a policy promises, and whether its releases together keep it.

A count release weakens what an attribute of the same zone promises: whoever sees both can raise the odds of
a sensitive value by exp(ε_attribute + Σ k n ε), where k devices of one person are counted at n ticks by which
a sensitive and a non-sensitive day may differ, and ε is what the coalition pays per tick. Each audience's
own factor is at most that of all together, so the largest coalition is the one to bound.

A policy bounds what it plans. What was charged besides (a second attempt, a release of an earlier policy) is added
up from the ledger (``accounting/charged``), and what would then pass ``max_factor`` is not asked when it comes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream.accounting.attribute_model import asked_attributes, day_model
from stream.accounting.knowledge import Knowledge
from stream.accounting.leakage.odds import exp_or_inf
from stream.accounting.views import readers_of
from stream.errors import PolicyError, UsageError
from stream.policy.document import EVERYBODY, AttributeRelease, Policy, Site
from stream.release.attribute_logic import implications, unknown_beside_others
from stream.release.count_promises import counts_exponent


@dataclass(frozen=True, slots=True)
class AttributePromise:
    """By how much one reader's view can raise the odds that a suppressed attribute is sensitive."""

    site: str
    release: str
    attribute: str
    reader: str
    epsilon: Fraction
    factor: float
    """From this record alone (Theorem 1): e^epsilon; more where other attributes depend on it."""
    exact: float | None
    """The most that any outcome of the day does under the declared model, values shown included; None without."""
    with_counts: float
    """The larger of ``factor`` and ``exact``, with every count release of the same zone that this reader sees."""
    habit: dict[int, float]
    """Odds factor of a constant habit over so many days, each of which reveals the larger of the first two."""


def attribute_promises(policy: Policy) -> list[AttributePromise]:
    """Return the worst factor over zones of every attribute, for each of its audiences and all together."""
    promises = []
    for site in policy.site:
        for release in policy.release:
            if isinstance(release, AttributeRelease) and policy.zones_of(release, site):
                promises += _of_release(policy, site, release)
    return promises


def _of_release(policy: Policy, site: str, release: AttributeRelease) -> list[AttributePromise]:
    promises, readers = [], readers_of(audience.name for audience in policy.audience)
    zones, worst = policy.zones_of(release, site), _worst_factors(release, readers)
    for name, attribute in release.attributes.items():
        largest = [*sorted(attribute.epsilon.items()), (EVERYBODY, max(attribute.epsilon.values()))]
        for reader, epsilon in largest:
            counts = max(counts_exponent(policy, site, zone.id, readers[reader]) for zone in zones)
            exact = worst[reader][name] if worst else None
            with_counts = max(_exp(epsilon), exact or 0.0) * _exp(counts)
            daily = max(float(epsilon), math.log(exact) if exact else 0.0)
            habit = {days: exp_or_inf(days * daily) for days in (5, 20)}
            promises.append(
                AttributePromise(site, release.name, name, reader, epsilon, _exp(epsilon), exact, with_counts, habit)
            )
    return promises


def _worst_factors(release: AttributeRelease, readers: Mapping[str, frozenset[str]]) -> dict[str, dict[str, float]]:
    """Return, per reader and attribute, the largest factor under the declared model; nothing without one.

    Before each question the adaptive guard makes sure that no answer breaks the cap, so the cap is the most.
    """
    model = day_model(release)
    if model is None:
        return {}
    if release.guard == "adaptive" and release.cap is not None:
        return {reader: dict.fromkeys(model.order, math.exp(release.cap)) for reader in readers}
    asked = asked_attributes(release, model)
    return {reader: model.worst(_seen_by(release, asked, audiences)) for reader, audiences in readers.items()}


def _seen_by(release: AttributeRelease, asked: frozenset[str], audiences: frozenset[str]) -> dict[str, float]:
    seen: dict[str, float] = {}
    for name, rule in release.attributes.items():
        epsilons = [float(epsilon) for audience, epsilon in rule.epsilon.items() if audience in audiences]
        if name in asked and epsilons:
            seen[name] = max(epsilons)
    return seen


def log_largest_factor(release: AttributeRelease) -> float:
    """Return ln of the largest factor that a release lets all together reach on one of its attributes, without counts.

    The same as ``AttributePromise.factor`` and ``exact`` promise: e^epsilon, or more under the declared model.
    """
    together = {EVERYBODY: frozenset(release.audiences)}
    worst = _worst_factors(release, together)
    exact = max(worst[EVERYBODY].values(), default=0.0) if worst else 0.0
    alone = max(float(max(attribute.epsilon.values())) for attribute in release.attributes.values())
    return max(alone, math.log(exact) if exact else 0.0)


def check_promises(policy: Policy, file: str = "policy") -> None:
    """Raise PolicyError when a coalition's factor on some attribute exceeds ``privacy.max_factor``."""
    limit = policy.privacy.max_factor
    for promise in attribute_promises(policy):
        if promise.with_counts > limit * (1 + 1e-9):
            msg = (
                f"{file}: release '{promise.release}', attribute {promise.attribute}: its odds factor together "
                f"with the counts of the same zones must be at most privacy.max_factor = {limit:.4g}, got "
                f"{promise.with_counts:.4g} for {promise.reader} at {promise.site}; leave these zones out of "
                "the count releases, lower the epsilons or set a cap"
            )
            raise PolicyError(msg)


def check_attribute_logic(policy: Policy, file: str = "policy") -> None:
    """Raise PolicyError when something that may be shown of a zone's day proves an attribute of it sensitive.

    All attribute releases of a zone are looked at together: their readers may put together what they know.
    """
    for site_id, site in policy.site.items():
        for releases in _together(policy, site_id):
            _check_values(site, releases, file)
            _check_absence(releases, file)
            for release in releases:
                _check_model_logic(release, file)
            _check_models_cover(releases, file)


def _together(policy: Policy, site: str) -> list[tuple[AttributeRelease, ...]]:
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
            f"since what it says of others is not known, got {', '.join(owner)}"
        )
        raise PolicyError(msg)
    for found in implications(site, *releases):
        msg = (
            f"{file}: {_named(owner[found.shown], owner[found.hidden])}: no value of one attribute may prove another "
            f"sensitive, got {found.shown} = {found.value}, which leaves {found.hidden} only sensitive values"
        )
        raise PolicyError(msg)


def _check_absence(releases: tuple[AttributeRelease, ...], file: str) -> None:
    """Raise PolicyError when one release may show that nobody came, which another holds sensitive."""
    owner = {release.absent: release.name for release in releases}
    if len(owner) > 1:
        msg = (
            f"{file}: {_named(owner['public'], owner['sensitive'])}: absent must be the same in all releases of a "
            "zone, got 'public' and 'sensitive': a day without anybody that one shows is sensitive in the other"
        )
        raise PolicyError(msg)


def _check_models_cover(releases: tuple[AttributeRelease, ...], file: str) -> None:
    """Raise PolicyError when a declared model knows only some of the attributes that are released of a zone."""
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


def check_knowledge(policy: Policy, file: str = "policy") -> None:
    """Raise PolicyError when no leakage can be computed from the declared mobility model."""
    try:
        Knowledge.of(policy.privacy)
    except UsageError as error:
        msg = f"{file}: privacy.mobility.{error}"
        raise PolicyError(msg) from None


def _exp(value: Fraction) -> float:
    return math.exp(value) if value < 700 else math.inf
