"""A cluster that release 0.1.0 left (``tests/fixtures/kafka_1.json``) is taken up as docs/operations.md says."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from connectors.secrets.private_files import replace_file
from connectors.storage.kafka.topics import topic_config, topic_names
from stream.release.stage import MECHANISMS
from stream.release.validation import load_policy
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, SNAPSHOT
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import tacet
from tests.documents import blocks
from tests.integration.kafka_ground import Broker, clear_topics, kafka_jars
from tests.integration.storm import records
from tests.integration.writers_ground import PRIVATE, SITES, Ground, assert_one_history, bodies, findings
from tests.patience import PATIENCE, wait_until

pytestmark = pytest.mark.kafka
FIXTURE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "kafka_1.json").read_text())
(STEPS,) = [block.text for block in blocks("sh", "docs/operations.md") if block.ground == "kafka upgrade"]
SETTING, _, REST = STEPS.partition("\n")
BEFORE, WORKER, AFTER = REST.partition("tacet worker --policy policy.toml --key-file key --accept-policy\n")
UNTIL = "2026-03-02T10:40:00Z"


@pytest.fixture
def old(kafka: Broker, tmp_path: Path) -> Iterator[Ground]:
    """The cluster, policy and key as the release before has left them, and ``kafka-configs.sh`` on the path."""
    jars = kafka_jars()
    if jars is None:
        pytest.skip("no Java, or no jars of Kafka, for kafka-configs.sh")
    (tmp_path / "policy.toml").write_text(FIXTURE["policy"])
    (tmp_path / "rows.csv").write_text(ROWS)
    replace_file(tmp_path / "key", FIXTURE["key"])
    tool = tmp_path / "kafka-configs.sh"
    tool.write_text(f'#!/bin/sh\nexec java -cp {shlex.quote(f"{jars}/*")} kafka.admin.ConfigCommand "$@"\n')
    tool.chmod(0o700)
    asyncio.run(write_topics(kafka.bootstrap))
    ground = Ground(kafka, tmp_path, [])
    yield ground
    for process in ground.started:
        process.kill()
        process.wait()
    asyncio.run(clear_topics(kafka.bootstrap))


async def write_topics(bootstrap: str) -> None:
    """Make the topics with the settings of then, and write what they held."""
    await clear_topics(bootstrap)
    settings = {name: topic_config(name) for name in topic_names(load_policy(FIXTURE["policy"])) if name != CONTROL}
    del settings[OBSERVATIONS]["message.timestamp.type"]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    partitions = FIXTURE["partitions"]
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=own) for name, own in settings.items()])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    for topic, rows in FIXTURE["topics"].items():
        for partition, key, stamp, value in rows:
            body = base64.b64decode(value)
            await producer.send_and_wait(topic, body, key=key.encode(), partition=partition, timestamp_ms=stamp)
    await producer.stop()


def run(ground: Ground, script: str) -> None:
    """Run lines of the document where policy and key are."""
    path = os.pathsep.join([str(ground.folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = f"{SETTING}\n{script}".replace("kafka.example:9092", ground.kafka.bootstrap)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ground.folder, env=os.environ | {"PATH": path},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def entries(ground: Ground) -> list[bytes]:
    return [record.value for record in asyncio.run(records(ground.kafka.bootstrap, AUDIT))]


def snapshots(ground: Ground) -> int:
    return len(asyncio.run(records(ground.kafka.bootstrap, SNAPSHOT)))


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0


def all_released(ground: Ground) -> bool:
    return {(site, UNTIL) for site in SITES} <= {
        (body["site"], body["window_end"]) for body in bodies(ground.kafka, PRIVATE)
    }


def test_the_documented_steps_take_up_a_cluster_of_release_0_1_0_and_its_windows_and_books_go_on(old: Ground) -> None:
    assert WORKER
    before, saved = entries(old), snapshots(old)
    run(old, BEFORE)
    first = old.worker(*old.words(), "--accept-policy")
    wait_until(lambda: snapshots(old) == saved + len(SITES), "the states of both sites must be saved, though idle")
    stop(first)
    run(old, AFTER)
    rows = ["--observations", old.folder / "rows.csv", "--from", FIXTURE["until"], "--to", UNTIL]
    tacet("ingest", *old.words(), *rows)
    second = old.worker(*old.words())  # consent was given once
    wait_until(lambda: all_released(old), "windows must go on")
    stop(second)
    run(old, AFTER)
    assert len(entries(old)) == 2 * len(before)
    assert set(before) < set(entries(old))
    later = [entry for entry in assert_one_history(old.kafka) if entry["window_end"] > FIXTURE["until"]]
    spent = {(entry["audience"], entry["outcome"], entry["nano"]) for entry in later}
    assert spent == {("facilities", "released", 2 * 10**9), ("public", "budget", 0)}, (
        "the old ones spent the day's budget"
    )
    assert findings(old) == []


def test_what_a_cluster_of_release_0_1_0_lacks_is_named_with_the_way_out(old: Ground) -> None:
    assert [CONTROL in finding["what"] for finding in findings(old)] == [True]
    tacet("topics", "create", "--kafka", old.kafka.bootstrap, "--policy", old.folder / "policy.toml")
    refused = tacet("worker", *old.words(), code=2).stderr
    assert "message.timestamp.type=LogAppendTime" in refused
    finding = findings(old)[0]
    assert finding["what"] in refused
    assert "kafka-configs.sh" in finding["ways"][0]["do"]


def test_states_of_the_version_before_are_named_until_they_are_accepted(old: Ground) -> None:
    run(old, BEFORE)
    found = findings(old)
    assert [finding["what"].partition(": ")[2] for finding in found] == [
        f"its state was made by mechanism version 1, this is {MECHANISMS}"
    ] * len(SITES)
    assert all("--accept-policy" in finding["ways"][0]["do"] for finding in found)
    assert "mechanism version: must be 1" in tacet("worker", *old.words(), code=2).stderr
