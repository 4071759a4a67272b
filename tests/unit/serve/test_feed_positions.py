"""An index goes on only from a source that still has what was read last, where it was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from aiokafka import TopicPartition

from connectors.serve import topics
from connectors.serve.indexer import follow_outbox
from connectors.storage.embedded.outboxes import Outboxes, OutboxRecord
from connectors.storage.kafka import client
from stream.errors import UsageError
from stream.schemas import private_topic
from tests.unit.serve.released_history import history
from tests.unit.serve.test_history import RECORDS

AUDIENCE = "public"
PLACE = TopicPartition(private_topic(AUDIENCE, "occupancy"), 0)
PATIENCE = 240
"""Seconds after which a source that was taken for the former one is given up."""


class EnoughError(Exception):
    """Something was taken in."""


class Read:
    """An intake that has read so far, and ends with what it is given."""

    def __init__(self, position: int, last: str | None) -> None:
        self._left = position, last
        self.taken: list[bytes] = []

    def position(self, source: str) -> int:
        return self._left[0]

    def last(self, source: str) -> str | None:
        return self._left[1]

    async def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        self.taken += records
        raise EnoughError


def name(number: int) -> str:
    return f"dbh/occupancy/{AUDIENCE}/{number}"


def record(number: int) -> bytes:
    return orjson.dumps({"release_id": name(number), "audience": AUDIENCE})


def test_a_history_stores_the_last_id_of_each_source() -> None:
    kept = history()
    kept.add(RECORDS[:3], {"a": 3})
    kept.add([RECORDS[4], RECORDS[0]], {"b": 2})
    ids = [orjson.loads(value)["release_id"] for value in RECORDS]
    assert (kept.last("a"), kept.last("b"), kept.last("c")) == (ids[2], ids[0], None)


@pytest.mark.parametrize(("position", "last", "goes_on"), [(0, None, True), (4, 4, True), (4, 5, False), (9, 9, False)])
async def test_a_recreated_outbox_is_refused_even_if_it_is_longer(
    tmp_path: Path, position: int, last: int | None, goes_on: bool
) -> None:
    """It has releases 1 to 8; another one of that audience had release 5 as its fourth."""
    with closing(Outboxes(tmp_path / "private")) as boxes:
        boxes.append(AUDIENCE, [OutboxRecord(name(n), "occupancy", "dbh", n, record(n)) for n in range(1, 9)])
    intake = Read(position, None if last is None else name(last))
    following = follow_outbox(tmp_path, AUDIENCE, intake)  # type: ignore[arg-type]
    with pytest.raises(EnoughError if goes_on else UsageError, match=None if goes_on else "--index: must belong to"):
        await asyncio.wait_for(following, PATIENCE)


class Raw(NamedTuple):
    offset: int
    value: bytes


class Topic:
    """A topic of one partition that keeps records from ``begin`` on."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.records = begin, [record(offset) for offset in range(end)]


class Reader:
    """A reader of a topic."""

    _client = None

    def __init__(self, topic: Topic) -> None:
        self._topic, self._at = topic, 0

    def assign(self, places: Any) -> None:
        assert list(places) == [PLACE]

    async def beginning_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return {PLACE: self._topic.begin}

    async def end_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return {PLACE: len(self._topic.records)}

    async def position(self, place: TopicPartition) -> int:
        return self._at

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at = offset

    async def getmany(self, *_: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Raw]]:
        await asyncio.sleep(0)
        records = self._topic.records
        stored = [Raw(offset, records[offset]) for offset in range(self._at, len(records))]
        self._at = len(records)
        return {PLACE: stored}


@pytest.mark.parametrize(
    ("position", "last", "begin", "first"),
    [(0, None, 0, 0), (4, 3, 0, 4), (4, 3, 4, 4), (4, 3, 6, 6), (4, 7, 4, 4), (4, 7, 0, None), (9, 8, 0, None)],
)  # fmt: skip
async def test_a_recreated_topic_is_refused_even_if_it_is_longer(
    monkeypatch: pytest.MonkeyPatch, position: int, last: int | None, begin: int, first: int | None
) -> None:
    """Offsets have the number of their release; what was read is another topic's where they differ."""
    stand_in_topic(monkeypatch, begin, 8)
    intake = Read(position, None if last is None else name(last))
    following = topics.follow_private("servers", [AUDIENCE], intake)  # type: ignore[arg-type]
    with pytest.raises(UsageError if first is None else EnoughError, match="--index: must" if first is None else None):
        await asyncio.wait_for(following, PATIENCE)
    assert intake.taken[:1] == ([] if first is None else [record(first)])


class Intake(Read):
    """An intake that goes on, and notes each batch."""

    def __init__(self) -> None:
        super().__init__(0, None)
        self.batches = 0

    async def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        self.taken += records
        self.batches += 1
        if self.batches == 2:
            raise EnoughError


@pytest.mark.parametrize(
    ("begin", "others", "goes_on"), [(0, 0, True), (0, 1, False), (0, 4, False), (3, 4, False), (4, 4, True)]
)
async def test_a_topic_that_is_recreated_while_it_is_read_is_refused_before_its_records_are_added(
    monkeypatch: pytest.MonkeyPatch, begin: int, others: int, goes_on: bool
) -> None:
    """Four records were read, which another topic need not have; of what has expired nothing can be said."""
    topic = stand_in_topic(monkeypatch, 0, 4)
    intake = Intake()
    following = asyncio.ensure_future(topics.follow_private("servers", [AUDIENCE], intake))  # type: ignore[arg-type]
    while not intake.batches:
        await asyncio.sleep(0)
    topic.begin = begin
    topic.records[:] = [record(n) for n in range(4 - others)] + [record(20 + n) for n in range(others + 4)]
    with pytest.raises(EnoughError if goes_on else UsageError, match=None if goes_on else "was recreated or truncated"):
        await asyncio.wait_for(following, PATIENCE)
    assert intake.taken[4:] == ([record(20 + others + n) for n in range(4)] if goes_on else [])


async def test_a_view_is_told_that_its_topic_was_recreated_also_after_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its positions are in memory, and what it read last is too."""
    topic = stand_in_topic(monkeypatch, 0, 4)
    taken: list[bytes] = []
    view = topics.TopicOfView("servers", PLACE.topic, taken.extend)
    following = asyncio.ensure_future(view.follow())
    while not taken:
        await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait({following})
    topic.records[:] = [record(20 + n) for n in range(8)]
    following = asyncio.ensure_future(view.follow())
    while not following.done() and len(taken) == 4:
        await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(UsageError, match="was recreated or truncated"):
        await following


def stand_in_topic(monkeypatch: pytest.MonkeyPatch, begin: int, end: int) -> Topic:
    """Let a service read a topic that is not on Kafka."""
    topic = Topic(begin, end)

    @asynccontextmanager
    async def reader_of(kafka: str, **_: object) -> AsyncIterator[Reader]:
        yield Reader(topic)

    async def one(*_: object) -> list[int]:
        return [0]

    async def names(*_: object) -> list[str]:
        return [PLACE.topic]

    for what, stand_in in (("reader_of", reader_of), ("partitions_of", one), ("topic_names", names)):
        monkeypatch.setattr(topics, what, stand_in)
    monkeypatch.setattr(client, "reader_of", reader_of)
    return topic
