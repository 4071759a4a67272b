"""The worker process: what it listens on, how it stops, and what it does about bad input."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from connectors.keys import key_files
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topic_readers import Record
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, OBSERVATIONS, QUARANTINE, parse_time, private_topic
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import POLICY, TICKS, command, here, tacet
from tests.integration.chain_engine import Topics, chain
from tests.integration.chain_storm import PARTITIONS, start
from tests.integration.kafka_brokers import Broker, clear_topics
from tests.integration.storm import Worker, records
from tests.support.patience import waiting_for

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
            await asyncio.sleep(0.1)


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


async def test_nothing_listens_and_no_file_is_written(
    kafka: Broker, topics: Topics, worker: Callable[..., Worker], tmp_path: Path
) -> None:
    await send(kafka, topics.source, *numbered("s", range(10)))
    process = worker()
    await wait_for(kafka, topics.private, 2)
    assert sockets(process.pid) == (set(), set())
    assert list((tmp_path / "cwd").iterdir()) == []


async def members(broker: Broker, group: str) -> list[object]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    (answer,) = await admin.describe_consumer_groups([group])
    await admin.close()
    return list(answer.groups[0][5])


async def test_sigterm_checkpoints_leaves_the_group_and_exits_0(
    kafka: Broker, prefix: str, topics: Topics, worker: Callable[..., Worker]
) -> None:
    await send(kafka, topics.source, *numbered("s", range(13)))
    first = worker()
    await wait_for(kafka, topics.private, 2)
    assert len(await members(kafka, prefix)) == 1
    first.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, 60) == 0
    saved = [orjson.loads(record.value) for record in await records(kafka.bootstrap, topics.snapshot)]
    assert saved[-1]["next"] == 13  # not only up to the last window
    assert await members(kafka, prefix) == []  # it is not waited for until its session of 30 s is over


async def test_a_worker_that_starts_before_the_broker_waits_for_it(
    kafka: Broker, topics: Topics, worker: Callable[..., Worker]
) -> None:
    if not kafka.killable:
        pytest.skip("the broker was given and is not ours to kill")
    await send(kafka, topics.source, *numbered("s", range(10)))
    kafka.kill()
    process = worker()
    await asyncio.sleep(4)
    kafka.start()
    await wait_for(kafka, topics.private, 2)
    assert process.poll() is None


async def test_what_cannot_be_decoded_goes_to_quarantine_and_the_stream_goes_on(
    kafka: Broker, topics: Topics, worker: Callable[..., Worker]
) -> None:
    good = numbered("s", range(10))
    await send(kafka, topics.source, *good[:3], ("s", b"?"), ("s", None), *good[3:])
    worker()
    await wait_for(kafka, topics.private, 2)
    assert await published(kafka, topics) == {name: head.hex() for name, head in chain("s", range(10))}
    assert [record.value for record in await records(kafka.bootstrap, topics.quarantine)] == [b"3", b"4"]


async def test_any_other_error_stops_the_worker_with_nothing_of_it_acknowledged(
    kafka: Broker, topics: Topics, worker: Callable[..., Worker], tmp_path: Path
) -> None:
    await send(kafka, topics.source, *numbered("s", range(7)), ("s", b"!"), *numbered("s", range(7, 20)))
    for _ in range(2):  # the second run meets it again: it was not stepped over
        process = worker()
        assert await asyncio.to_thread(process.wait, 30) == 1
    saved = [orjson.loads(record.value)["next"] for record in await records(kafka.bootstrap, topics.snapshot)]
    assert max(saved, default=0) <= 7
    assert set(await published(kafka, topics)) <= {"s/5"}
    assert (tmp_path / "log").read_text().count("worker stopped: RuntimeError") == 2


async def test_a_window_that_was_published_otherwise_is_not_published_again(
    kafka: Broker, topics: Topics, worker: Callable[..., Worker]
) -> None:
    await send(kafka, topics.audit, ("s", orjson.dumps({"release_id": "s/10", "head": "00"})))
    await send(kafka, topics.source, *numbered("s", range(20)))
    assert await asyncio.to_thread(worker().wait, 30) == 1
    assert set(await published(kafka, topics)) <= {"s/5"}


# --- the command itself, over the real engine --------------------------------------------------------------


@pytest.fixture
def scenario(kafka: Broker, tmp_path: Path) -> Iterator[list[str]]:
    """A log that a worker has worked on under a policy and a key; the words that start another one."""
    policy, key, rows = tmp_path / "policy.toml", tmp_path / "key", tmp_path / "rows.csv"
    policy.write_text(POLICY)
    rows.write_text(ROWS)
    for name in (key, tmp_path / "other"):
        key_files.create(name, laboratory=True)
    names = topic_names(load_policy(POLICY))
    asyncio.run(clear_topics(kafka.bootstrap))
    asyncio.run(create_topics(kafka.bootstrap, names, partitions=PARTITIONS))
    words = ["worker", "--kafka", kafka.bootstrap, "--policy", str(policy), "--key-file", str(key)]
    here("ingest", *words[1:], "--observations", rows)
    yield words
    asyncio.run(clear_topics(kafka.bootstrap))


def work_until(kafka: Broker, words: list[str], topic: str, count: int) -> None:
    process = subprocess.Popen(command(words), stderr=subprocess.DEVNULL)
    try:
        asyncio.run(wait_for(kafka, topic, count))
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_another_policy_or_key_is_exit_code_2_and_one_line(kafka: Broker, scenario: list[str], tmp_path: Path) -> None:
    work_until(kafka, scenario, private_topic("facilities", "occupancy"), 2 * len(TICKS))
    wrong_key = [*scenario[:-1], str(tmp_path / "other")]
    (tmp_path / "changed.toml").write_text(POLICY.replace('facilities = "2"', 'facilities = "3"'))
    wrong_policy = [*scenario[:4], str(tmp_path / "changed.toml"), *scenario[5:]]
    for words, output in ((wrong_key, "key: must be the one"), (wrong_policy, "policy: must be version")):
        done = tacet(*words, code=2)
        assert "Traceback" not in done.stderr
        assert [output in line for line in done.stderr.splitlines()].count(True) == 1
        assert output in done.stderr.splitlines()[-1]


async def put(kafka: Broker, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    for partition in range(PARTITIONS):
        await producer.send_and_wait(topic, value, key=b"east", partition=partition)
    await producer.stop()


def test_records_are_stamped_with_their_window_and_quarantine_is_kept_from_now_on(
    kafka: Broker, scenario: list[str]
) -> None:
    asyncio.run(put(kafka, OBSERVATIONS, b"{not json"))  # also where no site has a watermark yet
    work_until(kafka, scenario, QUARANTINE, PARTITIONS)

    async def stamped() -> dict[str, list[Record]]:
        wanted = (private_topic("public", "occupancy"), AUDIT, LEAKAGE, QUARANTINE)
        return {topic: await records(kafka.bootstrap, topic) for topic in wanted}

    found = asyncio.run(stamped())
    refused = found.pop(QUARANTINE)
    assert len(refused) == PARTITIONS
    assert all(abs(time.time() * 1000 - record.timestamp_ms) < 120_000 for record in refused)
    for topic, mine in found.items():
        assert len(mine) >= 2 * len(TICKS), topic
        for record in mine:
            assert record.timestamp_ms == parse_time(orjson.loads(record.value)["window_end"]) // 1000, topic
