"""Logins by ticks and by changes on a day of 25 hours: a server restarts, data are lost, engines take over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Message, Sighting
from connectors.storage.embedded.reader import read_outbox, read_topic
from connectors.storage.embedded.runner import opened
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.pipeline import Options, Pipeline
from stream.records import HOUR, MINUTE, Micros, Published
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, parse_record, parse_time
from tests.support.connector_course import heard, sent_by_step
from tests.support.day_policies import change_release, day_release, shared
from tests.support.small_building import SITE, access_point, policy_text, run

BEGINS = parse_time("2026-10-31T11:00:00Z")
"""04:00 in Los Angeles; clocks go back in the night that follows."""
LENGTH = 25 * HOUR
TICK = 30 * MINUTE
LAPTOP, PHONE = (bytes([0x3C, 0, 0, 0, 0, n]) for n in range(2))
ANNE, BERT = b"anne", b"bert"
NAS = b"nas-1"
POLICY = load_policy(
    policy_text(
        day_release(noise="laplace", public="2") + change_release(public="2", more=shared(zone="0.5", building="0.5")),
        tick="30min",
        site='day_starts = "04:00"\ncontribution = "1d"\nresidents = "ignore"\nidentity = "login"\n'
        'presence = "sessions"\nsession_limit = "12h"\n',
    ).replace('validity = "10min"\n', "")
)  # fmt: skip
RESTART, LOST = range(10, 11), range(20, 23)
"""Hours of the day: its server restarts at the first; through the others the connector hears nothing."""


def hour(number: float) -> Micros:
    return BEGINS + int(number * HOUR) - MINUTE


def seen(device: bytes, login: bytes, zone: str, kind: Kind = Kind.ASSOCIATE) -> Sighting:
    radio = bytes.fromhex(access_point(zone).replace(":", ""))
    return Sighting(kind, device, radio, session=b"1", user_name=login, nas=NAS)


WORDS = [
    (hour(1), seen(LAPTOP, ANNE, "a")), (hour(2), seen(PHONE, ANNE, "b")), (hour(4), seen(LAPTOP, BERT, "c")),
    (hour(RESTART[0]), Sighting(Kind.RESTART, nas=NAS)), (hour(12), seen(LAPTOP, ANNE, "a")),
    (hour(24.5), seen(PHONE, BERT, "d")), (hour(26), seen(PHONE, b"", "b")),
]  # fmt: skip


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("key") / "key"
    key_files.create(made, laboratory=True)
    return made


@pytest.fixture(scope="module")
def log(key: Path) -> list[Message]:
    """What a connector sends; it does not run while data is lost."""
    core = Ingest.of_policy(POLICY, key_files.pseudonym_key(key))
    steps = range(BEGINS - HOUR, BEGINS + LENGTH + 3 * HOUR, 5 * MINUTE)
    lost = range(BEGINS + LOST.start * HOUR, BEGINS + LOST.stop * HOUR)
    words = [heard(time, sighting) for time, sighting in WORDS]
    return [message for _, sent in sent_by_step(core, words, steps, grid=5 * MINUTE, silent=lost) for message in sent]


Topics = dict[str, list[bytes]]


def by_topic(outputs: list[Any]) -> Topics:
    topics: Topics = {}
    for out in outputs:
        topics.setdefault(out.topic, []).append(out.value)
    return topics


@pytest.fixture(scope="module")
def plain(log: list[Message], key: Path) -> Topics:
    return by_topic(run(Pipeline(POLICY, SITE, key_files.laboratory_keys(key)), log))


def test_a_login_counts_as_its_rows_say_all_through_a_day_of_25_hours(log: list[Message], key: Path) -> None:
    outputs = run(Pipeline(POLICY, SITE, key_files.laboratory_keys(key), Options(occupancy=True)), log)
    found: dict[str, list[float]] = {}
    for out in outputs:
        if isinstance(out, Published) and out.topic == OCCUPANCY:
            body = parse_record(out.value)
            for zone, n in body["bounded"].items():
                assert n <= 1
                if n:
                    found.setdefault(zone, []).append((parse_time(body["window_end"]) - BEGINS) / HOUR)
    halves = {zone: (min(ends), max(ends), len(ends)) for zone, ends in found.items()}
    assert halves["a"] == (1, 23.5, 2 + 24), "Anne's laptop until her phone comes; after the restart for session_limit"
    assert halves["b"] == (2, 9.5, 16), "her phone, until the server that reported it restarts"
    assert halves["c"] == (4, 9.5, 12), "Bert on her laptop, and she still counts"
    assert halves["d"] == (24.5, 25, 2), "the 25th hour is part of the day, whose end cuts the stay"


def test_the_engine_of_kafka_with_takeovers_and_a_store_that_is_opened_again_give_the_same_bytes(
    log: list[Message], key: Path, plain: Topics, tmp_path: Path
) -> None:
    keys = key_files.laboratory_keys(key)
    partition, outputs = PartitionEngine(POLICY, keys), list[Any]()
    for offset, item in enumerate(log):
        outputs += partition.process(offset, None, encode_message(item))
        if offset % 11 == 10:
            snapshot, partition = partition.snapshot(offset + 1, 0), PartitionEngine(POLICY, keys)
            assert partition.restore(snapshot) == offset + 1
    assert by_topic(outputs) == plain
    half = len(log) // 2
    for part in (log[:half], log[half:]):
        with opened(POLICY, key, tmp_path / "s") as (runner, _):
            for item in part:
                runner.process(item)
    for topic in (AUDIT, LEAKAGE):
        assert list(read_topic(tmp_path / "s", topic)) == plain[topic]
    private = [value for topic in plain if ".private.public." in topic for value in plain[topic]]
    assert len(private) > 80
    assert sorted(value for _, value in read_outbox(tmp_path / "s", "public", 0)) == sorted(private)
