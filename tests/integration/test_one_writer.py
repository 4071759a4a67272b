"""A partition has one writer: zombies, other policies, other keys, and messages that lie on the wrong partition."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from connectors import keyfile
from connectors.kafka.client import partition_of
from connectors.kafka.topics import create_topics, topic_names
from stream.accounting.audit import verify_chain
from stream.policy.document import load_policy
from stream.records import Heartbeat
from stream.schemas import AUDIT, OBSERVATIONS, QUARANTINE, SNAPSHOT, encode_message, private_topic
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import POLICY, TICKS, command, tacet
from tests.integration.chain_storm import ROOT
from tests.integration.kafka_ground import Broker, delete_topics
from tests.integration.storm import records

pytestmark = pytest.mark.kafka
PARTITIONS = 4
SITES = ("east", "west")
PRIVATE = private_topic("facilities", "occupancy")
CHANGED = POLICY.replace('facilities = "2"', 'facilities = "3"')


@dataclass
class Ground:
    """A cluster with a recording on it, and the workers of a test."""

    kafka: Broker
    folder: Path
    started: list[subprocess.Popen[bytes]]

    def words(self, policy: str = "policy", key: str = "key") -> list[str]:
        files = ["--policy", str(self.folder / f"{policy}.toml"), "--key-file", str(self.folder / key)]
        return ["--kafka", self.kafka.bootstrap, *files]

    def worker(self, *words: str, stop_at: str | None = None, log: str = "log") -> subprocess.Popen[bytes]:
        env = os.environ | {"TACET_SESSION_TIMEOUT": "6", "TACET_LOG_LEVEL": "info"}
        line = command(["worker", *words])
        if stop_at is not None:
            env |= {"STOP_AT": stop_at, "PYTHONPATH": str(ROOT)}
            line = [sys.executable, "-m", "tests.integration.stopping_worker", "worker", *words]
        with (self.folder / log).open("ab") as output:
            self.started.append(subprocess.Popen(line, env=env, stdout=output, stderr=output, start_new_session=True))
        return self.started[-1]

    def log(self, name: str = "log") -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def ground(kafka: Broker, tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(kafka, tmp_path, [])
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "changed.toml").write_text(CHANGED)
    (tmp_path / "rows.csv").write_text(ROWS)
    for name in ("key", "other"):
        keyfile.create(tmp_path / name, laboratory=True)
    names = topic_names(load_policy(POLICY))
    asyncio.run(delete_topics(kafka.bootstrap, names))
    tacet("topics", "create", "--kafka", kafka.bootstrap, "--policy", tmp_path / "policy.toml")
    tacet("ingest", *ground.words(), "--observations", tmp_path / "rows.csv")
    yield ground
    for process in ground.started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
    asyncio.run(delete_topics(kafka.bootstrap, names))


def bodies(kafka: Broker, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(record.value) for record in asyncio.run(records(kafka.bootstrap, topic))]


def wait_until(sign: Any, what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not sign():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    state = re.search(r"^State:\s+(\S)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return state is not None and state[1] == "T"


def all_out(kafka: Broker) -> bool:
    ends = {(body["site"], body["window_end"]) for body in bodies(kafka, PRIVATE)}
    return {(site, tick) for site in SITES for tick in TICKS[:-1]} <= ends


def assert_one_history(kafka: Broker) -> list[dict[str, Any]]:
    """Assert that every window was released once, each under its charge, in unbroken chains; return the charges."""
    audit: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in bodies(kafka, AUDIT):
        audit[entry["site"]].append(entry)
    for entries in audit.values():
        verify_chain(entries)
    charged = [entry["release_id"] for entries in audit.values() for entry in entries]
    released = [body["release_id"] for name in ("facilities", "public")
                for body in bodies(kafka, private_topic(name, "occupancy"))]  # fmt: skip
    assert len(set(charged)) == len(charged)
    assert sorted(released) == sorted(charged)
    return [entry for entries in audit.values() for entry in entries]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("before", [AUDIT, PRIVATE, SNAPSHOT])
@pytest.mark.parametrize("policy", ["policy", "changed"])
def test_a_zombie_that_wakes_writes_nothing_whatever_policy_its_heir_has(
    ground: Ground, before: str, policy: str
) -> None:
    """It stops in the middle of a window's records; its heir finishes what it began and goes on."""
    zombie = ground.worker(*ground.words(), stop_at=f"{before}:2", log="zombie")
    wait_until(lambda: is_stopped(zombie), "the worker must come so far")
    heir = ground.worker(*ground.words(policy), "--accept-policy", log="heir")
    wait_until(lambda: all_out(ground.kafka), ground.log("heir")[-2000:])
    zombie.send_signal(signal.SIGCONT)
    if policy == "changed":
        assert zombie.wait(60) == 2
        assert "which has been accepted meanwhile" in ground.log("zombie")
    else:
        wait_until(lambda: "another owner has taken it" in ground.log("zombie"), "the zombie must find out")
        assert zombie.poll() is None
        zombie.terminate()
        assert zombie.wait(20) == 0
    assert heir.poll() is None
    heir.terminate()
    assert heir.wait(20) == 0
    entries = assert_one_history(ground.kafka)
    assert {entry["policy_version"] for entry in entries} <= {load_policy(text).version for text in (POLICY, CHANGED)}


