"""Rows of a history: windows as they were released, and means of which each says how sure it is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from connectors.records.bands import NoiseDistribution, sum_half_width
from connectors.serve.history.rows import COLUMNS, node_order
from stream.errors import UsageError
from stream.records import DAY, HOUR
from stream.schemas import parse_time, rfc3339
from tests.unit.serve.released_history import MONDAY, TICK, asked, history, named, revised, window

ROW = {
    "start": "2026-03-02T00:00:00Z", "end": "2026-03-02T00:05:00Z", "node": "zone:2011", "value": 4, "low": 1.0,
    "high": 7.0, "half_width": 3.0, "kind": "noise", "windows": 1, "denied": 0, "revised": 0, "coverage": 1.0,
    "bounded_to": None,
}  # fmt: skip


def hour(values: range, **more: Any) -> list[bytes]:
    return [window(MONDAY + (place + 1) * TICK, {"2011": value}, **more) for place, value in enumerate(values)]


def test_a_window_has_the_values_of_its_record() -> None:
    kept = history()
    kept.add([window(MONDAY + TICK, {"2011": 4})], {})
    assert named(kept.rows(asked())) == [ROW]
    assert kept.rows(asked()).columns == COLUMNS == tuple(ROW)


def test_no_band_begins_below_zero_and_a_negative_value_stays_as_it_was_released() -> None:
    kept = history()
    kept.add([window(MONDAY + TICK, {"2011": 1, "2065": -5})], {})
    assert [(r["value"], r["low"], r["high"]) for r in named(kept.rows(asked()))] == [(1, 0.0, 4.0), (-5, 0.0, 0.0)]


def test_a_denied_window_is_a_row_without_values_and_enters_no_mean() -> None:
    kept = history()
    kept.add([window(MONDAY + TICK, {"2011": 4, "2065": 2}), window(MONDAY + 2 * TICK, None)], {})
    rows = named(kept.rows(asked()))
    assert [(r["node"], r["value"], r["kind"], r["windows"], r["denied"]) for r in rows[2:]] == [
        ("zone:2011", None, None, 0, 1), ("zone:2065", None, None, 0, 1),
    ]  # fmt: skip
    assert [(r["value"], r["windows"], r["denied"]) for r in named(kept.rows(asked("1h")))] == [
        (4.0, 1, 1),
        (2.0, 1, 1),
    ]


def test_nodes_that_were_never_released_have_no_rows() -> None:
    kept = history()
    kept.add([window(MONDAY + n * TICK, {"2011": n}) for n in (1, 3, 14)], {})
    assert [row[1][11:16] for row in kept.rows(asked()).rows] == ["00:05", "00:15", "01:10"]
    assert [(r["start"][11:16], r["windows"]) for r in named(kept.rows(asked("1h")))] == [("00:00", 2), ("01:00", 1)]


# --- means --------------------------------------------------------------------------------------------


def test_a_mean_of_noisy_values_has_the_half_width_of_their_noise() -> None:
    kept = history()
    kept.add(hour(range(12)), {})
    [row] = named(kept.rows(asked("1h")))
    exact = sum_half_width(NoiseDistribution("laplace", 1.0), 12) / 12
    assert (row["value"], row["kind"], row["windows"]) == (5.5, "noise", 12)
    assert row["half_width"] == pytest.approx(exact, abs=1e-4)
    assert exact < 3.0 / 3, "surer than one window by more than two thirds"


def filtered(number: int, half_width: float = 2.0) -> list[bytes]:
    """Return a filter's windows: the filter says 7, the noisy values are 1, 2, 3 ..."""
    return [
        window(
            MONDAY + n * TICK, {"2011": 7}, mechanism="filter", kind="posterior", scale=2.0, half_width=half_width,
            more={"noisy": {"2011": n}},
        )
        for n in range(1, number + 1)
    ]  # fmt: skip


