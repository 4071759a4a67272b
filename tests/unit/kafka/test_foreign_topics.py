"""The client of a foreign topic is always closed, and uncommitted positions are committed later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from connectors.sources import external_topic
from connectors.sources.external_topic import ExternalTopic
from connectors.storage.kafka import client
from connectors.storage.kafka.aiokafka_client import AnsweringClient
from stream.errors import DataError


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


class Leader(Client):
    """A client whose broker leads three partitions, of which each has records 10 to 19."""

    def __init__(self, committed: dict[int, int | None], partitions: int = 3) -> None:
        super().__init__(None)
        self.offsets, self.partitions = committed, set(range(partitions))
        self.at: dict[int, int] = {}
        self.answered: float | None = None
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 10)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 20)

    async def committed(self, at: TopicPartition) -> int | None:
        return self.offsets[at.partition]

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.at[at.partition] = offset

    async def position(self, at: TopicPartition) -> int:
        return self.at[at.partition]

    def partitions_for_topic(self, topic: str) -> set[int]:
        return self.partitions

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        return {}

    def last_poll_timestamp(self, at: TopicPartition) -> float | None:
        return self.answered

    def highwater(self, at: TopicPartition) -> int:
        return 20


def led(committed: dict[int, int | None], partitions: int = 3) -> tuple[ExternalTopic, Leader]:
    made, leader = topic(None), Leader(committed, partitions)
    made._reader, made._places = leader, [TopicPartition("traps", number) for number in committed]
    return made, leader


async def test_reading_goes_on_at_the_committed_offset_first_at_the_end_and_at_the_beginning_after_a_loss() -> None:
    made, leader = led({0: None, 1: 10, 2: 20, 3: 9, 4: 21})
    await made._go_on()
    assert leader.at == {0: 20, 1: 10, 2: 20, 3: 10, 4: 10}


async def test_the_end_is_reached_where_every_leader_has_answered_lately_and_nothing_is_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_772_510_400
    monkeypatch.setattr(external_topic, "time", SimpleNamespace(time=lambda: float(now)))
    made, leader = led({0: 20, 1: 20, 2: 20})
    await made._go_on()
    assert await made.read(9) == ([], False), "no leader has answered"
    leader.answered = now * 1000 - 5_000
    assert await made.read(9) == ([], True)
    leader.at[1] = 19
    assert await made.read(9) == ([], False)
    leader.at[1], leader.answered = 20, now * 1000 - 5_001
    assert await made.read(9) == ([], False), "the leaders are away"


async def test_a_topic_that_has_got_more_partitions_is_not_read_on() -> None:
    made, _ = led({0: 20, 1: 20, 2: 20}, partitions=4)
    with pytest.raises(DataError, match="more partitions"):
        await made.read(9)


async def test_a_topic_is_read_with_the_credentials_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[type] = []

    async def connect(reader: Any, bootstrap: str) -> None:
        clients.append(type(reader._client))
        raise ConnectionError(bootstrap)

    monkeypatch.setattr(external_topic, "connect", connect)
    made = ExternalTopic("127.0.0.1:9", "traps", "group")
    with pytest.raises(ConnectionError):
        await made.open()
    await made.close()
    assert clients == [AnsweringClient]


async def test_a_closed_topic_has_stopped_its_client() -> None:
    made, leader = led({0: 20})
    await made.close()
    assert leader.stopped
