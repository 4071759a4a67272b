"""From one mechanism version to the next on a real broker: the former was killed in a window that it had begun.

All of this runs each night. An ordinary run has the change of the version on simulated brokers: in
tests/simulation/test_one_writer.py and in schedules.
"""

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
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import administrator
from tests.integration.storm import is_stopped, records
from tests.integration.two_writers import (
    PARTITIONS,
    PRIVATE,
    SITES,
    Scenario,
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

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def scenario(kafka: Broker, tmp_path: Path) -> Iterator[Scenario]:
    with prepared(kafka, tmp_path) as scenario:
        yield scenario


def later(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``tacet`` of the version to come to its end."""
    line = [sys.executable, "-m", "tests.support.later_mechanism_version", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def later_findings(scenario: Scenario) -> list[dict[str, Any]]:
    return list(orjson.loads(later("recover", *scenario.words(), "--json").stdout)["findings"])


def test_a_version_begins_only_when_the_one_before_has_finished_what_it_began(scenario: Scenario) -> None:
    killed = scenario.worker(*scenario.words(), stop_at=f"{PRIVATE}:2")
    wait_until(lambda: is_stopped(killed), "the worker must come so far")
    killed.kill()
    killed.wait()
    before = bodies(scenario.kafka, AUDIT)

    refused = later("worker", *scenario.words(), "--accept-policy")
    assert refused.returncode == 2
    assert f"must be {NOW}, under which" in refused.stderr
    assert f"start version {NOW} once more" in refused.stderr
    started = [found["what"] for found in later_findings(scenario)]
    assert started
    assert any(f"which mechanism version {NOW} made" in what for what in started), started
    assert findings(scenario) == []
    assert bodies(scenario.kafka, AUDIT) == before

    finishing = scenario.worker(*scenario.words(), log="finishing")
    wait_until(lambda: all_out(scenario.kafka), scenario.log("finishing")[-2000:])
    finishing.terminate()
    assert finishing.wait(20) == 0

    send_an_hour_more(scenario)
    scenario.worker(*scenario.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: later_out(scenario.kafka), scenario.log("later")[-2000:])
    assert_one_history(scenario.kafka)


async def beat_of_a_version_to_come(scenario: Scenario, sites: Sequence[str] = SITES) -> None:
    """Send one for each of these sites, of the session of the recording, which goes on."""
    senders = {sender for record in await records(scenario.kafka.bootstrap, OBSERVATIONS)
               if (sender := sender_of(record.value)) is not None}  # fmt: skip
    for site, source, session in (sender for sender in senders if sender.site in sites):
        beat = encode_message(Heartbeat(site, source, session, 1_772_460_000_000_000, 0))
        await put(scenario, site, beat.replace(b'{"v":1,', b'{"v":2,'))


async def delete_records(scenario: Scenario, places: dict[TopicPartition, RecordsToDelete]) -> None:
    async with administrator(scenario.kafka.bootstrap) as admin:
        await admin.delete_records(places)


async def put(scenario: Scenario, site: str, value: bytes) -> None:
    """Write a message on the partition of a site."""
    producer = AIOKafkaProducer(bootstrap_servers=scenario.kafka.bootstrap)
    await producer.start()
    await producer.send_and_wait(OBSERVATIONS, value, key=site.encode(), partition=partition_of(site, PARTITIONS))
    await producer.stop()


def test_a_worker_loses_nothing_of_what_a_later_version_has_sent_and_that_goes_on_where_it_stops(
    scenario: Scenario,
) -> None:
    """An ingest was upgraded before the workers."""
    asyncio.run(beat_of_a_version_to_come(scenario))
    older = scenario.worker(*scenario.words(), log="older")
    wait_until(lambda: older.poll() is not None, "it must stop")
    assert older.returncode == 3
    assert "message: must be of version 1, got 2, which a later version" in scenario.log("older")
    assert re.search(r"partition \d, offset \d+: message: must be of version 1", scenario.log("older"))
    assert "upgrade this program to the version of that source's ingest" in scenario.log("older")
    assert bodies(scenario.kafka, QUARANTINE) == []
    assert any("is of a later version" in found["what"] for found in findings(scenario))
    send_an_hour_more(scenario)
    scenario.worker(*scenario.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: all_out(scenario.kafka) and later_out(scenario.kafka), scenario.log("later")[-2000:])
    assert_one_history(scenario.kafka)
    assert bodies(scenario.kafka, QUARANTINE) == []


def test_workers_of_the_version_before_that_still_run_end_when_the_next_begins(scenario: Scenario) -> None:
    """The next begins with consent alone, and none of the version before comes back."""
    running = scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka), "the first must work")
    assert later("worker", *scenario.words()).returncode == 2, "without consent"
    assert running.poll() is None
    scenario.worker(*scenario.words(), "--accept-policy", later=True, log="later")
    wait_until(lambda: running.poll() == 2, "it must find out")
    assert (
        f"mechanism version: must be {LATER}, which the cluster has accepted in the meantime, got {NOW}"
        in scenario.log()
    )
    send_an_hour_more(scenario)
    wait_until(lambda: later_out(scenario.kafka), scenario.log("later")[-2000:])
    assert_one_history(scenario.kafka)
    back = tacet("worker", *scenario.words(), "--accept-policy", code=2).stderr
    assert f"to continue from, got {LATER}; 'tacet recover' lists" in back
    assert any(f"made by mechanism version {LATER}" in found["what"] for found in findings(scenario))


@pytest.mark.timeout(300)
def test_a_message_of_another_program_stops_no_partition(scenario: Scenario) -> None:
    """It was taken for a message of a later version, and no worker went on."""
    foreign = [b'{"v":2}', orjson.dumps({"v": 2, "site": "east", "source": "192.0.2.77", "session": 1})]
    for site in SITES:
        for value in foreign:
            asyncio.run(put(scenario, site, value))
    send_an_hour_more(scenario)
    worker = scenario.worker(*scenario.words())
    wait_until(lambda: all_out(scenario.kafka) and later_out(scenario.kafka), scenario.log()[-2000:])
    assert worker.poll() is None
    refused = [body["reason"] for body in bodies(scenario.kafka, QUARANTINE)]
    assert refused == ["version"] * len(foreign) * len(SITES)
    assert findings(scenario) == []
    assert_one_history(scenario.kafka)


@pytest.mark.timeout(600)
def test_a_message_that_no_ingest_wrote_is_gone_on_without_as_recover_says(scenario: Scenario) -> None:
    asyncio.run(beat_of_a_version_to_come(scenario, SITES[:1]))
    stopped = scenario.worker(*scenario.words(), log="stopped")
    wait_until(lambda: stopped.poll() is not None, "it must stop")
    (found,) = findings(scenario)
    assert "is of a later version" in found["what"]
    way = re.search(r"with offset (\d+) of partition (\d+) of", found["ways"][1]["do"])
    assert way is not None
    before = RecordsToDelete(before_offset=int(way[1]))
    asyncio.run(delete_records(scenario, {TopicPartition(OBSERVATIONS, int(way[2])): before}))
    send_an_hour_more(scenario)
    scenario.worker(*scenario.words(), "--accept-loss")
    wait_until(lambda: all_out(scenario.kafka) and later_out(scenario.kafka), scenario.log()[-2000:])
    assert_one_history(scenario.kafka)
