"""Single-occupant offices: owners who arrive, take breaks and leave by their own habits.

Each owner carries a phone, and most a laptop that sleeps whenever the owner is out. Habits (hour of arrival
and departure, breaks, frequency of absence) differ between owners and vary from day to day. All numbers are
choices that give a room's day structure; they are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.lab.simulator.building import CORRIDOR, OFFICE, OPEN, Building, Calendar, Draws
from stream.lab.simulator.visits import DeviceClass, Manner, Population, Visits
from stream.records import SECOND

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LAPTOP_SHARE = 0.75
OUT_AND_BACK = 90.0
"""Seconds on the way to and from a break."""
SHORTEST_SPELL = 20 * 60.0
"""Minimum time in the office between two breaks, and between a break and the ends of the day."""
BREAK_ELSEWHERE = 0.65
"""Chance that a break is spent inside the building, in an open area or a corridor."""
GUESTS = 0.10
"""Mean number of visitors of an office on a day when its owner is present."""
GUEST_STAY, GUEST_SIGMA, GUEST_LONGEST = 900.0, 0.6, 3600.0
BREAKS = ((10.5, 0.4, 20.0, 5.0, 0.55), (12.3, 0.4, 48.0, 10.0, 0.85), (15.3, 0.4, 20.0, 5.0, 0.50))
"""Morning coffee, lunch, afternoon coffee: mean hour and its spread over owners, minutes and their spread
over days, probability of the break."""


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """Owners of offices, with their habits; one row per office. Hours are local, spreads in hours."""

    office: Ints
    phone: Ints
    laptop: Ints
    """Device index, -1 without a laptop."""
    arrival: Floats
    departure: Floats
    wander: Floats
    """Day-to-day spread of arrival and departure."""
    absent: Floats
    """Probability of absence on an ordinary working day."""
    breaks: Floats
    """(owners, 3): the owner's usual hour of each break."""


@dataclass(frozen=True, slots=True)
class OfficePeriod:
    """A part of a day, in seconds after local midnight."""

    start: float
    end: float


class Trip(NamedTuple):
    """One device in one zone for a part of a day."""

    device: int
    zone: int
    period: OfficePeriod
    manner: Manner


def owner_devices(place: Building, rng: Draws) -> Ints:
    """Return the number of devices of each office's owner: 1, or 2 with a laptop."""
    return 1 + (rng.random(len(place.of_kind(OFFICE))) < LAPTOP_SHARE).astype(np.int64)


def owners(place: Building, people: Population, devices: Ints, rng: Draws) -> Owners:
    """Draw the owners' habits; ``devices`` is the number of owner devices of each office."""
    offices = place.of_kind(OFFICE)
    first = people.members(DeviceClass.OWNER)[np.cumsum(devices) - devices]
    count = len(offices)
    arrival = np.clip(9.1 + 0.75 * rng.standard_normal(count), 7.2, 10.8)
    hours = np.array([entry[0] for entry in BREAKS]) + rng.standard_normal((count, len(BREAKS))) * BREAKS[0][1]
    return Owners(
        office=offices,
        phone=first,
        laptop=np.where(devices == 2, first + 1, -1),
        arrival=arrival,
        departure=np.clip(arrival + 8.3 + 0.7 * rng.standard_normal(count), 15.0, 20.0),
        wander=rng.uniform(0.12, 0.45, count),
        absent=rng.uniform(0.04, 0.22, count),
        breaks=hours,
    )


def office_visits(who: Owners, place: Building, people: Population, days: Calendar, rng: Draws) -> Visits:
    """Return the visits of owners (in and out of the office) and of their rare guests, unordered."""
    trips: list[tuple[int, Trip]] = []
    haunts, guests = place.of_kind(OPEN, CORRIDOR), people.members(DeviceClass.RESIDENT)
    for day, owner in np.argwhere(_present(who, days, rng)).tolist():
        spells = owner_day(who, owner, rng)
        made = [
            *_inside(who, owner, spells, rng),
            *_outside(int(who.phone[owner]), spells, haunts, rng),
            *_guests(int(who.office[owner]), spells, guests, rng),
        ]
        trips += [(day, trip) for trip in made]
    return _visits(trips, days)


