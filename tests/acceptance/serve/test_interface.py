"""The HTTP interface answers as it is described, from the records alone, and never with an address."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import duckdb
import httpx
import jsonschema
import pytest
from openapi_spec_validator import validate

from connectors.serve.openapi import interface_page
from connectors.serve.reader_limits import DOWNLOADS
from stream.records import HOUR, SECOND
from stream.schemas import parse_record, parse_time, rfc3339
from tests.acceptance.serve.services import (
    ACCESS_POINTS,
    DEVICES,
    FIRST,
    LAST,
    Served,
    eventually,
    make_store,
    records,
    served,
    wanted,
)

EAST = "audience=facilities&site=east"
QUESTIONS = (
    "/api/v1/session", "/api/v1/sites", "/api/v1/releases", "/api/v1/policy", f"/api/v1/latest?{EAST}",
    f"/api/v1/usual?{EAST}&release=occupancy", f"/api/v1/attributes?{EAST}", f"/api/v1/spends?{EAST}",
    f"/api/v1/releases/occupancy/records?{EAST}&granularity=1h", "/healthz", "/api/v1/openapi.json",
    "/api/v1/learn/day?place=building&mechanism=pegasus&epsilon=0.3", "/api/v1/learn/tasks?round=2&epsilon=0.1",
    "/api/v1/releases/archive/records?audience=facilities&site=west&nodes=zone:cellar&limit=5",
)  # fmt: skip


@pytest.fixture(scope="module")
def described(browser: httpx.Client) -> dict[str, Any]:
    """The service's own description."""
    document: dict[str, Any] = browser.get("/api/v1/openapi.json").json()
    return document


def test_the_description_is_openapi(described: dict[str, Any]) -> None:
    validate(described)
    assert described["openapi"].startswith("3.1")


def test_the_description_is_a_page_too_without_scripts_and_from_here_alone(
    service: Served, described: dict[str, Any]
) -> None:
    with service.client() as nobody:
        page = nobody.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path, methods in described["paths"].items():
        assert f"<code>{path}</code>" in page.text
        assert all(f'id="{operation["operationId"]}"' in page.text for operation in methods.values())
    for name in described["components"]["schemas"]:
        assert f'id="schema-{name}"' in page.text
    linked = set(re.findall(r'href="#([^"]+)"', page.text))
    assert linked <= set(re.findall(r'id="([^"]+)"', page.text))
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert all(not re.match(r"[a-z]+:|//", each) for each in loaded)
    with service.client() as nobody:
        assert {nobody.get(f"/{each.removeprefix('./')}").status_code for each in loaded} == {200}
    assert "<script" not in page.text


def test_what_the_description_says_is_text_on_the_page_and_no_markup() -> None:
    evil = '<img src=x onerror=alert(1)>"'
    operation = {
        "operationId": evil, "summary": evil, "security": [], "responses": {"200": {"description": evil}},
        "parameters": [
            {"name": evil, "in": "query", "required": True, "schema": {"enum": [evil]}, "description": evil},
        ],
    }  # fmt: skip
    schemas = {evil: {"description": evil, "properties": {evil: {"type": evil, "description": evil}}}}
    page = interface_page({"paths": {evil: {"get": operation}}, "components": {"schemas": schemas}}).decode()
    assert "<img src=x" not in page
    assert 'alert(1)>"' not in page


def test_every_operation_says_what_it_does_and_how_it_refuses(described: dict[str, Any]) -> None:
    for methods in described["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith(
                "/Refusal"
            )
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_what_the_description_says(browser: httpx.Client, described: dict[str, Any], question: str) -> None:
    answer = browser.get(question)
    assert answer.status_code == 200, answer.text
    path = question.partition("?")[0].replace("/releases/occupancy/", "/releases/{release}/")
    path = path.replace("/releases/archive/", "/releases/{release}/")
    schema = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(answer.json(), schema | {"components": described["components"]})


def test_no_answer_has_a_tag_by_which_equal_figures_would_be_known(browser: httpx.Client) -> None:
    """Only files of the page have one, which are the same for everybody."""
    for question in QUESTIONS:
        assert not {"etag", "last-modified", "digest", "content-digest"} & set(browser.get(question).headers), question
    assert "etag" in browser.get("/").headers


