"""Handlers for the page's lessons: a simulated day at an epsilon, the detective's questions, and the value of an
answer."""

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
from connectors.serve.models import Answered, OfLesson, OfRound
from connectors.serve.service import body_of, parsed, principal_of, service_of
from stream.errors import UsageError
from stream.schemas import rfc3339

COLUMNS = ("start", "end", "value", "low", "high", "half_width")


async def learn_day(request: Request) -> Response:
    """Return a simulated day of a place as it is, and as it is released at an epsilon."""
    principal_of(request)
    return answer(await service_of(request).reading(lesson_day, parsed(request, OfLesson)))


async def learn_tasks(request: Request) -> Response:
    """Return the detective's questions of a round, without their answers."""
    principal_of(request)
    return answer(await service_of(request).reading(round_questions, parsed(request, OfRound)))


async def learn_answer(request: Request) -> Response:
    """Return what an answer is worth, the truth, and what the values alone would have answered."""
    principal_of(request)
    return answer(await service_of(request).reading(answer_result, await body_of(request, Answered)))


def lesson_day(query: OfLesson) -> dict[str, Any]:
    """Return a day; UsageError where no lesson names the place."""
    of, places = lessons(), list(places_shown(lessons()))
    if query.place not in places:
        raise UsageError(f"place: must be one of {', '.join(places)}")
    made = day_released(query.place, query.mechanism, query.epsilon)
    return {
        "places": places, "epsilons": EPSILONS, "mechanisms": MECHANISMS, "place": query.place,
        "mechanism": query.mechanism, "epsilon": query.epsilon, "timezone": str(of.timezone), "kind": made.kind,
        "columns": COLUMNS, "rows": _rows(Series(query.place, made.ends, made.values, made.half_widths, made.truth)),
        "truth": made.truth.tolist(), "mean_error": float(np.abs(made.values - made.truth).mean()),
        "mean_count": float(made.truth.mean()),
    }  # fmt: skip


def round_questions(query: OfRound) -> dict[str, Any]:
    """Return a round's questions."""
    cases = [case(task, query.round, query.epsilon) for task in TASKS]
    return {
        "round": query.round, "rounds": ROUNDS, "epsilon": query.epsilon, "epsilons": EPSILONS, "mechanism": MECHANISM,
        "timezone": str(lessons().timezone), "columns": COLUMNS, "tasks": [_shown(each) for each in cases],
    }  # fmt: skip


def answer_result(query: Answered) -> dict[str, Any]:
    """Return what an answer is worth, with the true counts; UsageError where it is none to the question."""
    found = case(query.task, query.round, query.epsilon)
    own, machine = found.score(query.answer), found.score(found.machine)
    return {
        "task": found.task, "answer": query.answer, "truth": found.truth, "off": own.off, "points": own.points,
        "machine": found.machine, "machine_points": machine.points,
        "traces": [{"name": each.name, "truth": each.truth.tolist()} for each in found.series],
    }  # fmt: skip


def _shown(found: Case) -> dict[str, Any]:
    return {
        "task": found.task, "place": found.place, "limit": found.limit, "options": found.options,
        "series": [{"name": each.name, "rows": _rows(each)} for each in found.series],
    }  # fmt: skip


def _rows(series: Series) -> list[list[Any]]:
    return [
        [rfc3339(end - WINDOW), rfc3339(end), value, max(0, value - width), max(0, value + width), width]
        for end, value, width in zip(
            series.ends.tolist(), series.values.tolist(), series.half_widths.tolist(), strict=True
        )
    ]
