"""``tacet key retire`` on a real broker: a key is lost or stolen, and another goes on in the same topics."""

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
from tests.integration.kafka_brokers import Broker, clear_topics, delete_topics
from tests.integration.storm import is_stopped
from tests.integration.two_writers import (
    PARTITIONS,
    PRIVATE,
    SITES,
    Ground,
    all_out,
    bodies,
    findings,
)
from tests.support.patience import PATIENCE, wait_until

pytestmark = pytest.mark.kafka
LATER = "2026-03-02T11:40:00Z"
BUDGET = 2 * 10**9
"""What the public may have of a site in a day, in nano-epsilon."""


@pytest.fixture
def ground(kafka: Broker, tmp_path: Path) -> Iterator[Ground]:
    """A cluster with a recording on it under a production key, of which there is a copy, and keys that come after."""
    made = Ground(kafka, tmp_path, [])
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


def pour(ground: Ground, key: str, first: str, last: str) -> None:
    rows = ["--observations", str(ground.folder / "rows.csv"), "--from", first, "--to", last]
    here("ingest", *ground.words(key=key), *rows)


def killed_in_a_window(ground: Ground) -> list[dict[str, Any]]:
    """Let a worker be killed behind entries whose records it never committed; return the entries that it left."""
    worker = ground.worker(*ground.words(), stop_at=f"{PRIVATE}:2", log="killed")
    wait_until(lambda: is_stopped(worker), "the worker must come so far")
    worker.kill()
    worker.wait()
    committed = {entry["hash"] for entry in bodies(ground.kafka, AUDIT)}
    found = [entry for entry in asyncio.run(all_entries(ground)) if entry["hash"] not in committed]
    assert found
    return found


async def all_entries(ground: Ground) -> list[dict[str, Any]]:
    """Return the audit's records, those that were never committed too."""
    ranges = [await read_range(ground.kafka.bootstrap, AUDIT, each, 0, committed=False) for each in range(PARTITIONS)]
    return [orjson.loads(value) for values, _ in ranges for value in values]


def retire(ground: Ground, *more: str, new: str = "second", code: int = 0) -> str:
    words = more or ("--key-file", str(ground.folder / "key"))
    given = ["--kafka", ground.kafka.bootstrap, "--new-key", str(ground.folder / new)]
    done = here("key", "retire", *given, *words, code=code)
    return done.stderr if code else done.stdout + done.stderr


def finished(ground: Ground, key: str = "key") -> None:
    """Let a worker release all that there is, and stop it."""
    worker = ground.worker(*ground.words(key=key), log=f"finished-{key}")
    wait_until(lambda: all_out(ground.kafka), "all windows must be released")
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0


def go_on(ground: Ground, key: str) -> list[dict[str, Any]]:
    """Let another hour be sent and released under a key; return the entries of the ledger then."""
    pour(ground, key, TICKS[-1], LATER)
    worker = ground.worker(*ground.words(key=key), log=f"with-{key}")
    ends = {(site, LATER) for site in SITES}
    wait_until(
        lambda: ends <= {(body["site"], body["window_end"]) for body in bodies(ground.kafka, PRIVATE)},
        ground.log(f"with-{key}")[-3000:], 120,
    )  # fmt: skip
    worker.terminate()
    assert worker.wait(timeout=PATIENCE) == 0
    return bodies(ground.kafka, AUDIT)


def in_order(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: (entry["site"], entry["sequence"]))


def spent(entries: list[dict[str, Any]], site: str, audience: str) -> int:
    return sum(entry["nano"] for entry in entries if (entry["site"], entry["audience"]) == (site, audience))


def verified(ground: Ground, *key: str) -> dict[str, Any]:
    return dict(orjson.loads(here("audit", "verify", "--kafka", ground.kafka.bootstrap, *key, "--json").stdout))


def assert_one_ledger_went_on(ground: Ground, entries: list[dict[str, Any]], key: str) -> None:
    """Nothing is charged or released twice, budgets are those of one ledger, and the books are whole."""
    charged = [entry["release_id"] for entry in entries]
    assert len(set(charged)) == len(charged)
    for site in SITES:
        assert spent(entries, site, "public") == BUDGET, site
    for given in ((), ("--key-file", str(ground.folder / key))):
        report = verified(ground, *given)
        assert (report["ok"], report["entries"]) == (True, len(entries))


