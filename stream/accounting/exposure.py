"""What the attributes of a day have given away: posterior-odds factors, habits, information.

For every attribute of a zone's day and every reader who was told something about that zone's day:

| figure        | holds                                                                                        |
|---------------|----------------------------------------------------------------------------------------------|
| ``theorem_1`` | where attributes do not depend on each other: e^epsilon if withheld, 0 if shown, 1 if not    |
|               | asked                                                                                        |
| ``exact``     | under the release's declared model, its outcomes and shown values of that day together;      |
|               | null where the model says that such an outcome cannot happen: it is wrong about the day      |
| ``bound``     | under every model: the epsilons of all records of the zone's day add up if none was shown;   |
|               | nothing beside a record that was shown (without a model a value may imply anything)          |
| ``with_counts`` | ``exact`` (``theorem_1`` without a model, ``bound`` where it is null) together with the    |
|               | count releases of the same zone                                                              |

A record that was refused was not asked: it is no evidence; its attribute is still in the table where a model
ties it to others. Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy",
Theorems 1-4 and Corollary 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from stream.accounting.attribute_model import DayModel, Value
from stream.accounting.exclusion import exp_or_inf
from stream.records import Charge

Told = float | str | None
Members = Mapping[str, frozenset[str]]
"""Reader -> the audiences it reads as."""


class Habit(NamedTuple):
    """A habit that was sensitive on every day on which it was asked about."""

    days: int
    exponent: Fraction
    """Sum over those days of the largest epsilon that the reader saw."""


Habits = dict[str, Habit]
"""``release/attribute/reader`` -> what has been asked so far."""


@dataclass(frozen=True)
class AttributeAccount:
    """What the account needs to know of a site's attribute releases."""

    models: Mapping[str, DayModel]
    """Release -> declared model, where there is one."""
    targets: Mapping[str, float]
    """Release -> bits to compare its information with."""
    count_exponents: Mapping[str, Mapping[str, Fraction]]
    """Zone -> reader -> sum of k n epsilon over the zone's count releases."""

    def of_day(self, charges: Iterable[Charge], readers: Members, habits: Habits) -> dict[str, Any]:
        """Return the account of one day's attribute records; adds the day to ``habits``."""
        records = list(charges)
        told = {"attributes": self._records(records, readers), "habit": _habits(records, readers, habits)}
        information = self._information(records, readers)
        return told | ({"information": information} if information else {})

    def _records(self, charges: list[Charge], readers: Members) -> dict[str, Any]:
        groups: dict[tuple[str, str], list[Charge]] = {}
        for charge in charges:
            groups.setdefault((charge.day, charge.zone), []).append(charge)
        told: dict[str, dict[str, dict[str, Told]]] = {}
        for (day, zone), group in groups.items():
            for reader, members in readers.items():
                exponent = self.count_exponents.get(zone, {}).get(reader, Fraction(0))
                for attribute, figures in self._of_reader(group, members, exponent).items():
                    record = told.setdefault(f"{day}/{zone}/{attribute}", {})
                    for figure, factor in figures.items():
                        record.setdefault(figure, {})[reader] = _json(factor)
        return told

    def _of_reader(
        self, group: list[Charge], members: frozenset[str], exponent: Fraction
    ) -> dict[str, dict[str, float | None]]:
        """Return the figures of a zone's day, attribute by attribute, as one reader sees it."""
        view, counts = _view(group, members), exp_or_inf(float(exponent))
        exact: dict[str, float | None] = {}
        for release in sorted({charge.release for charge in group} & set(self.models)):
            exact |= self._exact(self.models[release], view)
        told = {}
        for attribute in [*view.epsilon, *(name for name in exact if name not in view.epsilon)]:
            alone, bound = view.alone(attribute), view.bound(attribute)
            figures: dict[str, float | None] = {"theorem_1": alone, "bound": bound}
            known: float | None = alone
            if attribute in exact:
                known = figures["exact"] = exact[attribute]
            figures["with_counts"] = (bound if known is None else known) * counts
            told[attribute] = figures
        return told

    def _exact(self, model: DayModel, view: _View) -> dict[str, float | None]:
        asked = {name: view.epsilon[name] for name in model.order if name in view.epsilon}
        if not asked:
            return {}
        found = model.factors(asked, {name: view.shown[name] for name in asked if name in view.shown})
        return dict.fromkeys(model.order) if found is None else dict(found)

    def _information(self, charges: list[Charge], readers: Members) -> dict[str, Any]:
        """Return bits per zone and day: the most of any zone."""
        told: dict[str, Any] = {}
        for release, model in self.models.items():
            group = [charge for charge in charges if charge.release == release]
            for reader, members in readers.items():
                epsilon = _view(group, members).epsilon
                if epsilon:
                    bits = math.fsum(model.information_bits(epsilon).values())
                    row = {"bits": round(bits, 9)}
                    if release in self.targets:
                        row["target"] = self.targets[release]
                    told.setdefault(release, {})[reader] = row
        return told


@dataclass(frozen=True)
class _View:
    """What one reader has seen of a zone's day."""

    epsilon: dict[str, float]
    """Of the attributes that were asked: the largest of the reader's audiences, whose coins are nested."""
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


def _view(charges: Iterable[Charge], members: frozenset[str]) -> _View:
    view = _View({}, {})
    for charge in charges:
        if charge.audience in members and charge.epsilon > 0:
            view.epsilon[charge.attribute] = max(view.epsilon.get(charge.attribute, 0.0), float(charge.epsilon))
            if charge.shown is not None:
                view.shown[charge.attribute] = charge.shown
    return view


def _habits(charges: list[Charge], readers: Members, habits: Habits) -> dict[str, Any]:
    """Return, per attribute, by how much a habit that was sensitive on every day so far is given away.

    Each day is a record with a coin of its own, so factors multiply: e to the sum of the days' epsilons.
    """
    told: dict[str, Any] = {}
    for release, attribute in sorted({(c.release, c.attribute) for c in charges if c.epsilon > 0}):
        group = [c for c in charges if (c.release, c.attribute) == (release, attribute)]
        for reader, members in readers.items():
            today = max((c.epsilon for c in group if c.audience in members), default=Fraction(0))
            if today:
                name = f"{release}/{attribute}/{reader}"
                held = habits.get(name, Habit(0, Fraction(0)))
                habits[name] = Habit(held.days + 1, held.exponent + today)
                row = {"days": held.days + 1, "factor": _json(exp_or_inf(float(habits[name].exponent)))}
                told.setdefault(f"{release}/{attribute}", {})[reader] = row
    return told


def _json(factor: float | None) -> Told:
    if factor is None:
        return None
    return "inf" if math.isinf(factor) else round(factor, 9)
