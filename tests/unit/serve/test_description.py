"""The description of the HTTP interface: what is said of an operation, to programs and as a page."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from connectors.serve.openapi import Operation, document, interface_page


class Found(BaseModel):
    """What was found."""

    number: int


class Query(BaseModel):
    """What is looked for."""

    colour: str = Field(description="Of the thing.")
    most: int = 5


class Thing(BaseModel):
    """What is kept."""

    name: str


async def look(request: Request) -> Response:
    """Look for things.

    They are not moved.
    """
    raise NotImplementedError


async def keep(request: Request) -> Response:
    """Keep a thing."""
    raise NotImplementedError


OPERATIONS = (
    Operation("GET", "/shelves/{shelf}/things", look, Found, Query, open=True, media=("application/json", "text/csv")),
    Operation("POST", "/shelves/{shelf}/things", keep, body=Thing),
)
DOCUMENT = document(OPERATIONS, "cookie-of-it")
THINGS: dict[str, Any] = DOCUMENT["paths"]["/shelves/{shelf}/things"]
SHELF = {"name": "shelf", "in": "path", "required": True, "schema": {"type": "string"}}


def test_an_operation_has_the_name_of_its_handler_and_the_first_line_of_what_it_says() -> None:
    assert [(method, each["operationId"], each["summary"]) for method, each in THINGS.items()] == [
        ("get", "look", "Look for things."), ("post", "keep", "Keep a thing."),
    ]  # fmt: skip


def test_parameters_are_those_of_the_path_and_of_the_query() -> None:
    shelf, colour, most = THINGS["get"]["parameters"]
    assert shelf == SHELF
    assert (colour["name"], colour["in"], colour["required"], colour["description"]) == (
        "colour", "query", True, "Of the thing.",
    )  # fmt: skip
    assert (most["name"], most["in"], most["required"], most["schema"]["default"]) == ("most", "query", False, 5)
    assert "description" not in most
    assert THINGS["post"]["parameters"] == [SHELF]


def test_an_answer_has_its_form_in_each_media_type_or_no_content() -> None:
    given, done = THINGS["get"]["responses"], THINGS["post"]["responses"]
    assert given["200"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Found"}}, "text/csv": {"schema": {}},
    }  # fmt: skip
    assert done["204"] == {"description": "Done."}
    assert set(given) == {"200", "default"}
    assert set(done) == {"204", "default"}


def test_a_body_is_described_where_there_is_one() -> None:
    assert "requestBody" not in THINGS["get"]
    assert THINGS["post"]["requestBody"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}
    }


def test_who_may_ask_is_said() -> None:
    assert (THINGS["get"]["security"], THINGS["post"]["security"]) == ([], [{"token": []}, {"session": []}])
    assert DOCUMENT["components"]["securitySchemes"]["session"]["name"] == "cookie-of-it"


def test_every_form_that_is_named_is_described() -> None:
    named = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert {"Found", "Query", "Thing", "Refusal"} <= set(DOCUMENT["components"]["schemas"])
    assert named <= set(DOCUMENT["components"]["schemas"])


def test_the_page_says_of_each_operation_what_the_document_does() -> None:
    page = interface_page(DOCUMENT).decode()
    assert page.startswith("<!doctype html>")
    _, looking, keeping = re.split('<section class="card" id="(?:look|keep)">', page.partition("<h2>Schemas</h2>")[0])
    assert "<b>GET</b> <code>/shelves/{shelf}/things</code>" in looking
    assert "No token is needed." in looking
    assert "No token is needed." not in keeping
    assert "<tr><td><code>colour</code></td><td>query</td><td>string</td><td>yes</td><td>Of the thing.</td></tr>" in (
        looking
    )
    assert "<tr><td><code>most</code></td><td>query</td><td>integer</td><td></td><td></td></tr>" in looking
    assert '<p>Body: <code>application/json</code> <a href="#schema-Thing">Thing</a></p>' in keeping
    assert "<p>Response 204: no content</p>" in keeping
    assert '<a href="#schema-Found">Found</a>, <code>text/csv</code>' in looking
