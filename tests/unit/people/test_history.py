"""Released history for a calibration: which records and rows count, with which noise, on which local day."""

from __future__ import annotations

from fractions import Fraction
from math import inf, sqrt
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.operations.people.calibration import NodeHistory
from connectors.operations.people.estimation import Noise
from connectors.operations.people.history import (
    History,
    Released,
    Subscription,
    evidence,
    from_file,
    from_records,
    from_store,
    node_histories,
)
from connectors.operations.people.truth import GroundTruth, Moment
from connectors.sources.recordings.text_rows import RowCounts
from stream.errors import DataError, UsageError
from stream.mechanisms.noise import std
from stream.policy.counts import CountRelease
from stream.records import HOUR
from stream.schemas import rfc3339
from tests.support.people_models import MONDAY, small_policy
from tests.support.small_building import SITE

NODES = frozenset({"zone:a", "zone:b", "building"})
EIGHT = MONDAY + 16 * HOUR
"""Eight in the morning in Los Angeles."""


@pytest.fixture(scope="module")
def of() -> Subscription:
    policy = small_policy()
    release = policy.release[0]
    assert isinstance(release, CountRelease)
    return Subscription(SITE, policy.site[SITE], release, "facilities")


def record(**changes: Any) -> dict[str, Any]:
    return {
        "release": "halls", "site": SITE, "audience": "facilities", "mechanism": "laplace", "epsilon": "1",
        "window_end": rfc3339(EIGHT), "values": {"a": 3, "b": 4}, "noise_scale": {"a": 1.0, "b": 1.0, "c": 2.0},
        "levels": {"floor": {"1": 7}, "building": 9}, "coverage": 0.5, "laboratory": False,
    } | changes  # fmt: skip


# --- records --------------------------------------------------------------------------------------------


def test_every_node_has_the_noise_of_the_zones_that_it_is_a_sum_of(of: Subscription) -> None:
    found = from_records([record()], of)
    noise = {node: windows[EIGHT].noise for node, windows in found.windows.items()}
    one, two = std(Fraction(1)) ** 2, std(Fraction(1, 2)) ** 2
    assert noise["zone:a"] == Noise("laplace", sqrt(one))
    for node, variance in (("floor:1", 2 * one), ("building", 2 * one + two)):
        law = noise[node]
        assert law is not None
        assert law.kind == "gaussian"
        assert law.deviation == pytest.approx(sqrt(variance))
    own = from_records([record(levels_noise_scale={"floor": {"1": 3.0}, "building": 5.0}, noise="gaussian")], of)
    assert own.windows["building"][EIGHT].noise == Noise("gaussian", 5.0)
    assert own.windows["floor:1"][EIGHT].noise == Noise("gaussian", 3.0)
    assert found.windows["zone:a"][EIGHT][:2] == (3, 0.5)


def test_records_of_others_are_skipped_and_those_of_another_price_are_left_out(of: Subscription) -> None:
    others = [record(release="rooms"), record(site="annex"), record(audience="public")]
    dear = [record(mechanism="pegasus"), record(epsilon="2")]
    found = from_records([*others, *dear], of)
    assert (found.windows, found.left_out, found.laboratory) == ({}, 2, False)
    assert from_records([record(laboratory=True)], of).laboratory
    assert from_records([record(values=None, levels=None)], of).windows == {}
    with pytest.raises(DataError, match="a field is missing"):
        from_records([{"release": "halls"}], of)


def test_a_file_of_records_is_told_from_rows_by_its_name(
    of: Subscription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "released.jsonl"
    lines.write_bytes(orjson.dumps(record()) + b"\n\n")
    assert from_file(lines, of, NODES).windows["zone:a"][EIGHT].value == 3
    monkeypatch.setattr("connectors.operations.people.history.has_outbox", lambda *_: False)
    with pytest.raises(UsageError, match="--audience facilities: must have an outbox in"):
        from_store(tmp_path, of)


# --- rows -----------------------------------------------------------------------------------------------


def rows(folder: Path, *lines: str, head: str = "end,node,value,half_width,kind,coverage") -> Path:
    path = folder / "export.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def test_rows_have_noise_only_where_it_is_that_of_a_count(of: Subscription, tmp_path: Path) -> None:
    end = rfc3339(EIGHT)
    path = rows(
        tmp_path, f"{end},zone:a,5,1.96,noise,0.75", f"{end},zone:b,6,4,posterior,", f"{end},building,,,,",
        f"{end},zone:z,1,,,", "yesterday,zone:a,1,,,", f"{end},zone:a,many,,,",
    )  # fmt: skip
    found = from_file(path, of, NODES)
    assert found.windows == {
        "zone:a": {EIGHT: Released(5, 0.75, Noise("gaussian", 1.0), 1.96)},
        "zone:b": {EIGHT: Released(6, 1.0, None, 4.0)},
    }  # fmt: skip
    assert found.left_out == 3, "a denied window is no bad row"
    assert found.laboratory, "rows do not say whether they are"
    short = from_file(rows(tmp_path, "2026-03-02T08:00,zone:a,2", head="end,node,value"), of, NODES)
    assert short.windows["zone:a"] == {EIGHT: Released(2, 1.0, None, 0.0)}, "a time without a zone is the site's"


def test_a_row_whose_band_is_not_stated_has_an_infinite_one_and_no_width_is_below_zero(
    of: Subscription, tmp_path: Path
) -> None:
    end = rfc3339(EIGHT)
    path = rows(tmp_path, f"{end},zone:a,5,,noise,", f"{end},zone:b,6,nan,noise,", f"{end},zone:b,6,-1,noise,")
    found = from_file(path, of, NODES)
    assert found.windows == {"zone:a": {EIGHT: Released(5, 1.0, None)}}
    assert found.windows["zone:a"][EIGHT].half_width == inf
    assert found.left_out == 2


def test_a_file_without_a_good_row_is_refused(of: Subscription, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must have at least one good row"):
        from_file(rows(tmp_path, "yesterday,zone:a,1,,,"), of, NODES)


# --- windows with people --------------------------------------------------------------------------------


def test_evidence_is_of_windows_with_a_value_and_a_count_on_the_sites_days(of: Subscription) -> None:
    nodes = {"zone:a": 3, "zone:b": 4, "building": 9}
    history = History({node: {EIGHT: Released(value, 0.5, None)} for node, value in nodes.items()})
    histories = node_histories(history, of)
    assert isinstance(histories["zone:a"], NodeHistory)
    people = {Moment("zone:b", EIGHT): 2.0, Moment("zone:a", EIGHT): 1.0, Moment("zone:a", EIGHT + HOUR): 7.0}
    found = evidence(history, histories, GroundTruth(people | {Moment("building", EIGHT): 3.0}, RowCounts()), of)
    zones = found["zone"]
    assert list(found) == ["zone", "building"]
    assert (zones.nodes, zones.floors) == (("zone:a", "zone:b"), ("1", "1"))
    assert (zones.node.tolist(), zones.people.tolist(), zones.released.tolist()) == ([0, 1], [1.0, 2.0], [3, 4])
    assert zones.hours.tolist() == [8, 8], "in Los Angeles"
    assert zones.days.tolist() == histories["zone:a"].days.tolist() * 2
    late = History({"zone:a": {MONDAY + 2 * HOUR: Released(1, 1.0, None)}})
    assert node_histories(late, of)["zone:a"].days.tolist() == [zones.days[0] - 1], "still Sunday there"
