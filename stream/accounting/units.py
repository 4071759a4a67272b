"""Privacy units: their names, what each protects under which neighbouring relation, and what it costs.

``UNITS`` is the only place that names them. Modules that compute costs map a scope and a relation to a cost.

**One device's day**: which counts it can change, and how many.

    symbol   here       meaning
    D        day        beginning of a UTC day
    T        tick       tick length, which divides a day
    V                   validity of an observation
    n        reach      ceil(V / T): ticks at which one observation counts

If all observations of one device in [D, D + 24 h) are removed, counts differ

* by one device less at each tick of the day, of which there are 24 h / T, and at the n ticks from D + 24 h on, where
  the day's last observation may still count;
* by one device more at each of the n ticks from D on, where the last observation of the previous evening, which the
  day's first observation ended, now counts for all of V.

One device's day therefore changes at most 24 h / T + 2 n counts. A device that was present on the previous evening, at
D, throughout the day and just before its end attains this bound. The bound also holds where pseudonyms change at D: the
observation that ends the old name is removed with the rest of its day.

If another device's day takes its place, each of the two has an evening and a morning of its own, so twice as many
counts change: 2 (24 h / T + 2 n), which is attained. If it is another day of the same device, this has one place at
each tick in either case, so only 2 (24 h / T + n) counts change. The account does not know which of the two is meant,
and charges the larger number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import NamedTuple, TypeVar

from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, Micros


class Scope(Enum):
    """Which part of a device's or person's presence a unit protects."""

    TICK = "its presence at one tick"
    OBSERVATION = "one raw observation of it"
    WINDOWS = "its presence in any w consecutive windows"
    DAY = "one day of it"
    TOTAL = "all of it since the ledger began"

    @property
    def accumulates(self) -> bool:
        """Whether the cost adds up over time, so that an epsilon at delta may be smaller than the sum."""
        return self in (Scope.WINDOWS, Scope.DAY, Scope.TOTAL)


class Neighbours(Enum):
    """The neighbouring relation of a unit: how two inputs differ that are hard to tell apart."""

    ADD_OR_REMOVE = "with it or without it"
    REPLACE = "with it, or with another in its place"


class PrivacyUnit(NamedTuple):
    """The unit that one epsilon of the account refers to."""

    scope: Scope
    neighbours: Neighbours = Neighbours.ADD_OR_REMOVE
    person: bool = False
    """Whether all devices of a person differ, instead of one device."""


PRESENCE_TUPLE = "presence_tuple"
"""The unit of adversaries with declared knowledge (``accounting.adversaries``)."""

UNITS: dict[str, PrivacyUnit] = {
    PRESENCE_TUPLE: PrivacyUnit(Scope.TICK),
    "tuple_moved": PrivacyUnit(Scope.TICK, Neighbours.REPLACE),
    "observation": PrivacyUnit(Scope.OBSERVATION),
    "observation_moved": PrivacyUnit(Scope.OBSERVATION, Neighbours.REPLACE),
    "device_w_event": PrivacyUnit(Scope.WINDOWS),
    "device_w_event_moved": PrivacyUnit(Scope.WINDOWS, Neighbours.REPLACE),
    "person_w_event": PrivacyUnit(Scope.WINDOWS, person=True),
    "device_day": PrivacyUnit(Scope.DAY),
    "device_day_moved": PrivacyUnit(Scope.DAY, Neighbours.REPLACE),
    "person_day": PrivacyUnit(Scope.DAY, person=True),
    "device_total": PrivacyUnit(Scope.TOTAL),
    "person_total": PrivacyUnit(Scope.TOTAL, person=True),
}
"""Name in records and reports -> unit, in the order of records."""

LOGINS_OF_A_MESSAGE = 2
"""Logins whose days one message may change: its own, and the one that used its device before (``sensing.logins``)."""


class GroupSizes(NamedTuple):
    """How many devices, or logins, change together in a unit, at one site."""

    devices_per_person: int
    logins: bool = False
    """Whether the site counts logins."""

    def __call__(self, unit: PrivacyUnit) -> int:
        """Return the number."""
        if unit.person:
            return self.devices_per_person
        return LOGINS_OF_A_MESSAGE if self.logins and unit.scope is Scope.OBSERVATION else 1


CostT = TypeVar("CostT")


def device_costs(costs: Mapping[Scope, Mapping[Neighbours, CostT]]) -> Iterator[tuple[str, PrivacyUnit, CostT]]:
    """Yield (name, unit, what it costs for one device) for each unit of these scopes."""
    for name, unit in UNITS.items():
        if unit.scope in costs:
            yield name, unit, costs[unit.scope][unit.neighbours]


def added_or_replaced(added: CostT, replaced: CostT) -> dict[Neighbours, CostT]:
    """Return the costs of one scope by neighbouring relation."""
    return {Neighbours.ADD_OR_REMOVE: added, Neighbours.REPLACE: replaced}


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """Epsilons that one device's presence costs a reader, where it is added or removed."""

    tick: Fraction
    """At one tick."""
    observation: Fraction
    """At the ticks at which one observation counts."""
    sliding: Fraction
    """In any w consecutive windows."""
    day: Fraction
    """In the counts of one UTC day."""

    def units(self, devices_per_person: int) -> dict[str, Fraction]:
        """Return unit -> epsilon.

        A moved or replaced unit costs twice: it is removed in one place and added in another. An observation ends the
        observation before it, so an additional observation changes counts in two places.
        """
        added = {
            Scope.TICK: self.tick,
            Scope.OBSERVATION: 2 * self.observation,
            Scope.WINDOWS: self.sliding,
            Scope.DAY: self.day,
        }
        costs = {scope: added_or_replaced(cost, 2 * cost) for scope, cost in added.items()}
        return {name: devices_per_person * cost if unit.person else cost for name, unit, cost in device_costs(costs)}


