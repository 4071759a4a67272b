"""From traps to a subscriber on a real Kafka, with the same bytes as without Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from connectors.keys import key_files
from connectors.lab.simulation import files as simulation
from connectors.lab.simulation import policy as simulation_policy
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.replay import replay
from connectors.sources.snmp.sender import Association, encode_associate, send
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.pipeline import Options
from stream.release.validation import load_policy
from stream.schemas import private_topic
from tests.acceptance.command_line import run
from tests.integration.kafka_brokers import Broker, clear_topics, delete_topics
from tests.integration.storm import records
from tests.support.day_policies import day_release, shared
from tests.support.patience import PATIENCE

pytestmark = [pytest.mark.kafka]
TACET = [sys.executable, "-m", "connectors"]
ASSOCIATE = "1.3.6.1.4.1.14179.2.6.3.53"
STATION, ACCESS_POINT = "1.3.6.1.4.1.14179.2.6.2.34.0", "1.3.6.1.4.1.14179.2.6.2.35.0"

LIVE = """
[site.hall]
sources = ["127.0.0.1"]
tick = "1min"
validity = "5min"
lateness = "1s"
[[site.hall.zones]]
id = "101"
capacity = 30
access_points = ["5c:52:1e:00:20:11"]
[[site.hall.zones]]
id = "102"
capacity = 30
access_points = ["5c:52:1e:00:20:12"]
[[audience]]
name = "engineers"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { engineers = "100" }
"""

BY_DAY = day_release(
    "day", "filter", more='zones = { kind = ["classroom", "open", "corridor"] }\n' + shared(floor="0.5", building="0.5")
)


def tacet(*words: str) -> str:
    """Run one command to its end, in this process: only what goes on beside others needs one of its own."""
    done = run(*words)
    assert done.code == 0, done.problem
    return done.out


@contextlib.contextmanager
def running(*words: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A verb that runs until it is told to stop; it must end well."""
    process = subprocess.Popen([*TACET, *words], env=env, stdout=subprocess.DEVNULL)
    try:
        yield process
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0
    finally:
        if process.poll() is None:
            process.kill()


def cleared(kafka: Broker, policy_file: Path) -> str:
    asyncio.run(clear_topics(kafka.bootstrap))
    tacet("topics", "create", "--kafka", kafka.bootstrap, "--policy", str(policy_file))
    return kafka.bootstrap


def subscribed(kafka: str, audience: str, release: str) -> list[str]:
    words = ["--kafka", kafka, "--audience", audience, "--release", release, "--from-start", "--until-end", "--json"]
    return tacet("subscribe", *words).splitlines()


