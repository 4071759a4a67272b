"""Attributes of a zone's day: their registry, and their releases.

1. ``DayShape`` describes a day in which attributes are whole numbers, and which combinations of them are possible:

   symbol   here    meaning
   T        ticks   ticks of a day
   W        work    ticks of the working hours, from ``begins`` to ``ends``
   e        empty   empty ticks that make a break

2. ``ATTRIBUTES`` is the registry: how each attribute is computed from a day, and which values it has. A policy may name
   only these attributes.
3. ``AttributeRelease`` says which values are sensitive, to which audiences attributes are published, and how they are
   jointly distributed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, FiniteFloat, field_validator, model_validator

from stream.policy.fields import CLOCK_PATTERN, Clock, Epsilon, Frozen, Name, worded
from stream.policy.sites import Selection
from stream.records import DAY, MINUTE, Micros

# --- the shape of a day -------------------------------------------------------------------------------


class Span(NamedTuple):
    """The whole numbers from ``low`` to ``high``; empty if ``high`` is less."""

    low: int
    high: int


@dataclass(frozen=True)
class DayShape:
    """A day of whole ticks, counted from 0 at local midnight."""

    ticks: int
    begins: int
    ends: int
    empty: int

    @property
    def work(self) -> int:
        """Ticks of the working hours."""
        return self.ends - self.begins

    @property
    def most_breaks(self) -> int:
        """The largest number of breaks between the first and the last tick."""
        return (self.ticks - 1) // (self.empty + 1)

    def local_time(self, tick: int) -> str:
        """Return a tick's local time, ``HH:MM``."""
        minutes = tick * DAY // self.ticks // MINUTE
        return f"{minutes // 60:02d}:{minutes % 60:02d}"

    def levels_with(self, breaks: int) -> Span:
        """Return the range of occupied working ticks of days with so many breaks."""
        return _span(self._together[:, breaks])

    def breaks_with(self, occupied: int) -> Span:
        """Return the range of breaks of days with so many occupied working ticks."""
        return _span(self._together[occupied])

    @cached_property
    def _together(self) -> NDArray[np.bool_]:
        """The possible pairs of (occupied working ticks, breaks), computed tick by tick.

        ``idle_for[g]`` are the pairs of days that were occupied before and whose last ``g`` ticks are empty; for
        ``g = empty`` at least so many.
        """
        shape = (self.work + 1, self.most_breaks + 2)
        idle_for = np.zeros((self.empty + 1, *shape), dtype=np.bool_)
        unseen = np.zeros(shape, dtype=np.bool_)
        unseen[0, 0] = True
        for tick in range(self.ticks):
            occupied = unseen | idle_for[: self.empty].any(axis=0)
            occupied[:, 1:] |= idle_for[self.empty, :, :-1]
            if self.begins <= tick < self.ends:
                occupied = np.vstack([np.zeros((1, shape[1]), dtype=np.bool_), occupied[:-1]])
            grown = np.concatenate([occupied[None], idle_for[:-1]])
            grown[self.empty] |= idle_for[self.empty]
            idle_for = grown
        return np.asarray(idle_for.any(axis=0))


def _span(reached: NDArray[np.bool_]) -> Span:
    places = np.flatnonzero(reached)
    return Span(int(places[0]), int(places[-1])) if len(places) else Span(0, -1)


# --- the registry -------------------------------------------------------------------------------------

LEVEL_STEP = Decimal("0.0001")
"""Levels are rounded to multiples of this."""
BREAK: Micros = 15 * MINUTE
"""Shortest time without occupancy that is a break."""


class OccupiedTick(NamedTuple):
    """A tick at which a zone was occupied; restricted."""

    local: datetime
    """Site-local time of the tick."""
    working: bool
    """Whether it lies in working hours."""
    empty: Micros
    """How long the zone was empty since the previous occupied tick; 0 for the first one of the day."""


class DayFacts(NamedTuple):
    """Summary of one zone's day on which the zone was occupied at all; restricted."""

    first: datetime
    """Site-local time of the first occupied tick."""
    last: datetime
    """Site-local time of the last occupied tick."""
    counted: int
    """Sum of ``AttributeKind.counts`` over the occupied ticks; 0 for an attribute that counts nothing."""
    working: int
    """Number of all ticks in working hours."""


