"""Handlers for the page's lessons and the detective game."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from connectors.http.responses import answer
from connectors.lab.simulation.lessons import (
    EPSILONS,
    MECHANISM,
    MECHANISMS,
    ROUNDS,
    TASKS,
    WINDOW,
    Case,
    Series,
    case,
    day_released,
    lessons,
    places_shown,
)
from connectors.serve.models import (
    Answered,
    Lesson,
    LessonRound,
    LessonScore,
    LessonSeries,
    LessonTask,
    LessonTrace,
    OfLesson,
    OfRound,
)
from connectors.serve.service import body_of, parsed, principal_of, service_of
from stream.errors import UsageError
from stream.schemas import rfc3339

COLUMNS = ["start", "end", "value", "low", "high", "half_width"]


async def learn_day(request: Request) -> Response:
    """Return a simulated day of a place: its true counts, and its released values at an epsilon."""
    principal_of(request)
    lesson = await service_of(request).run_query(lesson_day, parsed(request, OfLesson))
    return answer(lesson.model_dump())


async def learn_tasks(request: Request) -> Response:
    """Return the questions of a round of the detective game, without their answers."""
    principal_of(request)
    questions = await service_of(request).run_query(round_questions, parsed(request, OfRound))
    return answer(questions.model_dump())


async def learn_answer(request: Request) -> Response:
    """Return the score of an answer, the true answer, and what a program finds in the released values."""
    principal_of(request)
    score = await service_of(request).run_query(answer_result, await body_of(request, Answered))
    return answer(score.model_dump())


def lesson_day(query: OfLesson) -> Lesson:
    """Return a day; UsageError if no lesson has the place."""
    places = list(places_shown(lessons()))
    if query.place not in places:
        raise UsageError(f"place: must be one of {', '.join(places)}")
    day = day_released(query.place, query.mechanism, query.epsilon)
    return Lesson(
        places=places, epsilons=list(EPSILONS), mechanisms=list(MECHANISMS), place=query.place,
        mechanism=query.mechanism, epsilon=query.epsilon, timezone=str(lessons().timezone), kind=day.kind,
        columns=COLUMNS, rows=_rows(Series(query.place, day.ends, day.values, day.half_widths, day.truth)),
        truth=day.truth.tolist(), mean_error=float(np.abs(day.values - day.truth).mean()),
        mean_count=float(day.truth.mean()),
    )  # fmt: skip


def round_questions(query: OfRound) -> LessonRound:
    """Return a round's questions."""
    cases = [case(task, query.round, query.epsilon) for task in TASKS]
    return LessonRound(
        round=query.round, rounds=ROUNDS, epsilon=query.epsilon, epsilons=list(EPSILONS), mechanism=MECHANISM,
        timezone=str(lessons().timezone), columns=COLUMNS, tasks=[_question(each) for each in cases],
    )  # fmt: skip


def answer_result(query: Answered) -> LessonScore:
    """Return the score of an answer, with the true counts; UsageError if it is no answer to the question."""
    question = case(query.task, query.round, query.epsilon)
    own, machine = question.score(query.answer), question.score(question.machine)
    return LessonScore(
        task=question.task, answer=query.answer, truth=question.truth, off=own.off, points=own.points,
        machine=question.machine, machine_points=machine.points,
        traces=[LessonTrace(name=each.name, truth=each.truth.tolist()) for each in question.series],
    )  # fmt: skip


def _question(question: Case) -> LessonTask:
    return LessonTask(
        task=question.task, place=question.place, limit=question.limit, options=list(question.options),
        series=[LessonSeries(name=each.name, rows=_rows(each)) for each in question.series],
    )  # fmt: skip


def _rows(series: Series) -> list[list[Any]]:
    return [
        [rfc3339(end - WINDOW), rfc3339(end), value, max(0, value - width), max(0, value + width), width]
        for end, value, width in zip(
            series.ends.tolist(), series.values.tolist(), series.half_widths.tolist(), strict=True
        )
    ]
