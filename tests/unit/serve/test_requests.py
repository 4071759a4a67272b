"""Requests: their parameters, bodies and secrets, and the roles of their principals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from connectors.documents.month import FIRST_YEAR, LAST_YEAR
from connectors.http.limits import AllowedHosts, Rates
from connectors.http.responses import RefusalError
from connectors.serve import api
from connectors.serve.access import ACCOUNT, Access, audience_role
from connectors.serve.models import Login, OfDays, OfRecords, OfReport, OfSite
from connectors.serve.service import bearer, body_of, check_secret, parsed, principal_of, rate_limit_key, role

ROLES = frozenset([audience_role("public"), ACCOUNT])


def service(opened: str | None = None) -> Any:
    access = Access(ROLES, clock=lambda: 0, opened=opened)
    return SimpleNamespace(
        access=access,
        allowed_hosts=AllowedHosts.of((), 80, "http"),
        cookie="tacet-80",
        wrong_secrets=Rates(2, 0, clock=lambda: 0.0),
    )


def request(made: Any = None, query: str = "", headers: dict[str, str] | None = None, body: bytes = b"") -> Request:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": raw,
        "client": ("10.0.0.1", 1), "state": {"service": made},
    }  # fmt: skip
    return Request(scope, receive)


def asked(query: str) -> Request:
    """Return a request that anyone may make."""
    return request(service(audience_role("public")), query=query)


def refusal(error: pytest.ExceptionInfo[RefusalError]) -> tuple[int, str]:
    return error.value.status, error.value.what


def test_parameters_have_defaults_and_names_of_their_own() -> None:
    query = parsed(asked("audience=public&site=east&from=2018-01-01T00:00:00Z"), OfRecords)
    assert (query.start, query.end, query.granularity, query.format, query.limit) == (
        "2018-01-01T00:00:00Z", None, "5min", "json", 10_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "status", "what"),
    [
        ("audience=a&site=b&site=c", 400, "query"),
        ("audience=a", 422, "site"),
        ("audience=a&site=b&speed=1", 422, "speed"),
        ("audience=a&site=b&limit=0", 422, "limit"),
        ("audience=a&site=b&limit=100001", 422, "limit"),
        ("audience=&site=b", 422, "audience"),
        ("audience=a&site=b&granularity=2h", 422, "granularity"),
    ],
)
def test_parameters_that_break_a_rule_are_refused_by_name(query: str, status: int, what: str) -> None:
    with pytest.raises(RefusalError) as error:
        parsed(asked(query), OfRecords)
    assert refusal(error) == (status, what)


@pytest.mark.parametrize(("length", "well"), [(0, False), (1, True), (128, True), (129, False)])
def test_a_name_has_from_1_to_128_characters(length: int, well: bool) -> None:
    asking = asked(f"audience={length * 'a'}&site=b")
    if well:
        assert parsed(asking, OfSite).audience == length * "a"
    else:
        with pytest.raises(RefusalError) as error:
            parsed(asking, OfSite)
        assert refusal(error) == (422, "audience")


@pytest.mark.parametrize(("length", "well"), [(0, False), (1, True), (40, True), (41, False)])
def test_a_time_has_from_1_to_40_characters(length: int, well: bool) -> None:
    asking = asked(f"audience=a&site=b&from={length * '2'}")
    if well:
        assert parsed(asking, OfRecords).start == length * "2"
    else:
        with pytest.raises(RefusalError) as error:
            parsed(asking, OfRecords)
        assert refusal(error) == (422, "from")


@pytest.mark.parametrize("month", ["1970-01", "2018-12", "2254-12"])
def test_a_month_is_taken_as_it_is_written(month: str) -> None:
    assert parsed(asked(f"audience=a&site=b&month={month}"), OfReport).month == month


@pytest.mark.parametrize("month", ["1969-12", "2255-01"])
def test_a_month_must_be_one_of_the_years_of_which_there_are_reports(month: str) -> None:
    with pytest.raises(RefusalError) as error:
        parsed(asked(f"audience=a&site=b&month={month}"), OfReport)
    assert refusal(error) == (422, "month")
    assert error.value.rule == f"must be a month from {FIRST_YEAR} to {LAST_YEAR}"


def test_days_are_taken_as_they_are_written() -> None:
    query = parsed(asked("audience=a&site=b&from=2018-02-28&to=2020-02-29"), OfDays)
    assert (query.first_day, query.last_day) == ("2018-02-28", "2020-02-29")


@pytest.mark.parametrize("day", ["2018-02-30", "2018-2-3", "today", "2018-13-01"])
def test_a_day_must_exist(day: str) -> None:
    with pytest.raises(RefusalError) as error:
        parsed(asked(f"audience=a&site=b&from={day}"), OfDays)
    assert refusal(error) == (422, "from")


def test_the_rule_of_a_refusal_is_a_sentence_about_the_field() -> None:
    rules = []
    for query in ("audience=a", "audience=a&site=b&x=1"):
        with pytest.raises(RefusalError) as error:
            parsed(asked(query), OfRecords)
        rules.append(error.value.rule)
    assert rules == ["must be given", "must not be given: it is unknown"]


async def test_a_body_must_be_json_of_the_right_type() -> None:
    json = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await body_of(request(headers=json, body=orjson.dumps({"link": "x"})), Login)).link == "x"
    for headers, body, found in (
        ({}, b"{}", (400, "Content-Type")), ({"content-type": "text/plain"}, b"{}", (400, "Content-Type")),
        (json, b"{", (400, "body")), (json, b'{"link": 1}', (422, "link")), (json, b"[]", (422, "request")),
    ):  # fmt: skip
        with pytest.raises(RefusalError) as error:
            await body_of(request(headers=headers, body=body), Login)
        assert refusal(error) == found


@pytest.mark.parametrize(
    ("header", "secret"), [("Bearer x", "x"), ("bearer  x ", "x"), ("Basic x", None), ("x", None), ("", None)]
)
def test_only_bearer_tokens_are_read(header: str, secret: str | None) -> None:
    assert bearer(header) == secret


def test_a_caller_without_credentials_reads_open_audiences_only() -> None:
    with pytest.raises(RefusalError) as error:
        principal_of(request(service()))
    assert refusal(error) == (401, "session")
    opened = request(service(audience_role("public")))
    assert (principal_of(opened).audiences, principal_of(opened).address) == (("public",), "10.0.0.1")
    assert role(opened, audience_role("public"))
    with pytest.raises(RefusalError) as error:
        role(opened, ACCOUNT)
    assert refusal(error) == (403, "account")


def test_a_session_has_the_roles_of_its_link_and_is_counted_by_itself() -> None:
    made = service()
    cookie, principal = made.access.begin(made.access.by_link(made.access.new_link()))
    signed_in = request(made, headers={"cookie": f"tacet-80={cookie}"})
    assert principal_of(signed_in) == principal
    assert rate_limit_key(made, signed_in) == principal.session
    assert rate_limit_key(made, request(made)) is None
    assert rate_limit_key(made, request(made, headers={"cookie": "tacet-80=other"})) is None


def test_an_authorization_header_takes_precedence_over_a_session() -> None:
    made = service()
    cookie, _ = made.access.begin(made.access.by_link(made.access.new_link()))
    for header, what in (("Bearer wrong", "token"), ("Basic x", "Authorization")):
        with pytest.raises(RefusalError) as error:
            principal_of(request(made, headers={"cookie": f"tacet-80={cookie}", "authorization": header}))
        assert refusal(error) == (401, what)


def test_wrong_secrets_are_limited_and_right_ones_are_not() -> None:
    made = service()
    link = made.access.new_link()
    found = []
    for _ in range(3):
        with pytest.raises(RefusalError) as error:
            check_secret(request(made), lambda: None, "token")
        found.append((error.value.status, error.value.retry))
    assert found == [(401, None), (401, None), (429, 5)]
    assert check_secret(request(made), lambda: made.access.by_link(link), "link").roles == ROLES


@pytest.mark.parametrize(
    ("text", "nodes"), [("", ()), ("building", ("building",)), ("floor:2,,zone:1,", ("floor:2", "zone:1"))]
)
def test_nodes_are_separated_by_commas(text: str, nodes: tuple[str, ...]) -> None:
    assert api.nodes_in(text) == nodes


def test_times_may_have_a_plus_that_was_not_encoded() -> None:
    assert api.instant("from", None) is None
    assert api.instant("from", "1970-01-01T01:00:00 01:00") == 0
    with pytest.raises(RefusalError) as error:
        api.instant("from", "yesterday")
    assert refusal(error) == (400, "from")
