"""Private records on a real broker are CloudEvents, for this project's reader and for one that knows nothing of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer

from connectors.storage.kafka.topic_tail import consume
from connectors.storage.kafka.topics import create_topics
from connectors.storage.kafka.writers import EngineTopics, KafkaWriterFactory, headers_of
from stream.engine.outputs import OutputRecord
from stream.records import MINUTE
from stream.schemas import AUDIT, SNAPSHOT, private_topic, rfc3339
from tests.integration.kafka_brokers import Broker, kafka_jars
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.patience import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "PrivateTopic.java"
END = 20_000 * 288 * 5 * MINUTE


def released(audience: str, number: int) -> OutputRecord:
    end = END + number * 5 * MINUTE
    name = f"dbh/occupancy/{audience}/{rfc3339(end)}"
    body = orjson.dumps({"v": 1, "release_id": name, "values": {"2011": number}})
    return OutputRecord(private_topic(audience, "occupancy"), b"dbh", body, end // 1000, True, name)


async def written(broker: AnyBroker | Broker, prefix: str) -> list[OutputRecord]:
    """Five records that the partition's one writer has committed, among entries of the audit."""
    records = [released(prefix, number) for number in range(5)]
    topics = EngineTopics()
    await create_topics(broker.bootstrap, [SNAPSHOT, AUDIT, records[0].topic], partitions=4)
    journal = KafkaWriterFactory(broker.bootstrap, fence=prefix, topics=topics)
    await journal.start()
    writer = await journal.acquire(0)
    entry = OutputRecord(AUDIT, b"dbh", b'{"sequence":0}', END // 1000, True, "0")
    await writer.commit([entry, *records], b"snapshot")
    await writer.close()
    return records


@on_any_broker
async def test_a_record_has_its_headers_and_the_same_value(broker: AnyBroker, prefix: str) -> None:
    outputs = await written(broker, prefix)
    consumer: Any = AIOKafkaConsumer(
        outputs[0].topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest",
        isolation_level="read_committed",
    )  # fmt: skip
    await consumer.start()
    read = [await consumer.getone() for _ in outputs]
    await consumer.stop()
    for record, output in zip(read, outputs, strict=True):
        assert record.value == output.value, "what an outbox holds, byte for byte"
        assert list(record.headers) == headers_of(output)
        assert dict(record.headers)["ce_id"] == output.id.encode()
        assert record.timestamp == output.timestamp_ms


@on_any_broker
async def test_entries_of_the_audit_have_none(broker: AnyBroker, prefix: str) -> None:
    await written(broker, prefix)
    consumer: Any = AIOKafkaConsumer(AUDIT, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    assert (await consumer.getone()).headers == ()
    await consumer.stop()


@on_any_broker
async def test_the_projects_own_reader_gives_the_record_alone(broker: AnyBroker, prefix: str) -> None:
    outputs = await written(broker, prefix)
    read = [each.value async for each in consume(broker.bootstrap, outputs[0].topic, until_end=True)]
    assert read == [output.value for output in outputs]


@pytest.mark.kafka
def test_kcat_and_a_plain_java_program_read_them_from_a_real_broker(kafka: Broker, prefix: str) -> None:
    """No code of this project, nor of its client library; the example for programs in Java runs as it stands."""
    outputs = asyncio.run(written(kafka, prefix))
    read_by_kcat(kafka, outputs)
    read_by_java(kafka, outputs)


def read_by_kcat(kafka: Broker, outputs: list[OutputRecord]) -> None:
    if shutil.which("kcat") is None:
        if os.environ.get("TACET_REQUIRE_KCAT") == "1":
            pytest.fail("TACET_REQUIRE_KCAT=1, but there is no kcat on the path")
        pytest.skip("no kcat on the path")
    form = r"%h\t%s\n"  # kcat's own escapes
    words = ["kcat", "-C", "-b", kafka.bootstrap, "-t", outputs[0].topic, "-e", "-q", "-o", "beginning", "-f", form]
    lines = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.splitlines()
    for line, output in zip(lines, outputs, strict=True):
        headers, value = line.split("\t")
        assert value.encode() == output.value
        expected = headers_of(output)
        assert headers == ",".join(f"{name}={text.decode()}" for name, text in expected)


def read_by_java(kafka: Broker, outputs: list[OutputRecord]) -> None:
    jars = kafka_jars()
    if reason := no_jdk(jars):
        if os.environ.get("TACET_REQUIRE_JDK") == "1":
            pytest.fail(f"TACET_REQUIRE_JDK=1, but {reason}")
        pytest.skip(reason)
    words = ["java", "-Xmx256m", "-cp", f"{jars}/*", str(EXAMPLE), kafka.bootstrap, outputs[0].topic]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"{output.id}\t{output.value.decode()}" for output in outputs]


def no_jdk(jars: Path | None) -> str:
    """Return why no Java program can be compiled and run here against Kafka's client; empty where one can."""
    if jars is None:
        return "Kafka's jars are not in the cache"
    return "" if shutil.which("javac") else "no JDK on the path, which compiles the program"
