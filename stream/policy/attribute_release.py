"""Releases of attributes of a zone's day: which values are sensitive, and how attributes are jointly distributed."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, FiniteFloat, field_validator, model_validator

from stream.policy.attributes import ATTRIBUTES
from stream.policy.fields import CLOCK_PATTERN, Clock, Epsilon, Frozen, Name, worded
from stream.policy.selection import Selection

if TYPE_CHECKING:
    AttributeName = str
else:  # a choice that the registry decides, so that what is new is named there alone
    AttributeName = Literal[tuple(ATTRIBUTES)]


class Sensitive(Frozen):
    """When an attribute's value is sensitive: any of the tests given."""

    after: Clock | None = None
    before: Clock | None = None
    above: FiniteFloat | None = None
    below: FiniteFloat | None = None

    @model_validator(mode="after")
    def _something(self) -> Sensitive:
        if not self.model_dump(exclude_none=True):
            msg = "must give at least one of after, before, above, below"
            raise ValueError(msg)
        return self

    def holds(self, value: str | float) -> bool:
        """Whether this value of the attribute is sensitive."""
        if isinstance(value, str):
            return (self.after is not None and value > self.after) or (self.before is not None and value < self.before)
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


class Attribute(Frozen):
    """One attribute of a zone's day: to whom at which epsilon, and which values are sensitive."""

    epsilon: dict[Name, Epsilon] = Field(min_length=1)
    sensitive: Sensitive


Pattern = Annotated[str, AfterValidator(worded(r"[0-9]+", "must be a pattern, one digit per attribute"))]


class AttributeModel(Frozen):
    """How the attributes of a release are jointly distributed: a declared, and so public, joint distribution."""

    joint: dict[Pattern, Annotated[float, Field(ge=0)]] = Field(min_length=1)
    """Probability of each pattern, a digit per attribute in their order; without cuts 0 is sensitive, 1 not."""
    cuts: dict[AttributeName, tuple[str | float, ...]] = Field(default={})
    """Where values are split into classes 0, 1, 2 …; makes what a shown value says part of the model."""


class AttributeRelease(Frozen):
    """Attributes of a zone's day through one-sided randomised response."""

    name: Name
    query: Literal["attributes"]
    mechanism: Literal["osdprr"] = "osdprr"
    zones: Selection = Selection()
    absent: Literal["sensitive", "public"] = "sensitive"
    attributes: dict[AttributeName, Attribute] = Field(min_length=1)
    model: AttributeModel | None = None
    cap: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Largest ln of a posterior-odds factor, over every outcome that can happen; needs a model."""
    guard: Literal["static", "adaptive"] = "static"
    """static: leave out attributes by the model alone; adaptive: by what has already been published."""
    days_per_month: Annotated[int, Field(gt=0, le=30, strict=True)] | None = None
    """Days in any 30 on which a zone's attributes are asked."""
    information_target: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Bits that the account compares the release's information with."""

    @model_validator(mode="after")
    def _model_fits(self) -> AttributeRelease:
        _check_model(self)
        return self

    @field_validator("attributes")
    @classmethod
    def _tests_fit(cls, value: dict[str, Attribute]) -> dict[str, Attribute]:
        for name, attribute in value.items():
            given = set(attribute.sensitive.model_dump(exclude_none=True))
            wanted = ATTRIBUTES[name].tests
            if not given <= wanted:
                rule = " or ".join(sorted(wanted))
                msg = f"{name}.sensitive must use {rule}, got {', '.join(sorted(given))}"
                raise ValueError(msg)
        return value

    @property
    def audiences(self) -> tuple[str, ...]:
        """Every audience that gets at least one attribute."""
        return tuple(sorted({name for attribute in self.attributes.values() for name in attribute.epsilon}))


def _check_model(release: AttributeRelease) -> None:
    """Raise ValueError where the declared model does not fit the attributes, or cap and guard need another."""
    model, names = release.model, list(release.attributes)
    if model is None:
        if release.cap is not None or release.information_target is not None or release.guard == "adaptive":
            msg = "cap, guard = 'adaptive' and information_target need a model"
            raise ValueError(msg)
        return
    if model.cuts and release.absent == "public":
        msg = "model.cuts need absent = 'sensitive'"
        raise ValueError(msg)
    sizes = [len(model.cuts.get(name, (0,))) + 1 for name in release.attributes]
    for pattern in model.joint:
        if len(pattern) != len(names) or any(int(d) >= n for d, n in zip(pattern, sizes, strict=True)):
            msg = f"model.joint: a pattern must give each of {', '.join(names)} one of its classes, got {pattern!r}"
            raise ValueError(msg)
    if abs(sum(model.joint.values()) - 1) > 1e-6:
        msg = f"model.joint: probabilities must add up to 1, got {sum(model.joint.values()):.9g}"
        raise ValueError(msg)
    for name, cuts in model.cuts.items():
        _check_cuts(release, name, cuts)
    asked = {audience for attribute in release.attributes.values() for audience in attribute.epsilon}
    if release.guard == "adaptive" and (release.cap is None or len(asked) > 1):
        msg = "guard = 'adaptive' needs a cap, and one audience: its decisions reveal what that audience has seen"
        raise ValueError(msg)


def _check_cuts(release: AttributeRelease, name: AttributeName, cuts: tuple[str | float, ...]) -> None:
    rule = release.attributes[name].sensitive if name in release.attributes else None
    text = ATTRIBUTES[name].is_time
    if rule is None or not 0 < len(cuts) <= 9 or any(isinstance(cut, str) != text for cut in cuts):
        msg = f"model.cuts.{name}: must be one to nine {'times HH:MM' if text else 'numbers'} of an attribute asked"
        raise ValueError(msg)
    for cut in cuts:
        if not (CLOCK_PATTERN.fullmatch(cut) if isinstance(cut, str) else math.isfinite(cut)):
            msg = f"model.cuts.{name}: must be {'a time HH:MM' if text else 'finite'}, got {cut!r}"
            raise ValueError(msg)
    if list(cuts) != sorted(set(cuts)):
        msg = f"model.cuts.{name}: must ascend"
        raise ValueError(msg)
    missing = [edge for edge in _edges(name, rule) if edge not in cuts]
    if missing:
        msg = f"model.cuts.{name}: no class may hold both sensitive and other values, add the cut {missing[0]!r}"
        raise ValueError(msg)


def _edges(name: str, rule: Sensitive) -> list[str | float]:
    """Return the cuts that separate sensitive from other values: at the edge, or at the next value above it."""
    edges: list[str | float] = [edge for edge in (rule.before, rule.below) if edge is not None]
    if rule.after is not None:
        minutes = int(rule.after[:2]) * 60 + int(rule.after[3:]) + 1
        edges += [f"{minutes // 60:02d}:{minutes % 60:02d}"] if minutes <= 1440 else []
    step = ATTRIBUTES[name].step
    if rule.above is not None and step is not None:
        edges.append(float((math.floor(Decimal(repr(rule.above)) / step) + 1) * step))
    return edges
