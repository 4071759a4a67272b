"""The registry of attributes: what a zone's day may be asked, how each is read off it, and which values it has.

A policy may name what stands in ``ATTRIBUTES`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

LEVEL_STEP = Decimal("0.0001")
"""Levels are rounded to whole multiples of it."""


class DayFacts(NamedTuple):
    """What the ticks of one zone's day have shown, where the zone was occupied at all; restricted."""

    first: datetime
    """Site-local time of the first occupied tick."""
    last: datetime
    """Of the last one."""
    breaks: int
    """How often, between these two, the zone was empty for at least 15 min."""
    busy: int
    """Occupied ticks in working hours."""
    working: int
    """All ticks in working hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeKind:
    """What an attribute declares."""

    value: Callable[[DayFacts], str | int | float]
    """How it is read off a day; local times as ``HH:MM``."""
    step: Decimal | None
    """Distance of neighbouring numbers; None where values are local times."""
    working_hours: bool = False
    """Whether it is about working hours, which a site then has to have."""
    beside_others: bool = False
    """Whether ``release.attribute_logic`` knows which values of the others its own leave possible. Without that it is
    released only where no other attribute of the zone is."""

    @property
    def is_time(self) -> bool:
        """Whether values are local times, as are its cuts."""
        return self.step is None

    @property
    def tests(self) -> frozenset[str]:
        """The tests by which a value can be sensitive."""
        return frozenset({"after", "before"} if self.is_time else {"above", "below"})


def _level(day: DayFacts) -> float:
    return round(day.busy / day.working, 4) if day.working else 0.0


ATTRIBUTES: dict[str, AttributeKind] = {
    "arrival": AttributeKind(value=lambda day: day.first.strftime("%H:%M"), step=None, beside_others=True),
    "departure": AttributeKind(value=lambda day: day.last.strftime("%H:%M"), step=None, beside_others=True),
    "breaks": AttributeKind(value=lambda day: day.breaks, step=Decimal(1), beside_others=True),
    "occupancy_level": AttributeKind(value=_level, step=LEVEL_STEP, working_hours=True, beside_others=True),
}
"""Name in the policy -> declaration, in the order in which a day's records come."""
