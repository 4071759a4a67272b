"""Three brokers, each with a copy of everything, and a leader that hangs; one lost for good is in the storm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from connectors.storage.kafka.client import partition_of
from stream.schemas import OBSERVATIONS
from tests.integration.kafka_ground import JavaCluster
from tests.integration.writers_ground import (
    PARTITIONS,
    Ground,
    all_out,
    assert_one_history,
    later_out,
    prepared,
    send_an_hour_more,
)
from tests.patience import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def ground(three_brokers: JavaCluster, tmp_path: Path) -> Iterator[Ground]:
    with prepared(three_brokers, tmp_path) as ground:
        yield ground


async def leader(kafka: JavaCluster, topic: str, partition: int) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    (told,) = await admin.describe_topics([topic])
    await admin.close()
    return next(int(part["leader"]) for part in told["partitions"] if part["partition"] == partition)


def test_a_leader_that_hangs_holds_up_nobody_for_longer_than_its_replacement_and_a_session(
    ground: Ground, three_brokers: JavaCluster
) -> None:
    """Its connections stay open and answer nothing, to the end: each process waits for it once, and then never more.

    All that is sent meanwhile is released while it still hangs.
    """
    worker = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the worker must work")
    at = TopicPartition(OBSERVATIONS, partition_of("east", PARTITIONS))
    old = asyncio.run(leader(three_brokers, at.topic, at.partition))
    hanging = three_brokers.brokers[old]
    hanging.pause()
    try:
        send_an_hour_more(ground)
        wait_until(lambda: later_out(ground.kafka), "it must go on while the leader hangs")
    finally:
        hanging.resume()
    assert ground.log().count(f"{hanging.bootstrap} hangs") == 1
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0  # what is compared must not grow between two readings
    assert_one_history(ground.kafka)
