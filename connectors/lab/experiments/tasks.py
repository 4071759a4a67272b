"""How well released values answer the detective's questions (thesis, 3.2.1).

Each question of each round is released on its own, with each mechanism, at each epsilon, in several runs with different
noise. The function that computes the true answer is applied to the released values, so no human judgement affects the
score. The baseline is the score of an answer without any data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from connectors.lab.simulation.lessons import (
    EPSILONS,
    MECHANISMS,
    ROUNDS,
    TASKS,
    Case,
    DetectiveTerms,
    Mechanism,
    Task,
    drawn,
)
from stream.lab.evaluation import FULL, WORTHLESS, Score
from stream.records import JsonObject

BLIND: dict[Task, str] = {"above": "0", "region": "", "stuck": "12:00", "event": "12:00"}
"""Answers without a look; of regions the first by name."""
UNITS: dict[Task, str] = {"above": "windows", "region": "regions", "stuck": "windows", "event": "windows"}
_NOTHING = DetectiveTerms(EPSILONS[-1], "laplace")
"""Terms for the score without data, whose series is not read."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Which settings are run."""

    runs: int
    epsilons: tuple[str, ...] = EPSILONS
    mechanisms: tuple[Mechanism, ...] = MECHANISMS
    rounds: int = ROUNDS


class Result(NamedTuple):
    """How one question was answered, over all rounds and runs."""

    task: Task
    mechanism: str
    epsilon: str | None
    """None: without a look."""
    answers: int
    points: float
    """Mean, in [0, 100]."""
    spread: float
    """Standard deviation of the points."""
    right: float
    """Share of answers that are the truth."""
    worthless: float
    """Share of answers without a point."""
    off: float
    """Mean distance from the truth, in ``unit``."""
    unit: str

    def row(self) -> JsonObject:
        """Return the result as JSON."""
        return self._asdict()


def results(extent: Extent, tick: Callable[[int], object] = lambda done: None) -> list[Result]:
    """Run all settings.

    Args:
        extent: which settings are run.
        tick: called after each setting, with the number of completed ones.
    """
    found = [_blind(task, extent) for task in TASKS]
    for done, (task, mechanism, epsilon) in enumerate(settings(extent), start=1):
        scores = [case.score(case.machine) for case in _cases(task, mechanism, epsilon, extent)]
        found.append(_result(task, mechanism, epsilon, scores))
        tick(done)
    return found


def settings(extent: Extent) -> list[tuple[Task, Mechanism, str]]:
    """Return the settings with noise."""
    return [
        (task, mechanism, epsilon)
        for task in TASKS
        for mechanism in extent.mechanisms
        for epsilon in extent.epsilons
    ]  # fmt: skip


def _cases(task: Task, mechanism: Mechanism, epsilon: str, extent: Extent) -> Iterator[Case]:
    for run in range(extent.runs):
        for number in range(extent.rounds):
            yield drawn(task, number, DetectiveTerms(epsilon, mechanism, run))


def _blind(task: Task, extent: Extent) -> Result:
    cases = [drawn(task, number, _NOTHING) for number in range(extent.rounds)]
    scores = [case.score(BLIND[task] or min(case.options)) for case in cases]
    return _result(task, "without a look", None, scores)


def _result(task: Task, mechanism: str, epsilon: str | None, scores: Sequence[Score]) -> Result:
    n, points = len(scores), [score.points for score in scores]
    mean = sum(points) / n
    return Result(
        task, mechanism, epsilon, n, mean, sqrt(sum((each - mean) ** 2 for each in points) / n),
        points.count(FULL) / n, points.count(0) / n, sum(score.off for score in scores) / n, UNITS[task],
    )  # fmt: skip


def document(extent: Extent, found: Sequence[Result]) -> JsonObject:
    """Return all results as JSON; every number is of simulated people."""
    extents = {"runs": extent.runs, "rounds": extent.rounds, "worthless_from": WORTHLESS}
    return {"simulated": True} | extents | {"results": [each.row() for each in found]}
