"""Limits in front of the service: rates of clients, open answers of readers, host names, and clients behind a proxy."""

from __future__ import annotations

import resource
from typing import Any

import pytest
from starlette.requests import Request

from connectors.http import limits
from connectors.http.limits import AllowedHosts, Rates, client_of, most_connections
from connectors.http.responses import RefusalError
from connectors.serve.reader_limits import ReaderLimit

LIMIT = ReaderLimit(total=4, each=2, without_token=3)
ANN, BOB = ("ann", None), ("bob", None)


@pytest.mark.parametrize(
    ("open_", "new", "status"),
    [
        ([], ANN, None),
        ([ANN], ANN, None),
        ([ANN, ANN], ANN, 429),
        ([ANN, ANN], BOB, None),
        ([ANN, ANN, BOB], BOB, None),
        ([ANN, ANN, BOB, BOB], ("eve", None), 503),
        ([("anyone", "1"), ("anyone", "1")], ("anyone", "1"), 429),
        ([("anyone", "1"), ("anyone", "2")], ("anyone", "3"), None),
        ([("anyone", "1"), ("anyone", "2"), ("anyone", "3")], ("anyone", "4"), 503),
        ([("anyone", "1"), ("anyone", "2"), ("anyone", "3")], ANN, None),
    ],
)
def test_open_answers_are_limited_in_total_for_each_reader_and_without_a_token(
    open_: list[tuple[str, str | None]], new: tuple[str, str | None], status: int | None
) -> None:
    excess = LIMIT.exceeded(open_, new)
    assert (None if excess is None else excess.status) == status


def test_the_refusal_names_the_limit_that_is_exceeded() -> None:
    anyone = [("anyone", str(number)) for number in range(3)]
    found = [
        LIMIT.exceeded([ANN, ANN, BOB, BOB], ANN),
        LIMIT.exceeded([ANN, ANN], ANN),
        LIMIT.exceeded(anyone, ("", "9")),
    ]
    assert [excess.limit for excess in found if excess] == ["4 at a time", "2 of one reader", "3 without a token"]


def test_a_client_may_send_a_burst_and_then_a_steady_rate() -> None:
    now = [0.0]
    rates = Rates(burst=3, each_second=2, clock=lambda: now[0])
    assert [rates.allow("a") for _ in range(4)] == [True, True, True, False]
    assert rates.allow("b"), "every client has a rate of its own"
    now[0] = 0.5
    assert [rates.allow("a") for _ in range(2)] == [True, False]
    now[0] = 1000.0
    assert [rates.allow("a") for _ in range(4)] == [True, True, True, False], "unused requests add up to the burst only"


def test_rates_of_the_clients_that_were_idle_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CLIENTS", 2)
    rates = Rates(burst=1, each_second=0, clock=lambda: 0.0)
    assert [rates.allow(client) for client in "ab"] == [True, True]
    assert not rates.allow("a")
    assert rates.allow("c")
    assert [rates.allow(client) for client in "ab"] == [False, True], "b was idle longest when c came"


@pytest.mark.parametrize(
    ("files", "most"), [(resource.RLIM_INFINITY, 1024), (100_000, 1024), (1024, 768), (256, 64), (100, 64)]
)
def test_connections_leave_files_to_everything_else(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert most_connections() == most


def request(headers: dict[str, str] | None = None, path: str = "/api/v1/sites", query: str = "") -> Request:
    raw = [(name.encode(), value.encode()) for name, value in ({"host": "localhost:80"} | (headers or {})).items()]
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": raw, "client": ("10.0.0.1", 5), "server": ("localhost", 80), "scheme": "http",
    }  # fmt: skip
    return Request(scope)


