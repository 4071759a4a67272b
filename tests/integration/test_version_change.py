"""From one mechanism version to the next on a real broker: the former was killed in a window that it had begun."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from connectors.storage.kafka.client import partition_of
from stream.encoding import encode_message, sender_of
from stream.records import Heartbeat
from stream.schemas import AUDIT, OBSERVATIONS, QUARANTINE
from tests.acceptance.command_line import tacet
from tests.integration.chain_storm import ROOT
from tests.integration.kafka_brokers import Broker, administrator
from tests.integration.storm import is_stopped, records
from tests.integration.two_writers import (
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
)
from tests.support.later_mechanism_version import LATER, NOW
from tests.support.patience import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def ground(kafka: Broker, tmp_path: Path) -> Iterator[Ground]:
    with prepared(kafka, tmp_path) as ground:
        yield ground


def later(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``tacet`` of the version to come to its end."""
    line = [sys.executable, "-m", "tests.support.later_mechanism_version", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def later_findings(ground: Ground) -> list[dict[str, Any]]:
    return list(orjson.loads(later("recover", *ground.words(), "--json").stdout)["findings"])


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
    assert any(f"which mechanism version {NOW} made" in what for what in begun), begun
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


async def beat_of_a_version_to_come(ground: Ground, sites: Sequence[str] = SITES) -> None:
    """Send one for each of these sites, of the session of the recording, which goes on."""
    senders = {sender for record in await records(ground.kafka.bootstrap, OBSERVATIONS)
               if (sender := sender_of(record.value)) is not None}  # fmt: skip
    for site, source, session in (sender for sender in senders if sender.site in sites):
        beat = encode_message(Heartbeat(site, source, session, 1_772_460_000_000_000, 0))
        await put(ground, site, beat.replace(b'{"v":1,', b'{"v":2,'))


async def delete_records(ground: Ground, places: dict[TopicPartition, RecordsToDelete]) -> None:
    async with administrator(ground.kafka.bootstrap) as admin:
        await admin.delete_records(places)


async def put(ground: Ground, site: str, value: bytes) -> None:
    """Write a message on the partition of a site."""
    producer = AIOKafkaProducer(bootstrap_servers=ground.kafka.bootstrap)
    await producer.start()
    await producer.send_and_wait(OBSERVATIONS, value, key=site.encode(), partition=partition_of(site, PARTITIONS))
    await producer.stop()


def test_a_worker_loses_nothing_of_what_a_later_version_has_sent_and_that_goes_on_where_it_stops(
    ground: Ground,
) -> None:
    """An ingest was upgraded before the workers."""
    asyncio.run(beat_of_a_version_to_come(ground))
    older = ground.worker(*ground.words(), log="older")
    wait_until(lambda: older.poll() is not None, "it must stop")
    assert older.returncode == 3
    assert "message: must be of version 1, got 2, which a later version" in ground.log("older")
    assert re.search(r"partition \d, offset \d+: message: must be of version 1", ground.log("older"))
    assert "upgrade this program to the version of that source's ingest" in ground.log("older")
    assert bodies(ground.kafka, QUARANTINE) == []
    assert any("is of a later version" in found["what"] for found in findings(ground))
    send_an_hour_more(ground)
    ground.worker(*ground.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: all_out(ground.kafka) and later_out(ground.kafka), ground.log("later")[-2000:])
    assert_one_history(ground.kafka)
    assert bodies(ground.kafka, QUARANTINE) == []


def test_workers_of_the_version_before_that_still_run_end_when_the_next_begins(ground: Ground) -> None:
    running = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the first must work")
    ground.worker(*ground.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: running.poll() == 2, "it must find out")
    assert f"mechanism version: must be {LATER}, which has been accepted meanwhile, got {NOW}" in ground.log()
    send_an_hour_more(ground)
    wait_until(lambda: later_out(ground.kafka), ground.log("later")[-2000:])
    assert_one_history(ground.kafka)


@pytest.mark.timeout(300)
def test_a_message_of_another_program_stops_no_partition(ground: Ground) -> None:
    """It was taken for a message of a later version, and no worker went on."""
    foreign = [b'{"v":2}', orjson.dumps({"v": 2, "site": "east", "source": "192.0.2.77", "session": 1})]
    for site in SITES:
        for value in foreign:
            asyncio.run(put(ground, site, value))
    send_an_hour_more(ground)
    worker = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka) and later_out(ground.kafka), ground.log()[-2000:])
    assert worker.poll() is None
    refused = [body["reason"] for body in bodies(ground.kafka, QUARANTINE)]
    assert refused == ["version"] * len(foreign) * len(SITES)
    assert findings(ground) == []
    assert_one_history(ground.kafka)


@pytest.mark.timeout(600)
def test_a_message_that_no_ingest_wrote_is_gone_on_without_as_recover_says(ground: Ground) -> None:
    asyncio.run(beat_of_a_version_to_come(ground, SITES[:1]))
    stopped = ground.worker(*ground.words(), log="stopped")
    wait_until(lambda: stopped.poll() is not None, "it must stop")
    (found,) = findings(ground)
    assert "is of a later version" in found["what"]
    way = re.search(r"with offset (\d+) of partition (\d+) of", found["ways"][1]["do"])
    assert way is not None
    before = RecordsToDelete(before_offset=int(way[1]))
    asyncio.run(delete_records(ground, {TopicPartition(OBSERVATIONS, int(way[2])): before}))
    send_an_hour_more(ground)
    ground.worker(*ground.words(), "--accept-loss")
    wait_until(lambda: all_out(ground.kafka) and later_out(ground.kafka), ground.log()[-2000:])
    assert_one_history(ground.kafka)
