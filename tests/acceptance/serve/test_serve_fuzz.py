"""Malformed requests and clients that disconnect cause no internal error and no error in the log.

By hand, with as many as wanted: ``python -m tests.acceptance.serve.test_serve_fuzz 20000``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from connectors.http.server import _TimedProtocol
from stream.records import HOUR
from tests.acceptance.serve.services import FIRST, Served, make_store, served, wanted
from tests.support.patience import PATIENCE

SECONDS = 5.0
"""For which one answer is awaited; who asks goes then, as clients do."""
TARGETS = (
    "/", "/healthz", "/healthz", "/api/v1/releases", "/api/v1/me", "/api/v1/sites",
    "/api/v1/latest?audience=public", "/api/v1/series?audience=public&site=east",
    "/api/v1/stream?audience=public", "/api/v1/stream?audience=public&after=start", "/api/v1/openapi.json",
    "/api/v1/records?audience=public&site=east&release=occupancy&format=csv", "/api/v1/account", "/api/v1/operator",
    "/api/v1/session", "/app.js", "/docs", "/api/v1/series?audience=public&site=east&release=occupancy&node=building",
)  # fmt: skip
TAILS = (
    "&limit=-1", "&from=x", "?", "&after=%00", "&%ff=%fe", "/../..", "%2f%00", "&site=\xe4", "#x", "&bin=1e9",
    "&limit=99999999999999999999", "&format=parquet", "&audience=x",
)  # fmt: skip
METHODS = ("GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "BREW")
HEADERS = (
    "Content-Length: 5", "Content-Length: 0", "Content-Length: -1", "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 3", "Expect: 100-continue", "Connection: close",
    "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13",
    "Upgrade: h2c", "Range: bytes=0-1,3-4,-5", "Range: bytes=9-1", "If-None-Match: *", "If-None-Match: \"x\"",
    "Last-Event-ID: x", "Last-Event-ID: \xff", "Accept-Encoding: gzip, br;q=0", "Authorization: Bearer x",
    "Authorization: Bearer \xff\xfe", "Authorization: Basic eDp5", "Authorization:", "Cookie: a=b; ;=; \"",
    "Content-Type: application/json", "Content-Type: text/plain", "Origin: null", "Sec-Fetch-Site: cross-site",
    "X-Forwarded-For: \xe4", "Accept: */*;q=x", "A" * 300 + ": b", ": x", "Bad Header: x", "X:\x00", " folded",
)  # fmt: skip
BODIES = (
    b"", b"{}", b"[]", b'{"token":"x"}', b'{"link":"x"}', b'{"link":1}', b"null", b"\xff\xfe", b"5\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}\r\n0\r\n\r\n", b"zz\r\n", b"ffffffffffffffffffff\r\n", b"2;x=y\r\n{}\r\n0\r\nA: b\r\n\r\n",
    b"[" * 5000, b'{"token":"\\ud800"}', b"0\r\n\r\n",
)  # fmt: skip


def request(rng: random.Random, port: int, cookie: str) -> bytes:
    """Return a request that is nearly one."""
    target = rng.choice(TARGETS)
    if rng.random() < 0.3:
        target += rng.choice(TAILS)
    lines = [f"{rng.choice(METHODS)} {target} HTTP/{rng.choice(('1.1', '1.1', '1.1', '1.0', '2.0', '0.9'))}"]
    if rng.random() < 0.95:
        lines.append(f"Host: 127.0.0.1:{port}")
    if rng.random() < 0.7:
        lines.append(f"Cookie: {cookie}")
    lines += rng.sample(HEADERS, rng.choice((0, 0, 1, 1, 2, 3)))
    data = bytearray("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + rng.choice(BODIES))
    for _ in range(rng.choice((0, 0, 0, 0, 1, 2))):
        place = rng.randrange(len(data))
        how = rng.randrange(3)
        if how == 0:
            data[place] = rng.randrange(256)
        elif how == 1:
            del data[place : place + rng.randint(1, 20)]
        else:
            data[place:place] = rng.choice((b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b"%"))
    if rng.random() < 0.2:  # more than one on a connection
        data += request(rng, port, cookie)
    return bytes(data)


def send(rng: random.Random, port: int, data: bytes) -> bytes:
    """Send a request as clients of all kinds do; return what came of its answer."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection, suppress(OSError):
        cut = rng.randrange(len(data)) if rng.random() < 0.1 else len(data)
        connection.sendall(data[:cut])
        how = rng.randrange(5)
        if how == 0:  # hangs up without a word
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return answer
        if how == 1:  # hangs up when the answer begins
            answer = connection.recv(rng.choice((1, 100, 5000)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return answer
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.3)
        while len(answer) < 1 << 20 and (part := connection.recv(1 << 16)):
            answer += part
    return answer


def fuzz(running: Served, cookie: str, number: int, seed: int = 1) -> Counter[int]:
    """Send requests; return how many answers of each status came."""

    def one(which: int) -> int:
        rng = random.Random(f"{seed} {which}")
        answer = send(rng, running.port, request(rng, running.port, cookie))
        return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0

    with ThreadPoolExecutor(16) as threads:
        return Counter(threads.map(one, range(number)))


class Errors(logging.Handler):
    """What is logged at error, and above."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        self.said.append(f"{record.name}: {record.getMessage()} {kind}")


@contextmanager
def errors() -> Iterator[list[str]]:
    """Give what is logged at error meanwhile, by others' loggers and by ours."""
    handler = Errors()
    logging.getLogger().addHandler(handler)
    try:
        with structlog.testing.capture_logs() as own:
            yield handler.said
            handler.said += [str(line) for line in own if line["log_level"] in {"error", "critical"}]
    finally:
        logging.getLogger().removeHandler(handler)


def fuzzed(folder: Path, number: int, seed: int = 1) -> tuple[Counter[int], list[str]]:
    """Return the answers of a service to broken requests, and what it logged at error."""
    with errors() as output, served(wanted(folder)) as running, running.browser() as client:
        cookie = f"{running.cookie}={client.cookies[running.cookie]}"
        found = fuzz(running, cookie, number, seed)
        assert client.get("/api/v1/me").status_code in {200, 404}
    return found, output


@pytest.mark.parametrize("rest", ["zz\r\n", "5\r\nabcdefgh\r\n", "\x00\x00\x00\r\n\r\n"])
@pytest.mark.parametrize("head", ["POST /api/v1/session", "HEAD /api/v1/session", "GET /api/v1/stream?audience=public"])
def test_a_body_that_breaks_while_its_request_is_under_way_makes_no_error(folder: Path, head: str, rest: str) -> None:
    with errors() as output, served(wanted(folder)) as running:
        with running.browser() as client:
            cookie = f"{running.cookie}={client.cookies[running.cookie]}"
        lines = [
            f"{head} HTTP/1.1",
            f"Host: 127.0.0.1:{running.port}",
            f"Cookie: {cookie}",
            "Transfer-Encoding: chunked",
        ]
        with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as connection:
            connection.sendall("\r\n".join([*lines, "", "2\r\n{}\r\n"]).encode())
            answer = b""
            if "stream" in head:  # so that its answer has begun
                connection.sendall(b"0\r\n\r\n")
                answer = connection.recv(1 << 16)
            connection.sendall(rest.encode())
            if "stream" not in head:  # a stream does not end by itself: its reader leaves
                with suppress(ConnectionResetError):
                    while part := connection.recv(1 << 16):
                        answer += part
        with running.client() as client:
            assert client.get("/healthz").status_code == 200
    assert output == []
    assert answer.startswith(b"HTTP/1.1 200 " if "stream" in head else b"HTTP/1.1 400 ")


def test_a_request_that_breaks_off_ends_as_if_its_client_had_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection may stay open until earlier answers are read. A handler that answers then would make an error."""
    seen: list[bool] = []
    monkeypatch.setattr(H11Protocol, "send_400_response", lambda self, _: seen.append(self.cycle.disconnected))
    protocol: Any = object.__new__(_TimedProtocol)
    protocol.cycle = SimpleNamespace(disconnected=False, message_event=asyncio.Event())
    protocol.send_400_response("Invalid HTTP request received.")
    assert seen == [True]
    assert protocol.cycle.message_event.is_set()


def test_broken_requests_are_refused_and_make_no_error(folder: Path) -> None:
    found, output = fuzzed(folder, 150)
    assert output == []
    assert not [status for status in found if status >= 500 and status != 503]
    assert found[200] > 0
    assert found[400] > 10


def main() -> None:
    """Fuzz for as long as is wanted."""
    with tempfile.TemporaryDirectory() as name:
        folder = make_store(Path(name), last=FIRST + HOUR)
        found, output = fuzzed(folder, int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print(sorted(found.items()), Counter(output).most_common(20), sep="\n")
    raise SystemExit(bool(output) or any(status >= 500 and status != 503 for status in found))


if __name__ == "__main__":
    main()
