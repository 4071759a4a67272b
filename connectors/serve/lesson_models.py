"""What lessons answer, as models: of them their description is made."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Lesson(BaseModel):
    """A simulated day of a place as it is, and as it is released."""

    places: list[str]
    epsilons: list[str]
    mechanisms: list[str]
    place: str
    mechanism: str
    epsilon: str
    timezone: str
    kind: str
    columns: list[str]
    rows: list[list[Any]]
    truth: list[int] = Field(description="True counts, which there are of simulated people only.")
    mean_error: float
    mean_count: float


class LessonSeries(BaseModel):
    """A private series of a question."""

    name: str
    rows: list[list[Any]]


class LessonTask(BaseModel):
    """A question of the detective's game."""

    task: str
    place: str
    limit: int | None
    options: list[str]
    series: list[LessonSeries]


class LessonRound(BaseModel):
    """The questions of a round."""

    round: int
    rounds: int
    epsilon: str
    epsilons: list[str]
    mechanism: str
    timezone: str
    columns: list[str]
    tasks: list[LessonTask]


class LessonTrace(BaseModel):
    """What is behind a series of a question: counts of simulated people."""

    name: str
    truth: list[int]


class LessonScore(BaseModel):
    """What an answer is worth, in points of 100, and what the values alone would have answered."""

    task: str
    answer: str
    truth: str
    off: int
    points: int
    machine: str
    machine_points: int
    traces: list[LessonTrace] = Field(description="True counts, in the order of the question's series.")
