"""Lessons over HTTP: simulated people only; answers are scored, malformed ones are refused."""

from __future__ import annotations

import httpx
import jsonschema
import pytest

from tests.acceptance.serve.services import DEVICES, Served

PATH = "/api/v1/learn"
ANSWER = {"task": "above", "round": 1, "epsilon": "3", "answer": "98"}


def test_lessons_are_for_whoever_has_come_in(service: Served) -> None:
    with service.client() as nobody:
        assert nobody.get(f"{PATH}/day").status_code == 401
        assert nobody.get(f"{PATH}/tasks").status_code == 401
        assert nobody.post(f"{PATH}/answers", json=ANSWER).status_code == 401


def test_a_question_comes_without_its_answer(browser: httpx.Client) -> None:
    reported = browser.get(f"{PATH}/tasks", params={"round": 1, "epsilon": "3"})
    assert "truth" not in reported.text
    assert "machine" not in reported.json()["tasks"][0]
    assert all(len(task["options"]) != 1 for task in reported.json()["tasks"]), "a single option would be the answer"


def test_an_answer_is_scored_as_the_description_says(browser: httpx.Client) -> None:
    reported = browser.post(f"{PATH}/answers", json=ANSWER)
    document = browser.get("/api/v1/openapi.json").json()
    schema = {"$ref": "#/components/schemas/LessonScore", "components": document["components"]}
    jsonschema.validate(reported.json(), schema)
    truth = reported.json()["truth"]
    right = browser.post(f"{PATH}/answers", json=ANSWER | {"answer": truth}).json()
    assert (right["off"], right["points"]) == (0, 100)
    near = browser.post(f"{PATH}/answers", json=ANSWER | {"answer": str(int(truth) + 9)}).json()
    assert (near["off"], near["points"]) == (9, 75)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"answer": "-1"}, 400), ({"answer": "many"}, 400), ({"task": "stuck", "answer": "25:00"}, 400),
        ({"task": "stuck", "answer": "1200"}, 400), ({"task": "region", "answer": "roof"}, 400),
        ({"round": 12}, 422), ({"epsilon": "2"}, 422), ({"task": "none"}, 422), ({"answer": "9" * 17}, 422),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(browser: httpx.Client, changed: dict[str, object], status: int) -> None:
    reported = browser.post(f"{PATH}/answers", json=ANSWER | changed)
    assert reported.status_code == status
    assert set(reported.json()) == {"error"}


def test_a_place_that_no_lesson_has_is_refused(browser: httpx.Client) -> None:
    assert browser.get(f"{PATH}/day", params={"place": "hall"}).status_code == 400


def test_lessons_know_nothing_of_the_building_that_is_served(browser: httpx.Client) -> None:
    text = browser.get(f"{PATH}/day").text + browser.get(f"{PATH}/tasks").text
    assert not [name for name in ("east", "west", "hall", "cellar", "Berlin", *DEVICES) if name in text]


def test_no_band_of_a_lesson_begins_below_zero(browser: httpx.Client) -> None:
    """The lesson is deterministic: its noise makes some counts of the night negative."""
    reported = browser.get(
        f"{PATH}/day", params={"place": "building", "mechanism": "laplace", "epsilon": "0.01"}
    ).json()
    rows = [dict(zip(reported["columns"], row, strict=True)) for row in reported["rows"]]
    assert any(row["value"] < 0 for row in rows)
    assert all(0 <= row["low"] <= row["high"] for row in rows)
