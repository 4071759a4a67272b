"""Three brokers, each with a copy of everything, and a leader that hangs; one lost for good is in the storm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.client import partition_of, partitions_of, reader_of
from stream.schemas import OBSERVATIONS
from tests.integration.kafka_ground import JavaCluster
from tests.integration.writers_ground import (
    PARTITIONS,
    SESSION,
    Ground,
    all_out,
    assert_one_history,
    later_out,
    prepared,
    send_an_hour_more,
    wait_until,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LOADED = 20.0
"""Seconds for a machine on which much else runs; where nothing does it takes three from the new leader on."""


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


class Passing(NamedTuple):
    """What happened while a leader hung, in seconds since it began to."""

    led_elsewhere: float
    sent: float
    released: float


async def _led_by_another(kafka: JavaCluster, at: TopicPartition, old: int) -> float:
    """Return when the cluster has named another leader: until then nothing can be written or read there."""
    async with reader_of(kafka.bootstrap) as reader:
        client = reader._client
        while client.cluster.leader_for_partition(at) in (old, None, -1):
            await partitions_of(client, at.topic)
            await asyncio.sleep(0.1)
    return time.monotonic()


async def passing(ground: Ground, kafka: JavaCluster, at: TopicPartition, old: int) -> Passing:
    """Start an ingest now and let it end, let the worker release what it sent."""
    began = time.monotonic()
    moving = asyncio.create_task(_led_by_another(kafka, at, old))
    await asyncio.to_thread(send_an_hour_more, ground)
    sent = time.monotonic()
    await asyncio.to_thread(wait_until, lambda: later_out(ground.kafka), "it must go on while the leader hangs", 90)
    released = time.monotonic()
    return Passing(*(moment - began for moment in (await moving, sent, released)))


def test_a_leader_that_hangs_holds_up_nobody_for_longer_than_its_replacement_and_a_session(
    ground: Ground, three_brokers: JavaCluster
) -> None:
    """Its connections stay open and answer nothing, to the end: each process waits for it once, and then never more.

    What the broker's own failover takes nobody can be spared. The rest is two waits, half a session timeout
    together, and the work itself; what is added to the bound is for a machine on which much else runs.
    """
    worker = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the worker must work")
    at = TopicPartition(OBSERVATIONS, partition_of("east", PARTITIONS))
    old = asyncio.run(leader(three_brokers, at.topic, at.partition))
    hanging = three_brokers.brokers[old]
    hanging.pause()
    try:
        passed = asyncio.run(passing(ground, three_brokers, at, old))
    finally:
        hanging.resume()
    print("\nseconds:", *(f"{name} {value:.1f}" for name, value in passed._asdict().items()))
    assert ground.log().count(f"{hanging.bootstrap} hangs") == 1
    assert passed.released < passed.led_elsewhere + SESSION + LOADED, passed
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(timeout=120) == 0  # what is compared must not grow between two readings
    assert_one_history(ground.kafka)
