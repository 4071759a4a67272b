"""The scenario for tests of who may write: a cluster with a recording of two buildings on it, and workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from connectors.keys import key_files
from stream.schemas import AUDIT, private_topic
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import POLICY, TICKS, command, here, tacet
from tests.integration.chain_storm import ROOT
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics
from tests.integration.storm import records
from tests.support.hash_chain import verify_chain

PARTITIONS = 4
SESSION = 6.0
"""Seconds of the workers' session timeout."""
SITES = ("east", "west")
PRIVATE = private_topic("facilities", "occupancy")
CHANGED = POLICY.replace('facilities = "2"', 'facilities = "3"')


@dataclass
class Scenario:
    """A cluster with a recording on it, and the workers of a test."""

    kafka: Broker
    folder: Path
    started: list[subprocess.Popen[bytes]]

    def words(self, policy: str = "policy", key: str = "key") -> list[str]:
        files = ["--policy", str(self.folder / f"{policy}.toml"), "--key-file", str(self.folder / key)]
        return ["--kafka", self.kafka.bootstrap, *files]

    def worker(
        self, *words: str, stop_at: str | None = None, later: bool = False, log: str = "log",
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """Start a worker that stops itself before a record, or is of the mechanism version to come.

        ``given`` joins its environment.
        """
        env = {**os.environ, "TACET_SESSION_TIMEOUT": str(SESSION), "TACET_LOG_LEVEL": "info", **given}
        line = command(["worker", *words])
        if later:
            env |= {"PYTHONPATH": str(ROOT)}
            line = [sys.executable, "-m", "tests.support.later_mechanism_version", "worker", *words]
        if stop_at is not None:
            env |= {"STOP_AT": stop_at, "PYTHONPATH": str(ROOT)}
            line = [sys.executable, "-m", "tests.integration.stopping_worker", "worker", *words]
        with (self.folder / log).open("ab") as output:
            self.started.append(subprocess.Popen(line, env=env, stdout=output, stderr=output, start_new_session=True))
        return self.started[-1]

    def log(self, name: str = "log") -> str:
        return (self.folder / name).read_text()


@contextmanager
def prepared(kafka: Broker, tmp_path: Path) -> Iterator[Scenario]:
    """A cluster whose topics hold the recording and nothing else; its workers end with it."""
    scenario = Scenario(kafka, tmp_path, [])
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "changed.toml").write_text(CHANGED)
    (tmp_path / "rows.csv").write_text(ROWS)
    for name in ("key", "other"):
        key_files.create(tmp_path / name, laboratory=True)
    asyncio.run(clear_topics(kafka.bootstrap))
    here("topics", "create", "--kafka", kafka.bootstrap, "--policy", tmp_path / "policy.toml")
    here("ingest", *scenario.words(), "--observations", tmp_path / "rows.csv")
    yield scenario
    for process in scenario.started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
    asyncio.run(clear_topics(kafka.bootstrap))


def bodies(kafka: Broker, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(record.value) for record in asyncio.run(records(kafka.bootstrap, topic))]


def all_out(kafka: Broker) -> bool:
    ends = {(body["site"], body["window_end"]) for body in bodies(kafka, PRIVATE)}
    return {(site, tick) for site in SITES for tick in TICKS[:-1]} <= ends


def send_an_hour_more(scenario: Scenario) -> None:
    """Send the recording again with the hour after it."""
    rows = (scenario.folder / "rows.csv").read_text().splitlines()
    extra = [f"2026-03-02T11:{minute:02d}:00Z,00:00:5e:00:53:01,02:00:00:00:0e:01,east" for minute in range(60)]
    (scenario.folder / "more.csv").write_text("\n".join([*rows, *extra]) + "\n")
    tacet("ingest", *scenario.words(), "--observations", scenario.folder / "more.csv")


def later_out(kafka: Broker) -> bool:
    """Whether half of the hour after the recording has been released."""
    later = {(site, "2026-03-02T11:30:00Z") for site in SITES}
    return later <= {(body["site"], body["window_end"]) for body in bodies(kafka, PRIVATE)}


def assert_one_history(kafka: Broker) -> list[dict[str, Any]]:
    """Assert that every window came once, each under its charge, in unbroken hash chains; return the charges."""
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


def findings(scenario: Scenario, key: str = "key") -> list[dict[str, Any]]:
    return list(orjson.loads(here("recover", *scenario.words(key=key), "--json").stdout)["findings"])
