"""Experiments with the detective's questions: their progress, and what is answered without a look."""

from __future__ import annotations

from connectors.lab.experiments.tasks import Extent, results
from connectors.lab.simulation.lessons import TASKS, DetectiveTerms, drawn


def test_progress_is_the_number_of_settings_that_are_complete() -> None:
    done: list[int] = []
    found = results(Extent(1, ("3", "10"), ("laplace",), rounds=1), done.append)
    assert done == list(range(1, 2 * len(TASKS) + 1))
    assert len(found) == len(TASKS) + len(done)


def test_without_a_look_the_first_region_by_name_is_the_answer() -> None:
    rounds = range(4)
    cases = [drawn("region", number, DetectiveTerms("10", "laplace")) for number in rounds]
    first, last = ([case.score(pick(case.options)).points for case in cases] for pick in (min, max))
    (blind,) = (each for each in results(Extent(1, (), (), rounds=len(rounds))) if each.task == "region")
    assert blind.points == sum(first) / len(rounds) != sum(last) / len(rounds)
