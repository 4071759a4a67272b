"""Many idle or half-finished connections do not block other clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from connectors.http.limits import ConnectionLimiter, most_connections
from connectors.http.server import Tls, listening
from tests.acceptance.serve.services import events, new_token, records, served, wanted
from tests.support.patience import PATIENCE

ROOM = 12
"""Connections that the service has room for here; each crowd is larger."""


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.http.limits.MOST_CONNECTIONS", ROOM)


@contextmanager
def crowd(port: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Give connections that have said something and then no more."""
    with ExitStack() as stored:
        standing = [stored.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2 * ROOM)]
        for connection in standing:
            try:
                connection.sendall(said)
            except ConnectionError:  # has been let go of already
                continue
        yield standing


def half_asked(port: int) -> bytes:
    return f"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n\r\n".encode()


@pytest.mark.parametrize("words", [lambda port: b"", lambda port: b"GET / HT", half_asked], ids=["", "head", "body"])
def test_who_stands_there_without_a_question_keeps_nobody_out(folder: Path, words: object) -> None:
    with served(wanted(folder)) as running:
        assert callable(words)
        with crowd(running.port, words(running.port)):
            for _ in range(3):
                assert httpx.get(f"{running.address}/healthz", timeout=PATIENCE).status_code == 200


def test_handshakes_that_do_not_come_keep_nobody_out(folder: Path, tmp_path: Path, certificate: Tls) -> None:
    """Before its handshake a connection is none of which the server's protocol knows."""
    new_token(tmp_path / "tokens", "ann", "audience:public")
    trusting = ssl.create_default_context(cafile=str(certificate.certificate))
    with (
        served(wanted(folder, tokens=tmp_path / "tokens", tls=certificate)) as running,
        crowd(running.port) as standing,
    ):
        assert httpx.get(f"{running.address}/healthz", verify=trusting, timeout=PATIENCE).status_code == 200
        assert standing[0].recv(1) == b"", "who came first has been let go of"


def test_a_stream_that_is_open_stays_open_however_many_come(folder: Path) -> None:
    with served(wanted(folder)) as running, running.browser() as client:
        whole = records(folder, "public")
        assert len(events(client, "public", "start", len(whole))) == len(whole)
        with client.stream("GET", "/api/v1/stream?audience=public&after=start") as answer:
            lines = answer.iter_lines()
            assert next(lines) == "id: start"
            with crowd(running.port):
                assert httpx.get(f"{running.address}/healthz", timeout=PATIENCE).status_code == 200
            assert sum(line.startswith("id: ") for line, _ in zip(lines, range(4 * len(whole)), strict=False)) == len(
                whole
            )


def test_where_everybody_is_being_answered_who_comes_is_turned_away_and_takes_no_file() -> None:
    with listening("127.0.0.1", 0) as door, ExitStack() as stored:
        door.listen()
        comers = [stored.enter_context(socket.create_connection(door.getsockname())) for _ in range(ROOM + 1)]
        inside = [stored.enter_context(door.accept()[0]) for _ in comers[:ROOM]]
        door.busy = {connection.getpeername() for connection in inside}
        with pytest.raises(ConnectionAbortedError):
            door.accept()
        assert comers[ROOM].recv(1) == b""
        inside[0].close()
        stored.enter_context(socket.create_connection(door.getsockname()))
        stored.enter_context(door.accept()[0])


def test_connections_leave_files_to_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.http.limits.MOST_CONNECTIONS", 1024)
    for files, most in ((1024, 768), (20_000, 1024), (256, 64)):
        monkeypatch.setattr("resource.getrlimit", lambda kind, files=files: (files, files))
        assert most_connections() == most
    assert isinstance(listening("127.0.0.1", 0), ConnectionLimiter)
