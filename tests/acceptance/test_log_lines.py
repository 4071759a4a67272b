"""With TACET_LOG_JSON every line that a service writes is one JSON object of allowed fields."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from connectors.keys import key_files
from connectors.runtime import logs
from stream.schemas import OBSERVATIONS as TOPIC
from tests.acceptance.command_line import OBSERVATIONS, POLICY, command, tacet
from tests.integration.kafka_brokers import Broker, clear_topics
from tests.support.patience import PATIENCE

CLOSED = "127.0.0.1:1"
CANARY = "5c52.1e00.2011 jane"
JSON = {"TACET_LOG_JSON": "true", "TACET_LOG_LEVEL": "debug"}


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TACET_")} | JSON | more


def lines_of(err: str) -> list[dict[str, Any]]:
    """Every line parsed; each must hold listed fields only, and be quoted from us or say that it is withheld."""
    made = [json.loads(line) for line in err.splitlines()]
    for line in made:
        assert set(line) <= logs.FIELDS
        assert line["logger"].partition(".")[0] in logs.OWN or line["event"] == logs.WITHHELD
    return made


def ended(words: Sequence[str | Path], **more: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        command(words), env=environment(**more), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, lines_of(done.stderr)


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    policy, key = tmp_path / "policy.toml", tmp_path / "key"
    policy.write_text(POLICY)
    key_files.create(key, laboratory=True)
    return ["--policy", policy, "--key-file", key]


@pytest.mark.parametrize("service", ["worker", "ingest"])
def test_a_service_that_finds_no_broker_says_so_in_json(service: str, files: list[str | Path]) -> None:
    udp = ["--udp", "127.0.0.1:0"] if service == "ingest" else []
    communities = Path(str(files[1])).with_name("communities")
    communities.touch(mode=0o600)
    communities.write_text("x\n")
    code, lines = ended([service, "--kafka", CLOSED, *files, *udp], TACET_SNMP_COMMUNITIES_FILE=str(communities))
    assert code == 1
    assert CLOSED in lines[-1]["event"]
    assert lines[-1]["level"] == "error"
    assert any(line["event"] == logs.WITHHELD and line["logger"].startswith("aiokafka") for line in lines)


@pytest.mark.parametrize(
    "words", [["worker", "--nonsense"], ["run", "--policy", "missing.toml"], ["policy", "check", "missing.toml"]]
)
def test_a_command_used_wrongly_says_so_in_json(words: list[str]) -> None:
    code, lines = ended(words)
    assert code == 2
    assert len(lines) == 1


async def put(kafka: Broker, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    try:
        await producer.send_and_wait(TOPIC, value, key=b"east", partition=0)
    finally:
        await producer.stop()


@pytest.mark.kafka
def test_a_worker_on_a_real_broker_writes_json_alone_and_nothing_of_what_it_reads(
    kafka: Broker, files: list[str | Path], tmp_path: Path
) -> None:
    asyncio.run(clear_topics(kafka.bootstrap))
    tacet("topics", "create", "--kafka", kafka.bootstrap, "--policy", files[1])
    rows, err = tmp_path / "o.csv", tmp_path / "err"
    rows.write_text(OBSERVATIONS)
    words = command(["worker", "--kafka", kafka.bootstrap, *files])
    with err.open("w") as file, subprocess.Popen(words, env=environment(), stderr=file) as worker:
        try:
            asyncio.run(put(kafka, CANARY.encode()))
            tacet("ingest", "--kafka", kafka.bootstrap, *files, "--observations", rows)
            deadline = time.monotonic() + PATIENCE
            while not published(kafka) and time.monotonic() < deadline and worker.poll() is None:
                time.sleep(0.5)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=PATIENCE) == 0
        finally:
            worker.kill()
    text = err.read_text()
    lines = lines_of(text)
    loggers = {line["logger"].partition(".")[0] for line in lines}
    assert "aiokafka" in loggers
    assert loggers & {"connectors", "stream"}
    for report in (CANARY, "jane", "00:00:5e", "02:00:00:00:0e:01"):
        assert report not in text


def published(kafka: Broker) -> bool:
    words = ["subscribe", "--kafka", kafka.bootstrap, "--audience", "facilities", "--release", "occupancy"]
    done = subprocess.run(
        [sys.executable, "-m", "connectors", *words, "--from-start", "--until-end", "--json"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return bool(done.stdout)
