"""What lies on a real broker: nothing that tells of people without the day's data key, in any topic or log segment."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from connectors.keys import key_files
from connectors.sources.recordings.observations import ObservationFile
from connectors.storage.kafka.topics import topic_names
from connectors.storage.site_metadata import site_metadata
from connectors.subscribe.subscriber import read_metadata
from stream.encoding import decode_message
from stream.encryption import Kind, clear_of, is_encrypted, split_parts, unseal
from stream.records import ObservationBatch
from stream.release.validation import load_policy
from stream.schemas import OBSERVATIONS, OCCUPANCY, PRESENCE, SNAPSHOT
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import POLICY, TICKS, here
from tests.acceptance.test_log_lines import CANARY, JSON, lines_of
from tests.integration.kafka_brokers import Broker, JavaBroker
from tests.integration.kafka_topics import administrator, clear_topics
from tests.integration.storm import records
from tests.integration.two_writers import Scenario, all_out, assert_one_history
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_port

pytestmark = pytest.mark.kafka
RESTRICTED = "[restricted]\noccupancy = true\npresence = true\n" + POLICY
FIRST_DAY = TICKS[0][:10]


@pytest.fixture
def scenario(kafka: Broker, tmp_path: Path) -> Iterator[Scenario]:
    """A cluster without any record, and a production key whose parts ingest and worker have."""
    made = Scenario(kafka, tmp_path, [])
    (tmp_path / "policy.toml").write_text(RESTRICTED)
    (tmp_path / "rows.csv").write_text(ROWS)
    here("key", "create", tmp_path / "whole", "--first-day", FIRST_DAY)
    here("key", "export", tmp_path / "whole", "ingest", tmp_path / "ingest")
    here("key", "export", tmp_path / "whole", "worker", tmp_path / "worker")
    asyncio.run(clear_topics(kafka.bootstrap))
    here("topics", "create", "--kafka", kafka.bootstrap, "--policy", tmp_path / "policy.toml")
    asyncio.run(kept_for_ever(kafka))
    yield made
    for process in made.started:
        process.kill()
        process.wait()
    asyncio.run(clear_topics(kafka.bootstrap))


async def kept_for_ever(kafka: Broker) -> None:
    """Keep what engines alone read although it is of years ago, so that it can be looked at."""
    async with administrator(kafka.bootstrap) as admin:
        kept = [
            ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "-1"}) for name in (OCCUPANCY, PRESENCE)
        ]
        await admin.alter_configs(kept)


def pour(scenario: Scenario) -> None:
    rows = ["--observations", str(scenario.folder / "rows.csv"), "--from", TICKS[0], "--to", TICKS[-1]]
    here("ingest", *scenario.words(key="ingest"), *rows)


def everything(scenario: Scenario) -> dict[str, list[bytes]]:
    """Return all that was ever written and not compacted, by topic, as a reader gets it."""
    names = topic_names(load_policy(RESTRICTED))
    return {name: [each.value for each in asyncio.run(records(scenario.kafka.bootstrap, name))] for name in names}


def needles(scenario: Scenario) -> set[bytes]:
    """Return pseudonyms and addresses of the recording, as text, and pseudonyms as bytes."""
    key = key_files.pseudonym_key(scenario.folder / "ingest")
    log = ObservationFile(scenario.folder / "rows.csv", load_policy(RESTRICTED), key).messages()
    names = {row.device for each in log if isinstance(each, ObservationBatch) for row in each.rows}
    addresses = {line.split(",")[1] for line in ROWS.splitlines()[1:]}
    assert len(names) >= len(addresses) > 1
    return {each.encode() for each in names | addresses} | {bytes.fromhex(name) for name in names}


def segments(data: Path) -> Iterator[bytes]:
    """The log segments of Tacet's topics. The broker may remove a deleted topic's folder meanwhile."""
    for folder in data.glob("tacet.*"):
        with suppress(FileNotFoundError):
            for path in folder.glob("*.log"):
                yield path.read_bytes()


async def send_canary(kafka: Broker) -> None:
    """Send what is no message of an ingest, and must be quoted nowhere."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    await producer.send_and_wait(OBSERVATIONS, CANARY.encode(), key=b"east", partition=0)
    await producer.stop()


def assert_another_data_key_is_refused(scenario: Scenario) -> None:
    document = json.loads((scenario.folder / "worker").read_text())
    (scenario.folder / "wrong").touch(0o600)
    other = document | {"data": document["data"] | {"key": "ab" * 32}}
    (scenario.folder / "wrong").write_text(json.dumps(other))
    wrong = scenario.worker(*scenario.words(key="wrong"), log="log-wrong", given=JSON)
    assert wrong.wait(timeout=PATIENCE) == 2
    assert "data key: must be the one under which this was encrypted, got another" in scenario.log("log-wrong")


def test_nothing_on_the_broker_tells_of_people_and_two_workers_read_it_with_their_keys(scenario: Scenario) -> None:
    """What workers log, with every library's debugging, are lines of JSON that tell nothing either."""
    pour(scenario)
    asyncio.run(send_canary(scenario.kafka))
    assert_another_data_key_is_refused(scenario)
    ports = [free_port() for _ in range(2)]
    workers = [
        scenario.worker(
            *scenario.words(key="worker"), "--metrics", f"127.0.0.1:{port}", log=f"log-{number}", given=JSON
        )
        for number, port in enumerate(ports)
    ]
    wait_until(lambda: all_out(scenario.kafka), "all windows must be released")
    assert_one_history(scenario.kafka)
    assert asyncio.run(read_metadata(kafka=scenario.kafka.bootstrap)) == site_metadata(load_policy(RESTRICTED))
    reported = [urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).read() for port in ports]
    assert all(b"tacet_releases_total" in text for text in reported)
    for worker in workers:
        worker.terminate()
        assert worker.wait(timeout=PATIENCE) == 0
    for name in ("log-wrong", "log-0", "log-1"):
        loggers = {line["logger"].partition(".")[0] for line in lines_of(scenario.log(name))}
        assert "aiokafka" in loggers
        assert loggers & {"connectors", "stream"}
    reported += [scenario.log(name).encode() for name in ("log-wrong", "log-0", "log-1")]
    topics, sought = everything(scenario), needles(scenario)
    stored = b"".join(value for values in topics.values() for value in values)
    assert [needle for needle in sought if needle in stored] == []
    assert [needle for needle in sought | {CANARY.encode()} if needle in b"".join(reported)] == []
    if isinstance(scenario.kafka, JavaBroker):
        written = b"".join(segments(scenario.kafka.data))
        assert b"tacet" in written or b"facilities" in written
        assert [needle for needle in sought if needle in written] == []
    vault = key_files.FileKeys(scenario.folder / "worker").vault
    batches = [value for value in topics[OBSERVATIONS] if not value.startswith(b"{") and value != CANARY.encode()]
    read = [decode_message(value, vault)[0] for value in batches]
    assert sum(len(each.rows) for each in read if isinstance(each, ObservationBatch)) > 4
    assert all(is_encrypted(value) for value in batches)
    for topic in (OCCUPANCY, PRESENCE):
        assert topics[topic]
        for value in topics[topic]:
            clear = orjson.loads(clear_of(Kind.RESTRICTED, value))
            assert clear.keys() == {"v", "topic", "site", "window_end"}
            assert orjson.loads(unseal(Kind.RESTRICTED, value, vault))["site"] == clear["site"]
    for snapshot in topics[SNAPSHOT]:
        for site in split_parts(unseal(Kind.SNAPSHOT, snapshot))[1].values():
            assert is_encrypted(site)
