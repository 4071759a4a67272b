"""Counts that are bounded by visits at each level.

At a level (zones, floors, the building) a visit is a run of ticks at which a device counts at one node. A move ends one
visit and opens another, and all nodes of the level together have V visits; each level has its own. When the last
allowed visit has ended, the device is out until the day ends. So a device's counts change at most 2 V times a day at
each level, and a level's counts are no sums of those below it: a device may have visits left for the building when
those for the zones have run out.

At the building a short absence ends no visit: a device counts at a tick if it was present at that tick, or at one of
the G ticks of the day before it. A stay that covers a tick and ended less than G ticks before therefore counts, one
that covers no tick does not. This needs no later observation; a device that leaves counts up to G ticks longer.

A device is present as in ``contribution``: by observations of the day alone, in the zone of the last one. Residents are
judged there too, by presence at ticks, before visits and gap; a resident makes no visit until it has been away. The
counting of a device never depends on another device or on another day.

    state of a device at a level     next tick                          then
    out, v visits made               present at node n, v < V           in n, v + 1 visits made
    out, V visits made               anything                           out, until the day ends
    in n                             present at n                       in n
    in n, v visits made              present at m, v < V                in m, v + 1 visits made
    in n, V visits made              present at m                       out, until the day ends
    in n                             absent for at most G ticks         in n
    in n                             absent for more than G ticks       out

G is 0 for zones and floors. As with ``contribution``, the counters of a day are one run; after an interruption, or
under another definition, nothing is counted until the next day begins.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream.records import LevelCounts, Micros, PrivacyDay
from stream.sensing.contribution import DayCounter, DayCounts, plain_definition, resumption

OUT = -1
"""In place of a node: the device does not count."""


class VisitBound(NamedTuple):
    """The definition of the counters of visits; another definition is another run."""

    day_starts: str
    """Site-local time of day, ``HH:MM``."""
    timezone: str
    """IANA name."""
    visits: int
    """V: visits of a device at each level in a day, at most."""
    gap: int
    """G: ticks of absence that end no visit to the building, at most."""
    tick_length: Micros
    validity: Micros
    zones: tuple[tuple[str, str], ...]
    """Each zone with its floor, in the order of the registry."""
    ignore_residents: bool = True
    logins: str | None = None
    """As in ``ContributionBound``."""


class Visit(NamedTuple):
    """A device's visits at one level so far."""

    made: int = 0
    """Visits of the day, including the current one."""
    node: int = OUT
    """The node at which the device counts, or ``OUT``."""
    absent: int = 0
    """Number of ticks in a row, up to the last one, at which it was absent."""


@dataclass(slots=True)
class VisitCounter(DayCounter):
    """The visits of the current privacy day; they are discarded at the first tick of the next."""

    levels: tuple[dict[str, Visit], dict[str, Visit], dict[str, Visit]] = field(
        default_factory=lambda: ({}, {}, {}), repr=False
    )
    """For zones, floors and the building: device that was present at a tick of the day -> its visits."""

    @property
    def seen(self) -> KeysView[str]:
        """The devices that were present at a tick of the day."""
        return self.levels[0].keys()

    def clear(self) -> None:
        """Forget all devices."""
        self.residents, self.levels = {}, ({}, {}, {})

    def to_plain(self) -> list[Any]:
        """Return lists, numbers and strings, in one fixed order."""
        definition, day = plain_definition(self.definition), None if self.day is None else list(self.day)
        levels = [[[device, *visit] for device, visit in sorted(level.items())] for level in self.levels]
        return [definition, day, self.resumes, sorted(self.residents.items()), levels]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> VisitCounter:
        """Return the counters that ``to_plain`` has written; ValueError or TypeError for anything else."""
        definition, day, resumes, residents, stored = plain
        zones, floors, building = ({device: Visit(*visit) for device, *visit in level} for level in stored)
        return cls(
            None if definition is None else _bound_of(definition),
            None if day is None else PrivacyDay(*day),
            resumes,
            residents=dict(residents),
            levels=(zones, floors, building),
        )


def _bound_of(plain: list[Any]) -> VisitBound:
    bound = VisitBound(*plain)
    return bound._replace(zones=tuple((zone, floor) for zone, floor in bound.zones))


class VisitCounts(DayCounts):
    """Computes the counts by visits of each tick from the devices present; ticks come in order."""

    def __init__(self, bound: VisitBound) -> None:
        super().__init__(bound)
        self.bound = bound
        floors = sorted({floor for _, floor in bound.zones})
        self._floor_of = [floors.index(floor) for _, floor in bound.zones]
        self._sizes = len(bound.zones), len(floors), 1

    def initial(self) -> VisitCounter:
        """Return the counters of a site before its first message; they count from its first tick on."""
        return VisitCounter(self.bound)

    def count(self, tally: VisitCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]]) -> LevelCounts | None:
        """Count the next tick and update the counters, in place.

        Args:
            tally: the counters up to the previous tick.
            tick: microseconds, later than any before.
            present: device -> (zone, time of its last observation), all still valid at the tick.

        Returns:
            The counts of each level; None while the counters may not count.
        """
        here = self.present_today(tally, tick, present)
        if here is None:
            return None
        counted = {device: zone for device, zone in here.items() if device not in tally.residents}
        nodes = counted, {device: self._floor_of[zone] for device, zone in counted.items()}, dict.fromkeys(counted, 0)
        for device in here:
            tally.levels[0].setdefault(device, Visit())
        counts = (
            _moved_on(level, at, self.bound.visits, gap, size)
            for level, at, gap, size in zip(tally.levels, nodes, (0, 0, self.bound.gap), self._sizes, strict=True)
        )
        return LevelCounts(*counts)


def _moved_on(visits: dict[str, Visit], here: Mapping[str, int], most: int, gap: int, size: int) -> tuple[int, ...]:
    """Update a level's visits by where its devices are, in place; return the counts of its nodes."""
    counts = [0] * size
    for device, (made, node, absent) in visits.items():
        if node != OUT and device not in here:
            visits[device] = Visit(made, node if absent < gap else OUT, absent + 1)
            if absent < gap:
                counts[node] += 1
    for device, now in here.items():
        made, node, _ = visits.get(device, Visit())
        if node == now:
            visits[device] = Visit(made, now)
        elif made < most:
            visits[device] = Visit(made + 1, now)
        else:
            visits[device] = Visit(made)
        if visits[device].node != OUT:
            counts[now] += 1
    return tuple(counts)


def migrated_visits(stored: VisitCounter | None, bound: VisitBound | None, reach: Micros | None) -> VisitCounter | None:
    """Return the counters of visits with which a site resumes from a stored state.

    Args:
        stored: those in the state; None if it has none.
        bound: the definition from now on; None: no counts are bounded by visits.
        reach: if pseudonyms now change at other times, an upper bound on the times of the observations that the site
            keeps; otherwise None.

    Returns:
        The stored counters if their definition is the same, otherwise as ``contribution.migrated_counter``.
    """
    if stored is not None and stored.definition == bound:
        return stored
    resumes = resumption(stored, None if bound is None else reach)
    return None if bound is None and resumes is None else VisitCounter(bound, resumes=resumes)
