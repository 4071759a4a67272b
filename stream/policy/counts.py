"""Releases of counts: per zone and window, and what is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from stream.policy.fields import (
    NANO,
    Delta,
    Duration,
    Epsilon,
    Frozen,
    Ident,
    Name,
    Spend,
    decimal_string,
    refuse_repeats,
)
from stream.policy.mechanisms import ALIASES, MECHANISMS, SMALLEST_PART, Mechanism, names_where
from stream.policy.queries import LARGEST_COUNT, LONGEST_W, Query
from stream.policy.selection import Selection
from stream.records import DAY, NoiseKind

LONGEST_REFRESH = 366 * DAY
"""The ledger remembers no more."""

if TYPE_CHECKING:
    MechanismName = str
else:  # a choice that the registry decides, so that what is new is named there alone
    MechanismName = Literal[tuple(MECHANISMS)]

Level = Literal["zone", "floor", "building"]
LEVELS: tuple[Level, ...] = ("zone", "floor", "building")
"""Leaves first."""


Span = Literal["1h", "1d"]
"""Windows that are revised together."""


def _listed(spans: object) -> object:
    """Return a list of spans, of which one may be written without brackets."""
    return (spans,) if isinstance(spans, str) else spans


def _by_name(mechanism: object) -> object:
    """Return the name that records bear: ``plain`` says ``laplace`` where the noise is another."""
    return ALIASES.get(mechanism, mechanism) if isinstance(mechanism, str) else mechanism


class Pruning(Frozen):
    """When the floors and zones below a node are skipped."""

    share: Epsilon
    """Part of epsilon that the tests may spend, between 0 and 1."""
    below: int = Field(ge=1, le=LARGEST_COUNT, strict=True)
    """A node whose noisy count is below this stands for everything under it."""


class CountRelease(Frozen):
    """Counts per zone and window."""

    name: Name
    query: Literal["count"]
    mechanism: Annotated[MechanismName, BeforeValidator(_by_name)]
    smoother: Literal["average", "median", "james-stein"] = "median"
    calendar: bool = True
    noise: NoiseKind = "laplace"
    """Law of the noise; gaussian only where ``unit`` is a day, whose price decides how much of it there is."""
    unit: Literal["window", "device_day"] = "window"
    """What epsilon pays for: one presence at one window, or a device's whole privacy day."""
    delta: Delta | None = None
    """With which epsilon holds for a day of gaussian noise; None: ``privacy.delta``."""
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
    revise: Annotated[tuple[Span, ...], BeforeValidator(_listed)] = ()
    """When values are published once more, better known: an hour after their hour, when their day is over, or both."""
    epsilon: dict[Name, Epsilon] = Field(min_length=1)
    daily_budget: dict[Name, Spend] = Field(default={})
    """Per audience, for each ``refresh`` of UTC days."""
    refresh: Duration = DAY
    """When the daily budget begins anew: whole days."""
    w_budget: dict[Name, Spend] = Field(default={})
    """Per audience, for any ``privacy.w`` consecutive windows."""

    @field_validator("levels")
    @classmethod
    def _levels_are_some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        refuse_repeats("must be unique", value)
        if not value:
            msg = "must hold at least one of zone, floor and building, got none"
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
    def revised_name(self) -> str:
        """The name under which revised values are published."""
        return f"{self.name}-revised"

    @property
    def published_names(self) -> tuple[str, ...]:
        """Every name under which something is published, each with a private topic of its own."""
        return (self.name, *([self.revised_name] if self.revise else []), *(query.name for query in self.queries))

    @property
    def by_day(self) -> bool:
        """Whether epsilon pays for a device's whole privacy day."""
        return self.unit == "device_day"

    @property
    def levels_up(self) -> tuple[Level, ...]:
        """The levels from the leaves to the root."""
        return tuple(level for level in LEVELS if level in self.levels)

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
        (
            "zone" in release.levels or release.shares,
            "levels must include 'zone', of whose values the others are sums without shares, got "
            + ", ".join(release.levels),
        ),
        ("zone" in release.levels or not release.queries, "queries must go with levels that include 'zone'"),
        (
            not release.revise or declared.revisable,
            f"revise must go with {_worded(names_where('revisable'), 'or')}, got {release.mechanism}",
        ),
        (len(set(release.revise)) == len(release.revise), "revise must name '1h' and '1d' once each"),
        (release.prune is None or declared.prunes, f"prune must not go with {release.mechanism}"),
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
    """Yield each part of an epsilon, the least that it may be, and the rule to report where it is less.

    A day's epsilon is divided over the windows of its site, which is looked at there (``day_release``).
    """
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
