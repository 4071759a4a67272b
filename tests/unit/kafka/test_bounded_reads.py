"""Bounded reads of a log in memory: what is found, where they end, and what is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from connectors.storage.kafka import client, topic_readers
from connectors.storage.kafka.client import MAX_MESSAGE
from stream.engine.ports import LossError

AT = TopicPartition("t", 0)


class Log:
    """A partition: offsets with records, of which an unfinished transaction's are seen by uncommitted reads alone."""

    def __init__(self, records: dict[int, bytes], begin: int, end: int, open_from: int | None = None) -> None:
        self._all, self.begin, self._end, self._open_from = records, begin, end, open_from
        self._committed = True
        self._at = 0
        self._client = SimpleNamespace()
        self.fetched: list[int] = []

    @property
    def end(self) -> int:
        return self._end if self._open_from is None or not self._committed else self._open_from

    async def beginning_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.begin)

    async def end_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.end)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        assert places == [AT]

    def seek(self, at: TopicPartition, offset: int) -> None:
        assert at == AT
        self._at = offset
        self.fetched.append(offset)

    async def position(self, at: TopicPartition) -> int:
        assert at == AT
        return self._at

    async def getmany(self, at: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Return at most three records, as a fetch does that is full; then the log's end is reached."""
        del timeout_ms
        there = sorted(offset for offset in self._all if offset >= self._at)[:3]
        self._at = there[-1] + 1 if there else self._end
        return {at: [SimpleNamespace(offset=n, key=b"k%d" % n, value=self._all[n], timestamp=n) for n in there]}


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let reads go to a log."""

    def of(log: Log) -> Log:
        @asynccontextmanager
        async def reader_of(bootstrap: str, *, committed: bool, most_bytes: int) -> AsyncIterator[Log]:
            assert (bootstrap, most_bytes) == ("here:1", MAX_MESSAGE)
            log._committed = committed
            yield log

        async def seen(*_: object) -> None:
            pass

        monkeypatch.setattr(client, "reader_of", reader_of)
        monkeypatch.setattr(topic_readers, "check_visible", seen)
        return log

    return of


def numbered(*offsets: int) -> dict[int, bytes]:
    return {offset: b"v%d" % offset for offset in offsets}


# --- the last snapshot ------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [0, 3, 7, 40])
async def test_the_last_snapshot_is_found_however_many_offsets_without_records_stand_behind_it(
    reading: Any, last: int
) -> None:
    """Marks of transactions and records that were given up take offsets."""
    reading(Log(numbered(*{0, last}), 0, 45))
    assert await topic_readers.last_snapshot("here:1", 0, topic="t") == b"v%d" % last


async def test_of_several_snapshots_the_newest_is_taken(reading: Any) -> None:
    reading(Log(numbered(5, 9, 10), 5, 12))
    assert await topic_readers.last_snapshot("here:1", 0, topic="t") == b"v10"


async def test_where_none_was_ever_written_there_is_none_and_where_it_is_gone_that_is_a_loss(reading: Any) -> None:
    reading(Log({}, 0, 0))
    assert await topic_readers.last_snapshot("here:1", 0, topic="t") is None
    reading(Log({}, 0, 30))
    assert await topic_readers.last_snapshot("here:1", 0, topic="t") is None
    for begin in (1, 30):
        reading(Log({}, begin, 30))
        with pytest.raises(LossError, match="partition 0 of t: its snapshot was deleted"):
            await topic_readers.last_snapshot("here:1", 0, topic="t")


async def test_a_snapshot_that_was_not_committed_is_none(reading: Any) -> None:
    reading(Log(numbered(2, 8), 0, 10, open_from=8))
    assert await topic_readers.last_snapshot("here:1", 0, topic="t") == b"v2"


# --- ranges -----------------------------------------------------------------------------------------------


async def test_a_range_holds_what_lies_from_its_start_to_the_present_end(reading: Any) -> None:
    reading(Log(numbered(*range(4, 20)), 4, 20))
    assert await topic_readers.read_range("here:1", "t", 0, 15) == ([b"v%d" % n for n in range(15, 20)], 20)
    assert await topic_readers.read_range("here:1", "t", 0, 20) == ([], 20)
    assert await topic_readers.read_range("here:1", "t", 0, 4) == ([b"v%d" % n for n in range(4, 20)], 20)


async def test_what_was_never_committed_is_read_only_where_that_is_asked_for(reading: Any) -> None:
    reading(Log(numbered(1, 2, 3, 4), 0, 5, open_from=3))
    assert await topic_readers.read_range("here:1", "t", 0, 1) == ([b"v1", b"v2"], 3)
    assert await topic_readers.read_range("here:1", "t", 0, 1, committed=False) == ([b"v1", b"v2", b"v3", b"v4"], 5)


@pytest.mark.parametrize("start", [0, 3, 21])
async def test_a_range_that_the_log_does_not_hold_any_more_or_yet_is_a_loss(reading: Any, start: int) -> None:
    reading(Log(numbered(*range(4, 20)), 4, 20))
    with pytest.raises(LossError, match=rf"offset {start} is needed, the log holds \[4, 20\); 'tacet recover --kafka'"):
        await topic_readers.read_range("here:1", "t", 0, start)


async def test_one_record_is_that_of_its_offset_and_of_no_other(reading: Any) -> None:
    reading(Log(numbered(4, 6), 4, 8))
    assert await topic_readers.read_one("here:1", "t", 0, 4) == (b"k4", b"v4")
    assert await topic_readers.read_one("here:1", "t", 0, 6) == (b"k6", b"v6")
    assert [await topic_readers.read_one("here:1", "t", 0, offset) for offset in (3, 5, 7, 8)] == [None] * 4


async def test_one_record_is_found_in_a_transaction_that_is_open_too(reading: Any) -> None:
    """Workers read it, and would take the log for another one when they start again and do not find it."""
    reading(Log(numbered(1, 2, 3, 4), 0, 5, open_from=3))
    assert await topic_readers.read_one("here:1", "t", 0, 4) == (b"k4", b"v4")


async def test_a_tail_is_of_the_last_offsets_as_far_as_they_are_there(reading: Any) -> None:
    reading(Log(numbered(4, 5, 6, 7), 4, 8))
    assert await topic_readers.read_tail("here:1", "t", 0, 2) == [b"v6", b"v7"]
    assert await topic_readers.read_tail("here:1", "t", 0, 99) == [b"v4", b"v5", b"v6", b"v7"]


async def test_the_first_topic_in_which_something_was_written_is_named(reading: Any) -> None:
    reading(Log({}, 0, 1))
    assert await topic_readers.first_used("here:1", ["t", "u"], 0) == "t"
    reading(Log({}, 0, 0))
    assert await topic_readers.first_used("here:1", ["t", "u"], 0) is None


# --- whom it asks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "level"), [({}, "read_committed"), ({"committed": False}, "read_uncommitted")])
async def test_a_reader_sees_what_was_committed_unless_it_asks_for_more(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], level: str
) -> None:
    given: dict[str, Any] = {}

    class Nobody:
        def __init__(self, **options: Any) -> None:
            given.update(options)
            raise ZeroDivisionError

    monkeypatch.setattr(client, "AIOKafkaConsumer", Nobody)
    with pytest.raises(ZeroDivisionError):
        async with client.reader_of("here:1", **more):
            pass
    assert (given["isolation_level"], given["enable_auto_commit"]) == (level, False)
