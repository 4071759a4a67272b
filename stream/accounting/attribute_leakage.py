"""The leakage of a day's attributes: posterior-odds factors, habits, information.

Figures for every attribute of a zone's day and every reader of any record about that zone's day:

| figure        | meaning                                                                                      |
|---------------|----------------------------------------------------------------------------------------------|
| ``theorem_1`` | of this attribute alone: e^epsilon if withheld, 0 if shown, 1 if not queried; no bound where |
|               | attributes depend on each other                                                              |
| ``exact``     | under the release's declared model, its outcomes and shown values of that day together;      |
|               | null where the model excludes such an outcome: the model is wrong about the day              |
| ``bound``     | under every model: the epsilons of all records of the zone's day add up if none was shown;   |
|               | no bound beside a record that was shown (without a model a value may imply anything)         |
| ``with_counts`` | ``exact`` (``bound`` without a model and where it is null) together with what was charged   |
|               | for counts of the same zone on that day (``charges``)                                        |

If a zone's day was queried under several policies, no model holds: ``bound`` then covers all of its queries.
A record that was not queried is no evidence; its attribute is still in the table where a model
ties it to others. A policy declares a model only of all attributes that it releases of a zone, so that no
outcome is left out of ``exact``. Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided
Differential Privacy", Theorems 1-4 and Corollary 1.

A declared model describes how the attributes of one release are jointly distributed in a zone's day.
The policy gives a probability to every pattern of classes, a digit per attribute in the order in which the
release lists them. Without ``cuts`` an attribute has two classes, 0 sensitive and 1 not; with cuts
c_1 < c_2 < … a value's class is the number of cuts that are at most the value, so that the information of a
*shown value* about other attributes is part of the model. A day on which the zone was empty counts as sensitive: its
probability belongs to a class that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from stream.accounting.adversaries import HabitKey, Habits, add_day
from stream.accounting.costs import Readers
from stream.accounting.leakage.dependence import exp, implications, log_factors
from stream.accounting.leakage.entries import exp_or_inf
from stream.accounting.leakage.guard import ROUNDING, class_shown, log_worst_outcomes, no_evidence, value_rows
from stream.accounting.leakage.information import attribute_information, bits
from stream.errors import UsageError
from stream.policy.attributes import AttributeRelease
from stream.records import AttributeCharge
from stream.schemas import json_float

# Declared models of a zone's day.

Floats = NDArray[np.float64]
Value = str | int | float


@dataclass(frozen=True)
class DayModel:
    """The declared model of one attribute release."""

    order: tuple[str, ...]
    cuts: tuple[tuple[Value, ...], ...]
    """Per attribute; empty where there are two classes."""
    sensitive: tuple[NDArray[np.bool_], ...]
    """Per attribute a mask over its classes."""
    joint: Floats
    """Probability of each pattern, an axis per attribute."""

    @cached_property
    def binary(self) -> Floats:
        """The distribution over sensitive (0) and not sensitive (1), shape (2,)*k."""
        table = self.joint
        for axis, mask in enumerate(self.sensitive):
            moved = np.moveaxis(table, axis, 0)
            table = np.moveaxis(np.stack([moved[mask].sum(axis=0), moved[~mask].sum(axis=0)]), 0, axis)
        return table

    def class_of(self, place: int, value: Value) -> int:
        """Return the class of a shown value."""
        if not self.cuts[place]:
            return 1
        return sum(cut <= value for cut in self.cuts[place])  # type: ignore[operator]

    def factors(self, epsilon: Mapping[str, float], shown: Mapping[str, Value]) -> dict[str, float] | None:
        """Return the exact posterior-odds factor of every attribute of the model, queried or not.

        Args:
            epsilon: of the queried attributes; others carry no evidence.
            shown: the shown values.

        Returns:
            None if the outcome has probability 0 under the model: the model is then wrong about this day.
        """
        seen = {name: shown.get(name) for name in epsilon}
        evidence = [self._outcome_likelihood(name, epsilon, seen)[0] for name in self.order]
        try:
            found = exp(log_factors(self.joint, evidence, self.sensitive))
        except UsageError:
            return None
        return dict(zip(self.order, (float(f) for f in found), strict=True))

    def _outcome_likelihood(self, name: str, epsilon: Mapping[str, float], seen: Mapping[str, Value | None]) -> Floats:
        """Return the likelihood row of a known outcome: not queried, withheld (None) or shown."""
        place = self.order.index(name)
        mask = self.sensitive[place]
        if name not in seen:
            return no_evidence(mask)
        value = seen[name]
        if value is None:
            return value_rows(mask, epsilon[name])[:1]
        return class_shown(mask, self.class_of(place, value), epsilon[name])[None]

    def worst(self, epsilon: Mapping[str, float]) -> dict[str, float]:
        """Return each attribute's largest factor over every outcome of these queries, values included."""
        found = exp(np.array(self._log_worst(epsilon, {})))
        return dict(zip(self.order, (float(f) for f in found), strict=True))

    def permitted(self, epsilon: Mapping[str, float], cap: float) -> frozenset[str]:
        """Return the attributes that may be queried with no reachable outcome above e^cap (static rule).

        Attributes join in order; one that would exceed the cap together with those before it is left out.
        """
        chosen: dict[str, float] = {}
        for name in self.order:
            trial = chosen | ({name: epsilon[name]} if name in epsilon else {})
            if self._within(max(self._log_worst(trial, {})), cap):
                chosen = trial
        return frozenset(chosen)

    def may_query(
        self, attribute: str, epsilon: Mapping[str, float], outcomes: Mapping[str, Value | None], cap: float
    ) -> bool:
        """Return whether no answer to one more query raises a factor above e^cap (adaptive rule).

        Args:
            attribute: the attribute to query next.
            epsilon: of every attribute that is ever queried.
            outcomes: outcomes published so far: a value if it was shown, None if it was withheld.
            cap: largest ln factor.
        """
        return self._within(max(self._log_worst({attribute: epsilon[attribute]}, outcomes, epsilon)), cap)

    def _log_worst(
        self, next_up: Mapping[str, float], seen: Mapping[str, Value | None], epsilon: Mapping[str, float] | None = None
    ) -> list[float]:
        rows = [
            value_rows(mask, next_up[name]) if name in next_up else self._outcome_likelihood(name, epsilon or {}, seen)
            for name, mask in zip(self.order, self.sensitive, strict=True)
        ]
        return [float(f) for f in log_worst_outcomes(self.joint, rows, self.sensitive)]

    @staticmethod
    def _within(log_factor: float, cap: float) -> bool:
        return log_factor <= cap + ROUNDING

    def information_bits(self, epsilon: Mapping[str, float]) -> dict[str, float]:
        """Return I_i of every attribute at these epsilons, in bits; their sum bounds the information about any one."""
        e = np.array([epsilon.get(name, 0.0) for name in self.order])
        queries = np.array([int(name in epsilon) for name in self.order])
        nats = attribute_information(self.binary, e, queries)
        return {name: bits(float(n)) for name, n in zip(self.order, nats, strict=True)}

    def proves(self) -> tuple[str, int, str] | None:
        """Return an attribute, a class of it that may be shown, and an attribute that it proves sensitive; or None."""
        found = implications(self.joint, self.sensitive)
        return None if not found else (self.order[found[0][0]], found[0][1], self.order[found[0][2]])