def test_nothing_keeps_a_whole_cluster_from_going_on(ground: Ground) -> None:
    ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the worker must work")
    assert findings(ground) == []


def test_of_two_policies_on_fresh_topics_the_first_wins_and_the_other_ends_at_once(ground: Ground) -> None:
    first = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the first must work")
    done = tacet("worker", *ground.words("changed"), code=2)
    assert "policy: must be version" in done.stderr.splitlines()[-1]
    assert first.poll() is None
    assert_one_history(ground.kafka)


def test_of_two_keys_on_fresh_topics_the_first_wins_and_the_other_ends_at_once(ground: Ground) -> None:
    both = [ground.worker(*ground.words(key=key), log=key) for key in ("key", "other")]
    wait_until(lambda: any(process.poll() is not None for process in both), "one must end")
    (lost,) = [process for process in both if process.poll() is not None]
    assert lost.returncode == 2
    assert "key: must be the one this cluster was begun with" in ground.log("key") + ground.log("other")
    wait_until(lambda: all_out(ground.kafka), "the other must work")
    assert_one_history(ground.kafka)


async def grow(kafka: Broker, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.create_partitions({topic: NewPartitions(2 * PARTITIONS)})
    await admin.close()


def test_a_topic_that_somebody_has_grown_is_refused_by_every_start(ground: Ground) -> None:
    asyncio.run(grow(ground.kafka, OBSERVATIONS))
    said = f"topic {OBSERVATIONS}: must have 4 partitions like the whole cluster, has 8"
    for line in (
        ["worker", *ground.words()],
        ["ingest", *ground.words(), "--observations", str(ground.folder / "rows.csv")],
        ["account", "--kafka", ground.kafka.bootstrap],
    ):
        assert said in tacet(*line, code=2).stderr
    (found,) = findings(ground)
    assert found["what"].startswith(f"topic {OBSERVATIONS}: has 8 partitions, the cluster 4")
    assert "--accept-loss" in found["ways"][0]["do"]


def findings(ground: Ground) -> list[dict[str, Any]]:
    return list(orjson.loads(tacet("recover", *ground.words(), "--json").stdout)["findings"])


async def misplace(kafka: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    beat = encode_message(Heartbeat("east", "127.0.0.1", 1, 1_772_460_000_000_000, 0))
    await producer.send_and_wait(OBSERVATIONS, beat, key=b"east", partition=(partition_of("east", PARTITIONS) + 1) % 4)
    await producer.stop()


def test_a_message_on_the_wrong_partition_goes_to_quarantine_and_forks_no_site(ground: Ground) -> None:
    asyncio.run(misplace(ground.kafka))
    ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the worker must work")
    wait_until(lambda: bodies(ground.kafka, QUARANTINE), "it must be refused")
    (refused,) = bodies(ground.kafka, QUARANTINE)
    assert refused["reason"] == "wrong_partition"
    assert_one_history(ground.kafka)


def test_books_are_never_begun_anew_beside_what_they_have_released(ground: Ground) -> None:
    first = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the first must work")
    first.terminate()
    assert first.wait(20) == 0
    released = len(bodies(ground.kafka, PRIVATE))
    asyncio.run(delete_topics(ground.kafka.bootstrap, [AUDIT, SNAPSHOT]))
    asyncio.run(create_topics(ground.kafka.bootstrap, [AUDIT, SNAPSHOT], partitions=PARTITIONS))
    done = tacet("worker", *ground.words(), code=2)
    assert "fresh books would release windows again; 'tacet recover --kafka'" in done.stderr.splitlines()[-1]
    assert len(bodies(ground.kafka, PRIVATE)) == released
    report = findings(ground)
    assert any("audit and snapshot hold none" in found["what"] for found in report)
    assert all("new ledger" in found["ways"][-1]["do"] for found in report)


def test_a_recreated_observations_topic_is_noticed(ground: Ground) -> None:
    first = ground.worker(*ground.words())
    wait_until(lambda: all_out(ground.kafka), "the first must work")
    first.terminate()
    assert first.wait(20) == 0
    asyncio.run(delete_topics(ground.kafka.bootstrap, [OBSERVATIONS]))
    asyncio.run(create_topics(ground.kafka.bootstrap, [OBSERVATIONS], partitions=PARTITIONS))
    rows = (ground.folder / "rows.csv").read_text().splitlines()
    extra = [f"2026-03-02T11:{minute:02d}:00Z,00:00:5e:00:53:01,02:00:00:00:0e:01,east" for minute in range(60)]
    (ground.folder / "more.csv").write_text("\n".join([*rows, *extra]) + "\n")
    tacet("ingest", *ground.words(), "--observations", ground.folder / "more.csv")
    done = tacet("worker", *ground.words(), code=1)
    assert "holds another message than the one that was read there; the topic was made anew" in done.stderr
    assert any("they were made anew" in found["what"] for found in findings(ground))
    again = ground.worker(*ground.words(), "--accept-loss")
    later = {(site, "2026-03-02T11:30:00Z") for site in SITES}
    wait_until(lambda: later <= {(b["site"], b["window_end"]) for b in bodies(ground.kafka, PRIVATE)}, "it must go on")
    assert again.poll() is None
    assert_one_history(ground.kafka)
