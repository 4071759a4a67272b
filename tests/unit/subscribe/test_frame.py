"""tacet.frame: a row for each node and window, each value in its band."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tacet
from stream.errors import OPTIONAL, UsageError
from tests.support.released_store import count, give
from tests.support.small_building import bodies, day_outputs


def frame(store: Path, **options: Any) -> pd.DataFrame:
    return tacet.frame(store=store, audience="public", **options)


def test_every_value_of_every_record_of_a_run_is_one_row_in_its_band(tmp_path: Path) -> None:
    records = [r for r in bodies(day_outputs(), "private") if r["audience"] == "public"]
    table = frame(give(tmp_path / "s", records))
    counts = [r for r in records if "attribute" not in r]
    assert {record["release"] for record in counts} == set(table["release"])
    rows = {(r.release, r.node, r.window_end): r for r in table.itertuples()}
    assert len(rows) == len(table), "no row twice"
    seen = 0
    for record in counts:
        end = pd.Timestamp(record["window_end"])
        levels = record.get("levels") or {}
        wanted = {f"zone:{zone}": value for zone, value in (record["values"] or {}).items()}
        wanted |= {f"floor:{name}": value for name, value in levels.get("floor", {}).items()}
        wanted |= {"building": levels["building"]} if "building" in levels else {}
        for node, value in wanted.items():
            row: Any = rows[record["release"], node, end]
            assert row.value == value
            assert not row.low > value
            assert not row.high < value
            seen += 1
    assert seen == table["value"].notna().sum() > 1000


def test_a_band_is_the_half_width_around_the_value_and_holds_no_fewer_people_than_none(tmp_path: Path) -> None:
    table = frame(give(tmp_path / "s", [count(1, {"a": 2, "b": 7, "c": -6}, half_width=3)]))
    assert table[["node", "value", "low", "high", "half_width", "kind"]].to_numpy().tolist() == [
        ["zone:a", 2, 0, 5, 3, "posterior"],
        ["zone:b", 7, 4, 10, 3, "posterior"],
        ["zone:c", -6, 0, 0, 3, "posterior"],
    ]


def test_a_denied_window_has_a_row_without_a_value_for_each_node(tmp_path: Path) -> None:
    table = frame(give(tmp_path / "s", [count(1, None), count(2, {"a": 1, "b": 0})]))
    denied = table[~table["released"]]
    assert denied["node"].tolist() == ["zone:a", "zone:b"]
    assert denied[["value", "low", "high", "half_width"]].isna().all(axis=None)
    assert set(denied["reason"]) == {"budget"}


def test_revised_values_take_the_place_of_the_first_ones_unless_they_are_not_wanted(tmp_path: Path) -> None:
    first = [count(number, {"a": 5}) for number in (1, 2)]
    revision = count(1, {"a": 3}, release="occupancy-revised", half_width=1) | {
        "revises": first[0]["release_id"],
        "lag": 1,
    }
    store = give(tmp_path / "s", [*first, revision])
    assert frame(store)[["release", "value", "revised"]].to_numpy().tolist() == [
        ["occupancy", 3, True],
        ["occupancy", 5, False],
    ]
    assert frame(store, revised=False)["value"].tolist() == [5, 5]


def test_a_frame_holds_the_windows_behind_since_and_up_to_until(tmp_path: Path) -> None:
    store = give(tmp_path / "s", [count(number, {"a": number}) for number in range(5)])
    assert frame(store, since="2026-03-02T12:05:00Z", until="2026-03-02T12:15:00Z")["value"].tolist() == [2, 3]
    with pytest.raises(UsageError, match=r"since: must be an RFC 3339 time .*, got 'noon'"):
        frame(store, since="noon")


def test_times_have_a_zone_and_numbers_are_numbers_also_where_there_is_nothing(tmp_path: Path) -> None:
    for table in (frame(give(tmp_path / "s", [])), frame(give(tmp_path / "s", [count(1, {"a": 1})]))):
        assert isinstance(table["window_end"].dtype, pd.DatetimeTZDtype)
        assert str(table["window_end"].dt.tz) == "UTC"
        assert {str(table[name].dtype) for name in ("value", "low", "high")} == {"float64"}


def test_without_pandas_one_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=re.escape(f"frame: needs pandas; {OPTIONAL}")):
        frame(give(tmp_path / "s", []))
