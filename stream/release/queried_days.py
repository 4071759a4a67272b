"""Which days of zones have been queried for attributes.

All attributes of a zone's local day are queried together, once, for all audiences: the permanent coins belong to the
one reading for which they were tossed. A day that shares an instant with a queried day is not queried again, whatever
the release name, rule, policy or time zone of the first query. The live state remembers the days of the last month;
older ones are read from the ledger.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream.accounting.charges import Span
from stream.local_time import busiest_month, within_month
from stream.records import Micros


class LocalDay(NamedTuple):
    """A site-local day in one policy's time zone."""

    local_day: str
    """ISO date."""
    start: Micros
    end: Micros
    """First instant after it."""

    @property
    def span(self) -> Span:
        """Its instants."""
        return self.start, self.end


class ZoneQuery(NamedTuple):
    """The query of one zone's day."""

    attributes: frozenset[str]
    exponent: float
    """ln of the largest factor that the attributes reach by themselves on one of them."""


@dataclass(slots=True)
class QueriedDays:
    """The queried days of zones, of the last month or of all time."""

    days: dict[LocalDay, dict[str, ZoneQuery]] = field(default_factory=dict)

    def note(self, day: LocalDay, zone: str, attribute: str, exponent: float) -> None:
        """Remember that an attribute was queried, whether its value was shown or withheld."""
        self._add(day, zone, ZoneQuery(frozenset([attribute]), exponent))

    def _add(self, day: LocalDay, zone: str, more: ZoneQuery) -> None:
        zones = self.days.setdefault(day, {})
        held = zones.get(zone, more)
        zones[zone] = ZoneQuery(held.attributes | more.attributes, max(held.exponent, more.exponent))

    def zones_of(self, day: LocalDay) -> frozenset[str]:
        """Return the zones that were queried for a day that shares an instant with this one."""
        overlapping = (z for other, z in self.days.items() if other.start < day.end and day.start < other.end)
        return frozenset(zone for zones in overlapping for zone in zones)

    def at(self, instant: Micros) -> dict[LocalDay, dict[str, ZoneQuery]]:
        """Return the queries of the days that contain an instant."""
        return {day: zones for day, zones in self.days.items() if day.start <= instant < day.end}

    def in_month(self, now: str, zones: Container[str], attributes: Container[str]) -> int:
        """Return on how many other days of one month with ``now``, at most, one of these was queried."""
        days = {
            day.local_day
            for day, asked in self.days.items()
            for zone, held in asked.items()
            if zone in zones and any(name in attributes for name in held.attributes)
        }
        return busiest_month(sorted(days - {now}), now)

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Copy the queries of each zone to every name that the zone has now (``zones_now``)."""
        before, self.days = self.days, {}
        for day, zones in before.items():
            for zone, held in zones.items():
                for name in now.get(zone, (zone,)):
                    self._add(day, name, held)

    def forget(self, now: str) -> None:
        """Drop days that share no month with ``now`` or with a later day."""
        self.days = {day: zones for day, zones in self.days.items() if within_month(day.local_day, now)}


def encode_queried_days(state: QueriedDays) -> list[Any]:
    """Return the JSON form."""
    return [
        [*day, {zone: [sorted(held.attributes), held.exponent] for zone, held in sorted(zones.items())}]
        for day, zones in sorted(state.days.items())
    ]


def decode_queried_days(data: Iterable[Any]) -> QueriedDays:
    """Return the state of its JSON form."""
    days = {
        LocalDay(*day): {zone: ZoneQuery(frozenset(names), exponent) for zone, (names, exponent) in zones.items()}
        for *day, zones in data
    }
    return QueriedDays(days)
