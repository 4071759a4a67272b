"""Releases by the day, of ticks and of changes, by the window and by the run, and revisions, are the same from every
runner.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest

from connectors.keys import key_files
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.replay import replay
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.runner import opened
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.pipeline import Options, Pipeline
from stream.records import Heartbeat, ObservationBatch
from stream.schemas import AUDIT, LEAKAGE
from tests.support.day_policies import change_release, day_release, day_site, shared
from tests.support.hash_chain import verify_chain
from tests.support.small_building import SITE, building, people, run, write_csv

BY_DAY = day_release("day", "filter", more=shared(floor="0.25", building="0.75") + 'revise = ["1h", "1d"]\n')
BY_DAY += day_release("laplace-day", noise="laplace", board="2", public="1")
BY_DAY += change_release("moves", public="2", board="4", more=shared(zone="0.5", building="0.5") + 'revise = ["1d"]\n')
BY_DAY += """
[[release]]
name = "window"
query = "count"
mechanism = "pegasus"
epsilon = { public = "0.1" }
daily_budget = { public = "3" }

[[release]]
name = "crowded"
query = "threshold"
threshold = 3
hysteresis = 1
cooldown = "30min"
epsilon = { public = "12", board = "12" }

[[release]]
name = "crowded-too"
query = "threshold"
level = "floor"
threshold = 5
counts = "window"
audience = "public"
"""
POLICY = building(releases=BY_DAY, tick="30min", site=day_site("2h", residents="ignore"))
REVISED, MOVES_REVISED = (f"tacet.private.public.{name}-revised.v1" for name in ("day", "moves"))
MOVES = "tacet.private.public.moves.v1"
SEEN = people(hours=29, devices=12)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("key") / "key"
    key_files.create(made, laboratory=True)
    return made


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "seen.csv", SEEN)


@pytest.fixture(scope="module")
def log(rows: Path, key: Path) -> list[ObservationBatch | Heartbeat]:
    return list(ObservationFile(rows, POLICY, key_files.pseudonym_key(key)).messages())


Topics = dict[str, list[bytes]]


@pytest.fixture(scope="module")
def plain(log: list[ObservationBatch | Heartbeat], key: Path) -> Topics:
    """What the table of stages gives, by topic."""
    topics: Topics = {}
    for out in run(Pipeline(POLICY, SITE, key_files.laboratory_keys(key)), log):
        topics.setdefault(out.topic, []).append(out.value)
    return topics


def test_the_run_holds_days_that_were_paid_and_windows_that_were(plain: Topics) -> None:
    entries = [orjson.loads(value) for value in plain[AUDIT]]
    verify_chain(entries)
    charged = Counter((entry["release"], entry["audience"]) for entry in entries if entry["nano"])
    assert charged["day", "public"] == charged["day", "facilities"] == charged["laplace-day", "board"] == 2
    assert charged["moves", "public"] == charged["moves", "board"] == 2
    assert len({orjson.loads(value)["levels"]["building"] for value in plain[MOVES]}) > 5
    assert len(plain[MOVES_REVISED]) > 10
    assert charged["window", "public"] > 30
    assert charged["crowded", "public"] == charged["crowded", "board"] == 2
    assert ("crowded-too", "public") not in charged
    assert {entry["outcome"] for entry in entries} == {"released", "budget"}
    revised = Counter(orjson.loads(value)["release_id"].rpartition("/")[2] for value in plain[REVISED])
    assert min(revised["1h"], revised["1d"]) > 10


@pytest.mark.parametrize("often", [7, pytest.param(10**9, marks=pytest.mark.long)], ids=["taken over", "straight"])
def test_partitions_straight_and_taken_over_all_the_time_give_the_same(
    log: list[ObservationBatch | Heartbeat], key: Path, plain: Topics, often: int
) -> None:
    keys, topics = key_files.laboratory_keys(key), Topics()
    partition = PartitionEngine(POLICY, keys)
    for offset, item in enumerate(log):
        for out in partition.process(offset, None, encode_message(item)):
            topics.setdefault(out.topic, []).append(out.value)
        if offset % often == often - 1:
            snapshot, partition = partition.snapshot(offset + 1, 0), PartitionEngine(POLICY, keys)
            assert partition.restore(snapshot) == offset + 1
            assert partition.snapshot(offset + 1, 0) == snapshot
    assert topics == plain


def test_a_store_opened_again_and_again_and_a_replay_give_the_same(
    log: list[ObservationBatch | Heartbeat], rows: Path, key: Path, plain: Topics, tmp_path: Path
) -> None:
    third = len(log) // 3
    for part in (log[:third], log[third : 2 * third], log[2 * third :]):
        with opened(POLICY, key, tmp_path / "s") as (runner, _):
            for item in part:
                runner.process(item)
    file = ObservationFile(rows, POLICY, key_files.pseudonym_key(key))
    replay(file, POLICY, key_files.laboratory_keys(key), tmp_path / "out", Options())
    for topic, name in ((AUDIT, "audit"), (LEAKAGE, "leakage")):
        assert list(read_topic(tmp_path / "s", topic)) == plain[topic]
        assert (tmp_path / "out" / f"{name}.jsonl").read_bytes().splitlines() == plain[topic]
    for audience in ("public", "facilities", "board"):
        private = [value for topic in plain if f".private.{audience}." in topic for value in plain[topic]]
        assert sorted(value for _, value in read_outbox(tmp_path / "s", audience, 0)) == sorted(private)
        files = (tmp_path / "out" / "private" / audience).glob("*.jsonl")
        assert sorted(line for file in files for line in file.read_bytes().splitlines()) == sorted(private)
