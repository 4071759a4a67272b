"""Attributes of days, and what days have cost, by the audience's own records."""

from __future__ import annotations

import pytest

from stream.records import DAY, HOUR
from stream.schemas import parse_time
from tests.unit.serve.released_history import MONDAY, TICK, attribute, history, window


def test_attributes_are_published_withheld_or_not_queried() -> None:
    kept = history()
    kept.add(
        [
            attribute("2026-03-02", "2065", released=True, value="09:05"),
            attribute("2026-03-02", "2084", released=True, value=None),
            attribute("2026-03-03", "2065", released=False),
            attribute("2026-03-03", "2084", released=False, reason="asked"),
        ],
        {},
    )
    rows = kept.attributes("public", "dbh", None, None)
    assert [(row["day"], row["zone"], row["released"], row["reason"], row.get("value", "-")) for row in rows] == [
        ("2026-03-02", "2065", True, None, "09:05"), ("2026-03-02", "2084", True, None, None),
        ("2026-03-03", "2065", False, None, "-"), ("2026-03-03", "2084", False, "asked", "-"),
    ]  # fmt: skip
    assert kept.attributes("public", "dbh", "2026-03-03", "2026-03-03") == rows[2:]
    assert kept.attributes("public", "dbh", None, "2026-03-02") == rows[:2]
    assert kept.attributes("facilities", "dbh", None, None) == []


def test_spends_are_summed_by_the_utc_day_in_which_windows_begin() -> None:
    kept = history()
    kept.add([window(MONDAY + DAY + n * TICK, {"2011": 1}) for n in (-1, 0, 1, 2)], {})
    kept.add([window(MONDAY + DAY + 3 * TICK, None)], {})
    kept.add(
        [
            attribute("2026-03-03", "2065", released=False),
            attribute("2026-03-03", "2084", released=False, reason="month"),
        ],
        {},
    )
    rows = kept.spends("public", "dbh", None, None)
    assert rows == [
        {"day": "2026-03-02", "release": "occupancy", "windows": 2, "denied": 0, "spend": "2"},
        {"day": "2026-03-03", "release": "occupancy", "windows": 2, "denied": 1, "spend": "2"},
        {"day": "2026-03-03", "release": "office-day", "windows": 1, "denied": 1, "spend": "0.2"},
    ]
    assert kept.spends("public", "dbh", "2026-03-03", None) == rows[1:]
    assert kept.spends("public", "dbh", None, "2026-03-02") == rows[:1]


def test_releases_charged_by_privacy_days_are_summed_by_them() -> None:
    kept = history()
    start = parse_time("2026-03-02T12:00:00Z")  # 04:00 at the site
    paid = {"unit": "device_day", "spend": "0"}
    kept.add(
        [
            window(start + n * TICK, {"2011": 1}, site="la", more=paid | ({"spend": "4"} if n in {1, 289} else {}))
            for n in (0, 1, 2, 288, 289)
        ],
        {},
    )
    kept.add([window(start + 12 * HOUR, {"2011": 1}, site="la", release="other")], {})
    rows = kept.spends("public", "la", None, None)
    assert [(row["day"], row["release"], row["windows"], row["spend"]) for row in rows] == [
        ("2026-03-01", "occupancy", 1, "0"), ("2026-03-02", "occupancy", 3, "4"), ("2026-03-02", "other", 1, "1"),
        ("2026-03-03", "occupancy", 1, "4"),
    ]  # fmt: skip
    assert [row["day"] for row in kept.spends("public", "la", "2026-03-03", "2026-03-09")] == ["2026-03-03"]


def test_revised_records_cost_nothing_and_are_not_counted_again() -> None:
    kept = history()
    more = {"revises": "dbh/occupancy/public/2026-03-02T00:05:00Z", "lag": 12, "spend": "0"}
    named = {"release": "occupancy-revised", "release_id": "dbh/occupancy-revised/public/2026-03-02T00:05:00Z/1h"}
    kept.add([window(MONDAY + TICK, {"2011": 1}), window(MONDAY + TICK, {"2011": 2}, more=more | named)], {})
    assert [(row["release"], row["windows"]) for row in kept.spends("public", "dbh", None, None)] == [("occupancy", 1)]


@pytest.mark.parametrize("spend", ["0.1", "0.000000001", "12.345"])
def test_spends_are_exact(spend: str) -> None:
    kept = history()
    kept.add([window(MONDAY + n * TICK, {"2011": 1}, more={"spend": spend}) for n in range(1, 11)], {})
    [row] = kept.spends("public", "dbh", None, None)
    assert row["spend"] == {"0.1": "1", "0.000000001": "0.00000001", "12.345": "123.45"}[spend]
