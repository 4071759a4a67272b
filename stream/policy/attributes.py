"""The registry of attributes: what a zone's day may be asked, how each is read off it, and which values it has.

A policy may name what stands in ``ATTRIBUTES`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from stream.policy.day_shape import DayShape, Span
from stream.records import MINUTE, Micros

LEVEL_STEP = Decimal("0.0001")
"""Levels are rounded to whole multiples of it."""
BREAK: Micros = 15 * MINUTE
"""Shortest emptiness that is a break."""


class OccupiedTick(NamedTuple):
    """A tick at which a zone was occupied; restricted."""

    local: datetime
    """Its site-local time."""
    working: bool
    """Whether it lies in working hours."""
    empty: Micros
    """How long the zone was empty since the occupied tick before; 0 at the first of the day."""


class DayFacts(NamedTuple):
    """What the ticks of one zone's day have shown, where the zone was occupied at all; restricted."""

    first: datetime
    """Site-local time of the first occupied tick."""
    last: datetime
    """Of the last one."""
    counted: int
    """Sum of what the attribute that reads it counts (``AttributeKind.counts``); 0 where it counts nothing."""
    working: int
    """All ticks in working hours."""


Value = str | int | float
Reach = Callable[[DayShape, int], Span]
"""From an attribute's number to the numbers that another one can have on the same day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """What an attribute's values say of the others of the same day; it is a whole number here."""

    numbers: Callable[[DayShape], Span]
    """Which numbers it can have on an occupied day."""
    shown: Callable[[DayShape, int], Value]
    """The value that is shown for a number."""
    reach: Mapping[str, Reach]
    """Other attribute -> the least and the greatest number that it has on days on which this one has a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeKind:
    """What an attribute declares."""

    value: Callable[[DayFacts], Value]
    """How it is read off a day; local times as ``HH:MM``."""
    counts: Callable[[OccupiedTick], int] | None = None
    """What each occupied tick adds to ``DayFacts.counted``; None where first and last tick say all."""
    step: Decimal | None
    """Distance of neighbouring numbers; None where values are local times."""
    working_hours: bool = False
    """Whether it is about working hours, which a site then has to have."""
    logic: Logic | None = None
    """Two attributes of a zone are released only where the logic of each names the other; without any, an attribute
    is released only where no other of the zone is."""

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
"""Name in the policy -> declaration, in the order in which a day's records come. A new one is put last: in this order
lies what they count in stored states."""
COUNTING = tuple(name for name, kind in ATTRIBUTES.items() if kind.counts is not None)
"""The attributes for which something is counted."""
