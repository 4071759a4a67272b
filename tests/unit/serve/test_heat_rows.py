"""A heat map as the page is given it: the real records of one, through a history, with their colours for values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connectors.serve.api import charged_rows
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.policy_description import described_releases
from stream.records import Published
from tests.unit.release import test_heat_release as heat


@pytest.fixture(scope="module")
def outputs() -> list[Published]:
    return heat.released(heat.PLAIN, 3)


def rows(outputs: Sequence[Published], windows: int) -> list[dict[str, Any]]:
    """Return the newest rows of audience a after so many windows."""
    kept = ReleaseHistory(None, {"dbh": SiteClock(heat.TIMEZONE)})
    mine = [each.value for each in outputs if each.topic.startswith("tacet.private.a.")]
    kept.add(mine[: 2 * windows], {})
    found: list[dict[str, Any]] = kept.latest("a", "dbh")["rows"]
    return [row for row in found if row["release"] == "heat"]


def test_the_newest_window_has_its_colours(outputs: Any) -> None:
    last = heat.of(outputs, "a", "heat")[-1]
    found = rows(outputs, 3 * heat.DAY)
    assert {row["node"]: row["value"] for row in found} == {f"zone:{name}": c for name, c in last["values"].items()}
    assert {(row["end"], row["half_width"], row["likely_empty"]) for row in found} == {(last["window_end"], None, None)}


def test_without_history_there_are_no_colours(outputs: Any) -> None:
    assert {row["value"] for row in rows(outputs, 5)} == {None}


def test_a_heat_map_without_history_is_not_denied_and_costs_nothing(outputs: Any) -> None:
    kept = ReleaseHistory(None, {"dbh": SiteClock(heat.TIMEZONE)})
    kept.add([each.value for each in outputs if each.topic.startswith("tacet.private.a.")], {})
    reported = kept.spends("a", "dbh", None, None)
    assert {row["release"] for row in reported} == {"r", "heat"}
    paid = charged_rows(heat.policy(heat.PLAIN), "a", reported)
    assert paid == [row for row in reported if row["release"] == "r"]
    assert sum(row["denied"] for row in paid) == 0


def test_a_heat_map_names_its_base_release() -> None:
    described = {each.release: each for each in described_releases(heat.policy(heat.PLAIN), "a")}
    assert (described["heat"].query, described["heat"].base) == ("heatmap", "r")
    assert (described["r"].query, described["r"].base) == ("count", None)
