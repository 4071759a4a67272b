"""Leakage to adversaries with knowledge of people.

Figures beside the plain epsilons:

| figure    | adversary                                                                    | source             |
|-----------|------------------------------------------------------------------------------|--------------------|
| temporal  | knows how a person moves from tick to tick (the policy's mobility model)      | Cao et al. 2017    |
| meeting   | knows that a group of people comes and goes together (the largest declared)  | Li et al. 2019     |
| w-event   | observes one device over any w consecutive windows                           | Kellaris et al. 2014 |

All are computed from declared models, so they may be published in the stream. Temporal leakage belongs to a mobility
model whose step is the tick; a site with another tick needs another model.

Habits. A habit that was sensitive on every day is revealed further by each day on which it is queried, even if a
release was renamed. A habit is therefore stored by zones, attribute and reader. A release that covers other zones than
before continues from the habits of all sets of zones that share a zone with it, at the largest exponent: no zone's own
habit has a larger one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stream.accounting.leakage.prior import group_leakage
from stream.accounting.leakage.temporal import Loss, loss, reversed_in_time, stationary, total_supremum
from stream.policy.privacy import Meeting, Mobility, Privacy
from stream.policy.sites import current_names


@dataclass(frozen=True)
class Knowledge:
    """The declared models of a policy."""

    mobility: Mobility | None
    meetings: tuple[Meeting, ...]

    @classmethod
    def of(cls, privacy: Privacy) -> Knowledge:
        """Return the models that a policy declares.

        Raises:
            UsageError: the mobility model has no single stationary distribution, or a state that is never
                reached: then it has no time before it.
        """
        if privacy.mobility is not None:
            _losses(privacy.mobility)
        return cls(privacy.mobility, privacy.meetings)

    def temporal(self, epsilon: float) -> float | None:
        """Return the supremum of temporal leakage of one presence tuple at a constant epsilon; inf if unbounded.

        None where the policy declares no mobility model.
        """
        if self.mobility is None:
            return None
        if epsilon == 0 or math.isinf(epsilon):
            return epsilon
        backward, forward = _losses(self.mobility)
        return total_supremum(backward, forward, epsilon)

    def meeting(self, epsilon: float) -> float | None:
        """Return the leakage about one member of the meeting that leaks most, at one tick; inf if unbounded.

        None where the policy declares no meeting.
        """
        if not self.meetings:
            return None
        if epsilon == 0 or math.isinf(epsilon):
            return epsilon
        return max(group_leakage(m.size, m.correlation, m.presence, epsilon) for m in self.meetings)


@lru_cache(maxsize=8)
def _losses(mobility: Mobility) -> tuple[Loss, Loss]:
    """Return the losses backward and forward in time of the stationary Markov chain."""
    forward = np.array(mobility.forward)
    return loss(reversed_in_time(forward, stationary(forward))), loss(forward)


# Habits: the days on which one attribute of some zones was queried, by any release.


class HabitKey(NamedTuple):
    """Identifies a habit and its reader."""

    zones: tuple[str, ...]
    """Ascending; at least one."""
    attribute: str
    reader: str

    def may_share_with(self, other: HabitKey) -> bool:
        """Whether both habits may concern one zone, with the same attribute and reader."""
        return self[1:] == other[1:] and not set(self.zones).isdisjoint(other.zones)


class Habit(NamedTuple):
    """A habit that was sensitive on every day on which it was queried."""

    days: int
    exponent: Fraction
    """Sum over those days of the ln factor that a day adds."""


Habits = dict[HabitKey, Habit]


def add_day(habits: Habits, key: HabitKey, exponent: Fraction) -> Habit:
    """Add, in place, a day on which the habit was queried; return the updated habit."""
    before = [habit for known, habit in habits.items() if known.may_share_with(key)]
    days = max((habit.days for habit in before), default=0) + 1
    added = Habit(days, max((habit.exponent for habit in before), default=Fraction(0)) + exponent)
    for known in [known for known in habits if known.may_share_with(key) and set(known.zones) <= set(key.zones)]:
        del habits[known]
    habits[key] = added
    return added


def habits_renamed(habits: Habits, now: Mapping[str, Iterable[str]]) -> Habits:
    """Copy the habits of each zone to every name that the zone has now (``zones_now``)."""
    found: Habits = {}
    for key, habit in habits.items():
        known = key._replace(zones=tuple(sorted(current_names(key.zones, now))))
        other = found.get(known, habit)
        found[known] = Habit(max(habit.days, other.days), max(habit.exponent, other.exponent))
    return found
