"""Simulated tables with the shapes of Ghayyur's thesis (5.5.1, 6.5), for threshold decisions.

| query | cells | threshold |
|---|---|---|
| Q1, Q2 | 28 buildings x 15 hours of a weekday, of a day at the weekend | capacity |
| Q3, Q4 | 34 regions x days of March 2020: 1 to 14, 15 to 30 | the most trips of any day in January and February |

Each also at 0.8 and 0.6 of its threshold. Chapter 6 queries trips and fares for each day of that March. The thesis'
own data are not published, only their sizes. The tables drawn here have these sizes and the known course of those
weeks: buildings that fill to a half and more at noon on weekdays and hardly at weekends, a few gatherings beyond
capacity, and trips that fell from the second week of March on to a twentieth. (The thesis counts 24 buildings and 420
cells, although 24 buildings have 360; here there are as many buildings as 420 cells need.)
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.random import Generator, default_rng  # noqa: TID251  (a simulation, not noise: it draws from a seed)
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Query = Literal["Q1", "Q2", "Q3", "Q4"]
QUERIES: tuple[Query, ...] = get_args(Query)

BUILDINGS, FIRST_HOUR, HOURS = 28, 7, 15
REGIONS, BEFORE = 34, 60
"""Regions, and days of January and February 2020."""
DAYS: dict[Query, range] = {"Q3": range(1, 15), "Q4": range(15, 31)}
TRIPS_A_DAY = 210_000
_BY_HOUR = (0.15, 0.4, 0.65, 0.85, 1.0, 1.0, 0.95, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15)
"""Relative to a building's fullest hour, from 7 o'clock on."""
_BY_WEEKDAY = (0.92, 0.98, 1.02, 1.05, 1.08, 1.04, 0.82)
"""Relative number of trips, from Monday on."""
_COURSE = (*(1.0,) * 8, 0.95, 0.92, 0.88, 0.8, 0.7, 0.5, 0.36, 0.24, 0.16, 0.12, 0.1, 0.08, *(0.05,) * 11)
"""Trips of each day of March relative to the weeks before."""
_AIRPORTS = (5, 31)


class Aggregates(NamedTuple):
    """Counts of cells that exclude each other, each with its threshold."""

    cells: tuple[str, ...]
    counts: Ints
    limits: Ints
    """At level 1."""


class Rides(NamedTuple):
    """Trips of one day by region."""

    trips: Ints
    fares: tuple[Ints, ...]
    """Per region, the fare of each trip in cents."""


def aggregates(query: Query, seed: int) -> Aggregates:
    """Return the table of a query."""
    if query in DAYS:
        return _trips(query, seed)
    return _campus(weekday=query == "Q1", rng=default_rng([seed, QUERIES.index(query)]), seed=seed)


def _campus(*, weekday: bool, rng: Generator, seed: int) -> Aggregates:
    capacity = np.sort(default_rng([seed, 100]).lognormal(7.2, 0.6, BUILDINGS)).astype(np.int64) // 10 * 10
    fullest = rng.beta(8, 8, BUILDINGS) if weekday else rng.beta(2, 10, BUILDINGS)
    share = fullest[:, None] * np.array(_BY_HOUR) * rng.lognormal(0, 0.08, (BUILDINGS, HOURS))
    for building in rng.choice(BUILDINGS, 2 if weekday else 1, replace=False):  # a gathering
        begin = rng.integers(2, HOURS - 3)
        share[building, begin : begin + 3] = rng.uniform(1.2, 1.6)
    counts = rng.binomial(2 * capacity[:, None], np.minimum(share / 2, 1.0))
    cells = tuple(f"building {b} at {FIRST_HOUR + h}" for b in range(1, BUILDINGS + 1) for h in range(HOURS))
    return Aggregates(cells, counts.ravel(), np.repeat(capacity, HOURS))


def _usual(seed: int) -> Floats:
    """Return mean trips a day of each region before March."""
    size = default_rng([seed, 101]).lognormal(0, 1.0, REGIONS)
    return np.asarray(np.sort(size / size.sum() * TRIPS_A_DAY))


def _drawn(usual: Floats, first_weekday: int, course: NDArray[np.float64], rng: Generator) -> Ints:
    """Return trips by region and day."""
    days = len(course)
    weekdays = np.array([_BY_WEEKDAY[(first_weekday + day) % 7] for day in range(days)])
    mean = usual[:, None] * weekdays * course * rng.lognormal(0, 0.06, (REGIONS, days))
    return np.asarray(rng.poisson(mean))


def _trips(query: Query, seed: int) -> Aggregates:
    usual, rng = _usual(seed), default_rng([seed, 102])
    most = _drawn(usual, 2, np.ones(BEFORE), rng).max(axis=1)  # 1 January 2020 was a Wednesday
    march = _drawn(usual, 6, np.array(_COURSE), rng)
    days = DAYS[query]
    cells = tuple(f"region {r} on {day} March" for r in range(1, REGIONS + 1) for day in days)
    return Aggregates(cells, march[:, days.start - 1 : days.stop - 1].ravel(), np.repeat(most, len(days)))


def rides(day: int, seed: int) -> Rides:
    """Return the trips of a day of March, 1 to 31, with their fares: some 12 $ in most regions, 40 $ in two."""
    usual = _usual(seed)
    trips = _drawn(usual, 6, np.array(_COURSE), default_rng([seed, 102, 1]))[:, day - 1]
    mean = default_rng([seed, 103]).lognormal(2.5, 0.35, REGIONS)
    mean[list(_AIRPORTS)] = 38.0, 45.0
    rng = default_rng([seed, 104, day])
    fares = tuple(
        np.round(100 * rng.gamma(4, at / 4, n)).astype(np.int64) for at, n in zip(mean.tolist(), trips, strict=True)
    )
    return Rides(trips, fares)
