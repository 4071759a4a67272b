"""``tacet tune``: the tables that people read, and utilities that it refuses."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from connectors.cli.tune import show
from tests.acceptance.command_line import run

GUESSED: dict[str, Any] = {"success": 0.25, "low": 0.2, "high": 0.3, "prior": 0.1, "people": 8.0, "found": []}
FOUND: dict[str, Any] = {
    "mechanism": "laplace", "period": "day", "utility": 0.9, "status": "found", "epsilon": "0.03",
    "epsilon_a_day": "2.94", "measured": {"utility": 0.912, "spread": 0.004, "runs": 40}, "attackers": None,
    "next_below": {"epsilon": "0.02"}, "open_below": [], "tried": [], "thesis": None,
}  # fmt: skip
BOUNDARY = FOUND | {"mechanism": "ttl", "status": "boundary", "epsilon": None, "ttl_seconds": 120, "next_below": None}
UNREACHED = FOUND | {"status": "unreachable", "epsilon": None, "measured": None, "next_below": None}


def shown(*rows: dict[str, Any], unit: str = "window") -> list[str]:
    """Return the lines that people read, without the space between words."""
    report: Any = {
        "site": "dbh", "task": "building", "unit": unit, "days": 1, "before": 0, "confidence": 0.99,
        "policy_version": "0" * 16, "answers": [*rows], "laboratory": True, "restricted": True,
    }  # fmt: skip
    written = io.StringIO()
    show(report, Console(width=120, highlight=False, file=written))
    return [" ".join(line.split()) for line in written.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (FOUND, "laplace day 0.03 90% 91.2% 0.4% 40 0.02"),
        (BOUNDARY, "ttl day 2 min * 90% 91.2% 0.4% 40 -"),
        (UNREACHED, "laplace day unreachable 90% - - - -"),
        (FOUND | {"thesis": {"epsilon": "0.04", "spread": 0.01}}, "laplace day 0.03 90% 91.2% 0.4% 40 0.02 0.04 1.0%"),
    ],
    ids=["found", "boundary", "unreachable", "beside the thesis"],
)
def test_a_row_has_what_was_found_what_it_reaches_and_what_is_next(row: dict[str, Any], line: str) -> None:
    lines = shown(row)
    assert line in lines
    assert any("At the boundary" in each for each in lines) is (row["status"] == "boundary")


@pytest.mark.parametrize(("unit", "words"), [("window", "a window"), ("device_day", "a device's day")])
def test_the_title_says_what_epsilon_pays_for(unit: str, words: str) -> None:
    said = " ".join(" ".join(shown(FOUND, unit=unit)).split())
    assert f"Most private candidates for building at dbh, epsilon of {words} next mechanism period" in said


def test_candidates_that_were_left_open_are_named_with_their_row() -> None:
    lines = shown(FOUND | {"open_below": [{"epsilon": "0.02"}, {"epsilon": "0.01"}]})
    assert "laplace, day, 90%: the runs did not decide about 0.02, 0.01." in lines


def test_guesses_are_compared_with_those_without_releases_where_there_are_any() -> None:
    assert "laplace day 90% 25.0% (10.0%)" in shown(FOUND | {"attackers": {"external": GUESSED}}, FOUND)
    assert not any("guessed" in line for line in shown(FOUND))


@pytest.mark.parametrize(("utility", "taken"), [("0", False), ("0.001", True), ("1", True), ("1.001", False)])
def test_a_utility_is_above_0_and_at_most_1(tmp_path: Path, utility: str, taken: bool) -> None:
    """What is taken is followed by a look at the policy, which is not there."""
    files = ("--observations", tmp_path / "rows.csv", "--policy", tmp_path / "policy.toml")
    done = run("tune", *files, "--task", "building", "--mechanism", "laplace", "--utility", utility)
    assert done.code == 2
    assert ("--utility: must be above 0 and at most 1" in done.problem) is not taken
    assert ("policy cannot be read" in done.problem) is taken
