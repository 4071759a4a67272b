"""Counts on Kafka, from the topic that counters write or from a file, release the bytes of 'run --counts FILE'.

All windows lie in the past, and so do the times of the rows' records, which whoever writes a topic of Kafka's default
settings may choose: the clock has passed all of them, and nothing here waits for it. An ordinary run has the longest
way alone, from the topic through ingest and worker; each night has the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from connectors.keys import key_files
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.kafka.topic_readers import end_offsets
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.records import MINUTE, SECOND
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, OBSERVATIONS, QUARANTINE, parse_time, private_topic, rfc3339
from tests.acceptance.command_line import command, run
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics, create_as_given, delete_topics
from tests.integration.storm import records
from tests.support.patience import wait_until

COUNTERS, WINDOWS = "counters-of-the-mall", 240
BEGIN = parse_time("2026-03-02T12:00:00Z")
LAST = BEGIN + (WINDOWS - 1) * MINUTE
RANGE = ["--from", rfc3339(BEGIN), "--to", rfc3339(LAST)]
ZONES = ("gate", "hall")
POLICY = """
[site.mall]
feed = "counts"
tick = "1min"
lateness = "40s"
zones = [{ id = "gate", capacity = 20 }, { id = "hall", capacity = 20 }]
[[audience]]
name = "facilities"
[[audience]]
name = "public"
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
levels = ["zone", "building"]
epsilon = { facilities = "0.5", public = "0.1" }
daily_budget = { facilities = "100", public = "24" }
"""
PRIVATE = [private_topic(audience, "plain") for audience in ("facilities", "public")]
Released = dict[str, list[bytes]]
Row = tuple[dict[str, Any], int]
"""What a record holds, and its time in milliseconds."""


@dataclass(frozen=True)
class Scenario:
    folder: Path
    bootstrap: str
    expected: Released
    """What 'run --counts FILE' has made, by topic."""

    def words(self, verb: str, *more: str) -> list[str]:
        """Return what starts a verb on the topics."""
        there = [f"--policy={self.folder}/policy.toml", f"--key-file={self.folder}/key", f"--kafka={self.bootstrap}"]
        return [verb, *there, *more]


def rows() -> tuple[list[str], list[Row]]:
    """Return the lines of a file, and records in the order of a topic, that tell the same.

    Of a topic also copies, late ones, early ones and what is no row.
    """
    rng, lines, sent = random.Random(5), [], list[Row]()
    for number in range(WINDOWS):
        end = BEGIN + number * MINUTE
        for zone in ZONES:
            row = {"window_end": rfc3339(end), "zone": zone, "count": rng.randrange(30)}
            written = (end + rng.randrange(-20, 40) * SECOND) // 1000
            chance = rng.random()
            if chance < 0.05:
                continue  # nobody told of it
            given = (
                [row, row | {"count": -1}] if chance < 0.1 else [row, row | {"count": 99}] if chance < 0.15 else [row]
            )
            lines += [f"{each['window_end']},{each['zone']},{each['count']}" for each in given]
            sent += [(each, written) for each in given]
            if chance > 0.7:
                sent.append((row, written))
                sent.append((row | {"count": 7}, (end + 41 * SECOND) // 1000))
                sent.append((row | {"count": 8}, (end - MINUTE) // 1000))
                sent.append(({"zone": zone}, written))
    rng.shuffle(lines)
    return lines, sorted(sent, key=lambda each: each[1] + rng.randrange(-2000, 2000))


async def fill(bootstrap: str, sent: list[Row]) -> None:
    await delete_topics(bootstrap, [COUNTERS])
    await create_as_given(bootstrap, NewTopic(COUNTERS, 3, 1, topic_configs={"retention.ms": "-1"}))
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    await producer.start()
    for row, written in sent:
        await producer.send(COUNTERS, orjson.dumps(row), key=row["zone"].encode(), timestamp_ms=written)
    await producer.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key, a file of counts, and the store that 'run' has made of it."""
    folder = tmp_path_factory.mktemp("counters")
    (folder / "policy.toml").write_text(POLICY)
    key_files.create(folder / "key", laboratory=True)
    lines, _ = rows()
    (folder / "counts.csv").write_text("\n".join(["window_end,zone,count", *lines]) + "\n")
    files = [f"--policy={folder}/policy.toml", f"--key-file={folder}/key"]
    done = run("run", *files, f"--store={folder}/reference", f"--counts={folder}/counts.csv", *RANGE)
    assert "bad row" in done.problem  # which is said, and spoils no other
    return folder


@pytest.fixture(scope="module")
def scenario(kafka: Broker, made: Path) -> Iterator[Scenario]:
    asyncio.run(fill(kafka.bootstrap, rows()[1]))
    yield Scenario(made, kafka.bootstrap, held(made / "reference"))
    asyncio.run(delete_topics(kafka.bootstrap, [COUNTERS]))


@pytest.fixture
def topics(scenario: Scenario) -> Scenario:
    """The scenario with empty topics of the product."""
    asyncio.run(clear_topics(scenario.bootstrap))
    asyncio.run(create_topics(scenario.bootstrap, topic_names(load_policy(POLICY)), partitions=2))
    return scenario


