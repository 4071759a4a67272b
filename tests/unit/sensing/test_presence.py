"""Stays, against cases by hand and against stays that others published."""

import csv
import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stream.records import DAY, MINUTE, SECOND
from stream.sensing.presence import FinishedStay, OpenStay, expire, extend, stays

V = 10 * MINUTE
T = 20_000 * DAY
"""A tick."""
PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "hokuriku-wifi-sightings"


def test_stay_ends_one_validity_after_its_last_observation() -> None:
    assert stays([(0, "d", "A")], V, tail=True) == [FinishedStay("d", "A", 0, V)]


def test_stay_without_tail_ends_at_its_last_observation() -> None:
    found = stays([(0, "d", "A"), (V, "d", "A")], V, tail=False)
    assert found == [FinishedStay("d", "A", 0, V)]


def test_gap_of_exactly_one_validity_goes_on_and_a_longer_one_does_not() -> None:
    assert stays([(0, "d", "A"), (V, "d", "A")], V, tail=True) == [FinishedStay("d", "A", 0, 2 * V)]
    assert stays([(0, "d", "A"), (V + 1, "d", "A")], V, tail=True) == [
        FinishedStay("d", "A", 0, V),
        FinishedStay("d", "A", V + 1, 2 * V + 1),
    ]


def test_observation_elsewhere_ends_the_stay_at_its_own_time() -> None:
    assert stays([(0, "d", "A"), (7, "d", "B")], V, tail=True) == [
        FinishedStay("d", "A", 0, 7),
        FinishedStay("d", "B", 7, 7 + V),
    ]


@pytest.mark.parametrize("tail", [True, False])
def test_a_short_stay_elsewhere_cuts_the_stay_it_lies_in(tail: bool) -> None:
    """All within one tick, and at once or in parts: back where it was, the device begins another stay."""
    rows = [(T + minute * MINUTE, "d", zone) for minute, zone in ((1, "A"), (2, "B"), (4, "A"))]
    last = T + 4 * MINUTE + (V if tail else 0)
    apart = [
        FinishedStay("d", "A", T + MINUTE, T + (2 if tail else 1) * MINUTE),
        FinishedStay("d", "B", T + 2 * MINUTE, T + (4 if tail else 2) * MINUTE),
    ]
    assert stays(rows, V, tail=tail) == [*apart, FinishedStay("d", "A", T + 4 * MINUTE, last)]
    stays_open: dict[str, OpenStay] = {}
    found = [stay for time, device, zone in rows for stay in extend(stays_open, {(device, time): zone}, V, tail=tail)]
    assert (found, stays_open) == (apart, {"d": OpenStay("A", T + 4 * MINUTE, T + 4 * MINUTE)})


def test_end_row_ends_the_stay_at_its_own_time_but_never_prolongs_it() -> None:
    assert stays([(0, "d", "A"), (7, "d", None)], V, tail=True) == [FinishedStay("d", "A", 0, 7)]
    assert stays([(0, "d", "A"), (V + 7, "d", None)], V, tail=True) == [FinishedStay("d", "A", 0, V)]
    assert stays([(7, "d", None)], V, tail=True) == []


def test_of_observations_at_one_instant_the_last_counts() -> None:
    found = stays([(0, "d", "A"), (9, "d", "B"), (9, "d", "A")], V, tail=True)
    assert found == [FinishedStay("d", "A", 0, 9 + V)]


def test_devices_do_not_touch_each_other() -> None:
    found = stays([(0, "d", "A"), (7, "e", "B")], V, tail=True)
    assert found == [FinishedStay("d", "A", 0, V), FinishedStay("e", "B", 7, 7 + V)]


def test_stay_does_not_cross_a_cut() -> None:
    found = stays([(DAY - 5, "d", "A"), (DAY + 5, "d", "A")], V, tail=False, cut=lambda t: t // DAY)
    assert found == [FinishedStay("d", "A", DAY - 5, DAY - 5), FinishedStay("d", "A", DAY + 5, DAY + 5)]


def test_stay_expires_only_when_no_later_observation_can_prolong_it() -> None:
    stays_open = {"d": OpenStay("A", 0, 0)}
    assert expire(stays_open, V, V - 1) == []
    assert expire(stays_open, V, V) == [FinishedStay("d", "A", 0, V)]
    assert stays_open == {}


def _micros(text: str) -> int:
    """The files' local times, taken as they stand: Japan does not change its clocks."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def _table(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.shared_data
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published data sets are not beside the project")
@pytest.mark.parametrize(("facility", "count"), [(39, 919), (20, 1711), (58, 4514)])
def test_published_sightings_give_exactly_the_published_stays(facility: Any, count: Any) -> None:
    rows = _table(PUBLISHED / f"facility{facility}_sightings.csv.gz")
    sightings = [(_micros(row["ts"]), row["user"], "here") for row in rows]
    found = stays(sightings, 1800 * SECOND, tail=False, cut=lambda t: t // DAY)
    published = [
        (_micros(row["start"]), int(row["seconds"]) * SECOND, row["user"])
        for row in _table(PUBLISHED / f"facility{facility}_stays.csv.gz")
    ]
    assert sorted((s.start, s.end - s.start, s.device) for s in found) == sorted(published)
    assert len(found) == count
