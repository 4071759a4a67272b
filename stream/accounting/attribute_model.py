"""A declared model of a zone's day: how the attributes of one release are jointly distributed.

The policy gives a probability to every pattern of classes, a digit per attribute in the order in which the
release lists them. Without ``cuts`` an attribute has two classes, 0 sensitive and 1 not; with cuts
c_1 < c_2 < … a value's class is the number of cuts that are at most the value, so that what a *shown value*
says about other attributes is part of the model. A day on which the zone was empty counts as sensitive: its
probability belongs to a class that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import exp, implications, log_factors
from stream.accounting.leakage.guard import ROUNDING
from stream.accounting.leakage.information import attribute_information, bits
from stream.accounting.leakage.value_patterns import asked, class_shown, log_worst_outcomes, unasked
from stream.errors import UsageError
from stream.policy.document import AttributeRelease

Floats = NDArray[np.float64]
Value = str | int | float


@dataclass(frozen=True)
class DayModel:
    """The model of one attribute release."""

    order: tuple[str, ...]
    cuts: tuple[tuple[Value, ...], ...]
    """Per attribute; empty where there are two classes."""
    sensitive: tuple[NDArray[np.bool_], ...]
    """Per attribute a mask over its classes."""
    joint: Floats
    """Probability of each pattern, an axis per attribute."""

    @cached_property
    def binary(self) -> Floats:
        """The same over sensitive (0) and not (1), shape (2,)*k."""
        table = self.joint
        for axis, mask in enumerate(self.sensitive):
            moved = np.moveaxis(table, axis, 0)
            table = np.moveaxis(np.stack([moved[mask].sum(axis=0), moved[~mask].sum(axis=0)]), 0, axis)
        return table

    def class_of(self, place: int, value: Value) -> int:
        """Return the class of a value that was shown."""
        if not self.cuts[place]:
            return 1
        return sum(cut <= value for cut in self.cuts[place])  # type: ignore[operator]

    def factors(self, epsilon: Mapping[str, float], shown: Mapping[str, Value]) -> dict[str, float] | None:
        """Return the exact posterior-odds factor of every attribute of the model, asked or not.

        Args:
            epsilon: of the attributes that were asked; others carry no evidence.
            shown: values of those that were shown.

        Returns:
            None when the outcome has probability 0 under the model: the model is then wrong about this day.
        """
        seen = {name: shown.get(name) for name in epsilon}
        evidence = [self._seen(name, epsilon, seen)[0] for name in self.order]
        try:
            found = exp(log_factors(self.joint, evidence, self.sensitive))
        except UsageError:
            return None
        return dict(zip(self.order, (float(f) for f in found), strict=True))

    def _seen(self, name: str, epsilon: Mapping[str, float], seen: Mapping[str, Value | None]) -> Floats:
        """Return the one row of an outcome that is known: not asked, withheld (None) or shown."""
        place = self.order.index(name)
        mask = self.sensitive[place]
        if name not in seen:
            return unasked(mask)
        value = seen[name]
        if value is None:
            return asked(mask, epsilon[name])[:1]
        return class_shown(mask, self.class_of(place, value), epsilon[name])[None]

    def worst(self, epsilon: Mapping[str, float]) -> dict[str, float]:
        """Return each attribute's largest factor over every outcome, values included, when these are asked."""
        found = exp(np.array(self._log_worst(epsilon, {})))
        return dict(zip(self.order, (float(f) for f in found), strict=True))

    def permitted(self, epsilon: Mapping[str, float], cap: float) -> frozenset[str]:
        """Return the attributes that may be asked with no reachable outcome above e^cap (static rule).

        They join in their order; one that would break the cap beside those already in is left out.
        """
        chosen: dict[str, float] = {}
        for name in self.order:
            trial = chosen | ({name: epsilon[name]} if name in epsilon else {})
            if self._within(max(self._log_worst(trial, {})), cap):
                chosen = trial
        return frozenset(chosen)

    def may_ask(
        self, attribute: str, epsilon: Mapping[str, float], seen: Mapping[str, Value | None], cap: float
    ) -> bool:
        """Return whether no answer to one more question lifts a factor above e^cap (adaptive rule).

        Args:
            attribute: the one to be asked next.
            epsilon: of every attribute that is asked at all.
            seen: outcomes already published: a value where it was shown, None where it was withheld.
            cap: largest ln factor.
        """
        return self._within(max(self._log_worst({attribute: epsilon[attribute]}, seen, epsilon)), cap)

    def _log_worst(
        self, next_up: Mapping[str, float], seen: Mapping[str, Value | None], epsilon: Mapping[str, float] | None = None
    ) -> list[float]:
        rows = [
            asked(mask, next_up[name]) if name in next_up else self._seen(name, epsilon or {}, seen)
            for name, mask in zip(self.order, self.sensitive, strict=True)
        ]
        return [float(f) for f in log_worst_outcomes(self.joint, rows, self.sensitive)]

    @staticmethod
    def _within(log_factor: float, cap: float) -> bool:
        return log_factor <= cap + ROUNDING

    def information_bits(self, epsilon: Mapping[str, float]) -> dict[str, float]:
        """Return I_i of every attribute at these epsilons, in bits; their sum bounds what is learnt of any one."""
        e = np.array([epsilon.get(name, 0.0) for name in self.order])
        queries = np.array([int(name in epsilon) for name in self.order])
        nats = attribute_information(self.binary, e, queries)
        return {name: bits(float(n)) for name, n in zip(self.order, nats, strict=True)}

    def proves(self) -> tuple[str, int, str] | None:
        """Return an attribute, a class of it that may be shown, and another that this proves sensitive; or None."""
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


def asked_attributes(release: AttributeRelease, model: DayModel | None) -> frozenset[str]:
    """Return the attributes that a release asks about at all: all but those that its static guard leaves out."""
    if model is None or release.cap is None or release.guard == "adaptive":
        return frozenset(release.attributes)
    return model.permitted(largest_epsilons(release), release.cap)


def largest_epsilons(release: AttributeRelease) -> dict[str, float]:
    """Return per attribute what all its audiences together are shown at: coins are nested."""
    return {name: float(max(rule.epsilon.values())) for name, rule in release.attributes.items()}


def _mask(release: AttributeRelease, name: str, cuts: Sequence[Value]) -> NDArray[np.bool_]:
    if not cuts:
        return np.array([True, False])
    return np.array(class_sensitivity(release, name, cuts))


def class_sensitivity(release: AttributeRelease, name: str, cuts: Sequence[Value]) -> list[bool]:
    """Return, per class between cuts, whether its values are sensitive, by its lowest value."""
    rule = release.attributes[name].sensitive
    lowest: list[Value] = ["" if isinstance(cuts[0], str) else float("-inf"), *cuts]
    return [rule.holds(value) for value in lowest]