def held(store: Path) -> Released:
    boxes = {
        topic: [value for _, value in read_outbox(store, name, 0)]
        for topic, name in zip(PRIVATE, ("facilities", "public"), strict=True)
    }
    return boxes | {topic: [*read_topic(store, topic)] for topic in (AUDIT, LEAKAGE)}


async def published(bootstrap: str) -> Released:
    return {topic: [r.value for r in await records(bootstrap, topic)] for topic in (*PRIVATE, AUDIT, LEAKAGE)}


def until(reached: Callable[[], bool], *processes: subprocess.Popen[bytes]) -> None:
    """Wait for what will be; whoever brings it about must not end before."""

    def holds() -> bool:
        if reached():
            return True
        assert all(process.poll() is None for process in processes), "a process has ended"
        return False

    wait_until(holds, repr(reached))


@contextlib.contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    env = os.environ | {"TACET_SESSION_TIMEOUT": "6"}  # what a killed worker had goes to the next one sooner
    process = subprocess.Popen(command(words), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def written(scenario: Scenario, topic: str) -> int:
    return sum(asyncio.run(end_offsets(scenario.bootstrap, topic)).values())


def _has(scenario: Scenario, topic: str, least: int) -> bool:
    return written(scenario, topic) >= least


def _holds(store: Path, least: int) -> bool:
    return len(_box(store)) >= least


def worked(scenario: Scenario) -> None:
    """Let a worker do all that is to be done."""
    with started(scenario.words("worker")) as worker:
        until(lambda: len(asyncio.run(published(scenario.bootstrap))[PRIVATE[1]]) >= WINDOWS, worker)
        worker.terminate()
        assert worker.wait(60) == 0


def test_the_reference_holds_something_of_every_kind(made: Path) -> None:
    released = held(made / "reference")
    bodies = [orjson.loads(value) for value in released[PRIVATE[1]]]
    assert [body["window_end"] for body in bodies] == [rfc3339(BEGIN + n * MINUTE) for n in range(WINDOWS)]
    assert {body["coverage"] for body in bodies} == {0.0, 1.0}
    assert {(body["released"], body["reason"]) for body in bodies} == {(True, None)}
    assert len(released[AUDIT]) >= WINDOWS


@pytest.mark.kafka
@pytest.mark.long
def test_run_on_a_topic_ends_with_its_last_window_and_has_released_the_same_bytes(scenario: Scenario) -> None:
    store = scenario.folder / "once"
    done = run(*scenario.words("run", f"--store={store}", "--counts", f"--topic={COUNTERS}", *RANGE, "--json"))
    assert done.code == 0, done.problem
    assert orjson.loads(done.out)["dropped"].keys() == {"bad_row", "differs", "early", "incomplete", "late"}
    assert held(store) == scenario.expected


@pytest.mark.kafka
@pytest.mark.long
def test_run_on_a_topic_that_is_killed_amid_it_releases_the_same_and_nothing_twice(scenario: Scenario) -> None:
    store = scenario.folder / "killed"
    words = scenario.words("run", f"--store={store}", "--counts", f"--topic={COUNTERS}", *RANGE)
    for reached in (1, WINDOWS // 3, 2 * WINDOWS // 3):
        with started(words) as process:
            until(partial(_holds, store, reached), process)
    assert len(_box(store)) < WINDOWS, "the last kill must come amid it"
    assert run(*words).code == 0
    assert held(store) == scenario.expected


def _box(store: Path) -> list[Any]:
    try:
        return read_outbox(store, "public", 0)
    except Exception:  # not made yet
        return []


@pytest.mark.kafka
@pytest.mark.long
def test_ingest_of_a_file_of_counts_and_a_worker_release_the_same_bytes(topics: Scenario) -> None:
    words = topics.words("ingest", f"--counts={topics.folder}/counts.csv", *RANGE)
    done = run(*words)
    assert (done.code, "bad rows were left out" in done.problem) == (3, True)
    assert "windows were refused: each window must have a good row for each zone" in done.problem
    assert written(topics, OBSERVATIONS) == WINDOWS
    again = run(*words)  # copies
    assert again.code == 3
    worked(topics)
    assert asyncio.run(published(topics.bootstrap)) == topics.expected
    assert written(topics, QUARANTINE) > 0, "each window that lacks a zone"


@pytest.mark.kafka
def test_ingest_of_a_topic_and_a_worker_that_are_killed_amid_it_release_the_same_bytes_once(topics: Scenario) -> None:
    absent = run(*topics.words("ingest", "--counts", "--topic=no-such-topic"))
    assert (absent.code, "topic no-such-topic: does not exist" in absent.problem) == (2, True)
    ingest = topics.words("ingest", "--counts", f"--topic={COUNTERS}", "--take-over", *RANGE)
    for share in (5, 3, 2):
        with started(ingest) as process:
            until(partial(_has, topics, OBSERVATIONS, WINDOWS // share), process)
    with started(topics.words("worker")) as worker:
        until(partial(_has, topics, PRIVATE[1], WINDOWS // 4), worker)
    done = run(*ingest)
    assert done.code == 0, done.problem
    worked(topics)
    assert asyncio.run(published(topics.bootstrap)) == topics.expected
