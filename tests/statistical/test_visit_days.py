"""How many device-days have more visits than are counted: simulated ones, an office, and recorded ones.

The figures of docs/measurements.md. Everything is fixed, so a run says what the one before said.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stream.lab.simulator.events import DAY_SHOWN, simulate
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from stream.sensing.visits import VisitBound, VisitCounts
from tests.support import office

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "hokuriku-wifi-sightings"
TICK = 5 * MINUTE
VISITS = 4
UNBOUNDED = 10_000
Sighting = tuple[Micros, str, str]
"""Time, device and zone."""


def shares(
    sightings: Iterable[Sighting],
    zones: Sequence[tuple[str, str]],
    *,
    timezone: str = "UTC",
    validity: Micros = 10 * MINUTE,
) -> tuple[float, float, float]:
    """Return the share of device-days with more than four visits, to zones, floors and the building."""
    counters = VisitCounts(VisitBound("04:00", timezone, UNBOUNDED, 2, TICK, validity, tuple(zones)))
    place = {zone: at for at, (zone, _) in enumerate(zones)}
    tally, present = counters.initial(), dict[str, tuple[int, Micros]]()
    made: list[list[int]] = [[], [], []]
    rows = sorted(sightings)
    tick, at = rows[0][0] // TICK * TICK + TICK, 0
    while tick <= rows[-1][0] + DAY:
        while at < len(rows) and rows[at][0] <= tick:
            time, device, zone = rows[at]
            present[device], at = (place[zone], time), at + 1
        present = {device: where for device, where in present.items() if tick < where[1] + validity}
        day, before = tally.day, tally.levels
        counters.count(tally, tick, present)
        if day is not None and tally.day != day:
            for level, visits in enumerate(before):
                made[level] += [visit.made for visit in visits.values() if visit.made]
        tick += TICK
    of_zones, of_floors, of_building = (sum(each > VISITS for each in level) / len(level) for level in made)
    return of_zones, of_floors, of_building


def test_of_simulated_days() -> None:
    simulation = simulate(replace(DAY_SHOWN, days=3))
    building = simulation.building
    columns = zip(simulation.time.tolist(), simulation.device.tolist(), simulation.access_point.tolist(), strict=True)
    seen = ((time, str(device), building.zones[point]) for time, device, point in columns)
    zones = list(zip(building.zones, building.floors, strict=True))
    assert shares(seen, zones, timezone="America/Los_Angeles") == pytest.approx((0.475, 0.445, 0.061), abs=0.001)


@pytest.mark.long
def test_of_simulated_days_on_which_presence_lasts_an_hour_after_each_event() -> None:
    simulation = simulate(replace(DAY_SHOWN, days=3))
    building = simulation.building
    columns = zip(simulation.time.tolist(), simulation.device.tolist(), simulation.access_point.tolist(), strict=True)
    seen = ((time, str(device), building.zones[point]) for time, device, point in columns)
    zones = list(zip(building.zones, building.floors, strict=True))
    found = shares(seen, zones, timezone="America/Los_Angeles", validity=HOUR)
    assert found == pytest.approx((0.360, 0.309, 0.003), abs=0.001)


def test_of_an_office() -> None:
    seen = [(each.time, each.device, each.access_point) for each in office.observations(1, 5)]
    zones = [(point, point[12:14]) for point in office.access_points()]
    assert shares(seen, zones) == pytest.approx((0, 0, 0), abs=0.0005)


@pytest.mark.shared_data
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published data sets are not beside the project")
@pytest.mark.parametrize(("facility", "share"), [(20, (0.113, 0.086)), (39, (0.209, 0.184)), (58, (0.177, 0.139))])
def test_of_recorded_days_at_one_place(facility: int, share: tuple[float, float]) -> None:
    """One user is a shared address that is seen everywhere."""
    seen = [
        (time, user, "here") for time, user, _ in recorded(f"facility{facility}_sightings.csv.gz") if user != "3524"
    ]
    zones, _, building = shares(seen, [("here", "1")])
    assert (zones, building) == pytest.approx(share, abs=0.001)


@pytest.mark.long
@pytest.mark.shared_data
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published data sets are not beside the project")
def test_of_recorded_days_at_eleven_places() -> None:
    seen = [(time, user, place) for time, user, place in recorded("kanazawa_city_2weeks_dedup.csv.gz")]
    zones = [(place, "1") for place in sorted({place for _, _, place in seen})]
    assert shares(seen, zones) == pytest.approx((0.400, 0.381, 0.328), abs=0.001)


def recorded(name: str) -> Iterable[Sighting]:
    with gzip.open(PUBLISHED / name, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            time = int(datetime.fromisoformat(row["ts"]).replace(tzinfo=UTC).timestamp()) * SECOND
            yield time, row["user"], row.get("facility", "here")
