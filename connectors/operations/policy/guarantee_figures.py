"""The figures of a policy's guarantees, as ``policy show --json`` prints them, and the sentences to sign."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NotRequired, TypedDict

from connectors.operations.policy.guarantees import identities_cost, signed_sentence
from stream.accounting.adversaries import Knowledge
from stream.accounting.attribute_leakage import day_model, queried_attributes
from stream.accounting.day_charges import REPLACED, UNPROVEN
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.fields import EVERYBODY, decimal_string
from stream.policy.people import People
from stream.records import CHANGES, SECOND, JsonObject, NoiseKind
from stream.release.attribute_guarantees import AttributeGuarantee, attribute_guarantees
from stream.release.count_guarantees import CountGuarantee, count_guarantees
from stream.release.threshold_guarantees import ThresholdGuarantee, threshold_guarantees
from stream.release.validation import Policy
from stream.schemas import json_float


def sentences_to_sign(policy: Policy) -> Iterator[str]:
    """Yield the sentence to sign for each release that is charged per day and each of its audiences."""
    for guarantee in count_guarantees(policy):
        if guarantee.terms is not None and guarantee.reader != EVERYBODY:
            yield signed_sentence(policy, guarantee)


@dataclass(frozen=True, slots=True)
class DayFigures:
    """What the guarantee for a whole day says besides: its noise, and epsilon at delta in each unit."""

    noise: NoiseKind
    delta: Fraction
    noise_scale: tuple[float, ...]
    """Of each measured level; where the day pays for changes, the largest within a day."""
    tight: Mapping[str, float]
    """Unit -> epsilon at ``delta``."""
    ticks: int
    """The largest number of windows of a day at which a device counts, or of changes."""
    shifts: Mapping[str, float] | None
    """Where the day pays for changes, the shift of a day that is added or removed, and of one that is moved."""

    def to_json(self) -> JsonObject:
        """Return the fields that only the guarantee for a whole day has."""
        delta = float(self.delta)
        return {
            "unit": "device_day",
            "noise": self.noise,
            **({"ticks": self.ticks} if self.shifts is None else {}),
            "delta": decimal_string(self.delta),
            "noise_scale": list(self.noise_scale),
            "tight": {unit: {"epsilon": epsilon, "delta": delta} for unit, epsilon in self.tight.items()},
            **({} if self.shifts is None else {"count": CHANGES, "visits": self.ticks // 2, **self.shifts}),
        }


@dataclass(frozen=True, slots=True)
class CountFigures:
    """The guarantee of a count release or a threshold stream about one reader."""

    guarantee: CountGuarantee
    temporal: float | None
    """The epsilon of a presence tuple against a reader who knows how people move; None if the policy does not say."""
    meeting: float | None
    """The same against one who knows who meets whom."""
    day: DayFigures | None
    """None if windows are paid one by one."""

    def to_json(self) -> JsonObject:
        """Return one object of ``counts``."""
        p = self.guarantee
        return {
            "site": p.site, "release": p.release, "reader": p.reader, "mechanism": p.mechanism,
            "zones": p.zones, "epsilon": {unit: decimal_string(e) for unit, e in p.units.items()},
            "temporal": json_float(self.temporal), "meeting": json_float(self.meeting),
            **({} if self.day is None else self.day.to_json()),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PseudonymChange:
    """When pseudonyms change: after a salt life, at some sites with their privacy day, and otherwise each UTC day."""

    ttl_seconds: float | None
    day_starts: Mapping[str, str]
    """Site -> when its privacy day begins; empty with a salt life."""

    def to_json(self) -> str | JsonObject:
        """Return the value of ``pseudonyms``."""
        if self.ttl_seconds is not None:
            return {"ttl_seconds": self.ttl_seconds}
        return {"day_starts": self.day_starts} if self.day_starts else "daily"


@dataclass(frozen=True, slots=True)
class PolicyGuarantees:
    """The guarantees of a policy."""

    policy: Policy
    counts: Sequence[CountFigures]
    attributes: Sequence[AttributeGuarantee]
    thresholds: Sequence[ThresholdGuarantee]
    pseudonyms: PseudonymChange

    def to_json(self) -> JsonObject:
        """Return the object that ``policy show --json`` prints."""
        policy = self.policy
        counts = [release for release in policy.release if isinstance(release, CountRelease)]
        return {
            "policy_version": policy.version,
            "devices_per_person": policy.privacy.devices_per_person,
            "max_factor": policy.privacy.max_factor,
            "w": policy.privacy.w,
            "mobility": None if policy.privacy.mobility is None else policy.privacy.mobility.forward,
            "meetings": [meeting.model_dump() for meeting in policy.privacy.meetings],
            "pseudonyms": self.pseudonyms.to_json(),
            "counted_sites": [name for name, site in policy.site.items() if site.feed == "counts"],
            "zeros": {name: site.zeros for name, site in policy.site.items() if site.feed == "counts"},
            "restricted_topics": policy.restricted.model_dump(),
            "counts": [each.to_json() for each in self.counts],
            "attributes": [
                {
                    "site": p.site, "release": p.release, "attribute": p.attribute, "reader": p.reader,
                    "epsilon": decimal_string(p.epsilon), "factor": p.factor, "exact": json_float(p.exact),
                    "with_counts": json_float(p.with_counts),
                    "habit": {str(days): json_float(factor) for days, factor in p.habit.items()},
                }
                for p in self.attributes
            ],
            "budgets": {
                f"{r.name}/{name}": decimal_string(budget)
                for r in counts for name, budget in sorted(r.daily_budget.items())
            },
            "w_budgets": {
                f"{r.name}/{name}": decimal_string(budget)
                for r in counts for name, budget in sorted(r.w_budget.items())
            },
            "refresh_days": {r.name: r.refresh_days for r in counts},
            "thresholds": [guarantee.figures() for guarantee in self.thresholds],
            "models": {r.name: _model(r) for r in policy.release if isinstance(r, AttributeRelease)},
        } | {name: figures for name, figures in _optional_figures(policy).items() if figures}  # fmt: skip


def guarantee_figures(policy: Policy) -> PolicyGuarantees:
    """Return what ``policy show`` reports."""
    return PolicyGuarantees(
        policy, [_count_figures(policy, guarantee) for guarantee in count_guarantees(policy)],
        attribute_guarantees(policy), threshold_guarantees(policy), _pseudonyms(policy),
    )  # fmt: skip


def _count_figures(policy: Policy, guarantee: CountGuarantee) -> CountFigures:
    knowledge, of_tuple = Knowledge.of(policy.privacy), float(guarantee.units["presence_tuple"])
    return CountFigures(guarantee, knowledge.temporal(of_tuple), knowledge.meeting(of_tuple), _of_day(guarantee))


def _of_day(guarantee: CountGuarantee) -> DayFigures | None:
    terms = guarantee.terms
    if terms is None:
        return None
    tight = {unit: round(e, 6) for unit, e in guarantee.tight.items()}
    if terms.noise == CHANGES:
        parts = {"shift": Fraction(1), "shift_moved": REPLACED.get(terms.ticks, UNPROVEN)}
        squared = sum(terms.parameters, Fraction(0))
        shifts = {name: math.ceil(10**6 * math.sqrt(each * squared)) / 10**6 for name, each in parts.items()}
        return DayFigures("gaussian", guarantee.delta, tuple(guarantee.scales), tight, terms.ticks, shifts)
    noise: NoiseKind = "gaussian" if terms.noise == "gaussian" else "laplace"
    scales = tuple(math.sqrt(e) if noise == "gaussian" else float(1 / e) for e in terms.parameters)
    return DayFigures(noise, guarantee.delta, scales, tight, terms.ticks, None)


def _pseudonyms(policy: Policy) -> PseudonymChange:
    if policy.pseudonym.ttl is not None:
        return PseudonymChange(policy.pseudonym.ttl / 1e6, {})
    days = {name: site.day_starts for name, site in policy.site.items() if site.day_starts is not None}
    return PseudonymChange(None, days)


def _optional_figures(policy: Policy) -> JsonObject:
    """Return the figures that only some policies have; they are empty for other policies."""
    return {
        "people": [people_figures(each) for each in policy.people],
        "forecasts": [
            {"site": each.site, "release": each.release_name, "of": each.release, "reader": each.audience}
            for each in policy.forecast
        ],
        "sessions": _sessions(policy),
        "logins": _logins(policy),
    }


class PeopleFigures(TypedDict):
    """What a stream of people is computed from, and what its ground truth cost."""

    site: str
    release: str
    of: str
    """The release of counts."""
    reader: str
    model: str
    """Its digest."""
    laboratory: bool
    truth: JsonObject
    """``public``, and ``epsilon`` where it is not."""
    provisional: NotRequired[JsonObject]
    """Of a provisional model: how little it was learnt from, and until when it holds."""


def people_figures(people: People) -> PeopleFigures:
    """Return the figures of one stream of people."""
    model = people.model
    figures: PeopleFigures = {
        "site": model.site, "release": people.release_name, "of": model.release, "reader": model.audience,
        "model": people.digest, "laboratory": model.laboratory, "truth": model.truth.model_dump(exclude_none=True),
    }  # fmt: skip
    if model.provisional is not None:
        figures["provisional"] = model.provisional.model_dump(mode="json")
    return figures


def _model(release: AttributeRelease) -> JsonObject:
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


def _sessions(policy: Policy) -> dict[str, dict[str, int]]:
    """Return, for each site with sessions, how long one message counts."""
    return {
        name: {"session_limit_seconds": site.session_limit // SECOND, "windows": site.ticks_per_observation}
        for name, site in policy.site.items() if site.has_sessions
    }  # fmt: skip


def _logins(policy: Policy) -> dict[str, JsonObject]:
    """Return, for each site that counts logins, by what, and what a day of two and three identities costs."""
    return {
        name: {
            "attribute": site.login_attribute, "others": site.others,
            "identities": [
                {"release": p.release, "reader": p.reader, "two": identities_cost(p, 2), "three": identities_cost(p, 3)}
                for p in count_guarantees(policy) if p.site == name
            ],
        }
        for name, site in policy.site.items() if site.counts_logins
    }  # fmt: skip
