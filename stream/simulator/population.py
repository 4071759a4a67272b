"""Who comes: the classes of devices, how each behaves, and the devices' addresses and haunts.

The counts, rates and laws are fitted to three published totals of one building (64 access points, 36,436
devices, 3,895,732 associations in 89 days; Ghayyur, thesis, section 4.2.1). Many other choices fit as well:
the gap law of a real building has to be measured there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stream.simulator.building import CLASSROOM, Building, Draws, mac_text

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class DeviceClass(IntEnum):
    """Kinds of devices; the lower-case name stands in truth files."""

    PASSER_BY = 0
    OCCASIONAL = 1
    ATTENDEE = 2
    RESIDENT = 3
    STATIC = 4
    OWNER = 5

    @property
    def label(self) -> str:
        """Return the name used in files, such as ``passer-by``."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Habit:
    """How one class comes and stays."""

    devices: int
    """At full scale."""
    active: float
    """Chance to come on a day with f = 1."""
    visits: float
    """Poisson mean of visits on an active day; at least one."""
    median_stay: float
    """Seconds; log-normal."""
    sigma_stay: float
    homes: int
    """Access points the device keeps to."""


HABITS = {
    DeviceClass.PASSER_BY: Habit(21_556, 0.0, 0.0, 300.0, 1.0, 2),
    DeviceClass.OCCASIONAL: Habit(8_000, 0.060, 1.15, 3_000.0, 0.9, 5),
    DeviceClass.ATTENDEE: Habit(5_200, 0.33, 1.05, 3_000.0, 0.9, 3),
    DeviceClass.RESIDENT: Habit(1_550, 0.74, 1.05, 5_400.0, 0.7, 4),
    DeviceClass.STATIC: Habit(180, 1.0, 1.0, 0.0, 0.0, 2),
    DeviceClass.OWNER: Habit(0, 0.0, 0.0, 0.0, 0.0, 2),  # one or two an office, see simulator_offices
}
SECOND_DAY = 0.10
"""Chance that a passer-by is seen on one more day."""
NO_CLASS = 0.18
"""Share of attendees that comes when nothing is taught."""
OUTSIDE_CLASSROOM = 0.25
"""Weight of a zone that is no classroom among an attendee's haunts, against its popularity."""
MOST_HOMES = max(habit.homes for habit in HABITS.values())

RANDOMISED_SHARE = 0.45
"""Share of devices other than static ones that show a locally administered address."""
CLIENT_OUIS = (0x3C22FB, 0xF0D1A9, 0x8CF5A3, 0xA4C3F0, 0x48A472)
STATIC_OUIS = (0x001BA9, 0x008077, 0x9C934E, 0x00A0B0)
"""Vendor prefixes of the kind that laptops and phones, and printers and displays, carry."""


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """All devices that could appear, class after class."""

    device_class: Ints
    homes: Ints
    """(devices, 5): access points; a device's first ``home_count`` columns count."""
    home_count: Ints

    def members(self, kind: DeviceClass) -> Ints:
        """Return the indices of a class, ascending."""
        return np.flatnonzero(self.device_class == kind)


def population(sizes: dict[DeviceClass, int], place: Building, rng: Draws) -> Population:
    """Return a population of the given class sizes with haunts drawn by the zones' popularity."""
    kinds = np.repeat(np.array([int(kind) for kind in sizes]), list(sizes.values()))
    homes = np.empty((len(kinds), MOST_HOMES), dtype=np.int64)
    for kind in sizes:
        rows = np.flatnonzero(kinds == kind)
        homes[rows] = weighted(rng, attraction(place, kind), (len(rows), MOST_HOMES))
    counts = np.array([HABITS[kind].homes for kind in DeviceClass], dtype=np.int64)
    return Population(device_class=kinds, homes=homes, home_count=counts[kinds])


def attraction(place: Building, kind: DeviceClass) -> Floats:
    """Return each zone's pull on a class of devices, at least 0, not normalised; offices pull nobody."""
    if kind != DeviceClass.ATTENDEE:
        return place.popularity
    classroom = np.array([zone == CLASSROOM for zone in place.kinds])
    return place.popularity * np.where(classroom, 1.0, OUTSIDE_CLASSROOM)


def weighted(rng: Draws, weights: Floats, shape: int | tuple[int, int]) -> Ints:
    """Draw indices in proportion to ``weights`` (not all 0), with replacement."""
    edges = np.cumsum(weights) / np.sum(weights)
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(np.searchsorted(edges, rng.random(shape), side="right"), last)


def addresses(kinds: Ints, rng: Draws) -> tuple[str, ...]:
    """Return one distinct address a device.

    Static devices carry a printer-like vendor prefix; of the others a share shows a locally administered
    address (second lowest bit of the first octet set), the rest a client vendor's prefix.
    """
    index = np.arange(len(kinds), dtype=np.int64)
    stride, shift = 2 * int(rng.integers(1, 2**22)) + 1, int(rng.integers(2**24))
    suffix = (index * stride + shift) % 2**24  # an odd stride never repeats a suffix below 2**24 devices
    static = kinds == DeviceClass.STATIC
    local = ~static & (rng.random(len(kinds)) < RANDOMISED_SHARE)
    prefix = rng.choice(np.array(CLIENT_OUIS), len(kinds))
    prefix[static] = rng.choice(np.array(STATIC_OUIS), int(static.sum()))
    prefix[local] = rng.integers(0, 2**24, int(local.sum())) & 0xFCFFFF | 0x020000
    return tuple(mac_text(int(high) << 24 | int(low)) for high, low in zip(prefix, suffix, strict=True))
