"""Topics that a worker refuses, with the way out that it and ``tacet recover`` name."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from connectors.operations.recovery.cluster import read_cluster
from connectors.storage.kafka.cluster import join
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.topic_settings import topic_config
from connectors.storage.kafka.topics import create_topics, refuse_settings, topic_names
from stream.engine.partition import PartitionEngine
from stream.errors import UsageError
from stream.keys import fingerprint
from stream.records import Heartbeat
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import load_policy
from stream.schemas import AUDIT, OBSERVATIONS, SNAPSHOT
from tests.acceptance.command_line import POLICY as TEXT
from tests.integration.kafka_topics import clear_topics, create_as_given
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.small_building import laboratory

POLICY = load_policy(TEXT)
WEEK_MS = str(7 * 24 * 3600 * 1000)


async def create(broker: AnyBroker, topic: str, **settings: str) -> None:
    """Create the topics of the policy, one of them with other settings."""
    await clear_topics(broker.bootstrap)
    given = topic_config(topic) | {key.replace("_", "."): value for key, value in settings.items()}
    await create_as_given(broker.bootstrap, NewTopic(topic, 4, 1, topic_configs=given))
    await create_topics(broker.bootstrap, topic_names(POLICY), partitions=4)


@pytest.mark.parametrize(
    ("topic", "key", "right", "wrong"),
    [(OBSERVATIONS, "message.timestamp.type", "LogAppendTime", "CreateTime"), (AUDIT, "retention.ms", "-1", "3600000")],
)
@on_any_broker
async def test_settings_under_which_something_would_be_lost_are_refused(
    broker: AnyBroker, topic: str, key: str, right: str, wrong: str
) -> None:
    """What a message may claim is bounded by the broker's time, a producer's own bounds nothing; audits stay."""
    await create(broker, topic, **{key.replace(".", "_"): wrong})
    problem = f"topic {topic}: must have {key}={right}, has {wrong}"
    with pytest.raises(UsageError, match=f"{problem}; 'kafka-configs.sh"):
        await refuse_settings(broker.bootstrap, POLICY)
    (found,) = (await read_cluster(broker.bootstrap, None, POLICY)).topics
    assert found.what == problem
    assert f"--add-config {key}={right}" in found.remedies[0].do


@pytest.mark.parametrize("stamps", ["CreateTime", "LogAppendTime"])
@on_any_broker
async def test_an_ingest_sends_only_where_the_broker_stamps_what_comes(broker: AnyBroker, stamps: str) -> None:
    """The setting may change while it runs."""
    await create(broker, OBSERVATIONS, message_timestamp_type=stamps)
    sink = KafkaSink(broker.bootstrap)
    await sink.start()
    if stamps == "LogAppendTime":
        await sink.append(Heartbeat("east", "10.0.0.1", 1, 0))
    else:
        with pytest.raises(UsageError, match=r"must have message\.timestamp\.type=LogAppendTime; set it with"):
            await sink.append(Heartbeat("east", "10.0.0.1", 1, 0))
    await sink.stop()


@on_any_broker
async def test_observations_may_be_kept_for_longer(broker: AnyBroker) -> None:
    await create(broker, OBSERVATIONS, retention_ms=WEEK_MS)
    await refuse_settings(broker.bootstrap, POLICY)
    assert (await read_cluster(broker.bootstrap, None, POLICY)).topics == []


@on_any_broker
async def test_a_new_control_topic_hides_no_state_of_another_key(broker: AnyBroker) -> None:
    await create(broker, SNAPSHOT)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    state = PartitionEngine(POLICY, laboratory()).snapshot(0, 0)
    await producer.send_and_wait(SNAPSHOT, state, key=b"1", partition=1)
    await producer.stop()
    other = fingerprint(laboratory(2))
    with pytest.raises(UsageError, match=r"the state of partition 1 was made with; the control topic is new"):
        await join(broker.bootstrap, POLICY, other, MECHANISM_VERSION, accept_policy=False)
