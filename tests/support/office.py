"""An office of 320 people on working days from 9:00 to 17:20.

About two thirds come on a day. They arrive about 9:00 and leave about 17:20, most go out for lunch, and some sit in a
meeting on another floor. Each carries one device, which is heard every two to six minutes. The same seed gives the
same days.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stream.pipeline import definition_of, visits_of
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, OccupancyWindow, Row
from stream.release.validation import Policy
from stream.schemas import parse_time
from stream.sensing.occupancy import OccupancyOperator

SITE, SOURCE = "office", "10.0.0.5"
PEOPLE, FLOORS, ROOMS = 320, 4, 10
MONDAY = parse_time("2026-03-02T00:00:00Z")
COMES = 0.67
"""Chance that a person comes on a day."""


class Heard(NamedTuple):
    """A device at an access point."""

    time: Micros
    device: str
    access_point: str


def access_points() -> list[str]:
    """Return the addresses of the office's access points, floor by floor."""
    return [f"02:00:00:00:{floor:02x}:{room:02x}" for floor in range(1, FLOORS + 1) for room in range(ROOMS)]


def inventory() -> str:
    """Return the list of access points (CSV) that 'policy init' reads."""
    rows = [f"{mac},ap-{mac[12:14]}-{mac[15:]},{int(mac[12:14], 16)}" for mac in access_points()]
    return "\n".join(["ap,name,floor", *rows]) + "\n"


def observations(seed: int, days: int = 1) -> list[Heard]:
    """Return all that is heard from Monday on, ordered by time."""
    drawn, places = random.Random(seed), access_points()
    desks = [drawn.randrange(len(places)) for _ in range(PEOPLE)]
    received = [
        Heard(time, f"02:{day:02x}:00:00:{person >> 8:02x}:{person & 255:02x}", places[place])
        for day in range(days)
        for person, desk in enumerate(desks)
        if drawn.random() < COMES
        for time, place in _day(drawn, MONDAY + day * DAY, desk, len(places))
    ]
    return sorted(received)


def _day(drawn: random.Random, midnight: Micros, desk: int, places: int) -> Iterator[tuple[Micros, int]]:
    """Yield when and where one person is heard on one day; times are in minutes after midnight until they are told."""
    arrives, leaves = drawn.gauss(9 * 60, 20), drawn.gauss(17 * 60 + 20, 30)
    lunch = drawn.gauss(12 * 60 + 20, 20)
    back = lunch + (drawn.uniform(30, 60) if drawn.random() < 0.6 else 0)
    meeting = drawn.uniform(9 * 60 + 30, 16 * 60)
    over = meeting + (60 if drawn.random() < 0.3 else 0)
    room = drawn.randrange(places)
    minute = arrives
    while minute < leaves:
        if not lunch <= minute < back:
            yield midnight + round(minute * 60) * SECOND, room if meeting <= minute < over else desk
        minute += drawn.uniform(2, 6)


def windows(policy: Policy, seed: int, days: int = 1) -> list[OccupancyWindow]:
    """Return the office's windows as a site of a policy counts them, from the first midnight on."""
    [(name, site)] = policy.site.items()
    definition = definition_of(site)
    points = {mac: zone.id for zone in site.zones for mac in zone.access_points}
    sense = OccupancyOperator(
        site=name, zones=tuple(zone.id for zone in site.zones), sources=(SOURCE,), max_devices=200_000,
        access_points=points, tick_length=site.tick, validity=site.validity, lateness=site.lateness,
        by_day=definition, by_visits=visits_of(policy, name),
    )  # fmt: skip
    state, made = sense.initial(), list[OccupancyWindow]()
    beats = (Heartbeat(name, SOURCE, 0, MONDAY), Heartbeat(name, SOURCE, 0, MONDAY + days * DAY + MINUTE))
    batches = _batches(name, observations(seed, days), None if definition is None else PrivacyDays(*definition[:2]))
    items: list[ObservationBatch | Heartbeat] = [*batches, *beats]
    for item in items:
        state, outputs = sense.step(state, item)
        made += [each for each in outputs if isinstance(each, OccupancyWindow)]
    return made


def _batches(site: str, heard: Sequence[Heard], days: PrivacyDays | None) -> Iterator[ObservationBatch]:
    rows: dict[object, list[Row]] = {}
    for each in heard:
        rows.setdefault(days and days.at(each.time), []).append(Row(each.device, each.access_point, each.time))
    for number, (day, stored) in enumerate(rows.items()):
        yield ObservationBatch(site, SOURCE, 0, number, tuple(stored), day)  # type: ignore[arg-type]
