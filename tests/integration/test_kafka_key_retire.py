"""``tacet key retire`` on a real broker: a key is lost or stolen, and another goes on in the same topics.

All of this runs each night. An ordinary run has retirements on simulated brokers (schedules of tests/simulation), and
which keys may follow in tests/unit/storage/test_retirement.py and tests/unit/kafka/test_key_retirement.py.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from connectors.keys import key_files
from connectors.storage.kafka import key_rotation
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.cluster import decide
from connectors.storage.kafka.topic_readers import read_range
from connectors.storage.kafka.topics import create_topics
from connectors.storage.kafka.writers import KafkaWriter
from connectors.storage.retirement import retire as retire_key
from stream.encoding import encode_message
from stream.records import ObservationBatch, Row
from stream.schemas import AUDIT, LEAKAGE, OBSERVATIONS, parse_time
from tests.acceptance.command_line import OBSERVATIONS as ROWS
from tests.acceptance.command_line import POLICY, TICKS, here, tacet
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics, delete_topics
from tests.integration.storm import is_stopped
from tests.integration.two_writers import PARTITIONS, PRIVATE, SITES, Scenario, all_out, bodies, findings
from tests.support.patience import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long]
LATER = "2026-03-02T11:40:00Z"
BUDGET = 2 * 10**9
"""What the public may have of a site in a day, in nano-epsilon."""


@pytest.fixture
def scenario(kafka: Broker, tmp_path: Path) -> Iterator[Scenario]:
    """A cluster with a recording on it under a production key, of which there is a copy, and keys that come after."""
    made = Scenario(kafka, tmp_path, [])
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "rows.csv").write_text(ROWS)
    for name in ("key", "second", "third"):
        here("key", "create", tmp_path / name, "--first-day", TICKS[0][:10])
    shutil.copy(tmp_path / "key", tmp_path / "stolen")
    asyncio.run(clear_topics(kafka.bootstrap))
    here("topics", "create", "--kafka", kafka.bootstrap, "--policy", tmp_path / "policy.toml")
    pour(made, "key", TICKS[0], TICKS[-1])
    yield made
    for process in made.started:
        process.kill()
        process.wait()
    asyncio.run(clear_topics(kafka.bootstrap))


def pour(scenario: Scenario, key: str, first: str, last: str) -> None:
    rows = ["--observations", str(scenario.folder / "rows.csv"), "--from", first, "--to", last]
    here("ingest", *scenario.words(key=key), *rows)


def killed_in_a_window(scenario: Scenario) -> list[dict[str, Any]]:
    """Let a worker be killed behind entries whose records it never committed; return the entries that it left."""
    worker = scenario.worker(*scenario.words(), stop_at=f"{PRIVATE}:2", log="killed")
    wait_until(lambda: is_stopped(worker), "the worker must come so far")
    worker.kill()
    worker.wait()
    committed = {entry["hash"] for entry in bodies(scenario.kafka, AUDIT)}
    found = [entry for entry in asyncio.run(all_entries(scenario)) if entry["hash"] not in committed]
    assert found
    return found


async def all_entries(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the audit's records, those that were never committed too."""
    ranges = [await read_range(scenario.kafka.bootstrap, AUDIT, each, 0, committed=False) for each in range(PARTITIONS)]
    return [orjson.loads(value) for values, _ in ranges for value in values]


def retire(scenario: Scenario, *more: str, new: str = "second", code: int = 0) -> str:
    words = more or ("--key-file", str(scenario.folder / "key"))
    given = ["--kafka", scenario.kafka.bootstrap, "--new-key", str(scenario.folder / new)]
    done = here("key", "retire", *given, *words, code=code)
    return done.stderr if code else done.stdout + done.stderr


def finished(scenario: Scenario, key: str = "key") -> None:
    """Let a worker release all that there is, and stop it."""
    worker = scenario.worker(*scenario.words(key=key), log=f"finished-{key}")
    wait_until(lambda: all_out(scenario.kafka), "all windows must be released")
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0


