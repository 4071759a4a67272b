"""Kafka as the log: partitions, topics, the sink, and readers that see each record once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.partitioner import DefaultPartitioner

from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.topic_readers import last_snapshot, last_snapshots, read_range
from connectors.storage.kafka.topic_settings import topic_config
from connectors.storage.kafka.topic_tail import consume
from connectors.storage.kafka.topics import create_topics
from stream.engine.ports import LossError
from stream.errors import FinalityError, UsageError
from stream.records import Heartbeat
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, SNAPSHOT, private_topic
from tests.integration.kafka_brokers import Broker
from tests.integration.storm import by_offset, records
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.patience import waiting_for

# Vectors of Apache Kafka's own test of its murmur2 (org.apache.kafka.common.utils.UtilsTest).
MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("site", "hashed"), MURMUR2.items())
def test_a_site_goes_where_kafkas_default_partitioner_sends_it(site: str, hashed: int) -> None:
    for partitions in (1, 4, 7, 64):
        assert partition_of(site, partitions) == (hashed & 0x7FFFFFFF) % partitions


def test_snapshots_are_compacted_within_ten_minutes_and_may_be_16_mib() -> None:
    config = topic_config(SNAPSHOT)
    assert config["cleanup.policy"] == "compact,delete"
    assert int(config["segment.ms"]) + int(config["max.compaction.lag.ms"]) <= 10 * 60 * 1000
    assert int(config["max.message.bytes"]) >= 16 << 20


def test_what_ingests_write_is_unpacked_by_the_broker() -> None:
    assert {topic_config(name)["compression.type"] for name in (OBSERVATIONS, CONTROL)} == {"uncompressed"}


def test_observations_are_kept_a_day_and_the_audit_for_ever() -> None:
    assert topic_config(OBSERVATIONS)["retention.ms"] == str(24 * 3600 * 1000)
    assert topic_config(AUDIT)["retention.ms"] == "-1"
    assert topic_config(private_topic("a", "r"), private_retention_ms=5000)["retention.ms"] == "5000"


@on_any_broker
async def test_topics_are_created_with_their_settings_and_never_altered(broker: AnyBroker, prefix: str) -> None:
    private = private_topic(prefix, "occupancy")
    names = [SNAPSHOT, private]
    first = await create_topics(broker.bootstrap, names, partitions=4)
    again = await create_topics(broker.bootstrap, names, partitions=4)
    assert private in first.created
    assert set(again.existing) == set(names)
    assert again.created == ()
    assert first.replication == 1
    with pytest.raises(UsageError, match=f"topic {SNAPSHOT}: must have 8 partitions like all others, has 4"):
        await create_topics(broker.bootstrap, [*names, f"{prefix}-new"], partitions=8)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, SNAPSHOT)])
    there = await admin.list_topics()
    await admin.close()
    settings = {row[0]: row[1] for row in answer.resources[0][4]}
    assert {name: settings[name] for name in topic_config(SNAPSHOT)} == topic_config(SNAPSHOT)
    assert f"{prefix}-new" not in there  # refused before anything was created


@on_any_broker
async def test_more_replicas_than_brokers_are_refused(broker: AnyBroker, prefix: str) -> None:
    with pytest.raises(UsageError, match=r"replication: must be in \[1, 1\]"):
        await create_topics(broker.bootstrap, [prefix], replication=2)


@on_any_broker
async def test_the_sink_keeps_the_order_of_calls_and_a_sites_partition(broker: AnyBroker, prefix: str) -> None:
    await create_topics(broker.bootstrap, [prefix], partitions=4)
    sink = KafkaSink(broker.bootstrap, topic=prefix)
    await sink.start()
    beats = [Heartbeat(f"site-{number % 3}", "10.0.0.1", 1, number, 0) for number in range(300)]
    await asyncio.gather(*map(sink.append, beats))
    there = await records(broker.bootstrap, prefix)  # before stop: append had returned, so all are durable
    await sink.stop()
    for site in ("site-0", "site-1", "site-2"):
        mine = [record for record in there if record.key == site.encode()]
        assert {record.partition for record in mine} == {DefaultPartitioner()(site.encode(), [0, 1, 2, 3], [])}
        marks = [orjson.loads(record.value)["watermark"] for record in mine]
        assert marks == [beat.watermark for beat in beats if beat.site == site]


@on_any_broker
async def test_the_sink_refuses_a_topic_that_does_not_exist(broker: AnyBroker, prefix: str) -> None:
    sink = KafkaSink(broker.bootstrap, topic=prefix)
    with pytest.raises(UsageError, match="does not exist; create it with 'tacet topics create'"):
        await sink.start()
    await sink.stop()


async def put(broker: AnyBroker, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=20 << 20)
    await producer.start()
    for value in values:
        await producer.send_and_wait(topic, value, key=b"s", partition=partition)
    await producer.stop()


@on_any_broker
async def test_a_reader_sees_each_release_once_and_stops_at_the_end(broker: AnyBroker, prefix: str) -> None:
    await create_topics(broker.bootstrap, [prefix], partitions=4)
    one, two = b'{"release_id":"a","x":1}', b'{"release_id":"b","x":1}'
    await put(broker, prefix, one, two, one, two, one)
    seen = [record.value async for record in consume(broker.bootstrap, prefix, until_end=True)]
    assert seen == [one, two]
    everything = [r.value async for r in consume(broker.bootstrap, prefix, until_end=True, identity=by_offset)]
    assert everything == [one, two, one, two, one]


@on_any_broker
async def test_a_copy_that_differs_is_an_error_and_not_a_copy(broker: AnyBroker, prefix: str) -> None:
    await create_topics(broker.bootstrap, [prefix], partitions=4)
    await put(broker, prefix, b'{"release_id":"a","x":1}', b'{"release_id":"a","x":2}')
    with pytest.raises(FinalityError, match="partition 0, offset 1"):
        [record async for record in consume(broker.bootstrap, prefix, until_end=True)]


@on_any_broker
async def test_a_reader_from_the_end_sees_only_what_comes_later(broker: AnyBroker, prefix: str) -> None:
    await create_topics(broker.bootstrap, [prefix], partitions=4)
    await put(broker, prefix, b'{"release_id":"a"}')
    following = consume(broker.bootstrap, prefix, from_start=False)
    assert isinstance(following, AsyncGenerator)
    waiting = asyncio.ensure_future(anext(following))
    later = 0
    async with waiting_for("a record that came behind the end"):
        while not waiting.done():  # until it has found the end, what comes is before it
            later += 1
            await put(broker, prefix, b'{"release_id":"b%d"}' % later)
            await asyncio.wait([waiting], timeout=0.2)
    assert waiting.result().value.startswith(b'{"release_id":"b')
    await following.aclose()


@on_any_broker
async def test_the_last_snapshot_is_read_and_a_large_one_too(broker: AnyBroker, prefix: str) -> None:
    await create_topics(broker.bootstrap, [SNAPSHOT], partitions=4)
    large = bytes(range(256)) * (60 << 10)  # 15 MiB
    await put(broker, SNAPSHOT, b"old", b"new", partition=1)
    await put(broker, SNAPSHOT, b"old", large, partition=2)
    assert await last_snapshot(broker.bootstrap, 1) == b"new"
    found = await last_snapshots(broker.bootstrap)
    assert found[1] == b"new"
    assert found[2] == large


@pytest.mark.kafka
async def test_a_small_message_that_unpacks_to_more_than_its_topic_allows_is_refused(kafka: Broker) -> None:
    """Ingests write these topics; a worker that had to unpack such a message would run out of memory at each start."""
    topics = [OBSERVATIONS, CONTROL]
    await create_topics(kafka.bootstrap, topics, partitions=1)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, compression_type="zstd", max_request_size=1 << 28, max_batch_size=1 << 28
    )
    await producer.start()
    try:
        for topic in topics:
            await producer.send_and_wait(topic, bytes(900_000), key=b"junk", partition=0)
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(64 << 20), key=b"junk", partition=0)
    finally:
        await producer.stop()


@on_any_broker
async def test_a_range_read_is_whole_or_a_loss(broker: AnyBroker, prefix: str) -> None:
    await create_topics(broker.bootstrap, [prefix], partitions=2)
    await put(broker, prefix, b"0", b"1", b"2", partition=1)
    assert await read_range(broker.bootstrap, prefix, 1, 1) == ([b"1", b"2"], 3)
    assert await read_range(broker.bootstrap, prefix, 1, 3) == ([], 3)
    with pytest.raises(LossError, match=r"offset 4 is needed, the log holds \[0, 3\)"):
        await read_range(broker.bootstrap, prefix, 1, 4)
