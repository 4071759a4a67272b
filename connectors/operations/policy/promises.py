"""What a policy promises, as JSON, and the sentences to sign."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from connectors.operations.policy.guarantees import identities_cost, signed_sentence
from stream.accounting.adversaries import Knowledge
from stream.accounting.attribute_leakage import day_model, queried_attributes
from stream.accounting.day_charges import REPLACED, UNPROVEN
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.fields import EVERYBODY, decimal_string
from stream.policy.people import People
from stream.records import CHANGES, SECOND
from stream.release.guarantees import CountPromise, attribute_promises, count_promises
from stream.release.threshold_guarantees import threshold_promises
from stream.release.validation import Policy
from stream.schemas import json_float


def sentences_to_sign(policy: Policy) -> Iterator[str]:
    """Yield the sentence to sign for each release that is charged per day and each of its audiences."""
    for promise in count_promises(policy):
        if promise.terms is not None and promise.reader != EVERYBODY:
            yield signed_sentence(policy, promise)


def promises(policy: Policy) -> dict[str, Any]:
    """Return what ``policy show`` reports, as one object."""
    knowledge = Knowledge.of(policy.privacy)
    return {
        "policy_version": policy.version,
        "devices_per_person": policy.privacy.devices_per_person,
        "max_factor": policy.privacy.max_factor,
        "w": policy.privacy.w,
        "mobility": None if policy.privacy.mobility is None else policy.privacy.mobility.forward,
        "meetings": [meeting.model_dump() for meeting in policy.privacy.meetings],
        "pseudonyms": _pseudonyms(policy),
        "counted_sites": [name for name, site in policy.site.items() if site.feed == "counts"],
        "zeros": {name: site.zeros for name, site in policy.site.items() if site.feed == "counts"},
        "restricted_topics": policy.restricted.model_dump(),
        "counts": [
            {
                "site": p.site, "release": p.release, "reader": p.reader, "mechanism": p.mechanism,
                "zones": p.zones, "epsilon": {unit: decimal_string(e) for unit, e in p.units.items()},
                "temporal": json_float(knowledge.temporal(float(p.units["presence_tuple"]))),
                "meeting": json_float(knowledge.meeting(float(p.units["presence_tuple"]))),
            }
            | _of_day(p)
            for p in count_promises(policy)
        ],
        "attributes": [
            {
                "site": p.site, "release": p.release, "attribute": p.attribute, "reader": p.reader,
                "epsilon": decimal_string(p.epsilon), "factor": p.factor, "exact": json_float(p.exact),
                "with_counts": json_float(p.with_counts),
                "habit": {str(days): json_float(factor) for days, factor in p.habit.items()},
            }
            for p in attribute_promises(policy)
        ],
        "budgets": {
            f"{r.name}/{name}": decimal_string(budget)
            for r in policy.release if isinstance(r, CountRelease)
            for name, budget in sorted(r.daily_budget.items())
        },
        "w_budgets": {
            f"{r.name}/{name}": decimal_string(budget)
            for r in policy.release if isinstance(r, CountRelease)
            for name, budget in sorted(r.w_budget.items())
        },
        "refresh_days": {r.name: r.refresh_days for r in policy.release if isinstance(r, CountRelease)},
        "thresholds": [promise.figures() for promise in threshold_promises(policy)],
        "models": {r.name: _model(r) for r in policy.release if isinstance(r, AttributeRelease)},
    } | _people(policy) | _forecasts(policy) | _sessions(policy) | _logins(policy)  # fmt: skip


def _people(policy: Policy) -> dict[str, Any]:
    return {"people": [people_figures(each) for each in policy.people]} if policy.people else {}


def _forecasts(policy: Policy) -> dict[str, Any]:
    """Return what is forecast, from what and for whom; nothing if nothing is."""
    found = [
        {"site": each.site, "release": each.release_name, "of": each.release, "reader": each.audience}
        for each in policy.forecast
    ]
    return {"forecasts": found} if found else {}


def people_figures(people: People) -> dict[str, Any]:
    """Return what a stream of people is computed from, and what its ground truth cost."""
    model = people.model
    return {
        "site": model.site, "release": people.release_name, "of": model.release, "reader": model.audience,
        "model": people.digest, "laboratory": model.laboratory, "truth": model.truth.model_dump(exclude_none=True),
        **({} if model.provisional is None else {"provisional": model.provisional.model_dump(mode="json")}),
    }  # fmt: skip


def _of_day(promise: CountPromise) -> dict[str, Any]:
    """Return what a promise for a whole day says besides: its noise, and epsilon at delta in each unit."""
    terms = promise.terms
    if terms is None:
        return {}
    delta = float(promise.delta)
    of_day = {
        "unit": "device_day", "noise": terms.noise, "ticks": terms.ticks, "delta": decimal_string(promise.delta),
        "noise_scale": [math.sqrt(e) if terms.noise == "gaussian" else float(1 / e) for e in terms.parameters],
        "tight": {unit: {"epsilon": round(e, 6), "delta": delta} for unit, e in promise.tight.items()},
    }  # fmt: skip
    if terms.noise == CHANGES:
        del of_day["ticks"]
        changes = {"count": CHANGES, "noise": "gaussian", "visits": terms.ticks // 2}
        parts = {"shift": Fraction(1), "shift_moved": REPLACED.get(terms.ticks, UNPROVEN)}
        squared = sum(terms.parameters, Fraction(0))
        shifts = {name: math.ceil(10**6 * math.sqrt(each * squared)) / 10**6 for name, each in parts.items()}
        return of_day | changes | {"noise_scale": list(promise.scales), **shifts}
    return of_day


def _model(release: AttributeRelease) -> dict[str, Any]:
    """Return the declared model of an attribute release and what its guard does with it."""
    asked = queried_attributes(release, day_model(release))
    return {
        "model": None if release.model is None else release.model.model_dump(),
        "cap": release.cap,
        "guard": release.guard,
        "asked": [name for name in release.attributes if name in asked],
        "left_out": [name for name in release.attributes if name not in asked],
        "days_per_month": release.days_per_month,
        "information_target": release.information_target,
    }


def _sessions(policy: Policy) -> dict[str, Any]:
    """Return, for each site with sessions, how long one message counts; nothing if there is none."""
    found = {
        name: {"session_limit_seconds": site.session_limit // SECOND, "windows": site.ticks_per_observation}
        for name, site in policy.site.items() if site.has_sessions
    }  # fmt: skip
    return {"sessions": found} if found else {}


def _logins(policy: Policy) -> dict[str, Any]:
    """Return, for each site that counts logins, by what, and what a day of two and three identities costs."""
    found = {
        name: {
            "attribute": site.login_attribute, "others": site.others,
            "identities": [
                {"release": p.release, "reader": p.reader, "two": identities_cost(p, 2), "three": identities_cost(p, 3)}
                for p in count_promises(policy) if p.site == name
            ],
        }
        for name, site in policy.site.items() if site.counts_logins
    }  # fmt: skip
    return {"logins": found} if found else {}


def _pseudonyms(policy: Policy) -> str | dict[str, Any]:
    """Return when names change: each UTC day, after a salt life, or at some sites with their privacy day."""
    if policy.pseudonym.ttl is not None:
        return {"ttl_seconds": policy.pseudonym.ttl / 1e6}
    days = {name: site.day_starts for name, site in policy.site.items() if site.day_starts is not None}
    return {"day_starts": days} if days else "daily"
