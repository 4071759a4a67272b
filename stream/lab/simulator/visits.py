"""Visits: the true stays of devices, and their population.

A device is in one zone at a time: a later visit ends the one before it. Static devices are present from the
first instant to the last.

The population has classes of devices with their behaviour, addresses and haunts. The counts, rates and laws are fitted
to three published totals of one building (64 access points, 36,436 devices, 3,895,732 associations in 89 days; Ghayyur,
thesis, section 4.2.1). Many other choices fit as well: the gap law of a real building has to be measured there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stream.lab.simulator.building import CLASSROOM, HOUR_WEIGHTS, Building, Calendar, Draws, class_slots, mac_text
from stream.records import SECOND

# The population.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class DeviceClass(IntEnum):
    """Kinds of devices; truth files contain the lower-case name."""

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
    """The behaviour of one class."""

    devices: int
    """At full scale."""
    active: float
    """Probability of coming on a day with f = 1."""
    visits: float
    """Poisson mean of visits on an active day; at least one."""
    median_stay: float
    """Seconds; log-normal."""
    sigma_stay: float
    homes: int
    """Number of access points that the device frequents."""


HABITS = {
    DeviceClass.PASSER_BY: Habit(21_556, 0.0, 0.0, 300.0, 1.0, 2),
    DeviceClass.OCCASIONAL: Habit(8_000, 0.060, 1.15, 3_000.0, 0.9, 5),
    DeviceClass.ATTENDEE: Habit(5_200, 0.33, 1.05, 3_000.0, 0.9, 3),
    DeviceClass.RESIDENT: Habit(1_550, 0.74, 1.05, 5_400.0, 0.7, 4),
    DeviceClass.STATIC: Habit(180, 1.0, 1.0, 0.0, 0.0, 2),
    DeviceClass.OWNER: Habit(0, 0.0, 0.0, 0.0, 0.0, 2),  # one or two an office, see offices.py
}
SECOND_DAY = 0.10
"""Probability that a passer-by is seen on a second day."""
NO_CLASS = 0.18
"""Share of attendees that come when there are no classes."""
OUTSIDE_CLASSROOM = 0.25
"""Weight of a zone that is not a classroom among an attendee's haunts, relative to its popularity."""
MOST_HOMES = max(habit.homes for habit in HABITS.values())

RANDOMISED_SHARE = 0.45
"""Share of devices other than static ones that show a locally administered address."""
CLIENT_OUIS = (0x3C22FB, 0xF0D1A9, 0x8CF5A3, 0xA4C3F0, 0x48A472)
STATIC_OUIS = (0x001BA9, 0x008077, 0x9C934E, 0x00A0B0)
"""Vendor prefixes typical of laptops and phones, and of printers and displays."""


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """All devices that could appear, class after class."""

    device_class: Ints
    homes: Ints
    """(devices, 5): access points; only a device's first ``home_count`` columns are used."""
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
    """Return each zone's attraction for a class of devices, at least 0, not normalised; that of offices is 0."""
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
    """Return one distinct address per device.

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


LONGEST_STAY = 14 * 3600.0
SHORTEST_STAY = 1.0
EARLY, EARLY_SIGMA = -150.0, 180.0
"""Attendees arrive this many seconds relative to the slot's start (normal)."""
LATE, LATE_SIGMA = 120.0, 200.0
"""Attendees stay this much longer than the class (normal)."""


class Manner(IntEnum):
    """How the devices of a visit behave on the radio; the first five are those of the device classes."""

    PASSER_BY = 0
    OCCASIONAL = 1
    ATTENDEE = 2
    RESIDENT = 3
    STATIC = 4
    OWNER = 5
    """In the owner's office: steady, and heard every few minutes."""
    GUEST = 6
    """In another person's office."""


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """True stays, one row each: the device was in the zone in [start, end), UTC microseconds."""

    device: Ints
    zone: Ints
    start: Ints
    end: Ints
    manner: Ints

    def select(self, rows: Ints | NDArray[np.bool_]) -> Visits:
        """Return the given rows, in the order given."""
        return Visits(self.device[rows], self.zone[rows], self.start[rows], self.end[rows], self.manner[rows])


def join(parts: list[Visits]) -> Visits:
    """Return all rows of all parts."""
    return Visits(
        device=np.concatenate([part.device for part in parts]),
        zone=np.concatenate([part.zone for part in parts]),
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        manner=np.concatenate([part.manner for part in parts]),
    )


