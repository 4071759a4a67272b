"""Faults on the path from a controller, by name; they are seeded and counted.

The names are those of ``--faults``:

========================= =========================================================================
``duplicates``            one trap in a thousand arrives twice, the copy up to 50 ms later
``reordering``            one trap in fifty is delayed by at most 2 s; its up-time is unchanged
``loss``                  one trap in a hundred never arrives (keep-alives and cold starts always do)
``reboot``                one controller is silent for two minutes, restarts with a cold start and an
                          up-time of 0, and every device in its zones associates anew within 90 s
``unknown-ap``            one trap in five hundred is followed by one from an access point on no map
``wrong-community``       one trap in five hundred is followed by one with a wrong community
``flood``                 5,000 well-formed traps a second for 10 s from an unlisted controller
``enhanced``              each association is reported twice more, 50 to 800 ms later
========================= =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.lab.simulator.building import Draws
from stream.lab.simulator.events import Simulation
from stream.records import SECOND

Ints = NDArray[np.int64]

DUPLICATE_SHARE, DUPLICATE_WITHIN = 0.001, SECOND // 20
LATE_SHARE, LATE_WITHIN = 0.02, 2 * SECOND
LOSS_SHARE = 0.01
FOREIGN_SHARE = 0.002
SILENCE = 120 * SECOND
STORM = (5 * SECOND, 90 * SECOND)
FLOOD_RATE, FLOOD_SECONDS = 5_000, 10
ENHANCED_AFTER = (SECOND // 20, SECOND * 4 // 5)
UNLISTED = -1
"""Controller index of the sender of a flood."""


class Fault(StrEnum):
    """The faults by name."""

    DUPLICATES = "duplicates"
    REORDERING = "reordering"
    LOSS = "loss"
    REBOOT = "reboot"
    UNKNOWN_AP = "unknown-ap"
    WRONG_COMMUNITY = "wrong-community"
    FLOOD = "flood"
    ENHANCED = "enhanced"


class Kind(IntEnum):
    """The kind of a datagram; several at one instant are sent in this order."""

    COLD_START = 0
    ASSOCIATE = 1
    ASSOCIATE_STATISTICS = 2
    RUN_STATE = 3
    UNKNOWN_AP = 4
    WRONG_COMMUNITY = 5
    FLOOD = 6
    KEEPALIVE = 7
    DISASSOCIATE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Traps:
    """Traps as columns, one row a datagram."""

    event: Ints
    """UTC microseconds at which the controller made it."""
    sent: Ints
    """... and at which it reaches the network; not before ``event``."""
    kind: Ints
    device: Ints
    point: Ints
    controller: Ints

    def select(self, rows: Ints | NDArray[np.bool_]) -> Traps:
        """Return the given rows, in the order given."""
        return Traps(*(getattr(self, column.name)[rows] for column in fields(self)))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.event)


def parse_faults(names: str | Iterable[str]) -> frozenset[Fault]:
    """Return faults from their names, or from one comma-separated text; an empty one names none.

    Raises:
        UsageError: an unknown name.
    """
    given = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    for name in given:
        if name and name not in set(Fault):
            raise UsageError(f"faults: each must be one of {', '.join(Fault)}; got {name!r}")
    return frozenset(Fault(name) for name in given if name)


def join(parts: Iterable[Traps]) -> Traps:
    """Return all rows of all parts."""
    parts = list(parts)
    return Traps(*(np.concatenate([getattr(p, column.name) for p in parts]) for column in fields(Traps)))


def rows(event: Ints, kind: Kind, device: Ints, point: Ints, controller: Ints) -> Traps:
    """Return traps of one kind that arrive at the time of their event."""
    return Traps(event, event.copy(), np.full(len(event), int(kind)), device, point, controller)


def reported_twice_more(traps: Traps, rng: Draws) -> Traps:
    """Return the statistics and run-state traps that follow each association."""
    low, high = ENHANCED_AFTER
    parts = []
    for kind in (Kind.ASSOCIATE_STATISTICS, Kind.RUN_STATE):
        event = traps.event + rng.integers(low, high, len(traps))
        parts.append(rows(event, kind, traps.device, traps.point, traps.controller))
    return join(parts)


def storm(simulation: Simulation, moment: int, controllers: int, controller: int, rng: Draws) -> Traps:
    """Return the associations of the devices in a restarted controller's zones, while they are present."""
    visits = simulation.visits
    event = moment + rng.integers(*STORM, len(visits.start))
    there = (visits.start <= moment) & (event < visits.end) & (visits.zone % controllers == controller)
    zone = visits.zone[there]
    return rows(event[there], Kind.ASSOCIATE, visits.device[there], zone, zone % controllers)


def draw_lost(traps: Traps, rng: Draws) -> NDArray[np.bool_]:
    """Draw which traps never arrive."""
    return rng.random(len(traps)) < LOSS_SHARE


def copies(traps: Traps, rng: Draws) -> tuple[Ints, Ints]:
    """Draw which rows arrive twice, and the copies' delays."""
    chosen = np.flatnonzero(rng.random(len(traps)) < DUPLICATE_SHARE)
    return chosen, rng.integers(1, DUPLICATE_WITHIN, len(chosen))


def delays(traps: Traps, rng: Draws) -> Ints:
    """Draw each trap's delay; mostly 0."""
    return np.where(rng.random(len(traps)) < LATE_SHARE, rng.integers(1, LATE_WITHIN, len(traps)), 0)


def foreign(traps: Traps, kind: Kind, rng: Draws) -> Traps:
    """Return extra traps after a share of the given ones, at the same instants."""
    near = traps.select(rng.random(len(traps)) < FOREIGN_SHARE)
    return rows(near.event, kind, near.device, near.point, near.controller)


def flood(simulation: Simulation, moment: int, rng: Draws) -> Traps:
    """Return well-formed traps about real devices and access points from an unlisted controller."""
    count = FLOOD_RATE * FLOOD_SECONDS
    event = moment + np.arange(count) * (SECOND // FLOOD_RATE)
    device = rng.integers(0, len(simulation.devices), count)
    point = rng.integers(0, len(simulation.building.zones), count)
    return rows(event, Kind.FLOOD, device, point, np.full(count, UNLISTED))