@pytest.mark.parametrize("granularity", ["15min", "1h"])
def test_a_mean_of_a_filter_is_the_mean_of_its_windows(granularity: str) -> None:
    """Live shows single windows: a history of raw noise beside it would contradict it."""
    kept = history()
    kept.add(filtered(12), {})
    for row in named(kept.rows(asked(granularity))):
        assert (row["value"], row["half_width"], row["kind"]) == (7.0, 2.0, "at most")
    assert {(r["value"], r["half_width"], r["kind"]) for r in named(kept.rows(asked()))} == {(7, 2.0, "posterior")}


def test_a_day_of_a_filter_is_the_mean_of_noisy_values_where_its_band_is_narrower() -> None:
    kept = history()
    kept.add(filtered(288), {})
    [day] = named(kept.rows(asked("1d")))
    assert (day["value"], day["kind"]) == (144.5, "noise")
    assert day["half_width"] == pytest.approx(sum_half_width(NoiseDistribution("laplace", 2.0), 288) / 288, abs=1e-4)
    early = history()
    early.add(filtered(3), {})
    [day] = named(early.rows(asked("1d")))
    assert (day["value"], day["half_width"], day["kind"]) == (7.0, 2.0, "at most"), "three windows are mostly noise"


@pytest.mark.parametrize("granularity", ["15min", "1h", "1d"])
def test_the_only_window_of_a_mean_is_shown_as_live_shows_it(granularity: str) -> None:
    kept = history()
    kept.add(filtered(1, half_width=30.0), {})
    [row] = named(kept.rows(asked(granularity)))
    [live] = kept.latest("public", "dbh")["rows"]
    assert [row[name] for name in ("value", "half_width", "kind")] == [7.0, 30.0, "posterior"]
    assert [live[name] for name in ("value", "half_width", "kind")] == [7, 30.0, "posterior"]


@pytest.mark.parametrize(("mechanism", "kind"), [("filter", "posterior"), ("pegasus", "noise"), ("ba", "noise")])
def test_correlated_errors_are_not_reduced_in_a_mean(mechanism: str, kind: str) -> None:
    kept = history()
    kept.add(hour(range(6), mechanism=mechanism, kind=kind, half_width=2.0), {})
    kept.add([window(MONDAY + 7 * TICK, {"2011": 9}, mechanism=mechanism, kind=kind, half_width=9.0)], {})
    [row] = named(kept.rows(asked("1h")))
    assert (row["value"], row["half_width"], row["kind"]) == (pytest.approx(24 / 7, abs=1e-4), 3.0, "at most")


def test_a_mean_of_one_window_is_that_window() -> None:
    kept = history()
    kept.add([window(MONDAY + TICK, {"2011": 9}, mechanism="filter", kind="posterior", half_width=2.0)], {})
    [row] = named(kept.rows(asked("1h")))
    assert (row["value"], row["half_width"], row["kind"]) == (9.0, 2.0, "posterior")


def test_windows_of_different_noise_add_their_squared_half_widths() -> None:
    kept = history()
    wide = sum_half_width(NoiseDistribution("laplace", 10.0))
    kept.add(
        [window(MONDAY + TICK, {"2011": 1}), window(MONDAY + 2 * TICK, {"2011": 2}, scale=10.0, half_width=wide)], {}
    )
    [row] = named(kept.rows(asked("1h")))
    assert row["half_width"] == pytest.approx(math.hypot(4, wide + 1) / 2, abs=1e-4)
    assert row["kind"] == "noise"


def test_levels_of_plain_noise_have_bands_of_their_sums() -> None:
    kept = history()
    more = {"levels": {"floor": {"2": 8}, "building": 8}, "levels_half_width_95": {"floor": {"2": 5}, "building": 5}}
    kept.add([window(MONDAY + n * TICK, {"2011": 4, "2065": 4}, more=more) for n in range(1, 13)], {})
    rows = named(kept.rows(asked("1h")))
    assert [row["node"] for row in rows] == ["building", "floor:2", "zone:2011", "zone:2065"]
    assert {row["kind"] for row in rows} == {"noise"}
    assert rows[0]["half_width"] == rows[1]["half_width"] == pytest.approx(6 * math.sqrt(12) / 12, abs=1e-4)


