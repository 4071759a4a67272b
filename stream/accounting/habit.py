"""Habits: what has been asked, day by day, of one attribute of some zones, by whatever release.

A habit that was sensitive on every day is given away more with each day on which it was asked about, and a release
that is renamed goes on asking. So a habit is kept by zones, attribute and reader. Where a release covers other zones
than before, it goes on from the habits of all sets of zones that share one with it, at the largest: no zone's own
habit is more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from stream.accounting.charged import renamed


class HabitOf(NamedTuple):
    """Whose habit it is, and who has read of it."""

    zones: tuple[str, ...]
    """Ascending; none: of zones that are not known."""
    attribute: str
    reader: str

    def may_share_with(self, other: HabitOf) -> bool:
        """Whether both may be of one zone, with the same attribute and reader."""
        known = self.zones and other.zones
        shared = not known or not set(self.zones).isdisjoint(other.zones)
        return self[1:] == other[1:] and shared


class Habit(NamedTuple):
    """A habit that was sensitive on every day on which it was asked about."""

    days: int
    exponent: Fraction
    """Sum over those days of the ln factor that a day adds."""


Habits = dict[HabitOf, Habit]


def add_day(habits: Habits, of: HabitOf, exponent: Fraction) -> Habit:
    """Add, in place, a day on which it was asked, and return the habit with it."""
    before = [held for known, held in habits.items() if known.may_share_with(of)]
    days = max((held.days for held in before), default=0) + 1
    added = Habit(days, max((held.exponent for held in before), default=Fraction(0)) + exponent)
    for known in [known for known in habits if known.may_share_with(of) and set(known.zones) <= set(of.zones)]:
        if known.zones:
            del habits[known]
    habits[of] = added
    return added


def habits_renamed(habits: Habits, now: Mapping[str, Iterable[str]]) -> Habits:
    """Return the habits of zones under every name that they have now (``zones_now``)."""
    found: Habits = {}
    for of, held in habits.items():
        known = of._replace(zones=tuple(sorted(renamed(of.zones, now))))
        other = found.get(known, held)
        found[known] = Habit(max(held.days, other.days), max(held.exponent, other.exponent))
    return found


def habit_rows(habits: Habits) -> list[list[Any]]:
    """Return habits as JSON has them."""
    return [[list(of.zones), *of[1:], held.days, str(held.exponent)] for of, held in sorted(habits.items())]


def habits_of(rows: Iterable[list[Any]]) -> Habits:
    """Return the habits of :func:`habit_rows`."""
    return {
        HabitOf(tuple(zones), attribute, reader): Habit(days, Fraction(exponent))
        for zones, attribute, reader, days, exponent in rows
    }
