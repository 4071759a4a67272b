"""Three brokers, each with a copy of everything: a leader that hangs, and one that is lost for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.client import partition_of
from stream.schemas import OBSERVATIONS
from tests.acceptance.command_line import tacet
from tests.integration.kafka_ground import JavaCluster
from tests.integration.writers_ground import PARTITIONS, Ground, all_out, assert_one_history, prepared, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(100)]


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


def test_a_leader_that_hangs_holds_up_nobody_for_longer_than_a_session(
    ground: Ground, three_brokers: JavaCluster
) -> None:
    """Its connections stay open and answer nothing: what waits for it must ask elsewhere."""
    worker = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the worker must work")
    hanging = three_brokers.brokers[asyncio.run(leader(three_brokers, OBSERVATIONS, partition_of("east", PARTITIONS)))]
    hanging.pause()
    import time

    t0 = time.monotonic()
    try:
        more(ground)
        print("ingested after", time.monotonic() - t0)
        wait_until(lambda: later_out(ground), "it must go on while the leader hangs", 120)
        print("went on after", time.monotonic() - t0)
    finally:
        hanging.resume()
    assert worker.poll() is None
    assert_one_history(ground.kafka)


def more(ground: Ground) -> None:
    rows = (ground.folder / "rows.csv").read_text().splitlines()
    extra = [f"2026-03-02T11:{minute:02d}:00Z,00:00:5e:00:53:01,02:00:00:00:0e:01,east" for minute in range(60)]
    (ground.folder / "more.csv").write_text("\n".join([*rows, *extra]) + "\n")
    tacet("ingest", *ground.words(), "--observations", ground.folder / "more.csv")


def later_out(ground: Ground) -> bool:
    from tests.integration.writers_ground import PRIVATE, SITES, bodies

    later = {(site, "2026-03-02T11:30:00Z") for site in SITES}
    return later <= {(body["site"], body["window_end"]) for body in bodies(ground.kafka, PRIVATE)}