def go_on(scenario: Scenario, key: str) -> list[dict[str, Any]]:
    """Let another hour be sent and released under a key; return the entries of the ledger then."""
    pour(scenario, key, TICKS[-1], LATER)
    worker = scenario.worker(*scenario.words(key=key), log=f"with-{key}")
    ends = {(site, LATER) for site in SITES}
    wait_until(
        lambda: ends <= {(body["site"], body["window_end"]) for body in bodies(scenario.kafka, PRIVATE)},
        scenario.log(f"with-{key}")[-3000:], 120,
    )  # fmt: skip
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0
    return bodies(scenario.kafka, AUDIT)


def in_order(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: (entry["site"], entry["sequence"]))


def spent(entries: list[dict[str, Any]], site: str, audience: str) -> int:
    return sum(entry["nano"] for entry in entries if (entry["site"], entry["audience"]) == (site, audience))


def verified(scenario: Scenario, *key: str) -> dict[str, Any]:
    return dict(orjson.loads(here("audit", "verify", "--kafka", scenario.kafka.bootstrap, *key, "--json").stdout))


def assert_one_ledger_went_on(scenario: Scenario, entries: list[dict[str, Any]], key: str) -> None:
    """Nothing is charged or released twice, budgets are those of one ledger, and the books are whole."""
    charged = [entry["release_id"] for entry in entries]
    assert len(set(charged)) == len(charged)
    for site in SITES:
        assert spent(entries, site, "public") == BUDGET, site
    for given in ((), ("--key-file", str(scenario.folder / key))):
        report = verified(scenario, *given)
        assert (report["ok"], report["entries"]) == (True, len(entries))


