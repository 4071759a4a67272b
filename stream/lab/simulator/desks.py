"""A working day of people who have a desk: they come in the morning, stay, and go in the evening.

Two thirds of the people come. Most leave the building for lunch, and some spend an hour in another zone. Each carries
one device, which is heard every two to six minutes, or when its zone changes. All numbers are choices that give a day
whose stays last; they are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from stream.lab.simulator.building import Draws, calendar, draws
from stream.records import MINUTE, Micros

WORKDAY = date(2018, 2, 1)
"""A Thursday."""
SEED = 20_180_201
MOST_PEOPLE = 3_000
"""More people are thinned to so many."""
COMES = 0.66
OUT_FOR_LUNCH, LUNCH = 0.65, (30.0, 60.0)
"""Chance, and minutes away."""
ELSEWHERE, MEETING = 0.35, 60.0
"""Chance of an hour in another zone, and its minutes."""
HEARD = (2.0, 6.0)
"""Minutes between two messages of a device that stays."""
LEFT = -1
"""In place of a zone: the device has left the building."""


class AtDesks(NamedTuple):
    """What is heard on a day, by time."""

    start: Micros
    """Local midnight."""
    end: Micros
    heard: tuple[tuple[Micros, int, int], ...]
    """Time, device and zone, or ``LEFT`` where a device leaves."""


@lru_cache(maxsize=4)
def at_desks(desks: tuple[int, ...], timezone: str) -> AtDesks:
    """Return the day of a building with so many desks in each zone."""
    rng, day = draws(SEED, len(desks)), calendar(WORKDAY, 1, ZoneInfo(timezone))
    places = np.repeat(np.arange(len(desks)), desks)
    if len(places) > MOST_PEOPLE:
        places = np.sort(rng.choice(places, MOST_PEOPLE, replace=False))
    heard = [
        (day.start + round(minute * MINUTE), device, zone)
        for device, desk in enumerate(places.tolist())
        if rng.random() < COMES
        for minute, zone in _one_day(rng, desk, len(desks))
    ]
    return AtDesks(day.start, day.end, tuple(sorted(heard)))


def _one_day(rng: Draws, desk: int, zones: int) -> Iterator[tuple[float, int]]:
    """Yield minutes after midnight and the zone of one device."""
    comes, goes = 9 * 60 + 30 * rng.standard_normal(), 17.4 * 60 + 35 * rng.standard_normal()
    lunch = 12.4 * 60 + 20 * rng.standard_normal()
    away = rng.uniform(*LUNCH) if rng.random() < OUT_FOR_LUNCH else 0.0
    meeting = rng.uniform(comes, goes) if rng.random() < ELSEWHERE else goes
    room = int(rng.integers(zones))
    cuts = [(comes, desk), (lunch, LEFT), (lunch + away, desk)] if away else [(comes, desk)]
    if not lunch - MEETING <= meeting <= lunch + away:
        cuts += [(meeting, room), (meeting + MEETING, desk)]
    yield from _heard(rng, sorted(cut for cut in cuts if cut[0] < goes), goes)


def _heard(rng: Draws, cuts: Sequence[tuple[float, int]], goes: float) -> Iterator[tuple[float, int]]:
    """Yield when a device is heard: at each change of zone, and every few minutes while it is in one."""
    for (since, zone), until in zip(cuts, [*(cut[0] for cut in cuts[1:]), goes], strict=True):
        yield since, zone
        minute = since + rng.uniform(*HEARD)
        while zone != LEFT and minute < until:
            yield minute, zone
            minute += rng.uniform(*HEARD)
    yield goes, LEFT