def test_a_node_that_may_have_been_skipped_has_the_band_of_its_record() -> None:
    kept = history()
    kept.add([window(MONDAY + n * TICK, {"2011": 0}, half_width=8.0) for n in range(1, 13)], {})
    [row] = named(kept.rows(asked("1h")))
    assert (row["value"], row["half_width"]) == (0.0, 8.0), "half-widths that are not those of the noise's scale"


# --- revised values -----------------------------------------------------------------------------------


def test_revised_values_replace_first_ones_and_are_counted() -> None:
    kept = history()
    kept.add(hour(range(12), mechanism="filter", kind="posterior"), {})
    kept.add([revised(MONDAY + n * TICK, {"2011": 50 + n}) for n in range(1, 7)], {})
    kept.add([revised(MONDAY + n * TICK, {"2011": 80 + n}, "1d") for n in range(1, 4)], {})
    rows = named(kept.rows(asked()))
    assert [row["value"] for row in rows] == [81, 82, 83, 54, 55, 56, 6, 7, 8, 9, 10, 11]
    assert [row["revised"] for row in rows] == [1] * 6 + [0] * 6
    [mean] = named(kept.rows(asked("1h")))
    assert (mean["revised"], mean["windows"], mean["kind"], mean["half_width"]) == (6, 12, "at most", 2.0)
    assert mean["value"] == pytest.approx((81 + 82 + 83 + 54 + 55 + 56 + 6 + 7 + 8 + 9 + 10 + 11) / 12, abs=1e-4)


def test_a_mean_uses_revised_values_and_a_day_noisy_ones_if_their_band_is_narrower() -> None:
    kept = history()
    noisy = {"noisy": {"2011": 3}}
    kept.add(hour(range(12), mechanism="filter", kind="posterior", more=noisy), {})
    kept.add([revised(MONDAY + n * TICK, {"2011": 50}) for n in range(1, 13)], {})
    [mean] = named(kept.rows(asked("1h")))
    assert (mean["value"], mean["kind"], mean["revised"]) == (50.0, "at most", 12)
    [day] = named(kept.rows(asked("1d")))
    assert (day["value"], day["kind"], day["revised"]) == (3.0, "noise", 0)


def test_revised_values_can_be_queried_separately() -> None:
    kept = history()
    kept.add(hour(range(3), mechanism="filter", kind="posterior"), {})
    kept.add([revised(MONDAY + TICK, {"2011": 51})], {})
    assert [row[3] for row in kept.rows(asked(release="occupancy-revised")).rows] == [51]


def test_a_second_release_of_a_window_replaces_the_first() -> None:
    kept = history()
    first = f"dbh/occupancy/public/{rfc3339(MONDAY + TICK)}"
    kept.add([window(MONDAY + TICK, None), window(MONDAY + TICK, {"2011": 5}, more={"release_id": f"{first}#2"})], {})
    [row] = named(kept.rows(asked(nodes=("zone:2011",))))
    assert (row["value"], row["denied"]) == (5, 0)


# --- time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("date", "hours"), [("2026-03-07", 24), ("2026-03-08", 23), ("2026-11-01", 25)])
def test_a_day_is_a_local_day_of_the_site(date: str, hours: int) -> None:
    kept = history()
    start = parse_time(f"{date}T08:00:00Z") - 26 * HOUR
    ends = range(start, start + 4 * DAY, TICK)
    kept.add([window(end, {"2011": 1}, site="la") for end in ends], {})
    rows = {row["start"]: row for row in named(kept.rows(asked("1d", site="la")))}
    day = next(row for begins, row in rows.items() if begins.startswith(date))
    assert day["windows"] == hours * 12
    assert parse_time(day["end"]) - parse_time(day["start"]) == hours * HOUR
    assert sum(row["windows"] for row in rows.values()) == len(ends)


