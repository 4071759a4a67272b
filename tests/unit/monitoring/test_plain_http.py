"""The ports of ``--metrics`` and ``tacet export prometheus``: slow clients, and pages of other origins."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from threading import Event, Thread

import pytest

from connectors.monitoring.monitor import Monitor
from connectors.monitoring.plain_http import Answer, PlainServer
from connectors.sinks.prometheus import LatestReleases, serve
from stream.records import SECOND
from tests.support.patience import wait_until
from tests.support.small_building import building

MINUTES = 120.0
Address = tuple[str, int]


def metrics_port(address: Address, stack: ExitStack, names: tuple[str, ...] = ()) -> Address:
    made = Monitor("run", building(), address, lambda: 1_700_000_000 * SECOND, names)
    bound = stack.enter_context(made).address
    assert bound is not None
    return bound


def export_port(address: Address, stack: ExitStack, names: tuple[str, ...] = ()) -> Address:
    server = serve(LatestReleases(), address, names)
    stack.callback(server.close)
    return server.address


Open = Callable[..., Address]
PORTS = {"metrics": metrics_port, "export": export_port}


@pytest.fixture(params=PORTS)
def opened(request: pytest.FixtureRequest) -> Open:
    return PORTS[request.param]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def say(address: Address, text: str) -> bytes:
    """Return all that is answered to a text until the connection ends."""
    with socket.create_connection(address, timeout=MINUTES) as connection:
        connection.sendall(text.encode("latin-1"))
        answer = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                answer += piece
    return answer


def asked_as(address: Address, host: str) -> bytes:
    return say(address, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").partition(b"\r\n")[0]


@pytest.mark.parametrize("most", [16, 80])
def test_slow_connections_do_not_block_a_probe(opened: Open, stack: ExitStack, most: int) -> None:
    address = opened(("127.0.0.1", 0), stack)
    slow = [stack.enter_context(socket.create_connection(address, timeout=MINUTES)) for _ in range(most)]
    done = Event()

    def trickle() -> None:
        while not done.wait(0.05):
            for connection in slow:
                with suppress(OSError):
                    connection.send(b"G")

    sender = Thread(target=trickle)
    sender.start()
    try:
        for _ in range(20):
            assert b" 200 " in asked_as(address, "127.0.0.1")
    finally:
        done.set()
        sender.join()


def test_a_port_holds_64_connections_and_closes_the_oldest_for_another(stack: ExitStack) -> None:
    server = PlainServer(("127.0.0.1", 0), (), lambda path: Answer(200, path.encode()))
    stack.callback(server.close)

    def connected() -> socket.socket:
        return stack.enter_context(socket.create_connection(server.address, timeout=MINUTES))

    def answered(connection: socket.socket) -> bool:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")

    first, second, *_ = [connected() for _ in range(64)]
    wait_until(lambda: len(server.open) == 64, "64 connections")
    oldest = next(iter(server.open))
    assert answered(connected())
    assert oldest not in server.open
    with suppress(ConnectionResetError):
        assert first.recv(1) == b""
    assert answered(second)


def test_a_request_has_one_deadline_however_often_it_says_something(
    opened: Open, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.monitoring.plain_http.WITHIN", 1.0)
    address = opened(("127.0.0.1", 0), stack)
    connection = stack.enter_context(socket.create_connection(address, timeout=0.02))
    until = time.monotonic() + MINUTES
    while time.monotonic() < until:
        try:
            connection.send(b"G")
            assert connection.recv(1) == b""
            return
        except TimeoutError:
            continue
        except OSError:
            return
    pytest.fail("the connection is still open after minutes")


def test_a_head_without_an_end_is_refused(opened: Open, stack: ExitStack) -> None:
    address = opened(("127.0.0.1", 0), stack)
    assert b" 431 " in say(address, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + 9000 * "x")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9105", "127.0.0.1.evil.example", "", "[evil]:9105"])
def test_a_host_that_is_no_name_of_the_service_is_refused(opened: Open, stack: ExitStack, host: str) -> None:
    address = opened(("127.0.0.1", 0), stack)
    assert b" 400 " in asked_as(address, host)


def test_no_host_and_two_hosts_are_refused(opened: Open, stack: ExitStack) -> None:
    address = opened(("127.0.0.1", 0), stack)
    assert b" 400 " in say(address, "GET /metrics HTTP/1.1\r\n\r\n")
    assert b" 400 " in say(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "LOCALHOST:9105", "10.1.2.3:9105", "[::1]", "[fd00::1]:9105", "tacet.example"]
)
def test_an_address_localhost_and_a_given_name_are_good(opened: Open, stack: ExitStack, host: str) -> None:
    address = opened(("127.0.0.1", 0), stack, ("Tacet.example",))
    assert b" 200 " in asked_as(address, host)


@pytest.mark.parametrize("text", ["x\r\n\r\n", "GET\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", "GET / HTTP/9\r\n\r\n"])
def test_what_is_no_request_is_refused_and_others_are_answered(opened: Open, stack: ExitStack, text: str) -> None:
    address = opened(("127.0.0.1", 0), stack)
    assert b" 400 " in say(address, text)
    assert b" 200 " in asked_as(address, "127.0.0.1")


def test_a_server_that_is_closed_as_soon_as_it_starts_ends_quietly() -> None:
    """An exception in its thread fails this test."""
    for _ in range(100):
        PlainServer(("127.0.0.1", 0), (), lambda path: Answer(200, path.encode())).close()


def test_a_closed_port_ends_its_connections_and_accepts_no_more(stack: ExitStack) -> None:
    server = PlainServer(("127.0.0.1", 0), (), lambda path: Answer(200, path.encode()))
    connection = stack.enter_context(socket.create_connection(server.address, timeout=MINUTES))
    wait_until(lambda: len(server.open) == 1, "the connection")
    server.close()
    with suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.address, timeout=MINUTES)
