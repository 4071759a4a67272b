"""The simulation of a building: people, devices, Wi-Fi events, and the truth.

The model is calibrated to three published totals of one university building (64 access points, 36,436
devices, 3,895,732 associations in 89 days from February 2018; Ghayyur, thesis, section 4.2.1). It contains the
building's calendar, class slots and single-occupant offices; see the modules of this package for each.

The same configuration gives the same arrays, bit for bit, with one numpy version on one kind of machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.lab.simulator.building import (
    FULL_DAYS,
    FULL_START,
    FULL_ZONES,
    Building,
    Calendar,
    Draws,
    building,
    calendar,
    draws,
    full_factor,
)
from stream.lab.simulator.offices import office_visits, owner_devices, owners
from stream.lab.simulator.radio import Events, Heard, departures, events, ordered, reassociations
from stream.lab.simulator.visits import (
    HABITS,
    DeviceClass,
    Manner,
    Population,
    Visits,
    addresses,
    join,
    ordered_visits,
    population,
    public_visits,
)
from stream.records import MINUTE, SECOND, Micros

Ints = NDArray[np.int64]

SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
PEOPLE, HABIT, RADIO, NAMES, ROUTINE, MACHINES, DEPARTURES = range(7)


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """The simulation's settings. 89 days from the default start are the full published scale."""

    days: int = 1
    seed: int = 0
    zones: int = 64
    """1 to 4095; the number of people scales with it."""
    start: date = FULL_START
    timezone: str = "America/Los_Angeles"
    site: str = "dbh"
    scale: float = 1.0
    """Number of people relative to the calibrated building of this size."""
    building: int = 0
    """0 to 255; buildings of different numbers share no access point and no events."""
    always_on: int = 0
    """Number of static devices that are heard every few minutes, so that they are present at every tick. The
    published totals include none; all other events are the same with and without them."""
    heard: Heard = Heard.OFTEN
    """How often a device that stays is heard. The visits are the same in each case."""

    @property
    def sessions(self) -> bool:
        """Whether its controllers report departures, and the site counts sessions: where stays are seldom heard."""
        return self.heard is not Heard.OFTEN

    def __post_init__(self) -> None:
        if not 1 <= self.days <= 3660:
            raise UsageError(f"days: must be 1 to 3660, not {self.days}")
        if self.seed < 0:
            raise UsageError(f"seed: must not be negative, not {self.seed}")
        if not 0 < self.scale <= 100:
            raise UsageError(f"scale: must be above 0 and at most 100, not {self.scale}")
        if self.always_on < 0:
            raise UsageError(f"--always-on: must not be negative, not {self.always_on}")
        if not SITE.fullmatch(self.site):
            raise UsageError(f"site: must be letters, digits, dots, dashes or underscores, not {self.site!r}")
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as wrong:
            raise UsageError(f"timezone: no such zone: {self.timezone!r}") from wrong


