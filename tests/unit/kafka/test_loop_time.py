"""Only time in which this process's event loop runs counts against a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError

from connectors.storage.kafka.aiokafka_client import BROKER_HEALTH, AnsweringConnection
from tests.support.virtual_loop import run_virtually, virtual_loop

ADDRESS = ("broker.invalid", 9092)
WAIT = 1.5
"""Seconds: a quarter of a session timeout of 6 s."""
PAUSE = 22.0
HOPS = 5
"""Turns of a loop from bytes that can be read to the request that they answer."""


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BROKER_HEALTH, "silence", WAIT)
    monkeypatch.setattr(BROKER_HEALTH, "answer_timeout", WAIT)
    monkeypatch.setattr(BROKER_HEALTH, "_hanging", set())


def arrives_after(pause_at: float, answer: asyncio.Future[str], hops: int = HOPS) -> None:
    """Pause the process at a moment, while an answer comes that it reads when it runs again."""
    loop = virtual_loop()

    def hop(left: int) -> None:
        if left:
            loop.call_soon(hop, left - 1)
        elif not answer.done():
            answer.set_result("answered")

    def pause() -> None:
        loop.pause(PAUSE)
        loop.call_soon(hop, hops)

    loop.call_later(pause_at, pause)


def connected(monkeypatch: pytest.MonkeyPatch, answer: asyncio.Future[str]) -> tuple[AnsweringConnection, list[float]]:
    """Return a connection whose requests have this answer, and when its broker was asked whether it is there."""
    query: list[float] = []

    async def awaited() -> str:
        return await answer

    async def ask(self: Any) -> None:
        query.append(virtual_loop().now - 1000.0)

    monkeypatch.setattr(AIOKafkaConnection, "send", lambda *_: awaited())
    monkeypatch.setattr(AnsweringConnection, "_check_alive", ask)
    connection = AnsweringConnection(*ADDRESS)
    connection._greeted = True
    return connection, query


def in_virtual_time(test: Callable[[pytest.MonkeyPatch], Awaitable[None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Run a test on a loop with a clock of its own."""

    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            await test(monkeypatch)

        run_virtually(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_virtual_time
async def test_an_answer_that_came_while_the_process_was_paused_is_read_before_its_broker_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = virtual_loop().create_future()
    connection, query = connected(monkeypatch, answer)
    arrives_after(0.5, answer)
    assert await connection.send(None) == "answered"
    assert query == []


@in_virtual_time
async def test_a_broker_that_is_silent_while_the_process_runs_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = virtual_loop().create_future()
    connection, query = connected(monkeypatch, answer)
    virtual_loop().call_later(3.2 * WAIT, answer.set_result, "answered")
    assert await connection.send(None) == "answered"
    assert query == pytest.approx([WAIT, 2 * WAIT, 3 * WAIT])


@in_virtual_time
async def test_a_process_that_lacks_processors_waits_as_often_not_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its turns takes a second: ten seconds without an answer are no silence of the broker."""
    loop = virtual_loop()
    answer = loop.create_future()
    connection, query = connected(monkeypatch, answer)

    def busy(left: int) -> None:
        loop.pause(1.0)
        if left:
            loop.call_soon(busy, left - 1)
        else:
            arrives_after(0.0, answer)

    loop.call_soon(busy, 10)
    assert await connection.send(None) == "answered"
    assert query == []


@in_virtual_time
async def test_a_greeting_that_came_while_the_process_was_paused_is_no_hanging_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    greeting = virtual_loop().create_future()

    async def connect(_: Any) -> Any:
        return await greeting

    monkeypatch.setattr(AIOKafkaConnection, "connect", connect)
    arrives_after(0.5, greeting)
    assert await AnsweringConnection(*ADDRESS).connect() == "answered"
    assert not BROKER_HEALTH.hangs(ADDRESS)


@in_virtual_time
async def test_a_greeting_that_never_comes_is_a_hanging_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(AIOKafkaConnection, "connect", connect)
    started = virtual_loop().now
    with pytest.raises(TimeoutError):
        await AnsweringConnection(*ADDRESS).connect()
    assert virtual_loop().now - started == pytest.approx(WAIT)
    assert BROKER_HEALTH.hangs(ADDRESS)


@in_virtual_time
async def test_a_request_that_ends_cancelled_by_nobody_is_a_connection_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees a cancellation takes it for his own end, and says nothing."""
    answer = virtual_loop().create_future()
    connection, _ = connected(monkeypatch, answer)
    virtual_loop().call_later(0.5, answer.cancel)
    with pytest.raises(KafkaConnectionError):
        await connection.send(None)


@in_virtual_time
async def test_a_greeting_that_ends_cancelled_by_nobody_is_a_connection_error(monkeypatch: pytest.MonkeyPatch) -> None:
    greeting = virtual_loop().create_future()

    async def connect(_: Any) -> Any:
        return await greeting

    monkeypatch.setattr(AIOKafkaConnection, "connect", connect)
    virtual_loop().call_later(0.5, greeting.cancel)
    with pytest.raises(KafkaConnectionError):
        await AnsweringConnection(*ADDRESS).connect()


@in_virtual_time
async def test_a_cancellation_that_was_asked_for_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = connected(monkeypatch, virtual_loop().create_future())
    waiting = asyncio.ensure_future(connection.send(None))
    virtual_loop().call_later(0.5, waiting.cancel)
    await asyncio.wait({waiting})
    assert waiting.cancelled()


@in_virtual_time
async def test_aiokafkas_own_clock_that_ran_out_while_the_process_was_paused_blames_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(_: Any) -> Any:
        async with asyncio.timeout(11.0):
            virtual_loop().call_later(0.5, virtual_loop().pause, PAUSE)
            await asyncio.Event().wait()

    monkeypatch.setattr(AIOKafkaConnection, "connect", connect)
    with pytest.raises(KafkaConnectionError):
        await AnsweringConnection(*ADDRESS).connect()
    assert not BROKER_HEALTH.hangs(ADDRESS)
