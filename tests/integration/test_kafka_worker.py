"""The worker process: what it listens on, how it stops, and what it does about bad input."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topics import create_topics
from tests.integration.chain_engine import Topics, chain
from tests.integration.chain_storm import PARTITIONS, start
from tests.integration.kafka_brokers import Broker
from tests.integration.storm import Worker, records
from tests.support.patience import PATIENCE, waiting_for

pytestmark = pytest.mark.kafka
LISTEN = "0A"


@pytest.fixture
async def topics(kafka: Broker, prefix: str) -> Topics:
    topics = Topics.of(prefix)
    await create_topics(kafka.bootstrap, topics, partitions=PARTITIONS)
    return topics


@pytest.fixture
def worker(kafka: Broker, prefix: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start worker processes; none of them outlives the test."""
    started: list[Worker] = []

    def run(session: float = 30) -> Worker:
        arguments = [kafka.bootstrap, prefix, str(session)]
        started.append(
            start("tests.integration.chain_worker", *arguments, log=tmp_path / "log", folder=tmp_path / "cwd")
        )
        return started[-1]

    (tmp_path / "cwd").mkdir()
    yield run
    for process in started:
        process.kill()
        process.wait()


async def send(broker: Broker, topic: str, *messages: tuple[str, bytes | None]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5)
    await producer.start()
    for site, value in messages:
        await producer.send(topic, value, key=site.encode(), partition=partition_of(site, PARTITIONS))
    await producer.stop()


def numbered(site: str, numbers: range) -> list[tuple[str, bytes | None]]:
    return [(site, orjson.dumps({"n": number})) for number in numbers]


async def wait_for(broker: Broker, topic: str, count: int) -> None:
    async with waiting_for(f"{count} records of {topic}"):
        while len(await records(broker.bootstrap, topic)) < count:
            await asyncio.sleep(0.5)


async def published(broker: Broker, topics: Topics) -> dict[str, str]:
    bodies = [orjson.loads(record.value) for record in await records(broker.bootstrap, topics.private)]
    return {body["release_id"]: body["head"] for body in bodies}


def sockets(pid: int) -> tuple[set[str], set[str]]:
    """Return what a process listens on (TCP) or is bound to (UDP), from the kernel's tables."""
    links = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    own = {name.removeprefix("socket:[").rstrip("]") for name in links if name.startswith("socket:[")}

    def rows(table: str) -> list[list[str]]:
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        return [fields for fields in map(str.split, lines) if fields[9] in own]

    tcp = [row for table in ("tcp", "tcp6") for row in rows(table)]
    udp = [row for table in ("udp", "udp6") for row in rows(table)]
    assert tcp, "the worker's connections to the broker must be seen, else nothing is shown"
    return {row[1] for row in tcp if row[3] == LISTEN}, {row[1] for row in udp}


async def members(broker: Broker, group: str) -> list[object]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    (answer,) = await admin.describe_consumer_groups([group])
    await admin.close()
    return list(answer.groups[0][5])


async def test_a_worker_from_its_start_before_the_broker_to_its_end(
    kafka: Broker, prefix: str, topics: Topics, worker: Callable[..., Worker], tmp_path: Path
) -> None:
    """It waits for a broker, puts aside what cannot be decoded, and ends well if told, else by an error."""
    good = numbered("s", range(13))
    await send(kafka, topics.source, *good[:3], ("s", b"?"), ("s", None), *good[3:])
    if kafka.killable:
        kafka.kill()
    first = worker()
    if kafka.killable:
        await asyncio.sleep(4)
        kafka.start()
    await wait_for(kafka, topics.private, 2)
    assert first.poll() is None
    assert sockets(first.pid) == (set(), set())
    assert list((tmp_path / "cwd").iterdir()) == []
    assert await published(kafka, topics) == {name: head.hex() for name, head in chain("s", range(13))}
    assert [record.value for record in await records(kafka.bootstrap, topics.quarantine)] == [b"3", b"4"]

    assert len(await members(kafka, prefix)) == 1
    first.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, PATIENCE) == 0
    saved = [orjson.loads(record.value) for record in await records(kafka.bootstrap, topics.snapshot)]
    assert saved[-1]["next"] == 15  # not only up to the last window
    assert await members(kafka, prefix) == []  # it is not waited for until its session of 30 s is over

    await send(kafka, topics.source, ("s", b"!"), *numbered("s", range(13, 20)))
    for _ in range(2):  # the second run meets it again: it was not stepped over
        assert await asyncio.to_thread(worker().wait, PATIENCE) == 1
    saved = [orjson.loads(record.value)["next"] for record in await records(kafka.bootstrap, topics.snapshot)]
    assert max(saved) == 15
    assert set(await published(kafka, topics)) == {"s/5", "s/10"}
    assert (tmp_path / "log").read_text().count("worker stopped: RuntimeError") == 2
