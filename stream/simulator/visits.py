"""Who is truly where and when: the visits of a run, before any radio.

A device is in one zone at a time: a later visit ends the one before it. Static devices are there from the
first instant to the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stream.records import SECOND
from stream.simulator.building import Draws
from stream.simulator.calendar import HOUR_WEIGHTS, Calendar, class_slots
from stream.simulator.population import (
    HABITS,
    NO_CLASS,
    SECOND_DAY,
    DeviceClass,
    Habit,
    Population,
    weighted,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LONGEST_STAY = 14 * 3600.0
SHORTEST_STAY = 1.0
EARLY, EARLY_SIGMA = -150.0, 180.0
"""Attendees arrive this many seconds about the slot's start (normal)."""
LATE, LATE_SIGMA = 120.0, 200.0
"""... and stay this much longer than the class (normal)."""


class Manner(IntEnum):
    """How the devices of a visit behave on the radio; the first five are those of the device classes."""

    PASSER_BY = 0
    OCCASIONAL = 1
    ATTENDEE = 2
    RESIDENT = 3
    STATIC = 4
    OWNER = 5
    """In the own office: steady, and heard every few minutes."""
    GUEST = 6
    """In somebody's office."""


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """True stays, one row each: the device was in the zone in [start, end), UTC microseconds."""

    device: Ints
    zone: Ints
    start: Ints
    end: Ints
    manner: Ints

    def take(self, rows: Ints | NDArray[np.bool_]) -> Visits:
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


def settle(visits: Visits, days: Calendar) -> Visits:
    """Order visits by device and start, let a later one end the one before, and cut at the end of the run.

    What is then shorter than a second is left out.
    """
    ordered = visits.take(np.lexsort((visits.end, visits.start, visits.device)))
    end = np.minimum(ordered.end, days.end)
    same = ordered.device[1:] == ordered.device[:-1]
    end[:-1] = np.where(same, np.minimum(end[:-1], ordered.start[1:]), end[:-1])
    cut = Visits(ordered.device, ordered.zone, ordered.start, end, ordered.manner)
    return cut.take((end - ordered.start >= SHORTEST_STAY * SECOND) & (ordered.start >= days.start))


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
