"""Three brokers: a leader that hangs, too few copies, an unclean election, and a stall of the workers besides.

One broker that is lost for good is in the storm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topic_readers import end_offsets, last_snapshot
from connectors.storage.kafka.topic_settings import topic_config
from connectors.storage.kafka.topic_tail import consume
from connectors.storage.kafka.topics import create_topics
from connectors.storage.kafka.writers import EngineTopics, KafkaWriterFactory
from stream.engine.outputs import OutputRecord
from stream.engine.ports import InterruptedWriteError
from stream.schemas import OBSERVATIONS, private_topic
from tests.acceptance.command_line import tacet
from tests.integration.kafka_brokers import JavaCluster
from tests.integration.kafka_topics import administrator, create_as_given, delete_topics
from tests.integration.two_writers import (
    PARTITIONS,
    Scenario,
    all_out,
    assert_one_history,
    findings,
    later_out,
    prepared,
    send_an_hour_more,
)
from tests.support.patience import PATIENCE, wait_until, waiting_for

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def scenario(three_brokers: JavaCluster, tmp_path: Path) -> Iterator[Scenario]:
    with prepared(three_brokers, tmp_path) as scenario:
        yield scenario


async def leader(kafka: JavaCluster, topic: str, partition: int) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    (told,) = await admin.describe_topics([topic])
    await admin.close()
    return next(int(part["leader"]) for part in told["partitions"] if part["partition"] == partition)


def test_a_leader_that_hangs_holds_up_nobody_for_longer_than_its_replacement_and_a_session(
    scenario: Scenario, three_brokers: JavaCluster
) -> None:
    """Its connections stay open and answer nothing, to the end: each process waits for it once, and then never more.

    All that is sent meanwhile is released while it still hangs.
    """
    worker = scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka), "the worker must work")
    at = TopicPartition(OBSERVATIONS, partition_of("east", PARTITIONS))
    old = asyncio.run(leader(three_brokers, at.topic, at.partition))
    hanging = three_brokers.brokers[old]
    hanging.pause()
    try:
        send_an_hour_more(scenario)
        wait_until(lambda: later_out(scenario.kafka), "it must go on while the leader hangs")
    finally:
        hanging.resume()
    assert scenario.log().count(f"{hanging.bootstrap} hangs") == 1
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0  # what is compared must not grow between two readings
    assert_one_history(scenario.kafka)


async def test_with_too_few_in_sync_replicas_nothing_is_published_and_it_goes_on_when_there_are_enough(
    three_brokers: JavaCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write counts as interrupted, so a worker opens the partition again; nobody reads half a window."""
    monkeypatch.setattr("connectors.storage.kafka.transactions.COMMIT_TIMEOUT", 5.0)
    servers, private = three_brokers.bootstrap, private_topic(prefix, "occupancy")
    topics = EngineTopics(f"{prefix}-source", f"{prefix}-snapshot", f"{prefix}-audit")
    await create_topics(servers, [topics.snapshot, topics.audit, private], partitions=1)
    entry = OutputRecord(topics.audit, b"east", b'{"release_id": "a"}', 0, True, "east/0")
    record = OutputRecord(private, b"east", b'{"release_id": "a"}', 0, True, f"east/occupancy/{prefix}/x")
    journal = KafkaWriterFactory(servers, fence=prefix, topics=topics)
    async with administrator(servers) as admin:
        setting = {"min.insync.replicas": "3"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, private, setting)])
    three_brokers.kill()
    try:
        writer = await journal.acquire(0)
        with pytest.raises(InterruptedWriteError):
            await writer.commit([entry, record], b"state")
        await writer.close()
    finally:
        await asyncio.to_thread(three_brokers.start)
    async with waiting_for("a commit with enough replicas"):
        while await last_snapshot(servers, 0, topic=topics.snapshot) is None:
            writer = await journal.acquire(0)
            with suppress(InterruptedWriteError):
                await writer.commit([entry, record], b"state")
            await writer.close()
    for topic, value in ((topics.audit, entry.value), (private, record.value)):
        assert [one.value async for one in consume(servers, topic, until_end=True)] == [value]


async def on_two_brokers(kafka: JavaCluster, topic: str) -> None:
    """Make a topic anew with a copy on brokers 1 and 2 only; one copy is enough to write to it."""
    await delete_topics(kafka.bootstrap, [topic])
    places = {number: [1, 2] for number in range(PARTITIONS)}
    config = topic_config(topic) | {"min.insync.replicas": "1"}
    await create_as_given(kafka.bootstrap, NewTopic(topic, -1, -1, replica_assignments=places, topic_configs=config))


async def let_stale_copies_lead(kafka: JavaCluster, topic: str, allowed: bool) -> None:
    config = topic_config(topic) | {"min.insync.replicas": "1", "unclean.leader.election.enable": str(allowed).lower()}
    async with administrator(kafka.bootstrap) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config)])


def ends(kafka: JavaCluster, topic: str) -> dict[int, int]:
    return asyncio.run(end_offsets(kafka.bootstrap, topic))


def test_observations_that_an_unclean_election_took_away_are_a_loss_with_a_way_out(
    scenario: Scenario, three_brokers: JavaCluster
) -> None:
    """A worker refuses such a setting when it starts; here it is made later, on purpose."""
    asyncio.run(on_two_brokers(three_brokers, OBSERVATIONS))
    tacet("ingest", *scenario.words(), "--observations", scenario.folder / "rows.csv")
    worker = scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka), "the worker must work")
    asyncio.run(let_stale_copies_lead(three_brokers, OBSERVATIONS, allowed=True))
    first, second = three_brokers.brokers[1], three_brokers.brokers[2]
    before = ends(three_brokers, OBSERVATIONS)
    second.kill()
    send_an_hour_more(scenario)  # copies that broker 2 lacks
    wait_until(lambda: later_out(scenario.kafka), "the worker must go on with two brokers")
    first.kill()
    second.start()
    wait_until(lambda: ends(three_brokers, OBSERVATIONS) == before, "a leader without the newest observations")
    first.start()
    assert worker.wait(timeout=PATIENCE) == 1
    assert "messages that were read are gone; 'tacet worker --accept-loss' continues" in scenario.log()
    asyncio.run(let_stale_copies_lead(three_brokers, OBSERVATIONS, allowed=False))
    found = findings(scenario)
    assert found
    assert all("'tacet worker --accept-loss'" in each["ways"][0]["do"] for each in found)
    accepting = scenario.worker(*scenario.words(), "--accept-loss", log="accepting")
    wait_until(lambda: findings(scenario) == [], "a worker that accepts the loss must go on")
    accepting.terminate()
    assert accepting.wait(timeout=PATIENCE) == 0
    assert_one_history(scenario.kafka)
