"""A reader is told that its topic was deleted and created again, even if it has grown beyond its position."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition

from connectors.storage.kafka.client import MAX_MESSAGE
from connectors.storage.kafka.recreation import FEW_BYTES, RecreationCheck
from tests.unit.kafka.logs_in_memory import Cluster, Log, fetched, let_read

AT, BESIDE = TopicPartition("t", 0), TopicPartition("t", 1)
FORMER = {0: b"a", 2: b"b", 4: b"c"}
"""Values by offset; a mark of a transaction follows each."""
OTHER = {0: b"x", 2: b"y", 4: b"z", 6: b"u"}


def of(log: Log, *offsets: int) -> dict[TopicPartition, list[Any]]:
    """Return what a consumer has fetched of the first partition."""
    return {AT: fetched(AT, log, *offsets)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster({AT: Log(FORMER), BESIDE: Log({})})
    let_read(monkeypatch, made)
    return made


@pytest.fixture
def check() -> RecreationCheck:
    return RecreationCheck("here:1")


@pytest.mark.parametrize(
    ("log", "topic"),
    [
        (Log(FORMER | {6: b"d"}), None),
        (Log(OTHER), "t"),
        (Log({0: b"a", 2: b"y", 4: b"c", 6: b"u"}), "t"),
        (Log({0: b"a", 3: b"b", 6: b"u"}), "t"),
        (Log({6: b"d"}, begin=3), None),
        (Log({6: b"d"}, begin=2), "t"),
    ],
    ids=["grows", "another", "another record", "another offset", "expired", "no record"],
)
async def test_the_record_that_was_read_before_must_still_be_there(
    cluster: Cluster, check: RecreationCheck, log: Log, topic: str | None
) -> None:
    """What retention has deleted cannot be compared."""
    assert await check.recreated_before(of(cluster.logs[AT], 0, 2)) is None
    cluster.logs[AT] = log
    assert await check.recreated() == topic
    assert await check.recreated_before({BESIDE: []}) is None
    assert await check.recreated_before(of(log, 6) if 6 in log.records else {}) == (topic if 6 in log.records else None)
    assert {*cluster.limits} == {FEW_BYTES}, "one record is wanted"


async def test_each_batch_is_compared_with_the_one_before_it(cluster: Cluster, check: RecreationCheck) -> None:
    """The new topic begins as the former one did."""
    assert await check.recreated_before(of(cluster.logs[AT], 0)) is None
    assert await check.recreated_before(of(cluster.logs[AT], 2, 4)) is None
    cluster.logs[AT] = log = Log({0: b"a", 2: b"b", 4: b"z", 6: b"u"})
    assert await check.recreated_before(of(log, 6)) == "t"


@pytest.mark.parametrize(
    ("log", "came", "topic"),
    [(Log({4: b"c"}, begin=3), 4, None), (Log({6: b"u"}, begin=5), 6, None), (Log(OTHER), 4, "t")],
    ids=["is the first", "expired", "has one before it"],
)
async def test_what_comes_first_is_the_first_record_of_a_partition_that_is_read_from_its_begin(
    cluster: Cluster, check: RecreationCheck, log: Log, came: int, topic: str | None
) -> None:
    check.begin_at_first([AT, BESIDE])
    cluster.logs[AT] = log
    assert await check.recreated_before(of(log, came)) == topic


@pytest.mark.parametrize("marks", [2, 40])
async def test_a_reader_of_what_comes_remembers_the_last_record_however_many_marks_follow_it(
    cluster: Cluster, check: RecreationCheck, marks: int
) -> None:
    class Marked(Log):
        @property
        def end(self) -> int:
            return 4 + marks

    cluster.logs[AT] = Marked(FORMER)
    assert await check.begin_at_end([AT, BESIDE]) == {AT: 4 + marks, BESIDE: 0}
    assert cluster.limits == [MAX_MESSAGE]
    assert await check.recreated() is None
    cluster.logs[AT] = log = Log(OTHER | {4 + marks: b"v"})
    assert await check.recreated() == "t", "even if nothing comes of it"
    assert await check.recreated_before(of(log, 4 + marks)) == "t"


async def test_a_reader_of_what_comes_expects_the_first_record_where_there_is_none_yet(
    cluster: Cluster, check: RecreationCheck
) -> None:
    cluster.logs[AT] = log = Log({}, begin=4)
    assert await check.begin_at_end([AT, BESIDE]) == {AT: 4, BESIDE: 0}
    log.records[4] = b"c"
    assert await check.recreated_before(of(log, 4)) is None
    later = RecreationCheck("here:1")
    cluster.logs[AT] = Log({}, begin=4)
    await later.begin_at_end([AT])
    cluster.logs[AT] = log = Log(OTHER)
    assert await later.recreated_before(of(log, 4, 6)) == "t"


async def test_what_is_refused_is_not_remembered(cluster: Cluster, check: RecreationCheck) -> None:
    assert await check.recreated_before(of(cluster.logs[AT], 0)) is None
    cluster.logs[AT] = log = Log(OTHER)
    assert [await check.recreated_before(of(log, 2)) for _ in range(2)] == ["t", "t"]
