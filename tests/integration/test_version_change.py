"""From one mechanism version to the next on a real broker: the former was killed in a window that it had begun."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from connectors.kafka.client import partition_of
from stream.messages import encode_message
from stream.records import Heartbeat
from stream.schemas import AUDIT, OBSERVATIONS, QUARANTINE
from tests.acceptance.command_line import tacet
from tests.integration.chain_storm import ROOT
from tests.integration.kafka_ground import Broker
from tests.integration.storm import is_stopped
from tests.integration.writers_ground import (
    PARTITIONS,
    PRIVATE,
    SITES,
    Ground,
    all_out,
    assert_one_history,
    bodies,
    findings,
    later_out,
    prepared,
    send_an_hour_more,
    wait_until,
)
from tests.later_version import LATER, NOW

pytestmark = pytest.mark.kafka


@pytest.fixture
def ground(kafka: Broker, tmp_path: Path) -> Iterator[Ground]:
    with prepared(kafka, tmp_path) as ground:
        yield ground


def later(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``tacet`` of the version to come to its end."""
    line = [sys.executable, "-m", "tests.later_version", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=120, check=False)


def later_findings(ground: Ground) -> list[dict[str, Any]]:
    return list(orjson.loads(later("recover", *ground.words(), "--json").stdout)["findings"])


@pytest.mark.timeout(300)
def test_a_version_begins_only_when_the_one_before_has_finished_what_it_began(ground: Ground) -> None:
    killed = ground.worker(*ground.words(), stop_at=f"{PRIVATE}:2")
    wait_until(lambda: is_stopped(killed), "the worker must come so far")
    killed.kill()
    killed.wait()
    before = bodies(ground.kafka, AUDIT)

    refused = later("worker", *ground.words(), "--accept-policy")
    assert refused.returncode == 2
    assert f"must be {NOW}, under which" in refused.stderr
    assert f"start version {NOW} once more" in refused.stderr
    begun = [found["what"] for found in later_findings(ground)]
    assert begun
    assert any(f"which mechanism version {NOW} made; that version has to finish" in what for what in begun), begun
    assert findings(ground) == []
    assert bodies(ground.kafka, AUDIT) == before

    finishing = ground.worker(*ground.words(), log="finishing")
    wait_until(lambda: all_out(ground.kafka), ground.log("finishing")[-2000:])
    finishing.terminate()
    assert finishing.wait(20) == 0

    assert later("worker", *ground.words()).returncode == 2, "without consent"
    send_an_hour_more(ground)
    ground.worker(*ground.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: later_out(ground.kafka), ground.log("later")[-2000:])
    assert_one_history(ground.kafka)
    back = tacet("worker", *ground.words(), "--accept-policy", code=2).stderr
    assert f"to go on from, got {LATER}; 'tacet recover' says" in back
    assert any(f"made by mechanism version {LATER}" in found["what"] for found in findings(ground))


async def beat_of_a_version_to_come(ground: Ground) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=ground.kafka.bootstrap)
    await producer.start()
    for site in SITES:
        beat = encode_message(Heartbeat(site, "127.0.0.1", 1, 1_772_460_000_000_000, 0)).replace(b'{"v":1,', b'{"v":3,')
        await producer.send_and_wait(OBSERVATIONS, beat, key=site.encode(), partition=partition_of(site, PARTITIONS))
    await producer.stop()


@pytest.mark.timeout(300)
def test_a_worker_loses_nothing_of_what_a_later_version_has_sent_and_that_goes_on_where_it_stops(
    ground: Ground,
) -> None:
    """An ingest was upgraded before the workers."""
    asyncio.run(beat_of_a_version_to_come(ground))
    older = ground.worker(*ground.words(), log="older")
    wait_until(lambda: older.poll() is not None, "it must stop", 120)
    assert older.returncode == 3
    assert "message: must be of version 2 or before, got 3, which a later version" in ground.log("older")
    assert bodies(ground.kafka, QUARANTINE) == []
    assert any("is of a later version" in found["what"] for found in findings(ground))
    send_an_hour_more(ground)
    ground.worker(*ground.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: all_out(ground.kafka) and later_out(ground.kafka), ground.log("later")[-2000:])
    assert_one_history(ground.kafka)
    assert bodies(ground.kafka, QUARANTINE) == []


@pytest.mark.timeout(300)
def test_workers_of_the_version_before_that_still_run_end_when_the_next_begins(ground: Ground) -> None:
    running = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the first must work")
    ground.worker(*ground.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: running.poll() == 2, "it must find out")
    assert f"mechanism version: must be {LATER}, which has been accepted meanwhile, got {NOW}" in ground.log()
    send_an_hour_more(ground)
    wait_until(lambda: later_out(ground.kafka), ground.log("later")[-2000:])
    assert_one_history(ground.kafka)
