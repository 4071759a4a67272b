"""``tacet evaluate tasks``: four questions answered from released values, scored against the truth."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connectors.lab.experiments import tasks
from connectors.lab.experiments.tasks import BLIND, Extent, results
from connectors.lab.simulation.lessons import ROUNDS, TASKS, DetectiveTerms, drawn
from tests.acceptance.command_line import Done, run

EPSILONS = ("0.01", "10")


class Evaluated(NamedTuple):
    """What the verb wrote and said of so many rounds."""

    out: Path
    done: Done
    rounds: int


@pytest.fixture(scope="module", params=[6, pytest.param(ROUNDS, marks=pytest.mark.long)])
def evaluated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Half of the rounds, and each night all of them."""
    out, rounds = tmp_path_factory.mktemp("evaluated") / "out", request.param
    chosen = [word for epsilon in EPSILONS for word in ("--epsilon", epsilon)]
    with pytest.MonkeyPatch.context() as patch:
        if rounds != ROUNDS:
            patch.setattr(tasks, "Extent", partial(Extent, rounds=rounds))
        done = run("evaluate", "tasks", "--mechanism", "laplace", *chosen, "--runs", "2", "--out", out, "--json")
    return Evaluated(out, done, rounds)


def rows(done: Done, task: str) -> dict[str | None, dict[str, Any]]:
    return {row["epsilon"]: row for row in done.answer["results"] if row["task"] == task}


def test_each_question_has_points_at_each_epsilon_and_without_a_look(evaluated: Evaluated) -> None:
    out, done, rounds = evaluated
    assert done.code == 0
    assert done.answer["simulated"] is True
    for task in TASKS:
        found = rows(done, task)
        assert list(found) == [None, *EPSILONS]
        assert [row["answers"] for row in found.values()] == [rounds, 2 * rounds, 2 * rounds]
    assert json.loads((out / "results.json").read_text()) == done.answer
    assert "| laplace | 0.01 |" in (out / "tables.md").read_text()


@pytest.mark.parametrize("task", TASKS)
def test_little_noise_answers_well_and_much_noise_badly(evaluated: Evaluated, task: str) -> None:
    found = rows(evaluated.done, task)
    assert found["10"]["points"] > 80
    assert found["0.01"]["points"] < found["10"]["points"] - 20
    assert found["10"]["right"] > found["0.01"]["right"]
    assert found["0.01"]["off"] > found["10"]["off"]
    assert found[None]["points"] < found["10"]["points"]


def test_points_are_the_mean_over_every_round_and_run(evaluated: Evaluated) -> None:
    """Each answer scored anew, by the distance of one time from the other."""
    cases = [
        drawn("stuck", number, DetectiveTerms("0.01", "laplace", run))
        for run in (0, 1)
        for number in range(evaluated.rounds)
    ]
    off = [abs(minutes(case.machine) - minutes(case.truth)) // 5 for case in cases]
    reported = rows(evaluated.done, "stuck")["0.01"]
    assert reported["off"] == pytest.approx(sum(off) / len(off))
    assert reported["points"] == pytest.approx(sum(100 * max(0, 24 - each) // 24 for each in off) / len(off))
    assert reported["worthless"] == sum(each >= 24 for each in off) / len(off)


def minutes(clock: str) -> int:
    hour, minute = map(int, clock.split(":"))
    return 60 * hour + minute


def test_runs_differ_by_their_noise_alone() -> None:
    first, second = (drawn("above", 3, DetectiveTerms("0.3", "pegasus", run)) for run in (0, 1))
    assert (first.series[0].values != second.series[0].values).any()
    assert (first.series[0].truth == second.series[0].truth).all()
    assert first.truth == second.truth


@pytest.mark.long
def test_the_same_options_give_the_same_numbers(evaluated: Evaluated) -> None:
    """In another process: the questions of one epsilon, asked again."""
    again = [each.row() for each in results(Extent(2, EPSILONS[:1], ("laplace",), rounds=evaluated.rounds))]
    assert all(row in evaluated.done.answer["results"] for row in again)


def test_without_a_look_no_value_is_looked_at() -> None:
    """Whatever the noise, the same answers."""
    found = [results(Extent(1, (epsilon,), ("laplace",), rounds=2))[: len(BLIND)] for epsilon in EPSILONS]
    assert found[0] == found[1]


def test_people_read_a_table_for_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "Extent", partial(Extent, rounds=2))
    done = run("evaluate", "tasks", "--mechanism", "laplace", "--epsilon", "10", "--runs", "1")
    assert done.code == 0
    assert done.out.count("without a look") == len(TASKS)


def test_an_epsilon_that_is_not_tried_is_refused() -> None:
    assert run("evaluate", "tasks", "--epsilon", "7").code == 2
