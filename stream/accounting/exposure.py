"""What the attributes of a day have given away: posterior-odds factors, habits, information.

For every attribute of a zone's day and every reader of anything about that zone's day:

| figure        | holds                                                                                        |
|---------------|----------------------------------------------------------------------------------------------|
| ``theorem_1`` | of this attribute alone: e^epsilon if withheld, 0 if shown, 1 if not asked; no bound where   |
|               | attributes depend on each other                                                              |
| ``exact``     | under the release's declared model, its outcomes and shown values of that day together;      |
|               | null where the model says that such an outcome cannot happen: it is wrong about the day      |
| ``bound``     | under every model: the epsilons of all records of the zone's day add up if none was shown;   |
|               | nothing beside a record that was shown (without a model a value may imply anything)          |
| ``with_counts`` | ``exact`` (``bound`` without a model and where it is null) together with what was charged   |
|               | for counts of the same zone on that day (``charged``)                                        |

Where a zone's day was asked under several policies, no model holds: ``bound`` is over all that was asked of it.
A record that was not asked is no evidence; its attribute is still in the table where a model
ties it to others. A policy declares a model only of all attributes that it releases of a zone, so that no
outcome is left out of ``exact``. Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided
Differential Privacy", Theorems 1-4 and Corollary 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stream.accounting.attribute_model import DayModel, Value
from stream.accounting.habit import HabitOf, Habits, add_day
from stream.accounting.leakage.odds import exp_or_inf
from stream.accounting.views import Readers
from stream.records import AttributeCharge
from stream.schemas import json_float

JsonFactor = float | str | None


CERTAIN = Fraction(1000)
"""Stands for ln of an infinite factor: e^1000 is beyond every double."""

ZoneDay = tuple[str, str]
"""Day and zone."""
CountExponents = Mapping[tuple[ZoneDay, str], Fraction]
"""Zone's day and reader -> k E (``charged``)."""
Figures = dict[str, float | None]
Table = dict[tuple[ZoneDay, str], dict[str, Figures]]
"""Zone's day and reader -> attribute -> figure -> factor."""


@dataclass(frozen=True)
class AttributeAccount:
    """What the account needs to know of a site's attribute releases."""

    models: Mapping[str, DayModel]
    """Release -> declared model, where there is one."""
    targets: Mapping[str, float]
    """Release -> bits to compare its information with."""
    earlier: Mapping[str, Mapping[str, DayModel]] = field(default_factory=dict)
    """Policy version -> its models, for charges that were made under another one."""

    def of_day(
        self, charges: Iterable[AttributeCharge], readers: Readers, habits: Habits, counts: CountExponents
    ) -> dict[str, Any]:
        """Return the account of one day's attribute records; adds the day to ``habits``."""
        records = list(charges)
        table = self._table(records, readers, counts)
        report = {"attributes": _records(table), "habit": _habits(records, readers, table, habits)}
        information = self._information(records, readers)
        return report | ({"information": information} if information else {})

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
    ) -> dict[str, Figures]:
        """Return the figures of a zone's day, attribute by attribute, as one reader sees it."""
        view, counts = _view(group, audiences), exp_or_inf(float(exponent))
        exact: Figures = {}
        models = self._models_of(group)
        for release in sorted({charge.release for charge in group} & set(models)):
            exact |= self._exact(models[release], view)
        report = {}
        for attribute in [*view.epsilon, *(name for name in exact if name not in view.epsilon)]:
            bound, known = view.bound(attribute), exact.get(attribute)
            figures: Figures = {"theorem_1": view.alone(attribute), "bound": bound}
            if attribute in exact:
                figures["exact"] = known
            figures["with_counts"] = _times(bound if known is None else known, counts)
            report[attribute] = figures
        return report

    def _models_of(self, group: list[AttributeCharge]) -> Mapping[str, DayModel]:
        """Return the models of the policy under which a zone's day was asked; none holds where there were several."""
        versions = {charge.version for charge in group if charge.epsilon > 0} or {group[0].version}
        if len(versions) > 1:
            return {}
        (version,) = versions
        return self.earlier[version] if version else self.models

    def _exact(self, model: DayModel, view: _View) -> Figures:
        asked = {name: view.epsilon[name] for name in model.order if name in view.epsilon}
        if not asked:
            return {}
        found = model.factors(asked, {name: view.shown[name] for name in asked if name in view.shown})
        return dict.fromkeys(model.order) if found is None else dict(found)

    def _information(self, charges: list[AttributeCharge], readers: Readers) -> dict[str, Any]:
        """Return bits per zone and day: the most of any zone."""
        report: dict[str, Any] = {}
        for release, model in self.models.items():
            group = [charge for charge in charges if charge.release == release and not charge.version]
            for reader, audiences in readers.items():
                epsilon = _view(group, audiences).epsilon
                if epsilon:
                    bits = math.fsum(model.information_bits(epsilon).values())
                    row = {"bits": round(bits, 9)}
                    if release in self.targets:
                        row["target"] = self.targets[release]
                    report.setdefault(release, {})[reader] = row
        return report


