"""The writer of a partition: under which name it writes, and what it reads of its partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import LeaderNotAvailableError

from connectors.storage.kafka import transactions, worker, writers
from connectors.storage.kafka.aiokafka_client import fetched_offsets
from connectors.storage.kafka.timeouts import TRANSACTION_TIMEOUT
from connectors.storage.kafka.writers import EngineTopics, KafkaWriterFactory

TOPICS = EngineTopics("source", "snapshot", "audit")


async def test_a_writer_has_the_producer_of_its_partitions_name_and_reads_that_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, ...]] = []

    def answers(name: str, answer: object) -> None:
        async def asked(*given: Any, **named: Any) -> object:
            calls.append((name, *given, named))
            return answer

        monkeypatch.setattr(writers, name, asked)

    producer = object()
    for name, answer in (
        ("transactional", producer), ("last_snapshot", b"state"), ("read_range", ([b"entry"], 8)),
        ("read_one", (b"key", b"value")), ("count_missing", 3),
    ):  # fmt: skip
        answers(name, answer)
    writer = await KafkaWriterFactory("servers", fence="tacet-engine", topics=TOPICS).acquire(5)
    assert writer._producer is producer
    assert await writer.last_snapshot() == b"state"
    assert await writer.audit_since(7) == ([b"entry"], 8)
    assert await writer.message(9) == (b"key", b"value")
    assert await writer.missing(1, 9) == 3
    assert calls == [
        ("transactional", "servers", "tacet-engine-5", {}), ("last_snapshot", "servers", 5, {"topic": "snapshot"}),
        ("read_range", "servers", "audit", 5, 7, {"committed": False}), ("read_one", "servers", "source", 5, 9, {}),
        ("count_missing", "servers", "source", 5, 1, 9, {}),
    ]  # fmt: skip


@pytest.mark.parametrize("answers", [True, False])
async def test_a_producer_of_an_id_is_returned_when_it_is_connected_and_else_closed(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    made, closed, given = object(), list[object](), dict[str, Any]()

    def producer_of(_: str, **options: Any) -> object:
        given.update(options)
        return made

    async def connect(*_: Any) -> None:
        if not answers:
            raise ConnectionError

    async def close(producer: object) -> None:
        closed.append(producer)

    for function in (producer_of, connect, close):
        monkeypatch.setattr(transactions, function.__name__, function)
    if answers:
        assert await transactions.transactional("servers", "one") is made
        assert closed == []
    else:
        with pytest.raises(ConnectionError):
            await transactions.transactional("servers", "one")
        assert closed == [made]
    assert given == {"transactional_id": "one", "transaction_timeout_ms": round(1000 * TRANSACTION_TIMEOUT)}


def test_a_worker_looks_at_the_tasks_of_its_consumer() -> None:
    def task(done: bool) -> Any:
        return SimpleNamespace(done=lambda: done)

    consumer = SimpleNamespace(
        _fetcher=SimpleNamespace(_fetch_task=task(True)), _coordinator=SimpleNamespace(_coordination_task=task(False)),
        _client=SimpleNamespace(_sync_task=None),
    )  # fmt: skip
    assert worker.WorkerClients().ended_tasks(consumer) == ["aiokafka's fetcher"]


@pytest.mark.parametrize("leader", [-1, None])
async def test_a_partition_without_a_leader_is_asked_of_nobody_and_looked_for_again(leader: int | None) -> None:
    looked = []

    async def look() -> None:
        looked.append(True)

    cluster = SimpleNamespace(leader_for_partition=lambda _: leader)
    owner = SimpleNamespace(_client=SimpleNamespace(cluster=cluster, force_metadata_update=look))
    with pytest.raises(LeaderNotAvailableError):
        await fetched_offsets(owner, TopicPartition("t", 0), 0, 1)
    assert looked == [True]
