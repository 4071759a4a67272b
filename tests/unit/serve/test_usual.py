"""What is usual: means of released values of days before, by class of day and time of day."""

from __future__ import annotations

import statistics
from typing import Any

from stream.records import DAY, HOUR
from stream.schemas import parse_time
from tests.unit.serve.released_history import MONDAY, TICK, history, window

SLOT = 15 * 60


def test_usual_values_have_classes_of_days_and_quarters_of_an_hour() -> None:
    kept = history()
    seen: dict[str, list[int]] = {"workday": [], "saturday": [], "sunday": []}
    for day in range(14):
        for place in range(3):
            value = day * 3 + place
            seen["saturday" if day % 7 == 5 else "sunday" if day % 7 == 6 else "workday"].append(value)
            kept.add([window(MONDAY + day * DAY + 9 * HOUR + (place + 1) * TICK, {"2011": value})], {})
    kept.add([window(MONDAY + 14 * DAY + 9 * HOUR + TICK, {"2011": 999})], {})
    usual: Any = kept.usual("public", "occupancy", "dbh")
    assert usual["slot_seconds"] == SLOT
    for name, values in seen.items():
        slots = usual["nodes"]["zone:2011"][name]
        assert [place for place, slot in enumerate(slots) if slot] == [36]
        mean, deviation, n = slots[36]
        assert (mean, n) == (round(statistics.fmean(values), 4), len(values))
        assert deviation == round(statistics.pstdev(values), 4)
        assert len(slots) == 96


def test_usual_values_are_computed_from_the_last_eight_weeks_before_today() -> None:
    kept = history()
    for day in range(70):
        kept.add([window(MONDAY + day * DAY + TICK, {"2011": day})], {})
    slots: Any = kept.usual("public", "occupancy", "dbh")["nodes"]["zone:2011"]
    assert sum(slot.n for name in slots for slot in slots[name] if slot) == 56
    assert min(slot.mean for name in slots for slot in slots[name] if slot) > 12


def test_late_records_change_usual_values() -> None:
    kept = history()
    kept.add([window(MONDAY + TICK, {"2011": 4}), window(MONDAY + DAY + TICK, {"2011": 0})], {})
    nodes: Any = kept.usual("public", "occupancy", "dbh")["nodes"]
    assert nodes["zone:2011"]["workday"][0].mean == 4
    kept.add([window(MONDAY + 2 * TICK, {"2011": 8})], {})
    nodes = kept.usual("public", "occupancy", "dbh")["nodes"]
    assert nodes["zone:2011"]["workday"][0].mean == 6


def test_slots_follow_local_time_in_summer_and_winter() -> None:
    kept = history()
    for start in ("2026-03-06T17:00:00Z", "2026-03-09T16:00:00Z"):  # nine o'clock, before and after the change
        kept.add([window(parse_time(start) + TICK, {"2011": 5}, site="la")], {})
    kept.add([window(parse_time("2026-03-11T16:05:00Z"), {"2011": 7}, site="la")], {})
    slots = kept.usual("public", "occupancy", "la")["nodes"]["zone:2011"]["workday"]
    assert [(place, slot.n) for place, slot in enumerate(slots) if slot] == [(36, 2)]
    [row] = kept.latest("public", "la")["rows"]
    assert row["usual"] == {"mean": 5.0, "deviation": 0.0, "n": 2, "class": "workday"}


def test_the_latest_window_of_each_release_has_usual_values() -> None:
    kept = history()
    for day in range(3):
        kept.add([window(MONDAY + day * DAY + TICK, {"2011": day, "2065": 0})], {})
    kept.add([window(MONDAY + 2 * DAY + TICK, {"2011": 40}, release="coarse", half_width=30.0, scale=10.0)], {})
    latest: Any = kept.latest("public", "dbh")
    assert latest["feed"] == {"window_end": "2026-03-04T00:05:00Z", "coverage": 1.0, "denied": False}
    assert [(row["release"], row["node"], row["value"]) for row in latest["rows"]] == [
        ("coarse", "zone:2011", 40), ("occupancy", "zone:2011", 2), ("occupancy", "zone:2065", 0),
    ]  # fmt: skip
    assert latest["rows"][0]["usual"] is None
    assert latest["rows"][1]["usual"]["mean"] == 0.5
    assert latest["rows"][2]["likely_empty"] > latest["rows"][1]["likely_empty"] > 0


def test_a_denied_window_can_be_the_latest() -> None:
    kept = history()
    kept.add([window(MONDAY + TICK, {"2011": 3, "2065": 1}), window(MONDAY + 2 * TICK, None)], {})
    latest: Any = kept.latest("public", "dbh")
    assert latest["feed"]["denied"]
    assert [(row["value"], row["likely_empty"], row["denied"]) for row in latest["rows"]] == [(None, None, 1)] * 2


def test_without_releases_there_are_no_latest_rows() -> None:
    assert history().latest("public", "dbh") == {"rows": [], "feed": None}
    assert history().usual("public", "occupancy", "dbh") == {"nodes": {}, "slot_seconds": SLOT}


def test_no_usual_mean_is_below_zero() -> None:
    """There are never fewer people than none, whatever noise was added to small counts."""
    kept = history()
    for day, value in enumerate((-4, -1, 2, 0)):
        kept.add([window(MONDAY + day * DAY + TICK, {"2011": value})], {})
    [mean] = {slot.mean for slot in kept.usual("public", "occupancy", "dbh")["nodes"]["zone:2011"]["workday"] if slot}
    assert mean == 0.0
    [row] = kept.latest("public", "dbh")["rows"]
    assert row["usual"]["mean"] == 0.0
