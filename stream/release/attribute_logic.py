"""Which values of one attribute give another away.

All attributes of a zone's day are read off the same occupied ticks. Where some value of one attribute that
may be shown leaves another attribute no value but sensitive ones, showing the first tells the second for
certain, whatever the epsilons: such sets of attributes are refused, whether one release tells them or several.

    symbol   here    meaning
    T        ticks   ticks of a day
    W        work    ticks of the working hours, from ``begins`` to ``ends``
    e        empty   empty ticks that make a break
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.policy.attributes import ATTRIBUTES
from stream.policy.document import AttributeRelease, Sensitive, Site
from stream.records import DAY, MINUTE
from stream.sensing.attributes import BREAK

Value = str | int | float


class Implication(NamedTuple):
    """``shown`` at ``value`` proves ``hidden`` sensitive."""

    shown: str
    value: Value
    hidden: str


class _Span(NamedTuple):
    """Whole numbers from ``low`` to ``high``; empty where ``high`` is less."""

    low: int
    high: int


@dataclass(frozen=True)
class _Day:
    """The shape of a day: attributes as whole numbers (ticks, breaks, occupied working ticks)."""

    ticks: int
    begins: int
    ends: int
    empty: int

    @property
    def work(self) -> int:
        return self.ends - self.begins

    def domain(self, attribute: str) -> _Span:
        most = {"breaks": (self.ticks - 1) // (self.empty + 1), "occupancy_level": self.work}
        return _Span(0, most.get(attribute, self.ticks - 1))

    def value(self, attribute: str, number: int) -> Value:
        """Return the value that is shown for a number."""
        if attribute in {"arrival", "departure"}:
            minutes = number * DAY // self.ticks // MINUTE
            return f"{minutes // 60:02d}:{minutes % 60:02d}"
        return number if attribute == "breaks" else round(number / self.work, 4)

    def reach(self, shown: str, number: int, hidden: str) -> _Span:
        """Return which numbers of ``hidden`` some day has in which ``shown`` is ``number``."""
        spans = {
            "arrival": self._with_arrival,
            "departure": self._with_departure,
            "breaks": self._with_breaks,
            "occupancy_level": self._with_level,
        }
        return spans[shown](number)[hidden]

    def _with_arrival(self, first: int) -> dict[str, _Span]:
        later = max(0, self.ends - max(first, self.begins))
        return {
            "departure": _Span(first, self.ticks - 1),
            "breaks": _Span(0, (self.ticks - 1 - first) // (self.empty + 1)),
            "occupancy_level": _Span(int(self.begins <= first < self.ends), later),
        }

    def _with_departure(self, last: int) -> dict[str, _Span]:
        earlier = max(0, min(last, self.ends - 1) - self.begins + 1)
        return {
            "arrival": _Span(0, last),
            "breaks": _Span(0, last // (self.empty + 1)),
            "occupancy_level": _Span(int(self.begins <= last < self.ends), earlier),
        }

    def _with_breaks(self, breaks: int) -> dict[str, _Span]:
        each = self.empty + 1
        return {
            "arrival": _Span(0, self.ticks - 1 - breaks * each),
            "departure": _Span(breaks * each, self.ticks - 1),
            "occupancy_level": _span(self._together[:, breaks]),
        }

    def _with_level(self, occupied: int) -> dict[str, _Span]:
        breaks = _span(self._together[occupied])
        if occupied == 0:
            first = 0 if self.begins > 0 else self.ends
            last = self.ticks - 1 if self.ends < self.ticks else self.begins - 1
            return {"arrival": _Span(first, last), "departure": _Span(first, last), "breaks": breaks}
        return {
            "arrival": _Span(0, self.ends - occupied),
            "departure": _Span(self.begins + occupied - 1, self.ticks - 1),
            "breaks": breaks,
        }

    @cached_property
    def _together(self) -> NDArray[np.bool_]:
        """Which pairs of (occupied working ticks, breaks) some day has, found tick by tick.

        ``held[g]`` are the pairs of days occupied before, whose last ``g`` ticks were empty (``empty`` stands
        for that many or more).
        """
        shape = (self.work + 1, self.domain("breaks").high + 2)
        held = np.zeros((self.empty + 1, *shape), dtype=np.bool_)
        begun = np.zeros(shape, dtype=np.bool_)
        begun[0, 0] = True
        for tick in range(self.ticks):
            occupied = begun | held[: self.empty].any(axis=0)
            occupied[:, 1:] |= held[self.empty, :, :-1]
            if self.begins <= tick < self.ends:
                occupied = np.vstack([np.zeros((1, shape[1]), dtype=np.bool_), occupied[:-1]])
            idle = np.concatenate([occupied[None], held[:-1]])
            idle[self.empty] |= held[self.empty]
            held = idle
        return np.asarray(held.any(axis=0))


def _span(reached: NDArray[np.bool_]) -> _Span:
    places = np.flatnonzero(reached)
    return _Span(int(places[0]), int(places[-1])) if len(places) else _Span(0, -1)


def unknown_beside_others(*releases: AttributeRelease) -> str | None:
    """Return an attribute of a zone's day of which this module cannot tell what it says of another that is released."""
    names = [name for release in releases for name in release.attributes]
    unknown = (name for name in names if not ATTRIBUTES[name].beside_others)
    return next(unknown, None) if len(names) > 1 else None


def implications(site: Site, *releases: AttributeRelease) -> Iterator[Implication]:
    """Yield every pair of attributes, once each, in which a value that may be shown proves the other sensitive.

    Args:
        site: gives ticks and working hours.
        releases: all that tell of one zone's day; each attribute is in one of them. More than one attribute only
            where ``unknown_beside_others`` finds none.
    """
    day = _day(site)
    rules = {name: attribute.sensitive for release in releases for name, attribute in release.attributes.items()}
    open_numbers = {name: _open(day, name, rule) for name, rule in rules.items()}
    for shown, numbers in open_numbers.items():
        for hidden, wanted in open_numbers.items():
            if hidden == shown:
                continue
            for number in sorted(numbers):
                low, high = day.reach(shown, number, hidden)
                if wanted.isdisjoint(range(low, high + 1)):
                    yield Implication(shown, day.value(shown, number), hidden)
                    break


def _open(day: _Day, name: str, rule: Sensitive) -> frozenset[int]:
    """Return the numbers of an attribute whose values may be shown."""
    low, high = day.domain(name)
    return frozenset(number for number in range(low, high + 1) if not rule.holds(day.value(name, number)))


def _day(site: Site) -> _Day:
    return _Day(DAY // site.tick, *site.working_ticks, -(-BREAK // site.tick))
