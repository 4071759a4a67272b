"""What is read of a cluster as a whole, and written to it once: heads, books, metadata, lost records, old ledgers.

Topics are lists; the brokers' part is tested in ``tests/integration``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from connectors.operations.audit import kafka_bundle
from connectors.operations.audit.kafka_bundle import cluster_bundle
from connectors.storage.kafka import heads, key_rotation, metadata, republication
from connectors.storage.kafka.client import NotAllowedError, partition_of
from connectors.storage.kafka.heads import HeadsTopic
from connectors.storage.kafka.topic_tail import Record
from connectors.storage.site_metadata import SiteMetadata
from stream.accounting.signed_heads import SignedHead
from stream.engine.cluster_state import ClusterState
from stream.engine.outputs import OutputRecord
from stream.engine.ports import FencedError, LossError
from stream.errors import AuditError, TacetError, UsageError
from stream.schemas import AUDIT, HEADS, METADATA, OBSERVATIONS

BROKER = "127.0.0.1:9"
RELEASE = "east/occupancy/dean/2026-03-02T10:00:00Z"


class Producer:
    """Remembers what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, dict[str, Any]]] = []
        self.client, self.closed = None, False

    async def send_and_wait(self, topic: str, value: bytes, **place: Any) -> None:
        self.sent.append((topic, value, place))


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()

    async def connect(*_: Any) -> None:
        pass

    async def close(producer: Producer) -> None:
        producer.closed = True

    for module in (metadata, republication):
        monkeypatch.setattr(module, "producer_of", lambda _: made)
        monkeypatch.setattr(module, "connect", connect)
    for each in (metadata, republication, heads):
        monkeypatch.setattr(each, "close", close)
    return made


def gives(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, answer: Any) -> None:
    """Let a function of a module answer; an exception is raised."""

    async def given(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, name, given)


def consumed(monkeypatch: pytest.MonkeyPatch, module: Any, topics: dict[str, list[Record]]) -> None:
    async def consume(_: str, topic: str, **__: Any) -> AsyncIterator[Record]:
        for record in topics[topic]:
            yield record

    monkeypatch.setattr(module, "consume", consume)


def record(number: int, body: dict[str, Any], *, partition: int = 0) -> Record:
    return Record(partition, number, b"east", orjson.dumps(body), 0)


# --- signed heads ---------------------------------------------------------------------------------------


HEAD = SignedHead(0, "2026-03-02T10:00:00Z", "0" * 64, {}, "ab" * 64)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> HeadsTopic:
    async def transactional(*_: Any) -> Producer:
        return producer

    @asynccontextmanager
    async def transaction(_: Producer) -> AsyncIterator[None]:
        yield

    gives(monkeypatch, heads, "partition_counts", {HEADS: 1})
    gives(monkeypatch, heads, "read_range", ([HEAD.to_bytes()], 1))
    monkeypatch.setattr(heads, "transactional", transactional)
    monkeypatch.setattr(heads, "transaction", transaction)
    return HeadsTopic(BROKER)


def test_heads_are_read_and_follow_those_that_were_read(topic: HeadsTopic, producer: Producer) -> None:
    assert topic.exists()
    assert topic.read() == [HEAD]
    after = SignedHead(1, "2026-03-03T10:00:00Z", HEAD.digest(), {}, "cd" * 64)
    topic.add(1, [after])
    assert producer.sent == [(HEADS, after.to_bytes(), {"key": b"1", "partition": 0})]
    assert producer.closed


def test_a_head_that_another_signer_has_added_meanwhile_is_not_followed(topic: HeadsTopic, producer: Producer) -> None:
    with pytest.raises(TacetError, match="another signer has signed in the meantime"):
        topic.add(0, [HEAD])
    assert producer.sent == []
    assert producer.closed


