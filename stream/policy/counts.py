"""Releases of counts per zone and window, and free queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

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
from stream.policy.sites import Selection
from stream.records import DAY, NoiseKind

LARGEST_COUNT = 1_000_000_000
"""Largest threshold."""
LONGEST_W = 2016
"""Most consecutive windows that one epsilon or one sliding budget may pay for: a week of 5 min."""
MOST_KNOWN = 336
"""Most windows of a half hour of the week that a heat map may need; it remembers twice as many before they fade."""


class Query(Frozen):
    """A query that is answered from the published values of a count release, at no further cost."""

    name: Name
    """Name of the query's own private topic."""
    kind: Literal["window-sum", "jump", "low", "heatmap"]
    windows: int = Field(ge=1, le=LONGEST_W, strict=True)
    """Number of windows that it reads, including the current one; for a heat map the number of earlier windows of a
    half hour of the week that must be known before it has colours."""
    threshold: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] | None = None
    """Least size of a jump or drop, or the largest sum that is low."""

    @model_validator(mode="after")
    def _threshold_fits(self) -> Query:
        if (self.threshold is None) != (self.kind in {"window-sum", "heatmap"}):
            msg = "threshold must be given with jump and low, and only with them"
            raise ValueError(msg)
        if self.kind == "jump" and (self.windows < 2 or self.threshold == 0):
            msg = "jump must compare at least 2 windows, with a threshold of at least 1"
            raise ValueError(msg)
        if self.kind == "heatmap" and not 2 <= self.windows <= MOST_KNOWN:
            msg = f"heatmap must have 2 to {MOST_KNOWN} windows, got {self.windows}"
            raise ValueError(msg)
        return self


LONGEST_REFRESH = 366 * DAY
"""The period that the ledger remembers."""

if TYPE_CHECKING:
    MechanismName = str
else:  # the registry defines the names, so that a new one is added only there
    MechanismName = Literal[tuple(MECHANISMS)]

Level = Literal["zone", "floor", "building"]
LEVELS: tuple[Level, ...] = ("zone", "floor", "building")
"""From the leaves to the root."""


Count = Literal["ticks", "changes"]
"""What a device's day pays for: the ticks at which it counts, or the changes of its counts."""

Span = Literal["1h", "1d"]
"""Period whose windows are revised together."""


def _listed(spans: object) -> object:
    """Return a list of spans; a single one may be written without brackets."""
    return (spans,) if isinstance(spans, str) else spans


def _by_name(mechanism: object) -> object:
    """Return the name in records: ``plain`` is another name of ``laplace``, for use with other noise."""
    return ALIASES.get(mechanism, mechanism) if isinstance(mechanism, str) else mechanism


class Pruning(Frozen):
    """When the floors and zones below a node are skipped."""

    share: Epsilon
    """Share of epsilon that the tests may spend, between 0 and 1."""
    below: int = Field(ge=1, le=LARGEST_COUNT, strict=True)
    """A node whose noisy count is below this represents everything under it."""