def test_refusals_are_what_the_description_says(browser: httpx.Client, described: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/Refusal", "components": described["components"]}
    for path in ("/api/v1/latest", "/api/v1/nothing", "/api/v1/latest?audience=nobody&site=east",
                 f"/api/v1/releases/none/records?{EAST}", f"/api/v1/latest?{EAST}&more=1"):  # fmt: skip
        answer = browser.get(path)
        assert 400 <= answer.status_code < 500
        jsonschema.validate(answer.json(), schema)


# --- figures are those of the records ---------------------------------------------------------------------------


def test_the_newest_values_are_those_of_the_newest_records(browser: httpx.Client, folder: Path) -> None:
    last = [record for value in records(folder, "public") if (record := parse_record(value))["released"]][-1]
    rows = browser.get("/api/v1/latest", params={"audience": "public", "site": "east"}).json()["rows"]
    values = {row["node"]: row["value"] for row in rows}
    assert {row["end"] for row in rows} == {last["window_end"]}
    assert values == {
        "building": last["levels"]["building"],
        **{f"floor:{floor}": value for floor, value in last["levels"]["floor"].items()},
        **{f"zone:{zone}": value for zone, value in last["values"].items()},
    }


def test_a_history_by_window_is_the_records_values(browser: httpx.Client, folder: Path) -> None:
    query = {"audience": "facilities", "site": "east", "nodes": "zone:hall", "granularity": "5min"}
    reported = browser.get("/api/v1/releases/occupancy/records", params=query).json()
    at = {name: reported["columns"].index(name) for name in ("end", "value", "node")}
    released = [parse_record(value) for value in records(folder, "facilities")]
    counts = [r for r in released if r["release"] == "occupancy" and r["site"] == "east" and r["released"]]
    assert [(row[at["end"]], row[at["value"]]) for row in reported["rows"]] == [
        (record["window_end"], record["values"]["hall"]) for record in counts
    ]
    assert {row[at["node"]] for row in reported["rows"]} == {"zone:hall"}


def test_pages_of_a_history_put_together_are_the_whole(browser: httpx.Client) -> None:
    query = {"audience": "facilities", "site": "east", "granularity": "1h"}
    whole = browser.get("/api/v1/releases/occupancy/records", params=query).json()["rows"]
    found: list[Any] = []
    after: dict[str, str] = {}
    while True:
        reported = browser.get("/api/v1/releases/occupancy/records", params=query | {"limit": "7"} | after).json()
        found += reported["rows"]
        if reported["next"] is None:
            break
        after = {"after": reported["next"]}
    assert found == whole != []


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_page_that_there_is_not_is_refused_before_anything_is_sent(browser: httpx.Client, form: str) -> None:
    for after in ("", "yesterday", "2026-03-02T10:00:00Z/attic"):
        query = {"audience": "facilities", "site": "east", "granularity": "1h", "after": after, "format": form}
        refused = browser.get("/api/v1/releases/occupancy/records", params=query)
        assert refused.status_code in range(400, 500), (after, refused.status_code)


def test_files_hold_what_the_rows_say(browser: httpx.Client, tmp_path: Path) -> None:
    query = {"audience": "facilities", "site": "east", "granularity": "1h", "nodes": "building"}
    path = "/api/v1/releases/occupancy/records"
    rows = browser.get(path, params=query).json()["rows"]
    text = browser.get(path, params=query | {"format": "csv"})
    assert text.headers["content-disposition"] == 'attachment; filename="occupancy-east-1h.csv"'
    listed = list(csv.DictReader(io.StringIO(text.text)))
    assert [float(row["value"]) for row in listed] == [row[3] for row in rows]
    (tmp_path / "file.parquet").write_bytes(browser.get(path, params=query | {"format": "parquet"}).content)
    found = duckdb.execute("SELECT value FROM read_parquet(?)", [str(tmp_path / "file.parquet")]).fetchall()
    assert [value for (value,) in found] == [row[3] for row in rows]


def test_while_too_many_files_are_given_rows_still_are(browser: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.serve.downloads.DOWNLOADS", DOWNLOADS._replace(total=0))
    path = f"/api/v1/releases/occupancy/records?{EAST}"
    refused = browser.get(f"{path}&format=csv")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
    assert refused.json()["error"]["what"] == "format"
    assert browser.get(path).status_code == 200


def test_what_is_usual_is_told_of_the_nodes_that_are_asked_for(browser: httpx.Client) -> None:
    query = {"audience": "facilities", "site": "east", "release": "occupancy"}
    whole = browser.get("/api/v1/usual", params=query).json()
    assert set(whole["nodes"]) == {"building", "floor:0", "floor:1", "zone:hall", "zone:loft"}
    some = browser.get("/api/v1/usual", params=query | {"nodes": "floor:1,zone:hall,zone:none"}).json()
    assert some == {**whole, "nodes": {node: whole["nodes"][node] for node in ("floor:1", "zone:hall")}}


def test_what_is_left_of_a_budget_is_what_the_records_leave(browser: httpx.Client, folder: Path) -> None:
    reported = browser.get("/api/v1/spends", params={"audience": "public", "site": "east"}).json()
    spent = [row for row in reported["rows"] if row["release"] == "occupancy"]
    released = [parse_record(value) for value in records(folder, "public")]
    assert sum(row["windows"] for row in spent) == sum(record["released"] for record in released)
    assert reported["left"] == {"occupancy": int((100 - float(spent[-1]["spend"])) / 0.5)}
    assert browser.get("/api/v1/spends", params={"audience": "facilities", "site": "west"}).json()["left"] == {
        "archive": None
    }


def test_how_fresh_a_site_is_follows_from_its_newest_window_and_the_clock(folder: Path) -> None:
    now = [LAST + 60 * SECOND]
    with served(wanted(folder), clock=lambda: now[0]) as running, running.browser() as client:

        def state(later: int) -> str:
            now[0] = LAST + later * SECOND
            return str(
                client.get("/api/v1/latest", params={"audience": "public", "site": "east"}).json()["feed"][0]["state"]
            )

        eventually(lambda: state(60) == "live")
        feed = feed_of(client)
        assert feed["age_seconds"] == (LAST + 60 * SECOND - parse_time(feed["window_end"])) / SECOND
        tick = 15 * 60
        assert [state(each) for each in (2 * tick, 5 * tick, 14 * tick)] == ["live", "late", "silent"]


def feed_of(client: httpx.Client) -> dict[str, Any]:
    (feed,) = client.get("/api/v1/latest", params={"audience": "public", "site": "east"}).json()["feed"]
    return dict(feed)


def test_an_answer_is_remembered_only_until_the_next_record_comes(tmp_path: Path) -> None:
    make_store(tmp_path, last=FIRST + HOUR)
    with served(wanted(tmp_path)) as running, running.browser() as client:
        for hours in (1, 2, 3):
            make_store(tmp_path, last=FIRST + hours * HOUR)
            wanted_end = rfc3339(FIRST + hours * HOUR)
            eventually(lambda: feed_of(client)["window_end"] == wanted_end)  # noqa: B023 - called in its own round
            reported = client.get("/api/v1/latest", params={"audience": "public", "site": "east"}).json()
            assert {row["end"] for row in reported["rows"]} == {wanted_end}


# --- what is never told -----------------------------------------------------------------------------------------


def everything(client: httpx.Client, account: bool = False) -> str:
    """Return all that a reader of both audiences is told, in one text."""
    more = (
        ("/api/v1/account", "/api/v1/operator", "/api/v1/account/attributes?site=east&day=2026-03-02")
        if account
        else ()
    )
    texts = []
    for question in (*QUESTIONS, *more, f"/api/v1/releases/occupancy/records?{EAST}&format=csv"):
        answer = client.get(question)
        assert answer.status_code == 200
        texts.append(answer.text + str(answer.headers))
    return "\n".join(texts)


def test_no_address_of_a_device_an_access_point_or_a_controller_is_ever_told(folder: Path) -> None:
    key = (folder / "key").read_text()
    secrets = [part for part in key.replace('"', " ").replace(",", " ").split() if len(part) > 20]
    with served(wanted(folder, account=True, operator=True)) as running, running.browser() as client:
        eventually(lambda: len(client.get("/api/v1/operator").json()["sites"]) == 2)
        text = everything(client).lower()
    for needle in (*DEVICES, *ACCESS_POINTS):
        assert needle not in text
        assert needle.replace(":", "") not in text
    assert secrets
    assert not any(secret.lower() in text for secret in secrets)


def shape(value: Any) -> Any:
    """Return what is left of an answer when every number and band is taken out of it."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return None if isinstance(value, int | float) else value


def without_values(told: dict[str, Any]) -> list[dict[str, Any]]:
    may_differ = {"released", "value", "reason"}
    return [{name: each for name, each in row.items() if name not in may_differ} for row in told["rows"]]


def told_of(folder: Path) -> dict[str, Any]:
    now = LAST + 60 * SECOND
    with served(wanted(folder), clock=lambda: now) as running, running.browser() as client:
        for audience in ("facilities", "public"):
            eventually(lambda audience=audience: caught_up(client, folder, audience))
        return {q: client.get(q).json() for q in QUESTIONS if "openapi" not in q}


def caught_up(client: httpx.Client, folder: Path, audience: str) -> bool:
    with client.stream("GET", "/api/v1/stream", params={"audience": audience}) as answer:
        return parse_record(records(folder, audience)[-1])["release_id"] in next(answer.iter_lines())


def test_two_days_that_differ_in_one_device_are_told_alike_but_for_values(tmp_path: Path) -> None:
    """Which rows there are, their nodes, times, order, freshness, spends: the same, whoever was there."""
    days: list[dict[str, Any]] = []
    for name, without in (("all", None), ("one-less", DEVICES[0])):
        (tmp_path / name).mkdir()
        if days:
            (tmp_path / name / "key").write_bytes((tmp_path / "all" / "key").read_bytes())
            (tmp_path / name / "key").chmod(0o600)
        days.append(told_of(make_store(tmp_path / name, without=without)))
    for question in days[0]:
        first, second = (day[question] for day in days)
        if "attributes" in question:  # whether and what is shown may differ
            first, second = (without_values(reported) for reported in (first, second))
        assert shape(first) == shape(second), question
    assert days[0] != days[1]


def test_health_says_nothing_but_that_the_service_answers(service: Served) -> None:
    with service.client() as client:
        assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize("day", ["2026-02-31", "9999-99-99", "0000-01-01"])
@pytest.mark.parametrize("question", ["attributes", "spends"])
def test_a_day_that_there_is_not_is_refused(browser: httpx.Client, question: str, day: str) -> None:
    for end in ("from", "to"):
        refused = browser.get(f"/api/v1/{question}?audience=public&site=east&{end}={day}")
        assert (refused.status_code, refused.json()["error"]) == (
            422, {"what": end, "rule": "must be an existing day"},
        )  # fmt: skip