def day_model(release: AttributeRelease) -> DayModel | None:
    """Return the declared model of a release, None where it declares none."""
    if release.model is None:
        return None
    order = tuple(release.attributes)
    cuts = tuple(tuple(release.model.cuts.get(name, ())) for name in order)
    sensitive = tuple(_mask(release, name, cut) for name, cut in zip(order, cuts, strict=True))
    joint = np.zeros([len(mask) for mask in sensitive])
    for pattern, probability in release.model.joint.items():
        joint[tuple(int(digit) for digit in pattern)] = probability
    return DayModel(order, cuts, sensitive, joint / joint.sum())


def queried_attributes(release: AttributeRelease, model: DayModel | None) -> frozenset[str]:
    """Return the attributes that a release may query: all except those that its static guard excludes."""
    if model is None or release.cap is None or release.guard == "adaptive":
        return frozenset(release.attributes)
    return model.permitted(largest_epsilons(release), release.cap)


def largest_epsilons(release: AttributeRelease) -> dict[str, float]:
    """Return the epsilon per attribute at which all audiences together see it: coins are nested."""
    return {name: float(max(rule.epsilon.values())) for name, rule in release.attributes.items()}


def _mask(release: AttributeRelease, name: str, cuts: Sequence[Value]) -> NDArray[np.bool_]:
    if not cuts:
        return np.array([True, False])
    return np.array(class_sensitivity(release, name, cuts))