NAMES = AllowedHosts.of(("Figures.example",), 80, "http")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, None),
        ({"host": "FIGURES.example"}, None),
        ({"host": "figures.example:80"}, None),
        ({"host": "figures.example:81"}, "Host"),
        ({"host": "other.example"}, "Host"),
        ({"origin": "http://figures.example"}, None),
        ({"origin": "HTTP://FIGURES.EXAMPLE"}, None),
        ({"origin": "https://figures.example"}, "Origin"),
        ({"origin": "null"}, "Origin"),
        ({"sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "cross-site"}, "Sec-Fetch-Site"),
        ({"content-length": "65536"}, None),
        ({"content-length": "65537"}, "body"),
        ({"content-length": "9999999999999"}, "body"),
        ({"content-length": "+1"}, "Content-Length"),
        ({"content-length": "1", "transfer-encoding": "chunked"}, "Transfer-Encoding"),
    ],
)
def test_the_head_of_a_request_is_checked_before_anything_else(headers: dict[str, str], refused: str | None) -> None:
    checked = limits.RequestLimits(_unreached, NAMES, same_origin="/api/")
    if refused is None:
        assert checked._check(request(headers)) == "10.0.0.1"
        return
    with pytest.raises(RefusalError) as caught:
        checked._check(request(headers))
    assert caught.value.what == refused


def test_a_request_names_exactly_one_host() -> None:
    two = request()
    two.scope["headers"] += [(b"host", b"other.example")]
    none = request()
    none.scope["headers"].clear()
    for refused in (two, none):
        with pytest.raises(RefusalError) as caught:
            limits.RequestLimits(_unreached, NAMES, same_origin="/api/")._check(refused)
        assert caught.value.what == "Host"


def test_path_and_query_share_one_limit_and_a_link_to_the_page_is_allowed_from_everywhere() -> None:
    checked = limits.RequestLimits(_unreached, NAMES, same_origin="/api/")
    assert checked._check(request(path="/" + "a" * 2047, query="b" * 2048))
    with pytest.raises(RefusalError, match="at most 4096 bytes"):
        checked._check(request(path="/" + "a" * 2048, query="b" * 2048))
    assert checked._check(request({"sec-fetch-site": "cross-site"}, path="/"))


def test_requests_above_the_rate_are_refused_by_reader_or_address() -> None:
    rates = Rates(burst=1, each_second=0, clock=lambda: 0.0)
    checked = limits.RequestLimits(
        _unreached, NAMES, rates, rate_limit_key=lambda one: one.headers.get("authorization")
    )
    assert checked._check(request()) == "10.0.0.1"
    assert checked._check(request({"authorization": "ann"})) == "ann"
    with pytest.raises(RefusalError) as caught:
        checked._check(request())
    assert (caught.value.status, caught.value.retry) == (429, 1)


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [(None, "10.0.0.1"), ("203.0.113.9", "203.0.113.9"), ("1.1.1.1, 203.0.113.9", "203.0.113.9"),
     ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("::ffff:203.0.113.9", "203.0.113.9")],
)  # fmt: skip
def test_the_client_behind_a_proxy_is_the_last_address_that_the_proxy_reports(
    forwarded: str | None, client: str
) -> None:
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    assert client_of(request(headers), behind_proxy=forwarded is not None) == client
    assert client_of(request(headers), behind_proxy=False) == "10.0.0.1", "without a proxy the header is not used"


def test_host_names_get_the_port_that_they_lack() -> None:
    names = AllowedHosts.of(("a.example", "B.example:444", "[2001:db8::1]"), 443, "https")
    assert {"a.example:443", "a.example", "b.example:444", "[2001:db8::1]:443", "localhost"} <= names.hosts
    assert "b.example" not in names.hosts
    assert "https://a.example" in names.origins()
    assert "a.example" not in AllowedHosts.of(("a.example",), 8050, "http").hosts
    assert "a.example" in AllowedHosts.of(("a.example",), 8050, "https", behind_proxy=True).hosts, (
        "the proxy has port 443"
    )


async def _unreached(scope: object, receive: object, send: object) -> None:
    raise AssertionError