# One device's day.


class Cells(NamedTuple):
    """Counts of one device's day in consecutive windows: how many may be lower, and how many higher."""

    less: int
    more: int = 0

    def cost(self, epsilon: Fraction, windows_paid: int) -> Fraction:
        """Return the largest cost where one epsilon pays for any ``windows_paid`` consecutive windows.

        Neighbours in the sense of w-event privacy differ in one device at each window: lower counts make one
        such step, higher counts another.
        """
        return self.epsilons(windows_paid) * epsilon

    def epsilons(self, windows_paid: int) -> int:
        """Return the largest number of epsilons; see ``cost``."""
        return -(-self.less // windows_paid) - -self.more // windows_paid


def day_cells(tick_length: Micros, reach: int, windows: int | None = None) -> Cells:
    """Return the counts that one device's day can change, if ``windows`` windows of a UTC day are released (None: all).

    The windows of a UTC day are those that begin in it. The window that ends at D comes in addition, and with it
    ``reach`` - 1 windows after the day.
    """
    return Cells((DAY // tick_length if windows is None else windows) + reach, reach)


class Day(NamedTuple):
    """One device's day, (start, end]: all observations of the device after ``start`` and up to ``end``.

    A day is identified by its instants and not by a date, which names another day if a site redefines its days.
    """

    start: Micros
    end: Micros

    def reaches(self, window_end: Micros, reach: Micros) -> bool:
        """Whether what is observed in the day can change the counts of a window.

        Args:
            window_end: the tick.
            reach: how long one observation counts, in whole ticks.
        """
        return self.start < window_end <= self.end + reach

    def overlaps(self, other: Day) -> bool:
        """Whether the days share an instant."""
        return self.start < other.end and other.start < self.end

    def holds(self, other: Day) -> bool:
        """Whether all of the other day lies within this one."""
        return self.start <= other.start and other.end <= self.end


def days_at(window_end: Micros, days: PrivacyDays | None, reach: Micros) -> tuple[Day, ...]:
    """Return the days of one definition whose observations can change the counts of a window; one or two.

    Args:
        window_end: the tick.
        days: of the site; without them its days are those of UTC, which begin with their first instant.
        reach: how long one observation counts, in whole ticks.
    """
    if days is None:
        start = window_end // DAY * DAY - 1
        day, before = Day(start, start + DAY), Day(start - DAY, start)
        return (before, day) if before.reaches(window_end, reach) else (day,)
    at = days.at(window_end)
    day = Day(at.start, at.end)
    if window_end - day.start > reach:
        return (day,)
    at = days.at(day.start)
    return (Day(at.start, at.end), day)