def test_interrupted_before_any_step_it_goes_on_and_what_was_begun_counts_at_its_worst(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = killed_in_a_window(scenario)
    before = bodies(scenario.kafka, AUDIT)
    steps = Counter[str]()
    for interrupted in range(20):
        with monkeypatch.context() as patch:
            if whole(scenario, patch, interrupted, steps):
                break
        if interrupted == 2:  # the control topic has the new key, and no partition has
            assert "has ended, its key was retired" in tacet("worker", *scenario.words(), code=2).stderr
            assert "key: must be the one" in tacet("worker", *scenario.words(key="second"), code=2).stderr
            assert any("has not been taken over" in found["what"] for found in findings(scenario, "second"))
    assert steps["retire"] == 1
    assert steps["commit"] == len({partition_of(site, PARTITIONS) for site in SITES}), "what is done is not done again"
    ledgers = {entry["ledger"] for entry in bodies(scenario.kafka, AUDIT)}
    assert in_order(bodies(scenario.kafka, AUDIT)) == in_order(before + left), "the same entries, committed now"
    assert ledgers == {key_files.FileKeys(scenario.folder / "stolen").ledger}

    for key, words in (("key", "its keys are destroyed"), ("stolen", "has ended, its key was retired")):
        assert words in tacet("worker", *scenario.words(key=key), code=2).stderr
    sending = ["--observations", str(scenario.folder / "rows.csv"), "--from", TICKS[0], "--to", LATER]
    assert "was retired" in here("ingest", *scenario.words(key="stolen"), *sending, code=2).stderr

    entries = go_on(scenario, "second")
    assert {entry["hash"] for entry in left} < {entry["hash"] for entry in entries}
    released = {body["release_id"] for body in bodies(scenario.kafka, PRIVATE)}
    assert released.isdisjoint(entry["release_id"] for entry in left), "nobody can draw that noise again"
    assert_one_ledger_went_on(scenario, entries, "second")
    assert_account_is_of_all(scenario, entries)
    assert findings(scenario, "second") == []


def whole(scenario: Scenario, patch: pytest.MonkeyPatch, number: int, steps: Counter[str]) -> bool:
    """Retire the key, and crash before the step of a number; return whether that is behind the end."""
    count = 0

    class Crash(BaseException):
        pass

    def step(name: str) -> None:
        nonlocal count
        if count == number:
            raise Crash
        count += 1
        steps[name] += 1

    commit = KafkaWriter.commit

    def stepping(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any) -> Any:
            step(name)
            return function(*given)

        return stepped

    for name in ("serve", "retire"):
        patch.setattr(key_files, name, stepping(name, getattr(key_files, name)))

    async def deciding(*given: Any) -> Any:
        step("decide")
        return await decide(*given)

    async def committing(*given: Any, **more: Any) -> Any:
        step("commit")
        return await commit(*given, **more)

    patch.setattr(key_rotation, "decide", deciding)
    patch.setattr(KafkaWriter, "commit", committing)
    try:
        ending = key_rotation.ClusterLedger(scenario.kafka.bootstrap)
        asyncio.run(retire_key(ending, scenario.folder / "second", scenario.folder / "key"))
    except Crash:
        return False
    return True


def assert_account_is_of_all(scenario: Scenario, entries: list[dict[str, Any]]) -> None:
    reported = {(body["site"], body["window_end"]): body for body in bodies(scenario.kafka, LEAKAGE)}
    for site in SITES:
        last = reported[site, LATER]["audiences"]["facilities"]
        assert Fraction(last["device_total"]) == Fraction(spent(entries, site, "facilities"), 10**9)


def test_a_lost_key_and_one_after_it(scenario: Scenario) -> None:
    finished(scenario)
    before = bodies(scenario.kafka, AUDIT)
    (scenario.folder / "key").unlink()
    assert "starts with" in retire(scenario, "--lost")
    entries = go_on(scenario, "second")
    assert_one_ledger_went_on(scenario, entries, "second")
    assert {entry["hash"] for entry in before} < {entry["hash"] for entry in entries}
    retire(scenario, "--key-file", str(scenario.folder / "second"), new="third")
    assert "was retired and its keys are destroyed" in tacet("worker", *scenario.words(key="second"), code=2).stderr
    report = verified(scenario, "--key-file", str(scenario.folder / "third"))
    assert (report["ok"], report["entries"]) == (True, len(entries))


def test_a_key_that_may_not_follow_changes_nothing_and_an_idle_worker_sees_one_that_does(scenario: Scenario) -> None:
    both = ("--lost", "--key-file", str(scenario.folder / "key"))
    assert "give either --key-file or --lost" in retire(scenario, *both, code=2)
    assert "--new-store: must be used with --store" in retire(
        scenario, "--lost", "--new-store", str(scenario.folder), code=2
    )
    assert "no worker has begun" in retire(scenario, code=2)
    idle = scenario.worker(*scenario.words(), log="idle")
    wait_until(lambda: all_out(scenario.kafka), "all windows must be released")
    key_files.create(scenario.folder / "laboratory", laboratory=True)
    key_files.create(scenario.folder / "elsewhere", laboratory=False, first_day=20_000)
    key_files.serve(scenario.folder / "elsewhere", "another")
    before = bodies(scenario.kafka, AUDIT)
    for new, problem in (
        ("laboratory", "must be a production key"),
        ("elsewhere", "belongs to cluster another"),
        ("stolen", "must be a new key"),
    ):
        assert problem in retire(scenario, new=new, code=2), new
    of_nothing = retire(scenario, "--key-file", str(scenario.folder / "third"), code=2)
    assert "must be the one this cluster was begun with" in of_nothing
    assert findings(scenario) == []
    assert in_order(bodies(scenario.kafka, AUDIT)) == in_order(before)
    assert idle.poll() is None
    retire(scenario)
    wait_until(lambda: idle.poll() is not None, "it must find out though nothing comes")
    assert idle.returncode == 2
    assert "has ended, its key was retired" in scenario.log("idle")
    with_it = ("--kafka", scenario.kafka.bootstrap, "--key-file", scenario.folder / "stolen")
    reported = tacet("audit", "verify", *with_it, code=2).stderr
    assert f"its key was retired after the window of {TICKS[-1]}; give the key of ledger" in reported
    assert "must be that of ledger" in retire(scenario, new="third", code=2), "it goes on with one key"
    assert "has ended" in retire(scenario, "--lost", new="stolen", code=2)


def test_workers_that_still_run_end_and_what_a_late_ingest_sends_is_passed_by(scenario: Scenario) -> None:
    """The worker is fenced, and may not come back; the ingest was cut off when its sources were taken from it."""
    running = scenario.worker(*scenario.words(), log="running")
    wait_until(lambda: all_out(scenario.kafka), "it must work")
    retire(scenario)
    asyncio.run(late(scenario))
    stuck = scenario.worker(*scenario.words(key="second"), log="stuck")
    wait_until(lambda: running.poll() is not None, "it must find out when partitions are given out anew")
    assert running.returncode == 2
    assert "has ended, its key was retired" in scenario.log("running")
    assert stuck.wait(timeout=PATIENCE) == 2
    assert "data key: must be the one under which this was encrypted" in scenario.log("stuck")
    retire(scenario)
    pour(scenario, "second", LATER, "2026-03-02T12:40:00Z")
    ends = {(site, "2026-03-02T12:40:00Z") for site in SITES}
    scenario.worker(*scenario.words(key="second"), log="with-second")
    wait_until(
        lambda: ends <= {(body["site"], body["window_end"]) for body in bodies(scenario.kafka, PRIVATE)},
        scenario.log("with-second")[-3000:], 120,
    )  # fmt: skip
    for key in ((), ("--key-file", str(scenario.folder / "second"))):
        assert verified(scenario, *key)["ok"] is True
    here("status", "--kafka", scenario.kafka.bootstrap, "--policy", scenario.folder / "policy.toml")


async def late(scenario: Scenario) -> None:
    """Send a row under the retired data key, to both sites."""
    vault = key_files.FileKeys(scenario.folder / "stolen").vault
    at = parse_time(TICKS[-1])
    producer = AIOKafkaProducer(bootstrap_servers=scenario.kafka.bootstrap)
    await producer.start()
    for site in SITES:
        batch = ObservationBatch(site, "127.0.0.1", 1, 0, (Row("ab" * 8, "02:00:00:00:0e:01", at),))
        await producer.send_and_wait(
            OBSERVATIONS, encode_message(batch, vault), key=site.encode(), partition=partition_of(site, PARTITIONS)
        )
    await producer.stop()


def test_it_is_the_way_on_where_windows_that_were_begun_cannot_come_out_again(scenario: Scenario) -> None:
    """The observations topic was made anew, so what was not read is gone, and with it what a window was made from."""
    left = {entry["release_id"] for entry in killed_in_a_window(scenario)}
    asyncio.run(delete_topics(scenario.kafka.bootstrap, [OBSERVATIONS]))
    asyncio.run(create_topics(scenario.kafka.bootstrap, [OBSERVATIONS], partitions=PARTITIONS))
    pour(scenario, "stolen", TICKS[-1], LATER)
    stuck = scenario.worker(*scenario.words(), "--accept-loss")
    assert stuck.wait(timeout=PATIENCE) == 1
    assert "would now differ; nothing is released" in scenario.log()
    assert "'tacet key retire'" in scenario.log()
    before = bodies(scenario.kafka, PRIVATE)
    assert left.isdisjoint(body["release_id"] for body in before)
    retire(scenario)
    pour(scenario, "second", LATER, "2026-03-02T12:40:00Z")
    worker = scenario.worker(*scenario.words(key="second"), log="with-second")
    wait_until(lambda: len(bodies(scenario.kafka, PRIVATE)) > len(before) + 10, scenario.log("with-second")[-3000:])
    assert worker.poll() is None
    assert left.isdisjoint(body["release_id"] for body in bodies(scenario.kafka, PRIVATE))
    assert verified(scenario)["ok"] is True
