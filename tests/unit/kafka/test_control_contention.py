"""A fenced writer of the control topic reads again and decides again, a limited number of times."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from connectors.storage.kafka import cluster
from stream.engine.cluster_state import ClusterState, Records, engine_record
from stream.engine.ports import FencedError, InterruptedWriteError
from stream.errors import DataError, TacetError, UsageError
from stream.schemas import CONTROL


class Contended:
    """A control topic that others take from this one a number of times."""

    def __init__(self) -> None:
        self.taken, self.closed = 0, 0
        self.losses: list[Exception] = []
        self.asked = 0
        self.stands = ClusterState()

    async def take(self, _: str) -> object:
        self.taken += 1
        return object()

    async def close(self, _: Any) -> None:
        self.closed += 1

    async def read(self, _: str) -> ClusterState:
        self.asked += 1
        if self.losses:
            raise self.losses.pop(0)
        return self.stands


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Contended:
    """A topic between whose attempts there are short waits."""
    made = Contended()
    for name, double in (("_begin_transaction", made.take), ("close", made.close), ("read", made.read)):
        monkeypatch.setattr(cluster, name, double)
    for name in ("FIRST_WAIT", "LONGEST_WAIT"):
        monkeypatch.setattr(cluster, name, 0.001)
    return made


def nothing(_: ClusterState) -> Records:
    return {}


async def test_it_decides_anew_on_what_stands_then(topic: Contended) -> None:
    topic.losses += [FencedError("another"), InterruptedWriteError("it is not known"), FencedError("another")]
    assert (await cluster.decide("servers", nothing)).partitions is None
    assert topic.taken == topic.closed == 4  # each time as a writer of its own


async def test_what_is_decided_is_written_in_one_transaction_and_is_what_stands_then(
    topic: Contended, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []

    class Producer:
        async def begin_transaction(self) -> None:
            steps.append("begin")

        async def send_and_wait(self, *record: object, **place: object) -> None:
            steps.append((*record, place))

        async def commit_transaction(self) -> None:
            steps.append("commit")

    async def take(_: str) -> Producer:
        return Producer()

    monkeypatch.setattr(cluster, "_begin_transaction", take)
    decided = await cluster.decide("servers", lambda _: {"cluster": CLUSTER})
    assert decided.partitions == 4
    assert steps == ["begin", (CONTROL, CLUSTER, {"key": b"cluster", "partition": 0}), "commit"]


async def test_after_so_many_attempts_it_says_that_others_write_all_the_time(topic: Contended) -> None:
    topic.losses += [FencedError("another")] * (cluster.TRIES + 1)
    with pytest.raises(TacetError, match="control topic: must be free to write to"):
        await cluster.decide("servers", nothing)
    assert len(topic.losses) == 1


async def test_a_rule_that_refuses_is_asked_once(topic: Contended) -> None:
    topic.losses += [UsageError("key: must be the cluster's")]
    with pytest.raises(UsageError, match="must be the cluster's"):
        await cluster.decide("servers", nothing)
    assert topic.taken == topic.closed == 1


# --- who only looks ---------------------------------------------------------------------------------------------------


def retired() -> ClusterState:
    stands = ClusterState()
    stands.apply("engine", engine_record(ClusterState(), "new", ("1",), retired=["old-ledger"]), 0)
    return stands


async def test_who_goes_on_under_a_retired_key_is_told_which(topic: Contended) -> None:
    topic.stands = retired()
    with pytest.raises(UsageError, match="ledger old-ledger has ended, its key was retired"):
        await cluster.refuse_ended("servers", "old", "old-ledger")


async def test_who_goes_on_under_a_key_that_is_not_the_clusters_any_more_is_told_so(topic: Contended) -> None:
    topic.stands = retired()
    with pytest.raises(UsageError, match="key: must be the one this cluster was begun with"):
        await cluster.refuse_ended("servers", "old", "another-ledger")


async def test_who_has_the_clusters_key_goes_on(topic: Contended) -> None:
    topic.stands = retired()
    await cluster.refuse_ended("servers", "new", "new-ledger")
    assert topic.asked == 1


@pytest.mark.parametrize("away", [TimeoutError(), ConnectionError(), KafkaTimeoutError()], ids=repr)
async def test_where_no_broker_answers_nobody_is_refused_for_it(topic: Contended, away: Exception) -> None:
    topic.losses.append(away)
    await cluster.refuse_ended("servers", "new", "new-ledger")
    assert topic.asked == 1


# --- reading ----------------------------------------------------------------------------------------------


CLUSTER = b'{"v":1,"id":"c","partitions":4}'


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes | None, int]]:
    """The records of a control topic that the broker has not compacted."""
    records: list[tuple[bytes, bytes | None, int]] = [(b"cluster", CLUSTER, 0)]

    async def read_keyed(_: str, topic: str, partition: int) -> list[tuple[bytes, bytes | None, int]]:
        assert (topic, partition) == (CONTROL, 0)
        return records

    monkeypatch.setattr(cluster, "read_keyed", read_keyed)
    return records


@pytest.mark.parametrize("key", [b"cluster", b"ingest/x", b"policy/" + b"x" * 1000])
@pytest.mark.parametrize("value", [b"", b"?", b"{}", b'{"v":2}', b"[" * 5000])
async def test_a_damaged_record_is_named_by_its_key_with_the_way_out(
    log: list[tuple[bytes, bytes | None, int]], key: bytes, value: bytes
) -> None:
    log.append((key, value, 0))
    with pytest.raises(DataError, match="write the last good one again from a mirror") as refused:
        await cluster.read("servers")
    assert f"key '{key.decode()[:80]}'" in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(("repair", "partitions"), [(CLUSTER, 4), (None, None)])
async def test_a_damaged_record_is_repaired_by_another_one_of_its_key(
    log: list[tuple[bytes, bytes | None, int]], repair: bytes | None, partitions: int | None
) -> None:
    """The broker takes its time to compact the topic; nobody has to wait for it."""
    log += [(b"cluster", b"?", 0), (b"cluster", repair, 0)]
    assert (await cluster.read("servers")).partitions == partitions


async def test_copies_of_earlier_records_and_records_of_other_kinds_change_nothing(
    log: list[tuple[bytes, bytes | None, int]],
) -> None:
    log += [(b"ingest/x", b'{"v":1}', 1), (b"ingest/x", None, 2), (b"junk", b"\0" * 1000, 3), (b"", b"?", 4)]
    before = await cluster.read("servers")
    log += log[:2]
    log += [log[2]]
    assert await cluster.read("servers") == before
