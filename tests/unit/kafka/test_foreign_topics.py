"""The client of a foreign topic is always closed, and uncommitted positions are committed later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from connectors.sources import external_topic
from connectors.sources.external_topic import ExternalTopic
from connectors.storage.kafka import client


class Client:
    """A client of Kafka whose broker is away."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    async def stop(self) -> None:
        await self._fail()

    async def commit(self, offsets: Any) -> None:
        await self._fail()

    async def _fail(self) -> None:
        if self.error is None:
            await asyncio.Event().wait()
        else:
            raise self.error


def topic(error: BaseException | None) -> ExternalTopic:
    made = ExternalTopic("broker:9092", "traps", "group")
    made._reader = Client(error)
    return made


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KafkaError(), None], ids=["cancelled", "failed", "hangs"])
async def test_a_client_that_fails_to_close_raises_nothing(
    error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a broker is away aiokafka's own tasks were seen to end as cancelled, and so would whoever awaits them."""
    monkeypatch.setattr(client, "CLOSE_TIMEOUT", 0.01)
    made = topic(error)
    await made.close()
    await made.close()


@pytest.mark.parametrize("error", [KafkaError(), None], ids=["failed", "hangs"])
async def test_an_offset_that_is_not_committed_is_committed_later(
    error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_topic, "KEEP_WITHIN", 0.01)
    assert await topic(error).store_positions({0: 7}) is False


@pytest.mark.parametrize("end", ["error", "result"])
async def test_a_cancelled_commit_raises_the_cancellation_however_the_client_ends(end: str) -> None:
    committing, answered = asyncio.Event(), asyncio.Event()

    class LosesCancellation(Client):
        async def commit(self, offsets: Any) -> None:
            committing.set()
            try:
                await answered.wait()
            except asyncio.CancelledError:
                if end == "error":
                    raise KafkaError from None

    made = topic(None)
    made._reader = LosesCancellation(None)
    task = asyncio.create_task(made.store_positions({0: 7}))
    await committing.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_commit_that_is_answered_as_it_is_cancelled_raises_the_cancellation() -> None:
    """``asyncio.wait_for`` of Python 3.11 returns the result then, and the cancellation is lost."""
    tasks: list[asyncio.Task[bool]] = []

    class Answers(Client):
        async def commit(self, offsets: Any) -> None:
            await asyncio.sleep(0)
            tasks[0].cancel()

    made = topic(None)
    made._reader = Answers(None)
    tasks.append(asyncio.create_task(made.store_positions({0: 7})))
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
