"""Who is fenced while it decides what the control topic shall say reads again and decides anew; not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from connectors.storage.kafka import cluster
from stream.engine.cluster_state import ClusterState, Records, engine_record
from stream.engine.ports import FencedError, InterruptedWriteError
from stream.errors import TacetError, UsageError


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