def test_a_signer_that_is_fenced_is_told_to_sign_again(topic: HeadsTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def fenced(_: Producer) -> AsyncIterator[None]:
        raise FencedError("another owner has taken it")
        yield

    monkeypatch.setattr(heads, "transaction", fenced)
    with pytest.raises(TacetError, match="sign again"):
        topic.add(1, [HEAD])


def test_a_topic_without_its_first_heads_or_without_any_is_refused(
    topic: HeadsTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    gives(monkeypatch, heads, "read_range", LossError("gone"))
    with pytest.raises(UsageError, match="must hold every head from the first on"):
        topic.read()
    gives(monkeypatch, heads, "partition_counts", {})
    assert not topic.exists()
    with pytest.raises(UsageError, match="does not exist"):
        topic.read()


# --- books ----------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cluster with one entry and one record; the order in which it is read."""
    order: list[str] = []

    def noted(name: str, answer: Any) -> Any:
        async def given(*_: Any, **__: Any) -> Any:
            order.append(name)
            return answer

        return given

    async def subscribe(*, audience: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
        order.append(f"records of {audience}")
        yield {"audience": audience}

    async def consume(*_: Any, **__: Any) -> AsyncIterator[Record]:
        order.append("entries")
        yield record(0, {"site": "east", "sequence": 0})

    names = ["tacet.private.dean.occupancy.v1", "tacet.private.dean.halls.v1", "tacet.private.board.halls.v1", AUDIT]
    monkeypatch.setattr(kafka_bundle, "last_snapshots", noted("states", {0: None}))
    monkeypatch.setattr(kafka_bundle, "topic_names", noted("topics", names))
    monkeypatch.setattr(kafka_bundle, "consume", consume)
    monkeypatch.setattr(kafka_bundle, "subscribe", subscribe)
    return order


async def test_states_are_read_first_and_records_last(cluster: list[str]) -> None:
    """Entries must reach the states that were read, and a charge and its record become visible together."""
    bundle = await cluster_bundle(BROKER, records=True)
    assert cluster.index("states") < cluster.index("entries") < cluster.index("records of dean")
    assert bundle.entries == [{"site": "east", "sequence": 0}]
    assert bundle.records == [{"audience": "board"}, {"audience": "dean"}], "each audience once"
    assert bundle.states_read
    assert (await cluster_bundle(BROKER)).records is None


def test_the_bundle_is_the_same_for_a_command_that_has_no_event_loop(cluster: list[str]) -> None:
    assert kafka_bundle.kafka_bundle(BROKER, records=True).records == [{"audience": "board"}, {"audience": "dean"}]
    bundle = kafka_bundle.kafka_bundle(BROKER)
    assert (bundle.entries, bundle.records) == ([{"site": "east", "sequence": 0}], None)
    assert cluster.count("records of dean") == 1


async def test_who_may_not_read_states_gets_a_bundle_without_them(
    cluster: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gives(monkeypatch, kafka_bundle, "last_snapshots", NotAllowedError("no"))
    bundle = await cluster_bundle(BROKER)
    assert (bundle.states_read, bundle.states) == (False, [])


# --- metadata -------------------------------------------------------------------------------------------


def zone_names(site: str, name: str) -> SiteMetadata:
    return {"v": 1, "site": site, "name": name, "timezone": "UTC", "tick_seconds": 300, "zones": []}


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[tuple[bytes, bytes | None, int]]]:
    """The metadata topic by partition: key, value and time."""
    kept: dict[int, list[tuple[bytes, bytes | None, int]]] = {0: [], 1: []}

    async def read_keyed(_: str, __: str, partition: int) -> list[tuple[bytes, bytes | None, int]]:
        return kept[partition]

    gives(monkeypatch, metadata, "partition_counts", {METADATA: 2})
    monkeypatch.setattr(metadata, "read_keyed", read_keyed)
    return kept


async def test_metadata_is_written_where_it_differs_from_the_newest(
    sites: dict[int, list[tuple[bytes, bytes | None, int]]], producer: Producer
) -> None:
    sites[1] = [
        (b"east", orjson.dumps(zone_names("east", "before")), 1), (b"east", orjson.dumps(zone_names("east", "now")), 2),
        (b"gone", None, 3),
    ]  # fmt: skip
    assert await metadata.read(BROKER) == {"east": zone_names("east", "now")}
    await metadata.publish(BROKER, {"east": zone_names("east", "now")})
    assert producer.sent == []
    await metadata.publish(BROKER, {"east": zone_names("east", "now"), "west": zone_names("west", "new")})
    [(topic, value, place)] = producer.sent
    assert (topic, orjson.loads(value)["name"], place["key"]) == (METADATA, "new", b"west")
    assert place["partition"] == partition_of("west", 2)
    assert producer.closed


async def test_a_cluster_without_the_topic_gets_nothing(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    gives(monkeypatch, metadata, "partition_counts", {})
    await metadata.publish(BROKER, {"east": zone_names("east", "now")})
    assert (await metadata.read(BROKER), producer.sent) == ({}, [])


# --- lost records ---------------------------------------------------------------------------------------


async def test_the_ledger_is_read_before_the_records_that_it_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    private = "tacet.private.dean.occupancy.v1"
    gives(monkeypatch, republication, "read", ClusterState())
    gives(monkeypatch, republication, "topic_names", [AUDIT, private])
    consumed(monkeypatch, republication, {AUDIT: [record(0, {"a": 1})], private: [record(0, {"release_id": "x"})]})
    _, entries, published = await republication.ledger_of(BROKER)
    assert (entries, published) == ([b'{"a":1}'], {"x": b'{"release_id":"x"}'})


async def test_observations_without_their_beginning_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    consumed(monkeypatch, republication, {OBSERVATIONS: [record(0, {"n": 1}), record(1, {"n": 2})]})
    gives(monkeypatch, republication, "begin_offsets", {0: 0, 1: 0})
    assert [each.offset async for each in republication.observations(BROKER)] == [0, 1]
    gives(monkeypatch, republication, "begin_offsets", {0: 0, 1: 1})
    with pytest.raises(LossError, match="begins at offset 1"):
        [each async for each in republication.observations(BROKER)]
    gives(monkeypatch, republication, "begin_offsets", {0: 0, 1: 7})
    with pytest.raises(LossError, match=r"partition 1 of tacet\.observations\.v1: begins at offset 7"):
        [each async for each in republication.observations(BROKER)]


async def test_observations_are_told_apart_by_partition_and_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    gives(monkeypatch, republication, "begin_offsets", {0: 0, 1: 0})
    stored = [record(0, {}), record(1, {}), record(0, {}, partition=1)]

    async def consume(_: str, __: str, *, until_end: bool, identity: Callable[[Record], object]) -> Any:
        assert until_end
        assert len({identity(each) for each in stored}) == len(stored)
        for each in stored:
            yield each

    monkeypatch.setattr(republication, "consume", consume)
    assert [each async for each in republication.observations(BROKER)] == stored


async def test_records_are_put_back_under_their_key_time_and_partition(
    monkeypatch: pytest.MonkeyPatch, producer: Producer
) -> None:
    gives(monkeypatch, republication, "partitions_of", [0, 1, 2])
    lost = OutputRecord("tacet.private.dean.occupancy.v1", b"west", b"{}", 1_772_445_600_000, True, RELEASE)
    await republication.put_back(BROKER, [lost])
    [(topic, value, place)] = producer.sent
    assert (topic, value, place["key"], place["timestamp_ms"]) == (lost.topic, b"{}", b"west", lost.timestamp_ms)
    assert place["partition"] == partition_of("west", 3) == 2
    assert producer.closed


# --- a ledger that ends ---------------------------------------------------------------------------------


def entry(sequence: int, **more: Any) -> bytes:
    return orjson.dumps({"site": "east", "sequence": sequence, **more})


def test_entries_of_no_committed_transaction_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unchecked:
        def chains(self, entries: Any) -> None:
            list(entries)

    async def read_range(*_: Any, committed: bool = True) -> tuple[list[bytes], int]:
        return ([entry(0)], 2) if committed else ([entry(1), entry(0), entry(1)], 2)

    gives(monkeypatch, key_rotation, "last_snapshot", b"state")
    monkeypatch.setattr(key_rotation, "heads_of", lambda _: {})
    monkeypatch.setattr(key_rotation, "audit_of", lambda _: Unchecked())
    monkeypatch.setattr(key_rotation, "read_range", read_range)
    found = asyncio.run(key_rotation._read_partition(BROKER, 0, ClusterState()))
    assert [each["sequence"] for each in found.entries] == [0, 1], "each once, in order"
    assert (found.unread, found.audit_end) == ([entry(1)], 2)


@pytest.mark.parametrize(
    ("snapshot", "written", "error", "rule"),
    [
        (b"state", [entry(0), entry(0, epsilon="2")], AuditError, "entry 0 must appear once"),
        (None, [entry(0)], UsageError, "must have the state that its ledger entries belong to"),
        (b"state", LossError("gone"), UsageError, "put the topic back from a mirror first"),
    ],
)
def test_a_partition_that_is_not_whole_is_not_taken_over(
    monkeypatch: pytest.MonkeyPatch, snapshot: bytes | None, written: Any, error: type[Exception], rule: str
) -> None:
    gives(monkeypatch, key_rotation, "last_snapshot", snapshot)
    gives(monkeypatch, key_rotation, "read_range", written if isinstance(written, Exception) else (written, 2))
    with pytest.raises(error, match=rule):
        asyncio.run(key_rotation._read_partition(BROKER, 0, ClusterState()))