async def plainly_consumed(kafka: str, topic: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        found, values = await consumer.getmany(timeout_ms=8000), list[bytes]()
        while found:
            values += [record.value for records in found.values() for record in records]
            found = await consumer.getmany(timeout_ms=1500)
        return values
    finally:
        await consumer.stop()


def test_private_topics_hold_the_same_bytes_as_a_replay_of_the_same_observations(kafka: Broker, tmp_path: Path) -> None:
    made = simulate(SimulatorConfig(seed=5, zones=8, scale=0.3))
    queries = 'queries = [{ name = "hourly", kind = "window-sum", windows = 4 }]'
    text = simulation_policy.policy_text(made).replace("levels = ", f"{queries}\nlevels = ", 1)
    text = text.replace('tick = "5min"', 'tick = "15min"')
    filtered = 'name = "floors"\nquery = "count"\nmechanism = "filter"\n'
    text = text.replace(filtered, f'{filtered}revise = ["1h", "1d"]\n') + BY_DAY
    policy_file, key, rows = tmp_path / "policy.toml", tmp_path / "key", tmp_path / "o.csv"
    policy_file.write_text(text)
    key_files.create(key, laboratory=True)
    with rows.open("w", newline="") as file:
        simulation.write_csv(made, file)
    policy = load_policy(text)
    observations = ObservationFile(rows, policy, key_files.pseudonym_key(key))
    replay(observations, policy, key_files.laboratory_keys(key), tmp_path / "out", Options())
    bootstrap = cleared(kafka, policy_file)
    common = ["--kafka", bootstrap, "--policy", str(policy_file), "--key-file", str(key)]
    wanted = {path: path.read_text().splitlines() for path in sorted((tmp_path / "out/private").glob("*/*.jsonl"))}
    assert {path.stem for path in wanted} >= {"occupancy", "hourly", "floors", "floors-revised", "day"}
    with running("worker", *common):
        tacet("ingest", *common, "--observations", str(rows))
        floors, patience = private_topic("public", "floors"), time.monotonic() + PATIENCE
        expected = len(wanted[tmp_path / "out/private/public/floors.jsonl"])
        while len(asyncio.run(records(bootstrap, floors))) < expected:
            assert time.monotonic() < patience, f"waited {PATIENCE:.0f} s for {expected} records of {floors}"
            time.sleep(1)
    for path, lines in wanted.items():
        assert subscribed(bootstrap, path.parent.name, path.stem) == lines, path
    plain = asyncio.run(plainly_consumed(bootstrap, "tacet.private.facilities.occupancy.v1"))
    assert [value.decode() for value in plain] == wanted[tmp_path / "out/private/facilities/occupancy.jsonl"]
    account = json.loads(tacet("account", "--kafka", bootstrap, "--json"))["sites"]["dbh"]
    last = json.loads((tmp_path / "out/leakage.jsonl").read_text().splitlines()[-1])
    assert account["last"]["coalition"] == last["coalition"]
    audit = json.loads(tacet("audit", "verify", "--kafka", bootstrap, "--key-file", str(key), "--json"))
    entries = len((tmp_path / "out/audit.jsonl").read_text().splitlines())
    assert (audit["ok"], audit["entries"], audit["records"]) == (True, entries, entries)
    status = json.loads(tacet("status", "--kafka", bootstrap, "--policy", str(policy_file), "--json"))
    assert [part["lag"] for part in status["partitions"] if "dbh" in part["sites"]] == [0]
    _lose_and_put_back(kafka, policy_file, key, wanted)


def _lose_and_put_back(kafka: Broker, policy_file: Path, key: Path, wanted: dict[Path, list[str]]) -> None:
    """Make some topics anew: what is lost is missed, and put back byte for byte, also what costs nothing."""
    lost = [path for path in wanted if path.stem in {"floors", "floors-revised", "hourly"}]
    topics = [private_topic(path.parent.name, path.stem) for path in lost]
    asyncio.run(delete_topics(kafka.bootstrap, topics))
    where = ["--kafka", kafka.bootstrap]
    tacet("topics", "create", *where, "--policy", str(policy_file))
    broken = run("audit", "verify", *where, "--json")
    assert broken.code == 2
    floors = {path.parent.name: len(wanted[path]) for path in lost if path.stem == "floors"}
    missing = {each["audience"]: each["records"] for each in json.loads(broken.out)["missing"]}
    assert missing == floors
    found = json.loads(tacet("recover", *where, "--json"))["findings"]
    assert [finding["what"].partition(" are missing")[0] for finding in found] == [
        f"site dbh: {records} published record(s) of release floors for {audience}"
        for audience, records in sorted(floors.items())
    ]
    doctor = json.loads(run("doctor", *where, "--policy", str(policy_file), "--json").out)["findings"]
    assert [each["state"] for each in doctor if each["check"] == "published records"] == ["wrong"] * len(floors)
    made = json.loads(tacet("republish", *where, "--policy", str(policy_file), "--key-file", str(key), "--json"))
    assert made == {
        "republished": sum(len(wanted[path]) for path in lost),
        "topics": {topic: len(wanted[path]) for topic, path in zip(topics, lost, strict=True)}, "stopped": {},
    }  # fmt: skip
    for path, lines in wanted.items():
        assert subscribed(kafka.bootstrap, path.parent.name, path.stem) == lines, path
    assert json.loads(tacet("audit", "verify", *where, "--json"))["ok"]


NOBODY = Association(bytes(6), bytes(6))


def until_answered(port: int, told: Association = NOBODY) -> None:
    """Wait until an inform, of nobody unless told, is answered: ingest listens, and its broker takes what it sends."""
    patience = time.monotonic() + PATIENCE
    inform = encode_associate(told, community=b"s3cret", uptime=1, request_id=1, inform=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as controller:
        controller.settimeout(0.5)
        while time.monotonic() < patience:
            controller.sendto(inform, ("127.0.0.1", port))
            with contextlib.suppress(OSError):
                if controller.recv(65_535):
                    return
    raise AssertionError(f"waited {PATIENCE:.0f} s for an answer to an inform")


@pytest.mark.snmptrap
def test_live_traps_reach_a_subscriber_through_kafka(kafka: Broker, tmp_path: Path) -> None:
    if shutil.which("snmptrap") is None:
        assert os.environ.get("TACET_REQUIRE_SNMPTRAP") != "1", "snmptrap must be there"
        pytest.skip("net-snmp's snmptrap is not here")
    policy_file, key, communities = tmp_path / "policy.toml", tmp_path / "key", tmp_path / "communities"
    policy_file.write_text(LIVE)
    key_files.create(key, laboratory=False)
    communities.write_text("s3cret\n")
    communities.chmod(0o600)
    bootstrap = cleared(kafka, policy_file)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {"TACET_SNMP_COMMUNITIES_FILE": str(communities), "TACET_KAFKA": bootstrap}
    common = ["--policy", str(policy_file), "--key-file", str(key)]
    with (
        running("worker", *common, env=env),
        running("ingest", *common, "--udp", f"127.0.0.1:{port}", env=env),
    ):
        until_answered(port)
        for device in ("020000000001", "020000000002"):
            subprocess.run(
                ["snmptrap", "-v2c", "-c", "s3cret", f"127.0.0.1:{port}", "4711", ASSOCIATE,
                 STATION, "x", device, ACCESS_POINT, "x", "5c521e002011"],
                check=True, timeout=PATIENCE,
            )  # fmt: skip
        simulated = [
            (
                0,
                encode_associate(
                    Association(bytes([2, 0, 0, 0, 1, n]), bytes.fromhex("5c521e002012")), community=b"s3cret", uptime=1
                ),
            )
            for n in range(5)
        ]
        asyncio.run(send(simulated, ("127.0.0.1", port), None))
        patience = time.monotonic() + PATIENCE
        found: list[dict[str, object]] = []
        while time.monotonic() < patience and not found:
            time.sleep(2)
            records = [json.loads(line) for line in subscribed(bootstrap, "engineers", "occupancy")]
            found = [r for r in records if r["values"] == {"101": 2, "102": 5} and r["coverage"] == 1.0]
    assert found, f"waited {PATIENCE} s for a window with the devices in it, listened to from its begin"
    assert found[0]["laboratory"] is False
