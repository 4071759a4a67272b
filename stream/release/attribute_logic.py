"""Which values of one attribute give another away.

All attributes of a zone's day are read off the same occupied ticks. Where some value of one attribute that
may be shown leaves another attribute no value but sensitive ones, showing the first proves the second
sensitive, whatever the epsilons: such sets of attributes are refused, whether one release asks for them or several.

What each attribute leaves possible is declared with it (``policy.attributes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stream.policy.attributes import ATTRIBUTES, BREAK, Logic, Value
from stream.policy.day_shape import DayShape
from stream.policy.document import AttributeRelease, Sensitive, Site
from stream.records import DAY


class Implication(NamedTuple):
    """``shown`` at ``value`` proves ``hidden`` sensitive."""

    shown: str
    value: Value
    hidden: str


def unknown_beside_others(*releases: AttributeRelease) -> str | None:
    """Return an attribute of a zone's day of which is not declared what it says of another that is released."""
    names = [name for release in releases for name in release.attributes]
    known = {name: {name, *(logic.reach if (logic := ATTRIBUTES[name].logic) else ())} for name in names}
    missing = [name for name in names if not known[name].issuperset(names)]
    return min(missing, key=lambda name: ATTRIBUTES[name].logic is not None, default=None)


def implications(site: Site, *releases: AttributeRelease) -> Iterator[Implication]:
    """Yield every pair of attributes, once each, in which a value that may be shown proves the other sensitive.

    Args:
        site: gives ticks and working hours.
        releases: all that publish attributes of one zone's day; each attribute is in one of them. More than one
            attribute only where ``unknown_beside_others`` finds none.
    """
    day = _day(site)
    rules = {name: attribute.sensitive for release in releases for name, attribute in release.attributes.items()}
    logics = {name: logic for name in rules if (logic := ATTRIBUTES[name].logic) is not None}
    open_numbers = {name: _open(day, logic, rules[name]) for name, logic in logics.items()}
    for shown, numbers in open_numbers.items():
        for hidden, wanted in open_numbers.items():
            if hidden == shown:
                continue
            for number in sorted(numbers):
                low, high = logics[shown].reach[hidden](day, number)
                if wanted.isdisjoint(range(low, high + 1)):
                    yield Implication(shown, logics[shown].shown(day, number), hidden)
                    break


def _open(day: DayShape, logic: Logic, rule: Sensitive) -> frozenset[int]:
    """Return the numbers of an attribute whose values may be shown."""
    low, high = logic.numbers(day)
    return frozenset(number for number in range(low, high + 1) if not rule.holds(logic.shown(day, number)))


def _day(site: Site) -> DayShape:
    return DayShape(DAY // site.tick, *site.working_ticks, -(-BREAK // site.tick))