Value = str | int | float
Reach = Callable[[DayShape, int], Span]
"""Maps an attribute's number to the numbers that another attribute can have on the same day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """What the values of an attribute imply for other attributes of the same day; values are whole numbers here."""

    numbers: Callable[[DayShape], Span]
    """The numbers that the attribute can have on an occupied day."""
    shown: Callable[[DayShape, int], Value]
    """The published value of a number."""
    reach: Mapping[str, Reach]
    """Other attribute -> its least and greatest number on days on which this attribute has a given number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeKind:
    """The declaration of an attribute."""

    value: Callable[[DayFacts], Value]
    """Computes the value from a day; local times are ``HH:MM``."""
    counts: Callable[[OccupiedTick], int] | None = None
    """What each occupied tick adds to ``DayFacts.counted``; None if first and last tick suffice."""
    step: Decimal | None
    """Distance of neighbouring numbers; None if values are local times."""
    working_hours: bool = False
    """Whether the attribute depends on working hours; these must then contain a tick."""
    logic: Logic | None = None
    """Two attributes of a zone can be released together only if the logic of each names the other. An attribute without
    logic can be released only if no other attribute of the zone is."""

    @property
    def is_time(self) -> bool:
        """Whether values are local times, as are its cuts."""
        return self.step is None

    @property
    def tests(self) -> frozenset[str]:
        """The tests by which a value can be sensitive."""
        return frozenset({"after", "before"} if self.is_time else {"above", "below"})


def _level(day: DayFacts) -> float:
    return round(day.counted / day.working, 4) if day.working else 0.0


def _ticks(day: DayShape) -> Span:
    return Span(0, day.ticks - 1)


def _levels_after(day: DayShape, first: int) -> Span:
    """Occupied working ticks of days whose first occupied tick is ``first``."""
    return Span(int(day.begins <= first < day.ends), max(0, day.ends - max(first, day.begins)))


def _levels_until(day: DayShape, last: int) -> Span:
    """Occupied working ticks of days whose last occupied tick is ``last``."""
    return Span(int(day.begins <= last < day.ends), max(0, min(last, day.ends - 1) - day.begins + 1))


def _outside_work(day: DayShape) -> Span:
    """First and last tick outside of the working hours."""
    first = 0 if day.begins > 0 else day.ends
    return Span(first, day.ticks - 1 if day.ends < day.ticks else day.begins - 1)


