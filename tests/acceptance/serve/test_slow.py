"""Slow clients delay nobody else, and are disconnected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from connectors.http import limits
from connectors.http.limits import PIECE, AllowedHosts, FaultError, RequestLimits
from connectors.http.server import listening
from connectors.serve import app
from tests.acceptance.serve.services import served, wanted
from tests.support import patience
from tests.support.patience import within_patience

NAMES = AllowedHosts.of((), 80, "http")
LARGE = b"x" * (5 * PIECE + 1)


def scope(path: str = "/healthz", method: str = "GET") -> Scope:
    return {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 9), "scheme": "http", "server": ("127.0.0.1", 80),
    }  # fmt: skip


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(LARGE)(scope, receive, send)


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield LARGE

    await StreamingResponse(pieces())(scope, receive, send)


def asking() -> Receive:
    """Return what gives an empty body, and then that nobody goes away."""
    reported = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        return next(reported, None) or await never()

    return receive


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


async def answer_of(guard: RequestLimits) -> list[Message]:
    """Return what is sent to who asks quickly."""
    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    await guard(scope(), asking(), keep)
    return sent


async def test_bodies_that_do_not_come_take_no_place_from_others() -> None:
    guard = RequestLimits(large, NAMES, at_once=1)
    waiting = [asyncio.create_task(guard(scope(method="POST"), never, never)) for _ in range(5)]
    await asyncio.sleep(0)
    assert (await answer_of(guard))[0]["status"] == 200
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_event_stream_takes_no_place_from_others() -> None:
    listed, unlisted = (RequestLimits(large, NAMES, at_once=0, streams=paths) for paths in (("/healthz",), ()))
    assert (await answer_of(listed))[0]["status"] == 200
    assert (await answer_of(unlisted))[0]["status"] == 503


def test_only_event_streams_of_the_service_take_no_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "RequestLimits", partial(RequestLimits, at_once=0))
    with served(wanted(folder)) as running, running.client() as client:
        assert client.get("/api/v1/stream").status_code == 401, "the stream is judged by its own limits"
        assert client.get("/api/v1/sites").status_code == 503


async def test_who_goes_away_before_the_body_is_whole_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    await RequestLimits(large, NAMES)(scope(method="POST"), gone, never)
    assert "failed" not in "".join(capsys.readouterr())


def test_a_body_that_does_not_come_in_time_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.http.limits.BODY_WITHIN", 0.1)
    with served(wanted(folder)) as running:
        head = f"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nContent-Length: 100\r\n\r\n{{"
        with socket.create_connection(("127.0.0.1", running.port), timeout=patience.PATIENCE) as connection:
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


async def test_a_large_answer_is_handed_over_as_it_is_taken() -> None:
    """What a reader has not taken waits in the service's memory but for a piece, however large the answer is."""
    start, *pieces = await answer_of(RequestLimits(large, NAMES))
    assert b"".join(piece["body"] for piece in pieces) == LARGE
    assert max(len(piece["body"]) for piece in pieces) == PIECE
    assert [piece["more_body"] for piece in pieces] == [True] * 5 + [False]
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(LARGE)


@pytest.mark.parametrize("app", [large, endless])
async def test_a_reader_that_takes_nothing_is_cut_off_and_its_place_is_free(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.http.limits.PATIENCE", 0.05)
    guard, sent = RequestLimits(app, NAMES, at_once=1), 0

    async def full(message: Message) -> None:
        nonlocal sent
        sent += 1
        if sent > 2:
            await never()

    for _ in "12":
        sent = 0
        with pytest.raises(FaultError):
            await within_patience(guard(scope(), asking(), full), "the reader to be cut off")
        assert sent == 3


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
def test_the_system_ends_connections_on_which_nothing_is_taken() -> None:
    """What has been handed over to the system is out of the service's hands, and would hold a connection for ever."""
    with listening("127.0.0.1", 0) as bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()), bound.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == limits.PATIENCE * 1000