def public_visits(people: Population, days: Calendar, rng: Draws) -> Visits:
    """Return the visits of all classes but owners, unordered and possibly overlapping."""
    moving = (DeviceClass.PASSER_BY, DeviceClass.OCCASIONAL, DeviceClass.ATTENDEE, DeviceClass.RESIDENT)
    return join([static_visits(people, days), *(moving_visits(kind, people, days, rng) for kind in moving)])


def static_visits(people: Population, days: Calendar) -> Visits:
    """Return one stay over the whole run for each static device."""
    devices = people.members(DeviceClass.STATIC)
    return Visits(
        device=devices,
        zone=people.homes[devices, 0],
        start=np.full(len(devices), days.start),
        end=np.full(len(devices), days.end),
        manner=np.full(len(devices), Manner.STATIC),
    )


def moving_visits(kind: DeviceClass, people: Population, days: Calendar, rng: Draws) -> Visits:
    """Return the visits of one class, each at one of the device's haunts."""
    habit = HABITS[kind]
    device, day = _active_days(kind, people.members(kind), days, rng)
    repeats = np.maximum(1, rng.poisson(habit.visits, len(device)))
    device, day = np.repeat(device, repeats), np.repeat(day, repeats)
    seconds, stay = _times(kind, habit, day, days, rng)
    start = days.utc(day, seconds)
    choice = rng.integers(0, habit.homes, len(device))
    return Visits(
        device=device,
        zone=people.homes[device, choice],
        start=start,
        end=start + np.round(stay * SECOND).astype(np.int64),
        manner=np.full(len(device), int(kind)),
    )


def ordered_visits(visits: Visits, days: Calendar) -> Visits:
    """Order visits by device and start, end each by the next one, and cut at the end of the run.

    Visits that are then shorter than a second are left out.
    """
    ordered = visits.select(np.lexsort((visits.end, visits.start, visits.device)))
    end = np.minimum(ordered.end, days.end)
    same = ordered.device[1:] == ordered.device[:-1]
    end[:-1] = np.where(same, np.minimum(end[:-1], ordered.start[1:]), end[:-1])
    cut = Visits(ordered.device, ordered.zone, ordered.start, end, ordered.manner)
    return cut.select((end - ordered.start >= SHORTEST_STAY * SECOND) & (ordered.start >= days.start))


def _active_days(kind: DeviceClass, devices: Ints, days: Calendar, rng: Draws) -> tuple[Ints, Ints]:
    if kind == DeviceClass.PASSER_BY:
        again = devices[rng.random(len(devices)) < SECOND_DAY] if len(days.dates) > 1 else devices[:0]
        device = np.concatenate([devices, again])
        return device, weighted(rng, days.factor, len(device))
    share = HABITS[kind].active * days.factor
    if kind == DeviceClass.ATTENDEE:
        share = share * np.where(days.teaching, 1.0, NO_CLASS)
    row, day = np.nonzero(rng.random((len(devices), len(share))) < share)
    return devices[row], day


def _times(kind: DeviceClass, habit: Habit, day: Ints, days: Calendar, rng: Draws) -> tuple[Floats, Floats]:
    """Return arrival in seconds after local midnight, and stay in seconds, of each visit."""
    hour = weighted(rng, np.array(HOUR_WEIGHTS), len(day))
    arrival = (hour + rng.random(len(day))) * 3600.0
    stay = habit.median_stay * np.exp(habit.sigma_stay * rng.standard_normal(len(day)))
    if kind == DeviceClass.ATTENDEE:
        _attend(day, days, rng, arrival, stay)
    return arrival, np.clip(stay, SHORTEST_STAY, LONGEST_STAY)


def _attend(day: Ints, days: Calendar, rng: Draws, arrival: Floats, stay: Floats) -> None:
    """Move the arrivals of teaching days to class slots, and fit the stays to the classes."""
    for weekday in range(5):
        rows = np.flatnonzero(days.teaching[day] & (days.weekday[day] == weekday))
        slots, length = class_slots(weekday)
        slot = np.array(slots, dtype=np.float64)[rng.integers(0, len(slots), len(rows))]
        arrival[rows] = slot + EARLY + EARLY_SIGMA * rng.standard_normal(len(rows))
        stay[rows] = length + LATE + LATE_SIGMA * rng.standard_normal(len(rows))
