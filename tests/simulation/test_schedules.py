"""The product's programs under schedules of faults, at the port and on the wire."""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.simulation import checker, occupancy
from tests.simulation.processes import Trace, World
from tests.simulation.runs import LEVELS, run_kept
from tests.simulation.schedules import Event, Kept, Outcome, Schedule, kept_schedules, shrink

TREE = Path(__file__).parents[2]
KEPT = kept_schedules()
PORT, WIRE = 300, 30
"""Schedules of each level in an ordinary run; ``make nightly`` takes an hour of them."""
PARTS = 6
SEED_OF_ITS_OWN = 10**6
_ROW = re.compile(
    r"\| (?P<mutants>`.*`) \| \[test_\w+\.py\]\(\.\./(?P<file>tests/simulation/test_\w+\.py)\), on the wire \|"
)
DIRECTED = [
    (row["file"], mutant)
    for row in map(_ROW.match, (TREE / "docs" / "simulation.md").read_text().splitlines())
    if row is not None
    for mutant in re.findall("`([^`]+)`", row["mutants"])
]
"""Files of tests, and the mutants that they find, as the document says."""


@cache
def drawn(level: str, seed: int) -> Outcome:
    """Return what comes of the schedule that a seed draws; no seed is run twice."""
    return LEVELS[level](seed, None)


def refuse(level: str, seeds: range) -> None:
    for seed in seeds:
        outcome = drawn(level, seed)
        assert not outcome.problems, "\n".join([f"seed {seed}", *outcome.problems, *outcome.lines])


@pytest.mark.parametrize("part", range(PARTS))
def test_faults_at_the_port_change_nothing_that_comes_out(part: int) -> None:
    refuse("port", range(part, PORT, PARTS))


@pytest.mark.parametrize("part", range(PARTS))
def test_faults_on_the_wire_change_nothing_that_comes_out(part: int) -> None:
    refuse("wire", range(part, WIRE, PARTS))


@pytest.mark.parametrize(
    "kept", [pytest.param(kept, id=kept.name, marks=[pytest.mark.long] if kept.nightly else []) for kept in KEPT]
)
def test_a_schedule_that_has_found_something_finds_nothing_more(kept: Kept) -> None:
    outcome = run_kept(kept)
    assert not outcome.problems, "\n".join([kept.found, *outcome.problems, *outcome.lines])


@pytest.mark.long
@pytest.mark.parametrize(("schedule", "mutant"), [(kept.name, name) for kept in KEPT for name in kept.finds])
def test_a_kept_schedule_finds_each_fault_that_it_is_said_to_find(schedule: str, mutant: str) -> None:
    line = [sys.executable, "-m", "tests.simulation", "--put-back", mutant, "--kept", schedule]
    done = subprocess.run(line, cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{mutant}: found by the kept schedule" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(("file", "mutant"), DIRECTED)
def test_the_tests_of_a_file_find_each_fault_that_they_are_said_to_find(file: str, mutant: str) -> None:
    line = [sys.executable, "-m", "tests.simulation", "--put-back", mutant, "--tests", file]
    done = subprocess.run(line, cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr


def test_the_document_says_what_tests_of_single_faults_find() -> None:
    assert {Path(file).name for file, _ in DIRECTED} == {"test_blamed_brokers.py", "test_stalls.py"}


def test_a_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    line = [sys.executable, "-m", "tests.simulation", "--digest", "--seed", "1"]
    other = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    printed = subprocess.run(
        line,
        env=os.environ | {"PYTHONHASHSEED": other},
        cwd=TREE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    digest = drawn("wire", 1).digest
    assert len(digest) == 32
    assert printed[0] == f"1 {digest}"


def test_nothing_of_a_run_outlives_it() -> None:
    def worlds() -> set[int]:
        return {each.seed for each in gc.get_objects() if isinstance(each, World)}

    LEVELS["port"](SEED_OF_ITS_OWN, [])
    assert SEED_OF_ITS_OWN not in worlds()


def test_a_time_line_does_not_say_where_a_run_has_its_files() -> None:
    trace = Trace()
    trace.folder = Path("/tmp/drawn")
    trace.add(1.0, "subscriber", "no room for /tmp/drawn/cursor")
    assert trace.lines == ["     1.000  subscriber no room for folder/cursor"]


def test_a_schedule_with_a_bound_of_its_own_fails_if_not_everything_is_out_by_then() -> None:
    found = [LEVELS["port"](1, [], within).problems for within in (19.0, 40.0)]
    assert [[each.partition(":")[0] for each in problems] for problems in found] == [["late"], []]


def test_nothing_is_due_where_no_topic_could_be_created(tmp_path: Path) -> None:
    """The run is judged too, and says that."""
    key = tmp_path / "key"
    occupancy.create_key(key)
    assert not any(occupancy.expected({}, key, {}).values())


def test_a_run_that_fails_is_shrunk_to_the_events_that_make_it_fail() -> None:
    def run(seed: int, events: Schedule) -> Outcome:
        """Fail if a long pause and a kill come together; with the pause alone, in another way."""
        kinds = {event.kind for event in events if event.kind != "pause" or event.length >= 2.0}
        found = ["missing: it"] if {"pause", "kill"} <= kinds else ["stalled: it"] if "pause" in kinds else []
        return Outcome(found)

    events = [Event(at, kind, "worker-1", 6.0) for at, kind in enumerate(["reset", "pause", "cut", "kill", "starve"])]
    assert shrink(1, events, run) == [Event(1, "pause", "worker-1", 3.0), Event(3, "kill", "worker-1", 3.0)]


def test_the_checker_knows_nothing_of_the_product() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert not {name for name in imported if name.split(".")[0] in ("stream", "connectors", "tacet", "tests")}
