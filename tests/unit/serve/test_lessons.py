"""Lessons of the service: for readers alone, questions without answers, and scores with the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.http.limits import AllowedHosts
from connectors.lab.simulation.lessons import EPSILONS, MECHANISM, MECHANISMS, ROUNDS, TASKS
from connectors.serve.access import Access, TokenFile, room_role
from connectors.serve.app import application
from connectors.serve.event_streams import Streams
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.learn import COLUMNS, answer_result, lesson_day, round_questions
from connectors.serve.models import Answered, OfLesson, OfRound
from connectors.serve.service import Service
from stream.errors import UsageError
from stream.records import DAY
from tests.unit.serve.test_api import NOON, POLICY, ROLES

WINDOWS = 288
"""Of five minutes in a day."""
ANSWER: dict[str, Any] = {"task": "above", "round": 1, "epsilon": "3", "answer": "98"}


@pytest.mark.parametrize(("screen", "refused"), [(False, (401, "session")), (True, (403, "token"))])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "day", None), ("GET", "tasks", None), ("POST", "answers", ANSWER)],
)
async def test_neither_nobody_nor_a_screen_gets_a_lesson(
    tmp_path: Path, method: str, path: str, body: Any, screen: bool, refused: tuple[int, str]
) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    secret = tokens.add("lobby", [room_role("public")], NOON + DAY)
    history, access = ReleaseHistory(None, {}), Access(ROLES, clock=lambda: NOON, tokens=tokens)
    service = Service(POLICY, access, history, Streams(access, history), AllowedHosts.of((), 80, "http"), lambda: NOON)
    transport = httpx.ASGITransport(app=application(service), client=("10.0.0.1", 5))
    shown = {"authorization": f"Bearer {secret}"} if screen else {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.request(method, f"/api/v1/learn/{path}", json=body, headers=shown)
    assert (response.status_code, response.json()["error"]["what"]) == refused


def test_a_day_is_shown_beside_what_is_released_of_it() -> None:
    lesson = lesson_day(OfLesson(epsilon="0.1"))
    assert (lesson.place, lesson.mechanism, lesson.epsilon) == ("building", "laplace", "0.1")
    assert (lesson.epsilons, lesson.mechanisms, lesson.columns) == (list(EPSILONS), list(MECHANISMS), COLUMNS)
    assert "building" in lesson.places
    assert len(lesson.rows) == len(lesson.truth) == WINDOWS
    assert lesson.mean_count == pytest.approx(sum(lesson.truth) / WINDOWS)
    off = [abs(row[COLUMNS.index("value")] - true) for row, true in zip(lesson.rows, lesson.truth, strict=True)]
    assert lesson.mean_error == pytest.approx(sum(off) / WINDOWS)


def test_a_place_that_no_lesson_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"^place: must be one of building, ") as refused:
        lesson_day(OfLesson(place="hall"))
    assert "hall" not in str(refused.value)


def test_a_round_has_a_question_of_each_task() -> None:
    asked = round_questions(OfRound(round=1, epsilon="3"))
    assert (asked.round, asked.rounds, asked.epsilon, asked.mechanism) == (1, ROUNDS, "3", MECHANISM)
    assert [each.task for each in asked.tasks] == list(TASKS)
    assert all(series.rows for each in asked.tasks for series in each.series)


def test_an_answer_is_scored_beside_the_truth_and_a_programs_answer() -> None:
    result = answer_result(Answered(**ANSWER))
    right = answer_result(Answered(**ANSWER | {"answer": result.truth}))
    assert (result.task, result.answer) == ("above", "98")
    assert (right.off, right.points) == (0, 100)
    machine = answer_result(Answered(**ANSWER | {"answer": result.machine}))
    assert machine.points == result.machine_points
    assert [len(trace.truth) for trace in result.traces] == [
        len(series.rows) for task in round_questions(OfRound(round=1, epsilon="3")).tasks if task.task == "above"
        for series in task.series
    ]  # fmt: skip
