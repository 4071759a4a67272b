"""The releases of a policy: what is given to whom, through which mechanism, at which epsilon."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from stream.policy.attributes import ATTRIBUTES
from stream.policy.fields import (
    CLOCK_PATTERN,
    NANO,
    Clock,
    Duration,
    Epsilon,
    Frozen,
    Ident,
    Name,
    Spend,
    decimal_string,
    listed,
    refuse_repeats,
    worded,
)
from stream.policy.mechanisms import MECHANISMS, SMALLEST_PART, Mechanism, names_where
from stream.policy.sites import Zone
from stream.records import DAY

LARGEST_COUNT = 1_000_000_000
"""No threshold is larger."""
LONGEST_W = 2016
"""Most windows in a row that one epsilon or one sliding budget may pay for: a week of 5 min."""


class Selection(Frozen):
    """Which zones a release covers: all keys given must match, each by one value or one of a list."""

    kind: Annotated[tuple[Name, ...], BeforeValidator(listed)] = ()
    floor: Annotated[tuple[Ident, ...], BeforeValidator(listed)] = ()
    ids: Annotated[tuple[Ident, ...], BeforeValidator(listed)] = ()

    def covers(self, zone: Zone) -> bool:
        """Whether the zone is selected."""
        wanted = ((self.kind, zone.kind), (self.floor, zone.floor), (self.ids, zone.id))
        return all(not allowed or value in allowed for allowed, value in wanted)

    def unmatched(self, zones: Iterable[Zone]) -> str | None:
        """Return the first name given here that no zone bears: most likely it is misspelt."""
        known = {name for zone in zones for name in (("kind", zone.kind), ("floor", zone.floor), ("ids", zone.id))}
        given = (("kind", self.kind), ("floor", self.floor), ("ids", self.ids))
        return next((f"{key} {name}" for key, names in given for name in names if (key, name) not in known), None)


if TYPE_CHECKING:
    MechanismName = str
    AttributeName = str
else:  # choices that the registries decide, so that what is new is named there alone
    MechanismName = Literal[tuple(MECHANISMS)]
    AttributeName = Literal[tuple(ATTRIBUTES)]

Level = Literal["zone", "floor", "building"]


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


LONGEST_REFRESH = 366 * DAY
"""The ledger remembers no more."""


class Pruning(Frozen):
    """When the floors and zones below a node are skipped."""

    share: Epsilon
    """Part of epsilon that the tests may spend, between 0 and 1."""
    below: int = Field(ge=1, le=LARGEST_COUNT, strict=True)
    """A node whose noisy count is below this stands for everything under it."""


class Query(Frozen):
    """A question answered from what a count release gives anyway: it costs nothing more."""

    name: Name
    """Of its own private topic."""
    kind: Literal["window-sum", "jump", "low"]
    windows: int = Field(ge=1, le=LONGEST_W, strict=True)
    """How many windows it looks at, the present one included."""
    threshold: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] | None = None
    """Size at which a change is a jump or drop, or up to which a sum is low."""

    @model_validator(mode="after")
    def _threshold_fits(self) -> Query:
        if (self.threshold is None) != (self.kind == "window-sum"):
            msg = "threshold must be given with jump and low, and only with them"
            raise ValueError(msg)
        if self.kind == "jump" and (self.windows < 2 or self.threshold == 0):
            msg = "jump must look at 2 windows or more, with a threshold of at least 1"
            raise ValueError(msg)
        return self


class CountRelease(Frozen):
    """Counts per zone and window."""

    name: Name
    query: Literal["count"]
    mechanism: MechanismName
    smoother: Literal["average", "median", "james-stein"] = "median"
    calendar: bool = True
    zones: Selection = Selection()
    states: dict[Ident, tuple[Ident, ...]] = Field(default={})
    """Named sets of zones, counted instead of zones; they may overlap."""
    levels: tuple[Level, ...] = ("zone",)
    shares: dict[Level, Epsilon] = Field(default={})
    """Gives every level noise of its own at this share of epsilon; the shares add up to 1."""
    prune: Pruning | None = None
    w: Annotated[int, Field(ge=2, le=LONGEST_W, strict=True)] | None = None
    """Windows that epsilon pays for, with uniform, sample and ba."""
    queries: tuple[Query, ...] = ()
    epsilon: dict[Name, Epsilon] = Field(min_length=1)
    daily_budget: dict[Name, Spend] = Field(default={})
    """Per audience, for each ``refresh`` of UTC days."""
    refresh: Duration = DAY
    """When the daily budget begins anew: whole days."""
    w_budget: dict[Name, Spend] = Field(default={})
    """Per audience, for any ``privacy.w`` consecutive windows."""

    @field_validator("levels")
    @classmethod
    def _levels_rest_on_zones(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        refuse_repeats("must be unique", value)
        if "zone" not in value:
            msg = f"must include 'zone', of whose values the others are sums, got {', '.join(value) or 'none'}"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _epsilons_fit(self) -> CountRelease:
        least = self.declared.smallest
        for audience, epsilon in self.epsilon.items():
            if epsilon < least:
                msg = (
                    f"epsilon.{audience} must be at least {decimal_string(least)} with {self.mechanism}, "
                    f"got {decimal_string(epsilon)}"
                )
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _mechanism_fits(self) -> CountRelease:
        _check_mechanism(self)
        _check_parts(self)
        return self

    @property
    def declared(self) -> Mechanism:
        """What the release's mechanism declares."""
        return MECHANISMS[self.mechanism]

    @property
    def windows_paid(self) -> int:
        """How many consecutive windows one epsilon pays for: w, or 1."""
        return self.w or 1

    def charge(self, audience: str) -> Fraction:
        """Return what one window is charged: epsilon, or epsilon / w rounded up to the ledger's unit."""
        nano = self.epsilon[audience] * NANO / self.windows_paid
        return Fraction(-(-nano.numerator // nano.denominator), NANO)

    @field_validator("refresh")
    @classmethod
    def _whole_days(cls, value: int) -> int:
        if value % DAY or value > LONGEST_REFRESH:
            msg = "must be whole days, such as '7d', and at most 366"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _budgets_fit(self) -> CountRelease:
        for name, budgets in (("daily_budget", self.daily_budget), ("w_budget", self.w_budget)):
            for audience, budget in budgets.items():
                if audience not in self.epsilon:
                    msg = f"{name}.{audience} must belong to an audience that has an epsilon"
                    raise ValueError(msg)
                if budget < self.epsilon[audience]:
                    msg = f"{name}.{audience} must pay at least one release, got {decimal_string(budget)}"
                    raise ValueError(msg)
        return self

    @property
    def refresh_days(self) -> int:
        """Days for which a daily budget lasts."""
        return self.refresh // DAY


def _check_mechanism(release: CountRelease) -> None:
    """Raise ValueError where mechanism, w, states, levels, shares and pruning do not go together."""
    declared, audiences = release.declared, len(release.epsilon)
    w_event, most = _worded(names_where("pays_for_w"), "and"), declared.audiences
    rules = (
        (declared.pays_for_w == (release.w is not None), f"w must be given with {w_event}, and only with them"),
        (most is None or audiences <= most, f"{release.mechanism} must have {_audiences(most)}, got {audiences}"),
        (
            not declared.pays_for_w or not release.w_budget,
            f"w_budget must not go with {release.mechanism}, whose epsilon is one",
        ),
        (not release.states or release.levels == ("zone",), "levels must be ['zone'] with states, which may overlap"),
        (
            not release.shares or declared.levels,
            f"shares must go with {_worded(names_where('levels'), 'or')}, got {release.mechanism}",
        ),
        (not release.shares or not release.states, "shares must not go with states"),
        (
            not release.shares or (set(release.shares) == set(release.levels) and sum(release.shares.values()) == 1),
            "shares must name every level, and add up to 1",
        ),
        (release.prune is None or len(release.shares) > 1, "prune must go with shares of two levels or more"),
        (release.prune is None or audiences == 1, f"prune must have one audience, got {audiences}"),
        (release.prune is None or release.prune.share < 1, "prune.share must be below 1"),
    )
    for holds, rule in rules:
        if not holds:
            raise ValueError(rule)


def _worded(names: tuple[str, ...], last: str) -> str:
    """Return ``a, b and c``."""
    return f" {last} ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _audiences(most: int | None) -> str:
    return "one audience" if most == 1 else f"at most {most} audiences"


def _check_parts(release: CountRelease) -> None:
    """Raise ValueError where a part into which epsilon is divided is smaller than the noise can be made for."""
    for name, zones in release.states.items():
        if not zones:
            msg = f"states.{name} must have at least one zone, got none"
            raise ValueError(msg)
    for audience, epsilon in release.epsilon.items():
        for part, least, rule in _parts(release, audience, epsilon):
            if part < least:
                raise ValueError(rule)


def _parts(release: CountRelease, audience: str, epsilon: Fraction) -> Iterator[tuple[Fraction, Fraction, str]]:
    """Yield each part of an epsilon, the least that it may be, and the rule to report where it is less."""
    key, least = f"epsilon.{audience}", release.declared.smallest
    overlap = max(Counter(zone for zones in release.states.values() for zone in set(zones)).values(), default=1)
    parts, where = overlap, f" with a zone in {overlap} states" if release.states else ""
    if release.w is not None:
        parts, where = parts * release.declared.parts_per_window * release.w, f" with w = {release.w}" + where
    most = f"{key} must be at least {decimal_string(parts * least)}{where}, got {decimal_string(epsilon)}"
    yield epsilon / parts, least, most
    measured = epsilon * (1 - release.prune.share) if release.prune else epsilon
    for level, share in release.shares.items():
        rule = f"shares.{level} must leave at least {decimal_string(least)} of {key}"
        yield share * measured, least, f"{rule}, got {decimal_string(share * measured)}"
    if release.prune is not None:
        test, rule = epsilon * release.prune.share, "prune.share must leave each test at least"
        each = test / (len(release.shares) - 1)
        yield each, SMALLEST_PART, f"{rule} {decimal_string(SMALLEST_PART)} of {key}, got {decimal_string(each)}"


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


Release = Annotated[CountRelease | AttributeRelease, Field(discriminator="query")]


def audiences_of(release: CountRelease | AttributeRelease) -> tuple[str, ...]:
    """Return the audiences of a release, sorted."""
    return release.audiences if isinstance(release, AttributeRelease) else tuple(sorted(release.epsilon))