@dataclass(frozen=True)
class _View:
    """What one reader has seen of a zone's day."""

    epsilon: dict[str, float]
    """Of the attributes that were asked: the largest of the reader's audiences, whose coins are nested; of several
    releases or policies that asked the same, whose rules or readings may differ, the sum."""
    shown: dict[str, Value]

    def alone(self, attribute: str) -> float:
        """Return the factor of an attribute that depends on no other."""
        return 0.0 if attribute in self.shown else exp_or_inf(self.epsilon.get(attribute, 0.0))

    def bound(self, attribute: str) -> float:
        """Return a factor that no model of the day exceeds."""
        if attribute in self.shown:
            return 0.0
        if self.shown:
            return math.inf
        return exp_or_inf(math.fsum(self.epsilon.values()))


def _view(charges: Iterable[AttributeCharge], audiences: frozenset[str]) -> _View:
    view = _View({}, {})
    asked: dict[tuple[str, str, str], float] = {}
    for charge in charges:
        if charge.audience in audiences and charge.epsilon > 0:
            line = charge.attribute, charge.release, charge.version
            asked[line] = max(asked.get(line, 0.0), float(charge.epsilon))
            if charge.shown is not None:
                view.shown[charge.attribute] = charge.shown
    for (attribute, _, _), epsilon in asked.items():
        view.epsilon[attribute] = view.epsilon.get(attribute, 0.0) + epsilon
    return view


def _records(table: Table) -> dict[str, Any]:
    """Return the factors as they are published: ``day/zone/attribute`` -> figure -> reader."""
    report: dict[str, dict[str, dict[str, JsonFactor]]] = {}
    for ((day, zone), reader), attributes in table.items():
        for attribute, figures in attributes.items():
            record = report.setdefault(f"{day}/{zone}/{attribute}", {})
            for figure, factor in figures.items():
                record.setdefault(figure, {})[reader] = _json(factor)
    return report


def _habits(charges: list[AttributeCharge], readers: Readers, table: Table, habits: Habits) -> dict[str, Any]:
    """Return, per attribute, by how much a habit that was sensitive on every day so far is given away.

    Each day is a record with a coin of its own, so factors multiply: of every day the largest ``exact`` in any
    zone, and e^epsilon where there is no model or that is more. The latter counts also where the day was shown
    or contradicts the model, so that no zone's own product of ``exact`` is larger.
    """
    report: dict[str, Any] = {}
    for release, attribute in sorted({(c.release, c.attribute) for c in charges if c.epsilon > 0}):
        group = [c for c in charges if (c.release, c.attribute) == (release, attribute)]
        zones = tuple(sorted({c.zone for c in group}))
        for reader, audiences in readers.items():
            seen = [c for c in group if c.audience in audiences and c.epsilon > 0]
            if seen:
                days = {(c.day, c.zone) for c in seen}
                today = [max(c.epsilon for c in seen), *(_log_exact(table[day, reader][attribute]) for day in days)]
                held = add_day(habits, HabitOf(zones, attribute, reader), max(today))
                row = {"days": held.days, "factor": _json(exp_or_inf(float(held.exponent)))}
                report.setdefault(f"{release}/{attribute}", {})[reader] = row
    return report


def _log_exact(figures: Figures) -> Fraction:
    """Return ln of the exact factor to 12 decimals; 0 where there is none or it is below 1."""
    exact = figures.get("exact") or 1.0
    return CERTAIN if math.isinf(exact) else Fraction(f"{max(0.0, math.log(exact)):.12f}")


def _times(factor: float, counts: float) -> float:
    """Return the product, 0 where the factor is: a value that was shown is not sensitive, whatever counts say."""
    return factor * counts if factor else 0.0


def _json(factor: float | None) -> JsonFactor:
    return None if factor is None else json_float(round(factor, 9))