def owner_day(who: Owners, owner: int, rng: Draws) -> list[OfficePeriod]:
    """Draw a day in the office: the spells between arrival, breaks and departure, at least one, in order."""
    arrival = max(6.0, who.arrival[owner] + who.wander[owner] * rng.standard_normal())
    departure = max(arrival + 2.5, who.departure[owner] + who.wander[owner] * rng.standard_normal())
    spells, since, until = [], float(arrival * 3600.0), float(min(departure, 23.0) * 3600.0)
    for usual, (_, _, minutes, spread, chance) in zip(who.breaks[owner], BREAKS, strict=True):
        leave = float(usual + 0.2 * rng.standard_normal()) * 3600.0
        back = leave + max(12.0, float(minutes + spread * rng.standard_normal())) * 60.0
        leaves = rng.random() < chance
        if leaves and leave >= since + SHORTEST_SPELL and back <= until - SHORTEST_SPELL:
            spells.append(OfficePeriod(since, leave))
            since = back
    return [*spells, OfficePeriod(since, until)]


def _present(who: Owners, days: Calendar, rng: Draws) -> NDArray[np.bool_]:
    """Return (days, owners): which owners come; on days off the probability decreases with f."""
    ordinary = (days.factor >= 0.7) & (days.weekday < 5)
    chance = np.where(ordinary, 1.0, days.factor * 0.6)[:, None] * (1.0 - who.absent)[None, :]
    return rng.random(chance.shape) < chance


def _inside(who: Owners, owner: int, periods: list[OfficePeriod], rng: Draws) -> Iterator[Trip]:
    office, phone, laptop = int(who.office[owner]), int(who.phone[owner]), int(who.laptop[owner])
    for spell in periods:
        yield Trip(phone, office, spell, Manner.OWNER)
        if laptop >= 0:
            opened = spell.start + float(rng.uniform(30.0, 240.0))
            closed = spell.end - float(rng.uniform(5.0, 60.0))
            yield Trip(laptop, office, OfficePeriod(opened, closed), Manner.OWNER)


def _outside(phone: int, periods: list[OfficePeriod], haunts: Ints, rng: Draws) -> Iterator[Trip]:
    for before, after in pairwise(periods):
        if len(haunts) and rng.random() < BREAK_ELSEWHERE:
            out = OfficePeriod(before.end + OUT_AND_BACK, after.start - OUT_AND_BACK)
            yield Trip(phone, int(rng.choice(haunts)), out, Manner.RESIDENT)


def _guests(office: int, periods: list[OfficePeriod], guests: Ints, rng: Draws) -> Iterator[Trip]:
    for _ in range(int(rng.poisson(GUESTS)) if len(guests) else 0):
        spell = periods[int(rng.integers(len(periods)))]
        start = float(rng.uniform(spell.start, spell.end))
        stay = min(GUEST_LONGEST, GUEST_STAY * float(np.exp(GUEST_SIGMA * rng.standard_normal())))
        meeting = OfficePeriod(start, min(spell.end, start + stay))
        yield Trip(int(rng.choice(guests)), office, meeting, Manner.GUEST)


def _visits(trips: list[tuple[int, Trip]], days: Calendar) -> Visits:
    day = np.array([day for day, _ in trips], dtype=np.int64)
    start = days.utc(day, np.array([trip.period.start for _, trip in trips], dtype=np.float64))
    stay = np.array([trip.period.end - trip.period.start for _, trip in trips], dtype=np.float64)
    return Visits(
        device=np.array([trip.device for _, trip in trips], dtype=np.int64),
        zone=np.array([trip.zone for _, trip in trips], dtype=np.int64),
        start=start,
        end=start + np.round(stay * SECOND).astype(np.int64),
        manner=np.array([trip.manner for _, trip in trips], dtype=np.int64),
    )