@pytest.mark.parametrize("date", ["2026-03-08", "2026-11-01"])
def test_every_hour_has_its_windows_also_where_the_clocks_change(date: str) -> None:
    kept = history()
    start = parse_time(f"{date}T00:00:00Z")
    kept.add([window(end, {"2011": 1}, site="la") for end in range(start + TICK, start + DAY + TICK, TICK)], {})
    rows = named(kept.rows(asked("1h", site="la")))
    assert [row["windows"] for row in rows] == [12] * 24
    assert [parse_time(row["start"]) for row in rows] == list(range(start, start + DAY, HOUR))


def test_rows_are_selected_by_the_ends_of_their_windows() -> None:
    kept = history()
    kept.add(hour(range(12)), {})
    span = {"start": MONDAY + 2 * TICK, "end": MONDAY + 5 * TICK}
    assert [row[3] for row in kept.rows(asked(**span)).rows] == [2, 3, 4]
    [mean] = named(kept.rows(asked("1h", **span)))
    assert (mean["value"], mean["windows"]) == (3.0, 3)
    assert kept.rows(asked(start=MONDAY + DAY)).rows == []


# --- pages --------------------------------------------------------------------------------------------


def pages(kept: Any, granularity: str, limit: int, **more: Any) -> list[list[Any]]:
    rows, after = [], None
    while True:
        page = kept.rows(asked(granularity, limit=limit, after=after, **more))
        assert len(page.rows) <= limit
        rows += page.rows
        if (after := page.next) is None:
            return rows


@pytest.mark.parametrize(
    ("granularity", "limit"),
    [
        pytest.param(each, limit, marks=[pytest.mark.long] if rows > 40 * limit else [])
        for each, rows in (("5min", 120), ("15min", 42), ("1h", 12), ("1d", 3))
        for limit in (1, 2, 3, 7, 1000)
    ],
)
def test_pages_contain_every_row_once(granularity: str, limit: int) -> None:
    kept = history()
    values: list[dict[str, int] | None] = [{"2011": n, "2065": 1, "10": 3} for n in range(40)]
    values[7] = values[23] = None
    values[30] = {"2011": 30}
    kept.add([window(MONDAY + n * TICK, one) for n, one in enumerate(values, 1)], {})
    whole = kept.rows(asked(granularity)).rows
    assert pages(kept, granularity, limit) == whole
    assert whole == sorted(whole, key=lambda row: (row[0], node_order(row[2])))


def test_paging_continues_past_long_gaps_of_a_node() -> None:
    kept = history()
    kept.add([window(MONDAY + n * TICK, {"2011": n} if n < 30 else {"2065": n}) for n in range(1, 33)], {})
    assert [row[3] for row in pages(kept, "5min", 2, nodes=("zone:2065",))] == [30, 31, 32]


@pytest.mark.parametrize("after", ["x", "2026-03-02T00:05:00Z/attic", "noon/zone:2011", ""])
def test_an_invalid_next_is_refused(after: str) -> None:
    kept = history()
    kept.add(hour(range(3)), {})
    with pytest.raises(UsageError, match="after must be the next"):
        kept.rows(asked(after=after))


def test_a_site_without_a_clock_is_refused() -> None:
    with pytest.raises(UsageError, match="site must be one of dbh, la, got 'attic'"):
        history().rows(asked(site="attic"))


def test_nodes_are_sorted_with_the_building_first_and_by_number() -> None:
    nodes = ["zone:2065", "zone:10", "floor:10", "zone:9b", "building", "floor:2", "zone:lab-3"]
    assert sorted(nodes, key=node_order) == [
        "building", "floor:2", "floor:10", "zone:9b", "zone:10", "zone:2065", "zone:lab-3",
    ]  # fmt: skip
