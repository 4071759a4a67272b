"""ingest and run as processes: what they report of received traps, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.cli.ingest import LAST_DRAIN, _SourceWriter
from connectors.keys import key_files
from connectors.monitoring.monitor import Monitor
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import within
from connectors.sources.recorded import FileSource
from connectors.sources.recordings.dialect import OWN
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.release.validation import load_policy
from tests.acceptance.command_line import OBSERVATIONS, POLICY, command, here, tacet
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

KNOWN = bytes.fromhex("020000000e01")
CLIENT = "3c0000000"


class Scenario:
    """A policy, a key and communities in a folder, and a socket that sends traps as the policy's controller."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.policy, self.key, self.rows = folder, folder / "policy", folder / "key", folder / "rows.csv"
        self.files(folder)
        (folder / "communities").write_text("s3cret\n")
        (folder / "communities").chmod(0o600)
        self.env = os.environ | {"TACET_SNMP_COMMUNITIES_FILE": str(folder / "communities")}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = free_port(socket.SOCK_DGRAM)

    @staticmethod
    def files(folder: Path) -> Path:
        """Write policy, recording and key into a folder, and return it."""
        (folder / "policy").write_text(POLICY)
        (folder / "rows.csv").write_text(OBSERVATIONS)
        key_files.create(folder / "key", laboratory=True)
        return folder

    def words(self, verb: str, *more: str) -> list[str]:
        udp = f"127.0.0.1:{self.port}"
        return [verb, "--policy", str(self.policy), "--key-file", str(self.key), "--udp", udp, *more]

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start a verb that listens; an inform of this is answered when it does."""
        process = subprocess.Popen(
            command(words), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self.ask_until_answered()
            yield process
        finally:
            process.kill()
            process.communicate()

    def send(self, number: int, access_point: bytes = KNOWN, *, inform: bool = False) -> None:
        client = bytes.fromhex(f"{CLIENT}{number:03x}")
        trap = encode_associate(
            Association(client, access_point), community=b"s3cret", uptime=1, request_id=number + 1, inform=inform
        )
        self.socket.sendto(trap, ("127.0.0.1", self.port))

    def answers(self, seconds: float = 0.5) -> int:
        """Return how many answers come until there is none for so long."""
        received = 0
        self.socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while self.socket.recv(65_535):
                received += 1
        return received

    def until_taken_in(self) -> None:
        """Wait until the process has taken everything from its port."""
        patience, port = time.monotonic() + PATIENCE, f":{self.port:04X} "
        while time.monotonic() < patience:
            (row,) = [row.split() for row in Path("/proc/net/udp").read_text().splitlines() if port in row]
            if row[4].endswith(":00000000"):
                return
            time.sleep(0.01)
        raise AssertionError(f"waited {PATIENCE:.0f} s for an empty port")

    def ask_until_answered(self) -> None:
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience:
            self.send(4000, inform=True)
            if self.answers():
                return
        raise AssertionError(f"waited {PATIENCE:.0f} s for an answer")


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(tmp_path)
    yield made
    made.socket.close()


def ended(process: subprocess.Popen[str], code: int, seconds: float) -> tuple[str, str]:
    process.terminate()
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, err
    return out, err


def unknown(number: int) -> bytes:
    return bytes.fromhex(f"5c521effff{number:02x}")


@pytest.mark.parametrize("as_json", [True, False])
def test_the_access_points_that_the_policy_lacks_are_told_at_the_end(scenario: Scenario, as_json: bool) -> None:
    with scenario.running(
        *scenario.words("run", "--store", str(scenario.folder / "store"), *["--json"] * as_json)
    ) as live:
        for number in range(25):
            for again in range(3 if number < 20 else 1):
                scenario.send(100 * again + number, unknown(number))
        scenario.until_taken_in()
        out, err = ended(live, 0, PATIENCE)
    names = [unknown(number).hex(":") for number in range(20)]
    if as_json:
        report = json.loads(out)
        assert report["dropped"]["unknown_access_point"] == 65
        assert report["unknown_access_points"] == dict.fromkeys(names, 3)
        assert report["traps_of_other_unknown_access_points"] == 5
        assert report["informs_answered"] >= 1
        assert {"answers_unsent", "kernel_drops", "locally_administered", "waiting"} <= report.keys()
    else:
        lines = [line.split() for line in out.splitlines()]
        assert ["65", "dropped:", "unknown", "access", "point"] in lines
        assert [line for line in lines if line[0] == "3"] == [["3", name] for name in names]
        assert ["5", "at", "others"] in lines
        assert any(line[1:] == ["informs", "answered"] for line in lines)
    for text in (out, err):
        assert "3c:00:00:00" not in text
        assert CLIENT not in text


def test_bounds_of_windows_are_not_for_live_traps(scenario: Scenario) -> None:
    done = tacet(*scenario.words("ingest", "--from", "2026-03-02T10:00:00Z"), code=2)
    assert "tacet worker" in done.stderr


# --- on Kafka ----------------------------------------------------------------------------------------------


@pytest.fixture
def bootstrap(kafka: Broker, scenario: Scenario) -> Iterator[str]:
    asyncio.run(clear_topics(kafka.bootstrap))
    here("topics", "create", "--kafka", kafka.bootstrap, "--policy", scenario.policy)
    yield kafka.bootstrap
    asyncio.run(clear_topics(kafka.bootstrap))


@on_any_broker
async def test_a_broker_that_does_not_answer_is_waited_for_no_longer_than_said(
    broker: AnyBroker, tmp_path: Path
) -> None:
    """Then the process ends at once, which is tried each night."""
    made = Scenario.files(tmp_path)
    policy = load_policy(POLICY)
    await create_topics(broker.bootstrap, topic_names(policy), partitions=2)
    source = FileSource(made / "rows.csv", None, None, None, OWN, False)
    monitor = Monitor("ingest", policy, None, wall_clock, ())
    writer = _SourceWriter(broker.bootstrap, source, policy, key_files.IngestKeys(made / "key"), monitor, None)
    await writer.begin(take_over=False)
    await broker.hang()
    began, stop = time.monotonic(), asyncio.Event()
    asyncio.get_running_loop().call_later(1.0, stop.set)
    assert not await within(LAST_DRAIN, writer.pour(stop), stop)
    assert time.monotonic() - began < 2 * LAST_DRAIN
    await broker.recover()


@pytest.mark.kafka
@pytest.mark.long
def test_ingest_ends_although_the_broker_does_not_answer(kafka: Broker, scenario: Scenario, bootstrap: str) -> None:
    if not kafka.killable:
        pytest.skip("the broker was given and is not ours to stop")
    with scenario.running(*scenario.words("ingest", "--kafka", bootstrap, "--json")) as live:
        kafka.pause()
        try:
            for number in range(3):
                scenario.send(number, inform=True)
            scenario.until_taken_in()
            out, err = ended(live, 1, PATIENCE)
        finally:
            kafka.resume()
        assert scenario.answers() == 0, "what was not written is not acknowledged"
    assert err.splitlines()[-1].startswith("tacet: no answer from Kafka for 8 s")
    assert "Traceback" not in err
    assert json.loads(out)["accepted"] + json.loads(out)["waiting"] >= 4
