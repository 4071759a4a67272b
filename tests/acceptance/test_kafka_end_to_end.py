"""From a recording to subscribers on a real Kafka, with the same bytes as without Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from connectors.keys import key_files
from connectors.lab.simulation import files as simulation
from connectors.lab.simulation import policy as simulation_policy
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.schemas import private_topic
from tests.acceptance.command_line import run
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics, delete_topics
from tests.integration.metrics_services import checked_by_promtool, until, watched
from tests.integration.storm import records
from tests.support.day_policies import day_release, shared
from tests.support.patience import PATIENCE

pytestmark = [pytest.mark.kafka]
CUT = ["--from", "2018-02-01T08:20:00Z", "--to", "2018-02-02T07:40:00Z"]
"""Neither at the recording's ends nor at a window's."""

BY_DAY = day_release(
    "day", "filter", more='zones = { kind = ["classroom", "open", "corridor"] }\n' + shared(floor="0.5", building="0.5")
)


def tacet(*words: str) -> str:
    """Run one command to its end, in this process: only what goes on beside others needs one of its own."""
    done = run(*words)
    assert done.code == 0, done.problem
    return done.out


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
    """Both are cut at the same times."""
    made = simulate(SimulatorConfig(seed=5, zones=8, scale=0.3))
    queries = 'queries = [{ name = "hourly", kind = "window-sum", windows = 4 }]'
    text = simulation_policy.policy_text(made).replace("levels = ", f"{queries}\nlevels = ", 1)
    text = text.replace('tick = "5min"', 'tick = "30min"')
    filtered = 'name = "floors"\nquery = "count"\nmechanism = "filter"\n'
    text = text.replace(filtered, f'{filtered}revise = ["1h", "1d"]\n') + BY_DAY
    policy_file, key, rows = tmp_path / "policy.toml", tmp_path / "key", tmp_path / "o.csv"
    policy_file.write_text(text)
    key_files.create(key, laboratory=True)
    with rows.open("w", newline="") as file:
        simulation.write_csv(made, file)
    own = ["--policy", str(policy_file), "--key-file", str(key)]
    tacet("replay", str(rows), *own, "--out", str(tmp_path / "out"), *CUT)
    bootstrap = cleared(kafka, policy_file)
    common = ["--kafka", bootstrap, *own]
    wanted = {path: path.read_text().splitlines() for path in sorted((tmp_path / "out/private").glob("*/*.jsonl"))}
    assert {path.stem for path in wanted} >= {"occupancy", "hourly", "floors", "floors-revised", "day"}
    with watched("worker", *common) as worker:
        worker.ready()
        tacet("ingest", *common, "--observations", str(rows), *CUT)
        floors, patience = private_topic("public", "floors"), time.monotonic() + PATIENCE
        expected = len(wanted[tmp_path / "out/private/public/floors.jsonl"])
        while len(asyncio.run(records(bootstrap, floors))) < expected:
            assert time.monotonic() < patience, f"waited {PATIENCE:.0f} s for {expected} records of {floors}"
            time.sleep(1)
        reported = {"tacet_privacy_spent_epsilon", "tacet_window_end_timestamp_seconds", "tacet_lag_seconds",
                    "tacet_ledger_entries"}  # fmt: skip
        until(lambda: reported <= {name for name, _ in worker.samples()}, "not told", worker)
        assert worker.total("tacet_releases_total") > 20
        checked_by_promtool(worker)
        assert worker.end() == 0
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
