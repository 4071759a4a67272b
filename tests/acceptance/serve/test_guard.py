"""Refused requests: host names, origins, sizes, rates, paths and headers. Each gets a clean error."""

from __future__ import annotations

import json
import os
import random
import socket
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from connectors.http.limits import LARGEST_BODY, AllowedHosts, RateLimitKey, Rates, RequestLimits
from connectors.http.server import listening
from stream.errors import UsageError
from tests.acceptance.serve.services import Served, new_token, served, wanted
from tests.support.patience import PATIENCE

MANY = 100_000


def head(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of one answer."""
    first, _, body = answer.partition(b"\r\n\r\n")
    line, *rest = first.decode("latin-1").split("\r\n")
    return int(line.split()[1]), {n.lower(): v for n, _, v in (each.partition(": ") for each in rest)}, body


def ask(service: Served, lines: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    return head(service.raw(lines.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body))


PAGES = ("/", "/healthz", "/nothing", "/api/v1/sites", "/api/v1/latest")


def test_every_answer_forbids_code_and_frames_of_others(service: Served, browser: httpx.Client) -> None:
    with service.client() as nobody:
        answers = [client.get(path) for path in PAGES for client in (browser, nobody)]
        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "server" not in answer.headers
            if answer.url.path.startswith("/api"):
                assert answer.headers["cache-control"] == "no-store"


OTHERS = ("evil.example", "127.0.0.1.evil.example", "127.0.0.1:1", "", "localhost@evil", "[::1]:99")


@pytest.mark.parametrize("host", OTHERS)
def test_a_name_that_is_not_the_services_is_refused(service: Served, host: str) -> None:
    """A page of another name that resolves to this machine would otherwise read what its browser may."""
    status, _, body = ask(service, f"GET /healthz HTTP/1.1\nHost: {host}\nConnection: close")
    assert status == 400
    assert json.loads(body)["error"]["what"] == "Host"


def test_the_names_of_loopback_and_those_that_are_given_are_the_services() -> None:
    names = AllowedHosts.of(("Rooms.example", "rooms.example:99"), 8050, "http")
    assert {"127.0.0.1:8050", "localhost:8050", "[::1]:8050", "rooms.example:8050", "rooms.example:99"} <= names.hosts
    assert "127.0.0.1" not in names.hosts, "the port is not the scheme's own"
    assert "https://rooms.example" in AllowedHosts.of(("rooms.example",), 8050, "https", behind_proxy=True).origins()
    assert "127.0.0.1" in AllowedHosts.of((), 80, "http").hosts


def test_two_hosts_or_none_are_refused(service: Served) -> None:
    host = f"127.0.0.1:{service.port}"
    for lines in (f"GET /healthz HTTP/1.1\nHost: {host}\nHost: {host}", "GET /healthz HTTP/1.0\nAccept: x"):
        assert ask(service, lines + "\nConnection: close")[0] == 400


def test_a_body_of_two_lengths_is_refused_and_nothing_behind_it_is_read(service: Served) -> None:
    """Where a proxy believes the other length, what follows would be somebody's question in another's name."""
    host = f"Host: 127.0.0.1:{service.port}\r\n"
    head = f"POST /api/v1/session HTTP/1.1\r\n{host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = service.raw(f"{head}0\r\n\r\nGET /healthz HTTP/1.1\r\n{host}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"must come without Content-Length" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("said", [LARGEST_BODY + 1, 10**30])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(service: Served, said: int) -> None:
    host = f"127.0.0.1:{service.port}"
    lines = f"POST /api/v1/session HTTP/1.1\nHost: {host}\nContent-Type: application/json\nContent-Length: {said}"
    assert ask(service, lines + "\nConnection: close")[0] in {400, 413}


def test_a_body_without_a_length_is_read_no_further_than_it_may_be_long(service: Served) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(LARGEST_BODY // 1000 + 50):
            yield b" " * 1000

    with service.client() as client:
        answer = client.post("/api/v1/session", content=pieces(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert client.post("/api/v1/session", content=b" " * LARGEST_BODY + b"{}").status_code == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_of_another_page_could_send_is_not_read(service: Served, kind: str) -> None:
    with service.client() as client:
        body = json.dumps({"link": service.link()})
        answer = client.post("/api/v1/session", content=body, headers={"content-type": kind})
        assert answer.status_code == 400
        assert client.post("/api/v1/session", json={"link": service.link()}).status_code == 204


BODIES = (
    b"", b"{", b"[]", b"null", b'{"link":1}', b'{"link":"a","token":"b"}', b"{}", b'{"link":"a","more":1}',
    b'{"link":null}', b'{"token":"' + b"x" * 1000 + b'"}', b"\xff\xfe", b'{"link":"\\ud800"}', b"9" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_that_is_no_login_is_refused_in_words(service: Served, body: bytes) -> None:
    with service.client() as client:
        answer = client.post("/api/v1/session", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 401, 422, 429}
    assert set(answer.json()["error"]) <= {"what", "rule", "value"}


PATHS = (
    "/../../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
    "/static/../app.py", "/....//....//etc/passwd", "/index.html%00.js", "/.git/config", "/vendor/", "/pages/..",
    "/%", "/%zz", "/a" * 400, "/api/v1/sites/../../etc", "/api/v1/sites/east/plans/..%2f..%2fkey",
    "/api/v1/releases/../records", "/__init__.py", "/\\..\\..\\windows", "/index.html/", "/INDEX.HTML", "/~root",
    "/proc/self/environ", "/app.js?x=1/../..",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_to_a_file_that_is_not_the_pages(service: Served, path: str) -> None:
    status, headers, body = ask(service, f"GET {path} HTTP/1.1\nHost: 127.0.0.1:{service.port}\nConnection: close")
    if status == 200:
        assert path == "/app.js?x=1/../.."
        return
    assert status in {400, 401, 404, 422}
    assert headers["content-type"] == "application/json"
    assert b"root:" not in body


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "OPTIONS", "PROPFIND", "GET\x01"])
def test_other_methods_are_refused(service: Served, method: str) -> None:
    for path in ("/", "/api/v1/sites", "/healthz"):
        lines = f"{method} {path} HTTP/1.1\nHost: 127.0.0.1:{service.port}\nConnection: close"
        status, _, body = ask(service, lines)
        assert status in {400, 405}
        if status == 405:
            assert json.loads(body)["error"]["what"] == "method", "in the form of all refusals"


def test_a_page_is_sent_packed_and_not_again_to_who_has_it(service: Served) -> None:
    with service.client() as client:
        first = client.get("/")
        assert first.headers["content-type"] == "text/html; charset=utf-8"
        assert first.headers["content-encoding"] == "gzip"
        assert client.get("/", headers={"accept-encoding": "identity"}).content == first.content
        again = client.get("/", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


# --- rates, and how much at once --------------------------------------------------------------------------------


def test_a_client_may_send_a_burst_and_then_as_many_as_trickle_in() -> None:
    now = [0.0]
    rates = Rates(burst=3, each_second=2, clock=lambda: now[0])
    assert [rates.allow("a") for _ in range(4)] == [True, True, True, False]
    assert rates.allow("b"), "another client's are its own"
    now[0] = 0.5
    assert [rates.allow("a") for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [rates.allow("a") for _ in range(4)] == [True, True, True, False]


def test_more_than_a_rate_is_refused_with_when_to_come_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "connectors.serve.app.RequestLimits",
        lambda app, hosts, *_, **paths: RequestLimits(app, hosts, Rates(40, 0.0), **paths),
    )
    with served(wanted(folder)) as running, running.client() as client:
        answers = [client.get("/healthz") for _ in range(60)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert {answer.status_code for answer in answers} == {200, 429}
    assert refused[0].headers["retry-after"] == "1"


def test_a_reader_who_is_known_has_a_rate_of_their_own_wherever_they_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers behind one address share nothing but what nobody is let in by; and sessions of a token share its rate."""
    tokens = {name: new_token(tmp_path / "tokens", name, "audience:public") for name in ("ann", "bob")}
    monkeypatch.setattr(
        "connectors.serve.app.RequestLimits",
        lambda app, hosts, _, key, **paths: RequestLimits(app, hosts, Rates(20, 0.0), key, **paths),
    )

    def asked(client: httpx.Client, number: int) -> set[int]:
        return {client.get("/api/v1/sites").status_code for _ in range(number)}

    with served(wanted(folder, tokens=tmp_path / "tokens")) as running:
        with running.client() as browser:
            assert browser.post("/api/v1/session", json={"token": tokens["ann"]}).status_code == 204
            with running.client("tacet_wrong") as nobody:
                assert asked(nobody, 30) == {401, 429}
            assert asked(browser, 10) == {200}, "whoever else is at this address"
            with running.client(tokens["ann"]) as program:
                assert asked(program, 10) == {200}
                assert asked(program, 1) == {429} == asked(browser, 1)
        with running.client(tokens["bob"]) as other:
            assert asked(other, 20) == {200}


def test_a_connection_that_says_nothing_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended by the service: the read returns nothing, where it would otherwise wait for ever."""
    monkeypatch.setattr("connectors.http.limits.HEAD_WITHIN", 0.2)
    with served(wanted(folder)) as running:
        for output in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: 127"):
            with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as connection:
                connection.sendall(output)
                assert connection.recv(1000) == b""


def test_an_address_that_is_taken_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="--listen"):
            listening("127.0.0.1", taken.getsockname()[1])


# --- anything at all --------------------------------------------------------------------------------------------

WORDS = (
    "GET", "POST", "/", "/api/v1/", "sites", "latest", "releases", "records", "stream", "session", "account",
    "usual", "?", "&", "=", "audience", "public", "facilities", "site", "east", "from", "to", "2026-03-02T10:00:00Z",
    "granularity", "1h", "nodes", "zone:hall", "limit", "-1", "1e9", "after", "start", "..", "%00", "%2f", "%ff",
    "'", '"', ";--", "<script>", "{", "}", "[", "]", "null", "\\", " ", "HTTP/1.1", "Host: ", "Cookie: tacet=",
    "Authorization: Bearer ", "\r\n", "\x00", "Content-Length: ", "Transfer-Encoding: chunked",
    "Expect: 100-continue", "Upgrade: websocket", "Range: bytes=0-",
)  # fmt: skip


def fuzzed(rng: random.Random, port: int, cookie: str) -> bytes:
    """Return a request: words in any order, a real one with something changed, or any bytes."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n"
    tail = "".join(rng.choice(WORDS) for _ in range(rng.randrange(12))).replace("\r\n", "").replace(" ", "")
    if kind == 1:
        return "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 30))).encode() + b"\r\n\r\n"
    names = [
        "latest",
        "usual",
        "attributes",
        "spends",
        "releases/occupancy/records",
        "sites",
        "policy",
        "account",
        "playback",
    ]
    keys = [
        "audience=public",
        "site=east",
        "release=occupancy",
        "granularity=1h",
        "limit=3",
        "from=x",
        "nodes=zone:hall",
    ]
    query = "&".join(rng.sample(keys, rng.randrange(len(keys))))
    if rng.random() < 0.5:
        query += "&" + "".join(rng.choice(string.printable[:94]) for _ in range(rng.randrange(30)))
    lines = [f"GET /api/v1/{rng.choice(names)}{tail if rng.random() < 0.3 else ''}?{query} HTTP/1.1",
             f"Host: 127.0.0.1:{port}", f"Cookie: tacet-{port}={cookie}", "Connection: close"]  # fmt: skip
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"


def answers_cleanly(folder: Path, number: int, seed: int) -> None:
    """Send requests; each answer is a refusal in words, or figures; none is a fault, and the service goes on."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as free:
        free.setattr("connectors.serve.app.RequestLimits", unhurried)
        seen = statuses(folder, number, rng)
    assert {200, 400, 404, 422} <= seen


def statuses(folder: Path, number: int, rng: random.Random) -> set[int]:
    with served(wanted(folder)) as running, running.browser() as client:
        cookie, seen = client.cookies[running.cookie], set[int]()
        for _ in range(number):
            request = fuzzed(rng, running.port, cookie)
            answer = running.raw(request)
            if not answer:
                continue
            status, _, body = head(answer)
            seen.add(status)
            assert status < 500, request
            assert b"Traceback" not in body
            assert b"connectors" not in body
        assert client.get("/api/v1/sites").status_code == 200
    return seen


def unhurried(app: ASGIApp, hosts: AllowedHosts, rates: Rates | None, key: RateLimitKey, **paths: Any) -> RequestLimits:
    """A guard without rates: the machine that sends is one client."""
    del rates, key
    return RequestLimits(app, hosts, Rates(burst=1e12), **paths)


def test_requests_of_any_kind_get_clean_answers(folder: Path) -> None:
    answers_cleanly(folder, 1500, seed=int(os.environ.get("TACET_FUZZ_SEED", "7")))


@pytest.mark.long
def test_a_hundred_thousand_requests_of_any_kind_get_clean_answers(folder: Path) -> None:
    answers_cleanly(folder, MANY, seed=11)