class CountRelease(Frozen):
    """Counts per zone and window."""

    name: Name
    query: Literal["count"]
    mechanism: Annotated[MechanismName, BeforeValidator(_by_name)]
    smoother: Literal["average", "median", "james-stein"] = "median"
    calendar: bool = True
    noise: NoiseKind = "laplace"
    """Law of the noise; gaussian only if ``unit`` is ``device_day``, whose price determines its scale."""
    unit: Literal["window", "device_day"] = "window"
    """Unit for which epsilon pays: one presence at one window, or a device's whole privacy day."""
    count: Count = "ticks"
    """What a device's day pays for."""
    delta: Delta | None = None
    """Delta of epsilon for a day of gaussian noise; None: ``privacy.delta``."""
    zones: Selection = Selection()
    states: dict[Ident, tuple[Ident, ...]] = Field(default={})
    """Named sets of zones, which are counted instead of zones; they may overlap."""
    levels: tuple[Level, ...] = ("zone",)
    shares: dict[Level, Epsilon] = Field(default={})
    """If given, every level has noise of its own at this share of epsilon; the shares add up to 1."""
    prune: Pruning | None = None
    w: Annotated[int, Field(ge=2, le=LONGEST_W, strict=True)] | None = None
    """Consecutive windows that epsilon pays for, with uniform, sample and ba."""
    queries: tuple[Query, ...] = ()
    revise: Annotated[tuple[Span, ...], BeforeValidator(_listed)] = ()
    """When values are revised and published again: an hour after their hour, at the end of their day, or both."""
    epsilon: dict[Name, Epsilon] = Field(min_length=1)
    daily_budget: dict[Name, Spend] = Field(default={})
    """Budget per audience, for each period ``refresh`` of UTC days."""
    refresh: Duration = DAY
    """Period after which the daily budget is renewed: whole days."""
    w_budget: dict[Name, Spend] = Field(default={})
    """Budget per audience, for any ``privacy.w`` consecutive windows."""

    @model_serializer(mode="wrap")
    def _without_default_count(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit ``count`` at its default, so that documents from before this key existed stay the same."""
        plain: dict[str, object] = handler(self)
        if self.count == "ticks":
            plain.pop("count", None)
        return plain

    @field_validator("levels")
    @classmethod
    def _levels_are_some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        refuse_repeats("must be unique", value)
        if not value:
            msg = "must contain at least one of zone, floor and building, got none"
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
        """The declaration of the release's mechanism."""
        return MECHANISMS[self.mechanism]

    @property
    def revised_name(self) -> str:
        """The name under which revised values are published."""
        return f"{self.name}-revised"

    @property
    def published_names(self) -> tuple[str, ...]:
        """All names under which values are published; each has its own private topic."""
        return (self.name, *([self.revised_name] if self.revise else []), *(query.name for query in self.queries))

    @property
    def by_day(self) -> bool:
        """Whether epsilon pays for a device's whole privacy day."""
        return self.unit == "device_day"

    @property
    def by_changes(self) -> bool:
        """Whether a day's epsilon pays for the changes of a device's counts instead of its ticks."""
        return self.count == "changes"

    @property
    def levels_up(self) -> tuple[Level, ...]:
        """The levels from the leaves to the root."""
        return tuple(level for level in LEVELS if level in self.levels)

    @property
    def windows_paid(self) -> int:
        """Number of consecutive windows for which one epsilon pays: w, or 1."""
        return self.w or 1

    def charge(self, audience: str) -> Fraction:
        """Return the charge of one window: epsilon, or epsilon / w rounded up to the ledger's unit."""
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
                    msg = f"{name}.{audience} must pay for at least one release, got {decimal_string(budget)}"
                    raise ValueError(msg)
        return self

    @property
    def refresh_days(self) -> int:
        """Number of days for which a daily budget lasts."""
        return self.refresh // DAY


def _check_mechanism(release: CountRelease) -> None:
    """Raise ValueError if mechanism, w, states, levels, shares and pruning are not compatible."""
    declared, audiences = release.declared, len(release.epsilon)
    w_event, most = _worded(names_where("pays_for_w"), "and"), declared.audiences
    rules = (
        (declared.pays_for_w == (release.w is not None), f"w must be given with {w_event}, and only with them"),
        (most is None or audiences <= most, f"{release.mechanism} must have {_audiences(most)}, got {audiences}"),
        (
            not declared.pays_for_w or not release.w_budget,
            f"w_budget must not be used with {release.mechanism}, whose epsilon is one",
        ),
        (not release.states or release.levels == ("zone",), "levels must be ['zone'] with states, which may overlap"),
        (
            not release.shares or declared.levels,
            f"shares must be used with {_worded(names_where('levels'), 'or')}, got {release.mechanism}",
        ),
        (not release.shares or not release.states, "shares must not be used with states"),
        (
            not release.shares or (set(release.shares) == set(release.levels) and sum(release.shares.values()) == 1),
            "shares must name every level, and add up to 1",
        ),
        (
            "zone" in release.levels or release.shares,
            "levels must include 'zone', of whose values the others are sums without shares, got "
            + ", ".join(release.levels),
        ),
        ("zone" in release.levels or not release.queries, "queries must be used with levels that include 'zone'"),
        (
            not release.revise or declared.revisable,
            f"revise must be used with {_worded(names_where('revisable'), 'or')}, got {release.mechanism}",
        ),
        (len(set(release.revise)) == len(release.revise), "revise must name '1h' and '1d' once each"),
        (release.prune is None or declared.prunes, f"prune must not be used with {release.mechanism}"),
        (release.prune is None or len(release.shares) > 1, "prune must be used with shares of two levels or more"),
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
    """Raise ValueError if epsilon is divided into a part that is too small for the noise sampler."""
    for name, zones in release.states.items():
        if not zones:
            msg = f"states.{name} must have at least one zone, got none"
            raise ValueError(msg)
    for audience, epsilon in release.epsilon.items():
        for part, least, rule in _parts(release, audience, epsilon):
            if part < least:
                raise ValueError(rule)


def _parts(release: CountRelease, audience: str, epsilon: Fraction) -> Iterator[tuple[Fraction, Fraction, str]]:
    """Yield each part of an epsilon, its least value, and the rule to report if it is smaller.

    A day's epsilon is divided over the windows of its site; ``stream.policy.privacy.check_unit`` checks those parts.
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
