"""Several topics read as one: topics that appear later, and topics that were shortened."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from connectors.storage.kafka import topic_tail
from connectors.storage.kafka.recreation import Batches, RecreationCheck
from connectors.storage.kafka.topic_tail import Record, TopicTail
from stream.errors import UsageError

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)


class Topics:
    """Topics of one partition with so many records, and a reader whose positions are gone with each assignment."""

    _client = None

    def __init__(self) -> None:
        self.lengths = {OLD: 5, NEW: 3}
        self.begins = {OLD: 0, NEW: 0}
        self._positions: dict[TopicPartition, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return {*self._positions}

    def assign(self, places: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(places, -1)

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._positions[at] = offset

    async def position(self, at: TopicPartition) -> int:
        return self._positions[at]

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.begins[at] for at in places}

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.lengths[at] for at in places}

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        del timeout_ms
        found = {}
        for at, position in self._positions.items():
            if position < self.begins[at]:
                raise OffsetOutOfRangeError({at: position})
            found[at] = [
                SimpleNamespace(topic=at.topic, partition=0, offset=n, key=b"k", value=b"%d" % n, timestamp=0)
                for n in range(position, self.lengths[at])
            ]
            self._positions[at] = self.lengths[at]
        return found


class NeverRecreated(RecreationCheck):
    """A check for topics that stay what they are."""

    def __init__(self, topics: Topics) -> None:
        super().__init__("servers")
        self._topics = topics

    async def begin_at_end(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self._topics.lengths[at] for at in places}

    async def recreated_before(self, batches: Batches) -> None:
        pass


def tail_of(topics: Topics) -> TopicTail:
    return TopicTail(topics, where, NeverRecreated(topics))


def where(record: Record) -> tuple[str, int]:
    return record.topic, record.offset


@pytest.fixture(autouse=True)
def one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    async def numbers(*_: object) -> list[int]:
        return [0]

    monkeypatch.setattr(topic_tail, "partitions_of", numbers)


async def existing(following: TopicTail) -> list[tuple[str, int]]:
    return [where(record) async for batch in following.existing() for record in batch]


async def test_a_topic_that_is_opened_later_begins_at_its_start_and_leaves_the_others_where_they_were() -> None:
    topics = Topics()
    following = tail_of(topics)
    await following.open(["old"])
    assert await existing(following) == [("old", n) for n in range(5)]
    topics.lengths[OLD] = 8
    await following.open(["new"])
    assert [*following.ends()] == [("new", 0, 3)]
    assert await existing(following) == [("new", n) for n in range(3)]
    topics.lengths |= {OLD: 9, NEW: 4}
    arrived = [where(record) for record in await following.poll()]
    assert sorted(arrived) == [("new", 3), *(("old", n) for n in range(5, 9))]


async def test_a_subscriber_of_what_comes_reads_a_later_topic_from_its_start() -> None:
    topics = Topics()
    following = tail_of(topics)
    await following.open(["old"], from_start=False)
    await following.open(["new"])
    assert await existing(following) == [("new", n) for n in range(3)]
    assert await following.poll() == []


async def test_a_topic_that_was_shortened_is_said_in_words() -> None:
    topics = Topics()
    following = tail_of(topics)
    await following.open(["old"])
    await existing(following)
    topics.begins[OLD] = topics.lengths[OLD] = 9
    with pytest.raises(UsageError, match="topic old: must hold the next message, but was made anew or shortened"):
        await following.poll()