def class_sensitivity(release: AttributeRelease, name: str, cuts: Sequence[Value]) -> list[bool]:
    """Return, per class between cuts, whether its values are sensitive; decided by its lowest value."""
    rule = release.attributes[name].sensitive
    lowest: list[Value] = ["" if isinstance(cuts[0], str) else float("-inf"), *cuts]
    return [rule.holds(value) for value in lowest]


JsonFactor = float | str | None


CERTAIN = Fraction(1000)
"""Stands for ln of an infinite factor: e^1000 is beyond every double."""

ZoneDay = tuple[str, str]
"""Day and zone."""
CountExponents = Mapping[tuple[ZoneDay, str], Fraction]
"""Zone's day and reader -> k E (``charged``)."""
FactorsByAttribute = dict[str, float | None]
Table = dict[tuple[ZoneDay, str], dict[str, FactorsByAttribute]]
"""Zone's day and reader -> attribute -> figure -> factor."""


class HabitFigures(TypedDict):
    """What is revealed of a habit that was sensitive on every day so far."""

    days: int
    factor: JsonFactor


class InformationFigures(TypedDict):
    """Bits that a day reveals of a zone, and what the policy compares them with."""

    bits: float
    target: NotRequired[float]


Factors = dict[str, dict[str, dict[str, JsonFactor]]]
"""``day/zone/attribute`` -> figure -> reader -> factor."""
HabitFactors = dict[str, dict[str, HabitFigures]]
"""``release/attribute`` -> reader -> figures."""
Information = dict[str, dict[str, InformationFigures]]
"""Release -> reader -> figures."""


class AttributeReport(TypedDict):
    """The fields of an account record that concern attributes."""

    attributes: Factors
    habit: HabitFactors
    information: NotRequired[Information]


@dataclass(frozen=True)
class AttributeAccount:
    """The account's configuration for a site's attribute releases."""

    models: Mapping[str, DayModel]
    """Release -> declared model, where there is one."""
    targets: Mapping[str, float]
    """Release -> bits that its information is compared with."""
    earlier_models: Mapping[str, Mapping[str, DayModel]] = field(default_factory=dict)
    """Policy version -> its models, for charges made under another version."""

    def of_day(
        self, charges: Iterable[AttributeCharge], readers: Readers, habits: Habits, counts: CountExponents
    ) -> AttributeReport:
        """Return the account of one day's attribute records; adds the day to ``habits``."""
        records = list(charges)
        table = self._table(records, readers, counts)
        report: AttributeReport = {
            "attributes": _records(table), "habit": _habits(records, readers, table, habits)
        }  # fmt: skip
        information = self._information(records, readers)
        return {**report, "information": information} if information else report

    def _table(self, charges: list[AttributeCharge], readers: Readers, counts: CountExponents) -> Table:
        groups: dict[ZoneDay, list[AttributeCharge]] = {}
        for charge in charges:
            groups.setdefault((charge.day, charge.zone), []).append(charge)
        table: Table = {}
        for (day, zone), group in groups.items():
            for reader, audiences in readers.items():
                exponent = counts.get(((day, zone), reader), Fraction(0))
                table[(day, zone), reader] = self._of_reader(group, audiences, exponent)
        return table

    def _of_reader(
        self, group: list[AttributeCharge], audiences: frozenset[str], exponent: Fraction
    ) -> dict[str, FactorsByAttribute]:
        """Return the figures of a zone's day for one reader, by attribute."""
        view, counts = _view(group, audiences), exp_or_inf(float(exponent))
        exact: FactorsByAttribute = {}
        models = self._models_of(group)
        for release in sorted({charge.release for charge in group} & set(models)):
            exact |= self._exact(models[release], view)
        report = {}
        for attribute in [*view.epsilon, *(name for name in exact if name not in view.epsilon)]:
            bound, known = view.bound(attribute), exact.get(attribute)
            figures: FactorsByAttribute = {"theorem_1": view.alone(attribute), "bound": bound}
            if attribute in exact:
                figures["exact"] = known
            figures["with_counts"] = _times(bound if known is None else known, counts)
            report[attribute] = figures
        return report

    def _models_of(self, group: list[AttributeCharge]) -> Mapping[str, DayModel]:
        """Return the models of the policy under which a zone's day was queried; none if there were several."""
        versions = {charge.version for charge in group if charge.epsilon > 0} or {group[0].version}
        if len(versions) > 1:
            return {}
        (version,) = versions
        return self.earlier_models[version] if version else self.models

    def _exact(self, model: DayModel, view: _View) -> FactorsByAttribute:
        queried = {name: view.epsilon[name] for name in model.order if name in view.epsilon}
        if not queried:
            return {}
        found = model.factors(queried, {name: view.shown[name] for name in queried if name in view.shown})
        return dict.fromkeys(model.order) if found is None else dict(found)

    def _information(self, charges: list[AttributeCharge], readers: Readers) -> Information:
        """Return bits per zone and day: the maximum over zones."""
        report: Information = {}
        for release, model in self.models.items():
            group = [charge for charge in charges if charge.release == release and not charge.version]
            for reader, audiences in readers.items():
                epsilon = _view(group, audiences).epsilon
                if epsilon:
                    bits = math.fsum(model.information_bits(epsilon).values())
                    row: InformationFigures = {"bits": round(bits, 9)}
                    if release in self.targets:
                        row["target"] = self.targets[release]
                    report.setdefault(release, {})[reader] = row
        return report