_ARRIVAL = Logic(
    numbers=_ticks,
    shown=DayShape.local_time,
    reach={
        "departure": lambda day, first: Span(first, day.ticks - 1),
        "breaks": lambda day, first: Span(0, (day.ticks - 1 - first) // (day.empty + 1)),
        "occupancy_level": _levels_after,
    },
)
_DEPARTURE = Logic(
    numbers=_ticks,
    shown=DayShape.local_time,
    reach={
        "arrival": lambda _, last: Span(0, last),
        "breaks": lambda day, last: Span(0, last // (day.empty + 1)),
        "occupancy_level": _levels_until,
    },
)
_BREAKS = Logic(
    numbers=lambda day: Span(0, day.most_breaks),
    shown=lambda _, breaks: breaks,
    reach={
        "arrival": lambda day, breaks: Span(0, day.ticks - 1 - breaks * (day.empty + 1)),
        "departure": lambda day, breaks: Span(breaks * (day.empty + 1), day.ticks - 1),
        "occupancy_level": DayShape.levels_with,
    },
)
_LEVEL = Logic(
    numbers=lambda day: Span(0, day.work),
    shown=lambda day, occupied: round(occupied / day.work, 4),
    reach={
        "arrival": lambda day, occupied: Span(0, day.ends - occupied) if occupied else _outside_work(day),
        "departure": lambda day, occupied: (
            Span(day.begins + occupied - 1, day.ticks - 1) if occupied else _outside_work(day)
        ),
        "breaks": DayShape.breaks_with,
    },
)

ATTRIBUTES: dict[str, AttributeKind] = {
    "arrival": AttributeKind(value=lambda day: day.first.strftime("%H:%M"), step=None, logic=_ARRIVAL),
    "departure": AttributeKind(value=lambda day: day.last.strftime("%H:%M"), step=None, logic=_DEPARTURE),
    "breaks": AttributeKind(
        value=lambda day: day.counted, counts=lambda tick: tick.empty >= BREAK, step=Decimal(1), logic=_BREAKS
    ),
    "occupancy_level": AttributeKind(
        value=_level, counts=lambda tick: tick.working, step=LEVEL_STEP, working_hours=True, logic=_LEVEL
    ),
}
"""Name in the policy -> declaration, in the order of a day's records. A new attribute is added at the end, because
stored states contain the counters in this order."""
COUNTING = tuple(name for name, kind in ATTRIBUTES.items() if kind.counts is not None)
"""The attributes that have a counter."""


if TYPE_CHECKING:
    AttributeName = str
else:  # the registry defines the names, so that a new one is added only there
    AttributeName = Literal[tuple(ATTRIBUTES)]


class Sensitive(Frozen):
    """When an attribute's value is sensitive: if any of the given tests holds."""

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
    """One attribute of a zone's day: its epsilon for each audience, and which values are sensitive."""

    epsilon: dict[Name, Epsilon] = Field(min_length=1)
    sensitive: Sensitive


Pattern = Annotated[str, AfterValidator(worded(r"[0-9]+", "must be a pattern, one digit per attribute"))]


class AttributeModel(Frozen):
    """The joint distribution of the attributes of a release; it is declared, and so public."""

    joint: dict[Pattern, Annotated[float, Field(ge=0)]] = Field(min_length=1)
    """Pattern (one digit per attribute, in order) -> probability; without cuts 0 is sensitive and 1 is not."""
    cuts: dict[AttributeName, tuple[str | float, ...]] = Field(default={})
    """Values that separate the classes 0, 1, 2 …; the model then includes what a published value implies."""


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
    """Largest ln of a posterior-odds factor, over all possible outcomes; needs a model."""
    guard: Literal["static", "adaptive"] = "static"
    """static: omit attributes by the model alone; adaptive: by what has already been published."""
    days_per_month: Annotated[int, Field(gt=0, le=30, strict=True)] | None = None
    """Most days in any 30 on which a zone's attributes are queried."""
    information_target: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Bits with which the account compares the information of the release."""

    @model_validator(mode="after")
    def _model_fits(self) -> AttributeRelease:
        _check_model(self)
        return self

    @field_validator("attributes")
    @classmethod
    def _tests_fit(cls, value: dict[str, Attribute]) -> dict[str, Attribute]:
        for name, attribute in value.items():
            given = set(attribute.sensitive.model_dump(exclude_none=True))
            allowed = ATTRIBUTES[name].tests
            if not given <= allowed:
                rule = " or ".join(sorted(allowed))
                msg = f"{name}.sensitive must use {rule}, got {', '.join(sorted(given))}"
                raise ValueError(msg)
        return value

    @property
    def audiences(self) -> tuple[str, ...]:
        """All audiences that read at least one attribute."""
        return tuple(sorted({name for attribute in self.attributes.values() for name in attribute.epsilon}))


def _check_model(release: AttributeRelease) -> None:
    """Raise ValueError if the declared model does not fit the attributes, the cap or the guard."""
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
    readers = {audience for attribute in release.attributes.values() for audience in attribute.epsilon}
    if release.guard == "adaptive" and (release.cap is None or len(readers) > 1):
        msg = "guard = 'adaptive' needs a cap, and one audience: its decisions reveal what that audience has seen"
        raise ValueError(msg)


def _check_cuts(release: AttributeRelease, name: AttributeName, cuts: tuple[str | float, ...]) -> None:
    rule = release.attributes[name].sensitive if name in release.attributes else None
    text = ATTRIBUTES[name].is_time
    if rule is None or not 0 < len(cuts) <= 9 or any(isinstance(cut, str) != text for cut in cuts):
        msg = f"model.cuts.{name}: must be one to nine {'times HH:MM' if text else 'numbers'} of an attribute in it"
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
        msg = f"model.cuts.{name}: no class may contain both sensitive and other values, add the cut {missing[0]!r}"
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