DAY_SHOWN = SimulatorConfig(seed=1, scale=0.45, always_on=75)
"""The day of plans: fewer people than in the calibrated building, and 75 machines that are always on. On average some
140 devices are present, half of them machines, which controllers see in most buildings. The demo has the same visits,
and people who sit still."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """Events as arrays ordered by time, and the truth."""

    config: SimulatorConfig
    building: Building
    start: Micros
    """Local midnight of the first day; every static device is heard at this instant."""
    end: Micros
    """Local midnight after the last day; the last event is less than ten minutes before it."""
    time: Ints
    """UTC microseconds, ascending."""
    device: Ints
    """Index into ``devices``."""
    access_point: Ints
    """Index into ``building.access_points``, which is also the index of the zone."""
    devices: tuple[str, ...]
    """Addresses of the devices that came in this run; the others are not numbered."""
    device_class: Ints
    """``DeviceClass`` of each device."""
    visits: Visits
    """True stays, by device and start; those of one device do not overlap."""
    departures: Events
    """Disassociations and deauthentications, by time; ``access_point`` is where the device was heard last."""


def simulate(config: SimulatorConfig) -> Simulation:
    """Run the model.

    Raises:
        UsageError: a setting out of range.
    """
    place = building(config.zones, config.building)
    days = calendar(config.start, config.days, ZoneInfo(config.timezone))
    devices = owner_devices(place, _draws(config, ROUTINE))
    people = population(class_sizes(config, days, int(devices.sum())), place, _draws(config, PEOPLE))
    visits = _all_visits(config, place, days, people, devices)
    observed = _closing(events(visits, people, place, _draws(config, RADIO), config.heard), visits, days)
    observed = _merged(observed, reassociations(_machines(config, visits), _draws(config, MACHINES)))
    left = departures(observed, visits, days.end, _draws(config, DEPARTURES))
    seen = np.unique(visits.device)
    names = addresses(people.device_class, _draws(config, NAMES))
    return Simulation(
        config=config,
        building=place,
        start=days.start,
        end=days.end,
        time=observed.time,
        device=np.searchsorted(seen, observed.device),
        access_point=observed.access_point,
        devices=tuple(names[index] for index in seen),
        device_class=people.device_class[seen],
        visits=replace(visits, device=np.searchsorted(seen, visits.device)),
        departures=left._replace(device=np.searchsorted(seen, left.device)),
    )


def class_sizes(config: SimulatorConfig, days: Calendar, owner_count: int) -> dict[DeviceClass, int]:
    """Return the number of devices of each class in this run.

    A run whose days are busier than the full calendar's mean day is thinned to it (except static devices and
    owners), so that one teaching day alone looks like a typical day. Each passer-by comes on one day only: their
    number follows the days of the run.
    """
    size = config.scale * config.zones / FULL_ZONES
    moving = size * min(1.0, full_factor() / FULL_DAYS / float(days.factor.mean()))
    share = dict.fromkeys(DeviceClass, moving)
    share[DeviceClass.PASSER_BY] = moving * float(days.factor.sum()) / full_factor()
    share[DeviceClass.STATIC] = size
    sizes = {kind: round(HABITS[kind].devices * share[kind]) for kind in DeviceClass}
    sizes[DeviceClass.STATIC] = max(1, sizes[DeviceClass.STATIC])
    sizes[DeviceClass.OWNER] = owner_count
    return sizes


def _draws(config: SimulatorConfig, part: int) -> Draws:
    return draws(config.seed, config.building, part)


def _all_visits(config: SimulatorConfig, place: Building, days: Calendar, people: Population, devices: Ints) -> Visits:
    routine = _draws(config, ROUTINE)
    who = owners(place, people, devices, routine)
    public = public_visits(people, days, _draws(config, HABIT))
    return ordered_visits(join([public, office_visits(who, place, people, days, routine)]), days)


def _closing(observed: Events, visits: Visits, days: Calendar) -> Events:
    """Add an event of one static device within five minutes of the end, so that the last day is covered completely."""
    last = int(np.flatnonzero(visits.manner == Manner.STATIC)[0])
    moment = days.end - 4 * MINUTE - int(observed.time[-1] % (30 * SECOND))
    return ordered(
        np.append(observed.time, moment),
        np.append(observed.device, visits.device[last]),
        np.append(observed.access_point, visits.zone[last]),
    )


def _machines(config: SimulatorConfig, visits: Visits) -> Visits:
    """Return the stays of the static devices that are always on."""
    static = np.flatnonzero(visits.manner == Manner.STATIC)
    if config.always_on > len(static):
        raise UsageError(
            f"--always-on: must be at most {len(static)}, the devices that never leave at this --scale, "
            f"not {config.always_on}"
        )
    return visits.select(static[: config.always_on])


def _merged(one: Events, other: Events) -> Events:
    return ordered(*(np.concatenate(columns) for columns in zip(one, other, strict=True)))