@dataclass(frozen=True)
class _View:
    """The outcomes of a zone's day that one reader has seen."""

    epsilon: dict[str, float]
    """Of the queried attributes: the largest epsilon of the reader's audiences, whose coins are nested; the sum over
    releases or policies that queried the same attribute, since their rules or readings may differ."""
    shown: dict[str, Value]

    def alone(self, attribute: str) -> float:
        """Return the factor of an attribute that depends on no other."""
        return 0.0 if attribute in self.shown else exp_or_inf(self.epsilon.get(attribute, 0.0))

    def bound(self, attribute: str) -> float:
        """Return a factor that is not exceeded under any model of the day."""
        if attribute in self.shown:
            return 0.0
        if self.shown:
            return math.inf
        return exp_or_inf(math.fsum(self.epsilon.values()))


def _view(charges: Iterable[AttributeCharge], audiences: frozenset[str]) -> _View:
    view = _View({}, {})
    queried: dict[tuple[str, str, str], float] = {}
    for charge in charges:
        if charge.audience in audiences and charge.epsilon > 0:
            line = charge.attribute, charge.release, charge.version
            queried[line] = max(queried.get(line, 0.0), float(charge.epsilon))
            if charge.shown is not None:
                view.shown[charge.attribute] = charge.shown
    for (attribute, _, _), epsilon in queried.items():
        view.epsilon[attribute] = view.epsilon.get(attribute, 0.0) + epsilon
    return view


def _records(table: Table) -> Factors:
    """Return the factors as they are published."""
    report: Factors = {}
    for ((day, zone), reader), attributes in table.items():
        for attribute, figures in attributes.items():
            record = report.setdefault(f"{day}/{zone}/{attribute}", {})
            for figure, factor in figures.items():
                record.setdefault(figure, {})[reader] = _json(factor)
    return report


def _habits(charges: list[AttributeCharge], readers: Readers, table: Table, habits: Habits) -> HabitFactors:
    """Return attribute -> the factor by which a habit that was sensitive on every day so far is revealed.

    Each day is a record with its own coin, so factors multiply: for every day the largest ``exact`` in any
    zone, or e^epsilon where there is no model or that is larger. e^epsilon counts also where the day was shown
    or contradicts the model, so that no zone's own product of ``exact`` is larger.
    """
    report: HabitFactors = {}
    for release, attribute in sorted({(c.release, c.attribute) for c in charges if c.epsilon > 0}):
        group = [c for c in charges if (c.release, c.attribute) == (release, attribute)]
        zones = tuple(sorted({c.zone for c in group}))
        for reader, audiences in readers.items():
            seen = [c for c in group if c.audience in audiences and c.epsilon > 0]
            if seen:
                days = {(c.day, c.zone) for c in seen}
                today = [max(c.epsilon for c in seen), *(_log_exact(table[day, reader][attribute]) for day in days)]
                habit = add_day(habits, HabitKey(zones, attribute, reader), max(today))
                row: HabitFigures = {"days": habit.days, "factor": _json(exp_or_inf(float(habit.exponent)))}
                report.setdefault(f"{release}/{attribute}", {})[reader] = row
    return report


def _log_exact(figures: FactorsByAttribute) -> Fraction:
    """Return ln of the exact factor to 12 decimals; 0 where there is none or it is below 1."""
    exact = figures.get("exact") or 1.0
    return CERTAIN if math.isinf(exact) else Fraction(f"{max(0.0, math.log(exact)):.12f}")


def _times(factor: float, counts: float) -> float:
    """Return the product; 0 if the factor is 0: a shown value is not sensitive, independent of counts."""
    return factor * counts if factor else 0.0


def _json(factor: float | None) -> JsonFactor:
    return None if factor is None else json_float(round(factor, 9))
