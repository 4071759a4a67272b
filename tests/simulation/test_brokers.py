"""Simulated brokers behave as Kafka does, towards unmodified clients of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, NotEnoughReplicasError, ProducerFenced

from tests.simulation.kafka_brokers import Cluster
from tests.simulation.network import Network
from tests.simulation.processes import Process, World, guarded

TOPIC = "topic"
Work = Callable[[Cluster], Awaitable[None]]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers, with a topic of one partition on all of them."""
    world = World(1)
    with guarded(world):
        cluster = Cluster(world, Network(world))
        cluster.create(TOPIC, 1, 3, {"min.insync.replicas": "2"})
        yield cluster


def run(cluster: Cluster, *works: Work, seconds: float = 120.0) -> None:
    """Run clients, each in a process of its own, to their end."""
    processes = []
    for number, work in enumerate(works):

        async def main(work: Work = work) -> int:
            await work(cluster)
            return 0

        processes.append(Process(cluster.world, f"client-{number}"))
        processes[-1].start(main)
    cluster.world.run(lambda: all(process.exit_code is not None for process in processes), seconds)
    for process in processes:
        if process.failure is not None:
            raise process.failure
        assert process.exit_code == 0, f"{process.name} waits"


@asynccontextmanager
async def producing(cluster: Cluster, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def values(cluster: Cluster, *, committed: bool = True, wait: float = 1.0) -> list[bytes]:
    """Return the values that a reader from the beginning sees within so many seconds."""
    return [each.value for each in await records(cluster, committed=committed, wait=wait) if each.value is not None]


async def records(cluster: Cluster, *, committed: bool = True, wait: float = 1.0) -> list[Any]:
    """Return what a reader from the beginning sees within so many seconds."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    consumer.assign([TopicPartition(TOPIC, 0)])
    found: list[Any] = []
    for _ in range(5):
        batches = await consumer.getmany(timeout_ms=int(wait * 200))
        found += [record for each in batches.values() for record in each]
    await consumer.stop()
    return found


def test_a_transaction_is_seen_whole_or_not_at_all(cluster: Cluster) -> None:
    seen = {}

    async def work(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="writer") as producer:
            for value, commit in ((b"first", True), (b"second", False), (b"third", True)):
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, value)
                await (producer.commit_transaction if commit else producer.abort_transaction)()
        seen["committed"] = await values(cluster)
        seen["all"] = await values(cluster, committed=False)

    run(cluster, work)
    assert seen == {"committed": [b"first", b"third"], "all": [b"first", b"second", b"third"]}


def test_who_takes_over_a_transactional_id_fences_the_one_before_and_aborts_its_transaction(cluster: Cluster) -> None:
    seen: list[bytes] = []

    async def work(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="writer") as former:
            await former.begin_transaction()
            await former.send_and_wait(TOPIC, b"former")
            async with producing(cluster, transactional_id="writer") as heir:
                await heir.begin_transaction()
                await heir.send_and_wait(TOPIC, b"heir")
                await heir.commit_transaction()
            with pytest.raises(ProducerFenced):
                await former.send_and_wait(TOPIC, b"late")
        seen.extend(await values(cluster))

    run(cluster, work)
    assert seen == [b"heir"]


def test_an_open_transaction_holds_back_what_comes_after_it(cluster: Cluster) -> None:
    seen = []

    async def work(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="slow") as slow, producing(cluster) as other:
            await slow.begin_transaction()
            await slow.send_and_wait(TOPIC, b"slow")
            await other.send_and_wait(TOPIC, b"other")
            seen.append(await values(cluster))
            await slow.commit_transaction()
            seen.append(await values(cluster))

    run(cluster, work)
    assert seen == [[], [b"slow", b"other"]]


def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster) -> None:
    async def work(cluster: Cluster) -> None:
        slow = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap, transactional_id="slow", transaction_timeout_ms=5_000
        )
        await slow.start()
        await slow.begin_transaction()
        await slow.send_and_wait(TOPIC, b"slow")
        await asyncio.sleep(20.0)
        with pytest.raises(ProducerFenced):
            await slow.commit_transaction()

    run(cluster, work)
    assert [record.committed for record in cluster.topics[TOPIC][0].records()] == [False]


def test_a_write_whose_answer_is_lost_is_sent_again_and_stored_once(cluster: Cluster) -> None:
    async def work(cluster: Cluster) -> None:
        async with producing(cluster, enable_idempotence=True) as producer:
            await producer.send_and_wait(TOPIC, b"before")
            cluster.lost_answers = 0.3
            for number in range(20):
                await producer.send_and_wait(TOPIC, b"%d" % number)
            cluster.lost_answers = 0.0

    run(cluster, work)
    assert any("loses its answer to Produce" in line for line in cluster.world.trace.lines)
    found = [record.value for record in cluster.topics[TOPIC][0].records()]
    assert found == [b"before", *(b"%d" % number for number in range(20))]


def test_what_is_acknowledged_survives_the_end_of_its_leader(cluster: Cluster) -> None:
    partition = cluster.topics[TOPIC][0]

    async def work(cluster: Cluster) -> None:
        async with producing(cluster, enable_idempotence=True, request_timeout_ms=60_000) as producer:
            for number in range(30):
                await producer.send_and_wait(TOPIC, b"%d" % number)
                if number == 10:
                    assert partition.leader is not None
                    cluster.brokers[partition.leader].kill()
                await asyncio.sleep(0.1)

    run(cluster, work)
    assert partition.leader_epoch > 0
    assert [record.value for record in partition.records()] == [b"%d" % number for number in range(30)]


def test_too_few_replicas_refuse_writes_and_an_unclean_leader_loses_acknowledged_ones() -> None:
    world = World(1)
    with guarded(world):
        cluster = Cluster(world, Network(world))
        config = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
        cluster.create(TOPIC, 1, 3, config)
        partition = cluster.topics[TOPIC][0]

        async def work(cluster: Cluster) -> None:
            async with producing(cluster, request_timeout_ms=5_000) as producer:
                await producer.send_and_wait(TOPIC, b"everywhere")
                cluster.brokers[3].kill()
                await asyncio.sleep(1.0)
                await producer.send_and_wait(TOPIC, b"on two")
                cluster.brokers[2].kill()
                await asyncio.sleep(1.0)
                with pytest.raises((NotEnoughReplicasError, KafkaError)):
                    await producer.send_and_wait(TOPIC, b"refused")
                cluster.brokers[1].kill()
                await asyncio.sleep(1.0)
                cluster.brokers[3].recover()
                await asyncio.sleep(1.0)

        run(cluster, work)
        assert partition.leader == 3
        assert [record.value for record in partition.records()] == [b"everywhere"]
        assert any("acknowledged records" in line for line in world.trace.lines)


def test_a_silent_member_loses_its_partitions_to_the_others(cluster: Cluster) -> None:
    cluster.create("shared", 4, 3, {})
    seen: list[int] = []

    def member(lasting: float) -> Work:
        async def work(cluster: Cluster) -> None:
            consumer = AIOKafkaConsumer(
                "shared", bootstrap_servers=cluster.bootstrap, group_id="group", session_timeout_ms=6_000
            )
            await consumer.start()
            await asyncio.sleep(lasting)
            seen.append(len(consumer.assignment()))
            await consumer.stop()

        return work

    def cut() -> None:
        for broker in cluster.brokers.values():
            cluster.network.cut_link("client-1", broker.host)

    def mend() -> None:
        for broker in cluster.brokers.values():
            cluster.network.mend_link("client-1", broker.host)

    cluster.world.after(10.0, cut)
    cluster.world.after(28.0, mend)
    run(cluster, member(25.0), member(60.0))
    assert seen == [4, 4]
    assert any("is silent" in line for line in cluster.world.trace.lines)


def test_a_broker_that_hangs_answers_when_it_goes_on(cluster: Cluster) -> None:
    partition = cluster.topics[TOPIC][0]

    async def work(cluster: Cluster) -> None:
        async with producing(cluster, enable_idempotence=True, request_timeout_ms=60_000) as producer:
            await producer.send_and_wait(TOPIC, b"before")
            assert partition.leader is not None
            broker = cluster.brokers[partition.leader]
            broker.hang()
            cluster.world.after(3.0, broker.recover)
            begin = cluster.world.now
            await producer.send_and_wait(TOPIC, b"after")
            assert cluster.world.now - begin >= 3.0

    run(cluster, work)
    assert [record.value for record in partition.records()] == [b"before", b"after"]


def test_compaction_leaves_the_newest_committed_record_of_each_key_at_its_offset(cluster: Cluster) -> None:
    """The transaction from offset 6 on is aborted; marks of transactions stay."""
    seen: list[list[tuple[int, bytes | None]]] = []

    async def work(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="writer", compression_type="zstd") as producer:
            for keys, commit in ((b"abc", True), (b"b", True), (b"ab", False), (b"ab", True)):
                await producer.begin_transaction()
                for key in keys:
                    await producer.send(TOPIC, bytes([key]), key=bytes([key]))
                await (producer.commit_transaction if commit else producer.abort_transaction)()
        for _ in range(2):
            seen.append([(record.offset, record.value) for record in await records(cluster)])
            cluster.topics[TOPIC][0].compact()

    run(cluster, work)
    assert seen == [
        [(0, b"a"), (1, b"b"), (2, b"c"), (4, b"b"), (9, b"a"), (10, b"b")],
        [(2, b"c"), (9, b"a"), (10, b"b")],
    ]
    assert [record.offset for record in cluster.topics[TOPIC][0].history()] == [0, 1, 2, 4, 6, 7, 9, 10]


def test_an_open_transaction_holds_compaction_back(cluster: Cluster) -> None:
    async def work(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="slow") as slow, producing(cluster) as other:
            await other.send_and_wait(TOPIC, b"before", key=b"key")
            await slow.begin_transaction()
            await slow.send_and_wait(TOPIC, b"slow", key=b"key")
            for value in (b"after", b"last"):
                await other.send_and_wait(TOPIC, value, key=b"key")
            cluster.topics[TOPIC][0].compact()
            await slow.commit_transaction()

    run(cluster, work)
    assert [record.value for record in cluster.topics[TOPIC][0].records()] == [b"before", b"slow", b"after", b"last"]


def test_the_leaders_clock_gives_append_times_and_the_coordinators_ends_transactions(cluster: Cluster) -> None:
    cluster.create("timed", 1, 3, {"message.timestamp.type": "LogAppendTime"})
    stamps: list[int] = []

    async def work(cluster: Cluster) -> None:
        slow = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="slow")
        await slow.start()
        await slow.begin_transaction()
        for ahead in (0.0, 3600.0):
            for broker in cluster.brokers.values():
                broker.clock_offset = ahead
            stamps.append((await slow.send_and_wait("timed", b"")).timestamp)
        await asyncio.sleep(20.0)
        with pytest.raises(ProducerFenced):
            await slow.commit_transaction()

    run(cluster, work)
    assert 3_600_000 <= stamps[1] - stamps[0] < 3_601_000


def test_a_topic_that_grows_keeps_its_records_and_clients_learn_of_its_partitions(cluster: Cluster) -> None:
    async def work(cluster: Cluster) -> None:
        async with producing(cluster, metadata_max_age_ms=1000) as producer:
            await producer.send_and_wait(TOPIC, b"before")
            cluster.grow(TOPIC)
            await asyncio.sleep(3.0)
            assert await producer.partitions_for(TOPIC) == {0, 1}
            await producer.send_and_wait(TOPIC, b"after", partition=1)

    run(cluster, work)
    assert [[record.value for record in each.records()] for each in cluster.topics[TOPIC]] == [[b"before"], [b"after"]]