def test_interrupted_before_any_step_it_goes_on_and_what_was_begun_counts_at_its_worst(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = killed_in_a_window(ground)
    before = bodies(ground.kafka, AUDIT)
    steps = Counter[str]()
    for interrupted in range(20):
        with monkeypatch.context() as patch:
            if whole(ground, patch, interrupted, steps):
                break
        if interrupted == 2:  # the control topic has the new key, and no partition has
            assert "has ended, its key was retired" in tacet("worker", *ground.words(), code=2).stderr
            assert "key: must be the one" in tacet("worker", *ground.words(key="second"), code=2).stderr
            assert any("has not been taken over" in found["what"] for found in findings(ground, "second"))
    assert steps["retire"] == 1
    assert steps["commit"] == len({partition_of(site, PARTITIONS) for site in SITES}), "what is done is not done again"
    ledgers = {entry["ledger"] for entry in bodies(ground.kafka, AUDIT)}
    assert in_order(bodies(ground.kafka, AUDIT)) == in_order(before + left), "the same entries, committed now"
    assert ledgers == {key_files.FileKeys(ground.folder / "stolen").ledger}

    for key, words in (("key", "its keys are destroyed"), ("stolen", "has ended, its key was retired")):
        assert words in tacet("worker", *ground.words(key=key), code=2).stderr
    sending = ["--observations", str(ground.folder / "rows.csv"), "--from", TICKS[0], "--to", LATER]
    assert "was retired" in here("ingest", *ground.words(key="stolen"), *sending, code=2).stderr

    entries = go_on(ground, "second")
    assert {entry["hash"] for entry in left} < {entry["hash"] for entry in entries}
    released = {body["release_id"] for body in bodies(ground.kafka, PRIVATE)}
    assert released.isdisjoint(entry["release_id"] for entry in left), "nobody can draw that noise again"
    assert_one_ledger_went_on(ground, entries, "second")
    assert_account_is_of_all(ground, entries)
    assert findings(ground, "second") == []


def whole(ground: Ground, patch: pytest.MonkeyPatch, number: int, steps: Counter[str]) -> bool:
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
        ending = key_rotation.ClusterLedger(ground.kafka.bootstrap)
        asyncio.run(retire_key(ending, ground.folder / "second", ground.folder / "key"))
    except Crash:
        return False
    return True


def assert_account_is_of_all(ground: Ground, entries: list[dict[str, Any]]) -> None:
    told = {(body["site"], body["window_end"]): body for body in bodies(ground.kafka, LEAKAGE)}
    for site in SITES:
        last = told[site, LATER]["audiences"]["facilities"]
        assert Fraction(last["device_total"]) == Fraction(spent(entries, site, "facilities"), 10**9)


@pytest.mark.long
def test_a_lost_key_and_one_after_it(ground: Ground) -> None:
    finished(ground)
    before = bodies(ground.kafka, AUDIT)
    (ground.folder / "key").unlink()
    assert "begins with" in retire(ground, "--lost")
    entries = go_on(ground, "second")
    assert_one_ledger_went_on(ground, entries, "second")
    assert {entry["hash"] for entry in before} < {entry["hash"] for entry in entries}
    retire(ground, "--key-file", str(ground.folder / "second"), new="third")
    assert "was retired, its keys are destroyed" in tacet("worker", *ground.words(key="second"), code=2).stderr
    report = verified(ground, "--key-file", str(ground.folder / "third"))
    assert (report["ok"], report["entries"]) == (True, len(entries))


def test_a_key_that_may_not_follow_changes_nothing_and_an_idle_worker_sees_one_that_does(ground: Ground) -> None:
    idle = ground.worker(*ground.words(), log="idle")
    wait_until(lambda: all_out(ground.kafka), "all windows must be released")
    key_files.create(ground.folder / "laboratory", laboratory=True)
    key_files.create(ground.folder / "elsewhere", laboratory=False, first_day=20_000)
    key_files.serve(ground.folder / "elsewhere", "another")
    before = bodies(ground.kafka, AUDIT)
    for new, problem in (
        ("laboratory", "must be a production key"),
        ("elsewhere", "belongs to cluster another"),
        ("stolen", "must be a new key"),
    ):
        assert problem in retire(ground, new=new, code=2), new
    of_nothing = retire(ground, "--key-file", str(ground.folder / "third"), code=2)
    assert "must be the one this cluster was begun with" in of_nothing
    assert findings(ground) == []
    assert in_order(bodies(ground.kafka, AUDIT)) == in_order(before)
    assert idle.poll() is None
    retire(ground)
    wait_until(lambda: idle.poll() is not None, "it must find out though nothing comes")
    assert idle.returncode == 2
    assert "has ended, its key was retired" in ground.log("idle")
    with_it = ("--kafka", ground.kafka.bootstrap, "--key-file", ground.folder / "stolen")
    told = tacet("audit", "verify", *with_it, code=2).stderr
    assert f"its key was retired after the window of {TICKS[-1]}; give the key of ledger" in told
    assert "must be that of ledger" in retire(ground, new="third", code=2), "it goes on with one key"
    assert "has ended" in retire(ground, "--lost", new="stolen", code=2)


@pytest.mark.long
def test_workers_that_still_run_end_and_what_a_late_ingest_sends_is_passed_by(ground: Ground) -> None:
    """The worker is fenced, and may not come back; the ingest was cut off when its sources were taken from it."""
    running = ground.worker(*ground.words(), log="running")
    wait_until(lambda: all_out(ground.kafka), "it must work")
    retire(ground)
    asyncio.run(late(ground))
    stuck = ground.worker(*ground.words(key="second"), log="stuck")
    wait_until(lambda: running.poll() is not None, "it must find out when partitions are given out anew")
    assert running.returncode == 2
    assert "has ended, its key was retired" in ground.log("running")
    assert stuck.wait(timeout=PATIENCE) == 2
    assert "data key: must be the one under which this was encrypted" in ground.log("stuck")
    retire(ground)
    pour(ground, "second", LATER, "2026-03-02T12:40:00Z")
    ends = {(site, "2026-03-02T12:40:00Z") for site in SITES}
    ground.worker(*ground.words(key="second"), log="with-second")
    wait_until(
        lambda: ends <= {(body["site"], body["window_end"]) for body in bodies(ground.kafka, PRIVATE)},
        ground.log("with-second")[-3000:], 120,
    )  # fmt: skip
    for key in ((), ("--key-file", str(ground.folder / "second"))):
        assert verified(ground, *key)["ok"] is True
    here("status", "--kafka", ground.kafka.bootstrap, "--policy", ground.folder / "policy.toml")


async def late(ground: Ground) -> None:
    """Send a row under the retired data key, to both sites."""
    vault = key_files.FileKeys(ground.folder / "stolen").vault
    at = parse_time(TICKS[-1])
    producer = AIOKafkaProducer(bootstrap_servers=ground.kafka.bootstrap)
    await producer.start()
    for site in SITES:
        batch = ObservationBatch(site, "127.0.0.1", 1, 0, (Row("ab" * 8, "02:00:00:00:0e:01", at),))
        await producer.send_and_wait(
            OBSERVATIONS, encode_message(batch, vault), key=site.encode(), partition=partition_of(site, PARTITIONS)
        )
    await producer.stop()


def test_it_is_the_way_on_where_windows_that_were_begun_cannot_come_out_again(ground: Ground) -> None:
    """The observations topic was made anew, so what was not read is gone, and with it what a window was made from."""
    left = {entry["release_id"] for entry in killed_in_a_window(ground)}
    asyncio.run(delete_topics(ground.kafka.bootstrap, [OBSERVATIONS]))
    asyncio.run(create_topics(ground.kafka.bootstrap, [OBSERVATIONS], partitions=PARTITIONS))
    pour(ground, "stolen", TICKS[-1], LATER)
    stuck = ground.worker(*ground.words(), "--accept-loss")
    assert stuck.wait(timeout=PATIENCE) == 1
    assert "would now differ; nothing is released" in ground.log()
    assert "'tacet key retire'" in ground.log()
    before = bodies(ground.kafka, PRIVATE)
    assert left.isdisjoint(body["release_id"] for body in before)
    retire(ground)
    pour(ground, "second", LATER, "2026-03-02T12:40:00Z")
    worker = ground.worker(*ground.words(key="second"), log="with-second")
    wait_until(lambda: len(bodies(ground.kafka, PRIVATE)) > len(before) + 10, ground.log("with-second")[-3000:])
    assert worker.poll() is None
    assert left.isdisjoint(body["release_id"] for body in bodies(ground.kafka, PRIVATE))
    assert verified(ground)["ok"] is True


def test_what_is_given_must_fit(ground: Ground) -> None:
    both = ("--lost", "--key-file", str(ground.folder / "key"))
    assert "give either --key-file or --lost" in retire(ground, *both, code=2)
    assert "--new-store goes with --store" in retire(ground, "--lost", "--new-store", str(ground.folder), code=2)
    assert "no worker has begun" in retire(ground, code=2)
