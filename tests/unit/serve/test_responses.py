"""Refusals and other responses: their form, headers and what they contain."""

from __future__ import annotations

import orjson
import pytest

from connectors.http.responses import HEADERS, RefusalError, answer, common_headers, framed_by, refused


def body_of(error: RefusalError) -> dict[str, dict[str, str]]:
    body: dict[str, dict[str, str]] = orjson.loads(error.answer().body)
    return body


def test_a_refusal_names_field_and_rule_and_shows_the_beginning_of_the_value() -> None:
    assert body_of(RefusalError(422, "day", "must be a day", "x" * 100)) == {
        "error": {"what": "day", "rule": "must be a day", "value": "x" * 64}
    }
    assert body_of(RefusalError(422, "day", "must be a day")) == {"error": {"what": "day", "rule": "must be a day"}}
    assert str(RefusalError(422, "day", "must be a day", "secret")) == "day: must be a day"


@pytest.mark.parametrize(("status", "retry", "header"), [(503, 5, "5"), (429, 0, "0"), (400, None, None)])
def test_a_refusal_says_after_how_many_seconds_to_retry(status: int, retry: int | None, header: str | None) -> None:
    response = RefusalError(status, "rate", "must be lower", retry=retry).answer()
    assert (response.status_code, response.headers.get("retry-after")) == (status, header)


@pytest.mark.parametrize(("status", "scheme"), [(401, 'Bearer realm="tacet"'), (403, None), (400, None)])
def test_only_a_missing_authentication_names_the_scheme(status: int, scheme: str | None) -> None:
    assert RefusalError(status, "token", "must be valid").answer().headers.get("www-authenticate") == scheme


def test_responses_are_not_cached_and_tuples_are_lists() -> None:
    response = answer({"a": (1, 2)}, 201, {"x-more": "1"})
    assert (response.status_code, response.body, response.media_type) == (201, b'{"a":[1,2]}', "application/json")
    assert (response.headers["cache-control"], response.headers["x-more"]) == ("no-store", "1")
    assert answer({}, headers={"cache-control": "private"}).headers["cache-control"] == "private"


@pytest.mark.parametrize(
    ("text", "what", "rule"),
    [("site: must exist: x", "site", "must exist: x"), ("must exist", "request", "must exist")],
)
def test_an_error_of_the_project_becomes_a_refusal(text: str, what: str, rule: str) -> None:
    error = refused(text)
    assert (error.status, error.what, error.rule) == (400, what, rule)


def test_a_page_that_some_origins_may_embed_says_so_itself_and_keeps_all_other_headers() -> None:
    origins = ("https://intranet.example.org", "https://screens.example.org:8443")
    policy = framed_by(origins)
    assert policy.endswith("; frame-ancestors https://intranet.example.org https://screens.example.org:8443")
    assert policy.partition("frame-ancestors")[0] == HEADERS["content-security-policy"].partition("frame-ancestors")[0]
    left_out = {"content-security-policy", "x-frame-options"}
    assert common_headers({"content-security-policy"}) == {k: v for k, v in HEADERS.items() if k not in left_out}
    assert common_headers({"cache-control"}) == HEADERS
