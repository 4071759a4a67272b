"""A simulated building to learn on: its truth is known, and what a mechanism makes of it at each epsilon.

Nothing here is of anybody: people, key and noise are made from fixed seeds, by the mechanisms that also release real
counts. So truth may stand beside released values, which must never be with counts of real devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache, lru_cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.counts import Naming, count_mechanism, release_counts
from stream.mechanisms.filter_calendar import Slot
from stream.records import DAY, MINUTE, SECOND, Micros
from stream.simulator.events import Simulation, SimulatorConfig, simulate
from stream.simulator.visits import Visits

Ints = NDArray[np.int64]
Epsilon = Literal["0.01", "0.03", "0.1", "0.3", "1", "3", "10"]
Mechanism = Literal["laplace", "pegasus", "filter"]
EPSILONS: tuple[Epsilon, ...] = ("0.01", "0.03", "0.1", "0.3", "1", "3", "10")
MECHANISMS: tuple[Mechanism, ...] = ("laplace", "pegasus", "filter")
WINDOW: Micros = 5 * MINUTE
WINDOWS = DAY // WINDOW
SIMULATED = SimulatorConfig(days=28, seed=2018, zones=24, scale=2.0)
"""Four weeks of February, whose days all have 24 hours."""
KEY = b"a laboratory key for lessons only"
"""Known to everybody: it hides nothing, and there is nothing to hide."""
LARGEST, LARGEST_ROOM = 2000, 300
"""Devices that a place holds at most, or a room, for mechanisms that have to know."""


class Released(NamedTuple):
    """A place's counts and what was made of them, a window an entry."""

    ends: Ints
    """Microseconds."""
    truth: Ints
    values: Ints
    half_widths: Ints
    kind: str
    """Of the half-widths: ``noise`` or ``posterior``."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """The building, with the true counts of all of its windows."""

    simulation: Simulation
    ends: Ints
    counts: Ints
    """Shape [windows, zones]."""

    @property
    def timezone(self) -> ZoneInfo:
        """Where its days begin at midnight."""
        return ZoneInfo(self.simulation.config.timezone)

    @property
    def zones(self) -> tuple[str, ...]:
        """Its zones, in the order of the counts."""
        return self.simulation.building.zones

    def of_day(self, day: int) -> slice:
        """Return which windows a day has, counted from the first."""
        return slice(day * WINDOWS, (day + 1) * WINDOWS)

    def busiest(self, *kinds: str) -> list[int]:
        """Return the zones of some kinds, from the one with the highest peak down."""
        peaks = self.counts.max(axis=0)
        of_kind = [index for index, kind in enumerate(self.simulation.building.kinds) if kind in kinds]
        return sorted(of_kind, key=lambda index: (-int(peaks[index]), index))

    def slot(self, end: Micros) -> Slot:
        """Return a window's place in the local week."""
        local = datetime.fromtimestamp(end // SECOND, UTC).astimezone(self.timezone)
        return Slot(local.hour * 2 + local.minute // 30, local.hour, local.weekday() >= 5)


def true_counts(visits: Visits, ends: Ints, zones: int) -> Ints:
    """Return how many stays each zone has at each tick, shape [ticks, zones]: those with start <= tick < end."""
    change = np.zeros((len(ends) + 1, zones), dtype=np.int64)
    np.add.at(change, (np.searchsorted(ends, visits.start), visits.zone), 1)
    np.add.at(change, (np.searchsorted(ends, visits.end), visits.zone), -1)
    return np.cumsum(change, axis=0)[:-1]


@cache
def lessons() -> Lessons:
    """Return the building, which is simulated when it is first asked for."""
    simulation = simulate(SIMULATED)
    ends = np.arange(simulation.start + WINDOW, simulation.end + 1, WINDOW, dtype=np.int64)
    counts = true_counts(simulation.visits, ends, len(simulation.building.zones))
    return Lessons(simulation, ends, counts)


def released(
    of: Lessons, name: str, places: Sequence[str], ends: Ints, counts: Ints, terms: tuple[Mechanism, str],
    largest: int = LARGEST,
) -> tuple[Ints, Ints, str]:  # fmt: skip
    """Return (values, half widths, kind of these) of some places that are released together, shape [windows, places].

    Args:
        of: the building.
        name: of the release, for its noise: another name, other noise.
        places: names of what is counted; a device is in one of them.
        ends: of the windows.
        counts: true ones, shape [windows, places].
        terms: mechanism, and what a window pays, decimal.
        largest: devices that any of the places holds at most.
    """
    mechanism = count_mechanism(terms[0], epsilon=Fraction(terms[1]), max_counts=[largest] * len(places))
    naming = Naming("lesson", name, tuple(places), lambda day: KEY + day.to_bytes(8, "big"), of.slot)
    values, widths = release_counts(mechanism, naming, ends, counts)
    return values, widths, mechanism.half_width_kind


def places_shown(of: Lessons) -> dict[str, list[int]]:
    """Return places to look at, as the zones they are made of: the building, rooms from busy to quiet."""
    rooms = of.busiest("classroom", "open", "corridor")
    chosen = (rooms[0], rooms[len(rooms) // 3], rooms[-1])
    return {"building": list(range(len(of.zones))), **{of.zones[index]: [index] for index in chosen}}


@lru_cache(maxsize=len(EPSILONS) * len(MECHANISMS) * 4)
def day_released(place: str, mechanism: Mechanism, epsilon: Epsilon) -> Released:
    """Return the first day of a place, released on its own."""
    of = lessons()
    day = of.of_day(0)
    truth = of.counts[day][:, places_shown(of)[place]].sum(axis=1, keepdims=True)
    values, widths, kind = released(of, "day", [place], of.ends[day], truth, (mechanism, epsilon))
    return Released(of.ends[day], truth[:, 0], values[:, 0], widths[:, 0], kind)
