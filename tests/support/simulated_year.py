"""A year of a simulated building, with terms, holidays and closures: devices present every five minutes."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np

from stream.lab.simulator import events
from stream.lab.simulator.building import building, calendar
from stream.lab.simulator.offices import owner_devices
from stream.lab.simulator.visits import population
from stream.mechanisms.exact import Ints
from stream.records import DAY, MINUTE

START = date(2019, 1, 1)
DAYS = 365
HOLIDAYS = frozenset(
    date(2019, month, day)
    for month, day in (
        (1, 1), (1, 21), (2, 18), (4, 19), (4, 22), (5, 27), (7, 4), (9, 2), (10, 14), (11, 11), (11, 28), (11, 29),
        *((12, day) for day in range(23, 32)),
    )
)  # fmt: skip
SUMMER = date(2019, 6, 10), date(2019, 9, 20)
"""Without classes; a forecast is not told of them."""
HOLIDAY_FACTOR, SUMMER_FACTOR = 0.2, 0.6
TICK = 5 * MINUTE


@cache
def year(seed: int) -> Ints:
    """Return the devices in a building of 16 zones, shape [365, 288]."""
    config = events.SimulatorConfig(days=DAYS, seed=seed, zones=16, start=START, timezone="UTC")
    place, days = building(config.zones), calendar(START, DAYS, ZoneInfo("UTC"))
    factor, teaching = days.factor.copy(), days.teaching.copy()
    for index, day in enumerate(days.dates):
        summer = SUMMER[0] <= day <= SUMMER[1]
        if day in HOLIDAYS:
            factor[index] = HOLIDAY_FACTOR
        elif summer:
            factor[index] *= SUMMER_FACTOR
        teaching[index] &= day not in HOLIDAYS and not summer
    days = replace(days, factor=factor, teaching=teaching)
    owned = owner_devices(place, events._draws(config, events.ROUTINE))
    sizes = events.class_sizes(config, days, int(owned.sum()))
    people = population(sizes, place, events._draws(config, events.PEOPLE))
    visits = events._all_visits(config, place, days, people, owned)
    changes = np.zeros(DAYS * DAY // TICK + 1, np.int64)
    for moments, by in ((visits.start, 1), (visits.end, -1)):
        np.add.at(changes, np.minimum(-(-(moments - days.start) // TICK), len(changes) - 1), by)
    return changes.cumsum()[:-1].reshape(DAYS, -1)
