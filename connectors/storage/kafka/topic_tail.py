"""Several topics read as one: first what they contained when they were opened, then new records, each record once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from connectors.storage.kafka.client import partitions_of, reader_of
from connectors.storage.kafka.recreation import RecreationCheck
from stream.errors import DataError, FinalityError, UsageError
from stream.schemas import parse_record

COPIES_REMEMBERED = 1 << 17
"""How many of the last distinct records a reader remembers in order to drop copies of them."""
TOGETHER_MS = 100
"""Milliseconds within which a window's records arrive in all of their topics."""


class Record(NamedTuple):
    """One record as a subscriber sees it."""

    partition: int
    offset: int
    key: bytes
    value: bytes
    timestamp_ms: int
    topic: str = ""


def by_release_id(record: Record) -> Hashable:
    """Identify a private or leakage record: the same release_id is the same release."""
    return _field(record, "release_id")


def by_sequence(record: Record) -> Hashable:
    """Identify an audit record: site and position in its audit chain."""
    return record.key, _field(record, "sequence")


def _field(record: Record, name: str) -> Hashable:
    body: Mapping[str, Hashable] = parse_record(record.value)
    if name not in body:
        msg = f"partition {record.partition}, offset {record.offset}: must be a record with {name}"
        raise DataError(msg)
    return body[name]


class TopicTail:
    """Several topics read as one: first what they contained when they were opened, then new records.

    Copies are dropped by identity, within each topic. FinalityError if two records of one identity differ: one of them
    was published wrongly. UsageError if a topic was recreated: records before the position would be skipped. While no
    broker answers, nothing new comes and nothing is lost.
    """

    def __init__(self, reader: Any, identity: Callable[[Record], Hashable], recreation: RecreationCheck) -> None:
        self._reader = reader
        self._identity = identity
        self._recreation = recreation
        self._begins: Mapping[TopicPartition, int] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._duplicates: dict[str, _DuplicateFilter] = {}
        self._later: list[Any] = []

    async def open(
        self, topics: Iterable[str], begin: Callable[[str, int], int] | None = None, *, from_start: bool = True
    ) -> None:
        """Read these topics too, from their first retained record or from their present end.

        ``begin`` gives an offset by topic and partition. Nothing before it is read, even if it is retained.
        """
        reader = self._reader
        places = [TopicPartition(topic, number) for topic in topics for number in await partitions_of(reader, topic)]
        begins = await reader.beginning_offsets(places)
        ends = await (reader.end_offsets(places) if from_start else self._recreation.begin_at_end(places))
        positions = {at: await self._reader.position(at) for at in self._reader.assignment()}
        for at in places:
            first = begins[at] if begin is None else max(begins[at], min(begin(*at), ends[at]))
            positions[at] = first if from_start else ends[at]
        self._recreation.begin_at_first(at for at in places if positions[at] == begins[at])
        self._reader.assign([*positions])  # which forgets every position
        for at, position in positions.items():
            self._reader.seek(at, position)
        self._begins, self._ends = begins, ends
        self._duplicates |= {at.topic: _DuplicateFilter(self._identity) for at in places}

    def begins(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and first retained offset, as they were when the last topics were opened."""
        return ((at.topic, at.partition, begin) for at, begin in self._begins.items())

    def ends(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and end, as they were when the last topics were opened."""
        return ((at.topic, at.partition, end) for at, end in self._ends.items())

    async def existing(self) -> AsyncIterator[list[Record]]:
        """Yield the records that existed when the last topics were opened, each partition in order."""
        while await _before_end(self._reader, self._ends):
            raws = await self._read(500)
            self._later += [raw for raw in raws if not self._was_there(raw)]
            yield self._first([raw for raw in raws if self._was_there(raw)])

    async def poll(self) -> list[Record]:
        """Return new records in the order of arrival; waits a moment, and may return none.

        Records that arrive together are returned together: the records of one window are in several topics.
        """
        raws, self._later = self._later, []
        raws += await self._read(500)
        if raws:
            raws += await self._read(TOGETHER_MS)
        return self._first(raws)

    async def refuse_recreated(self) -> None:
        """Raise UsageError if a topic was recreated; NoAnswerError if no broker answers."""
        if (topic := await self._recreation.recreated()) is not None:
            raise topic_recreated(topic)

    async def _read(self, wait_ms: int) -> list[Any]:
        try:
            batches = await self._reader.getmany(timeout_ms=wait_ms)
        except OffsetOutOfRangeError as error:
            raise topic_recreated(next(iter(error.args[0])).topic) from None
        if (topic := await self._recreation.recreated_before(batches)) is not None:
            raise topic_recreated(topic)
        return [raw for batch in batches.values() for raw in batch]

    def _was_there(self, raw: Any) -> bool:
        return bool(raw.offset < self._ends.get(TopicPartition(raw.topic, raw.partition), 0))

    def _first(self, raws: list[Any]) -> list[Record]:
        records = [
            (raw.topic, Record(raw.partition, raw.offset, raw.key or b"", raw.value or b"", raw.timestamp, raw.topic))
            for raw in raws
        ]
        return [record for topic, record in records if self._duplicates[topic].first(record)]


@asynccontextmanager
async def open_tail(
    bootstrap: str,
    topics: Sequence[str],
    *,
    from_start: bool = True,
    begin: Callable[[str, int], int] | None = None,
    identity: Callable[[Record], Hashable] = by_release_id,
) -> AsyncIterator[TopicTail]:
    """Open topics that exist (see ``TopicTail.open``)."""
    async with reader_of(bootstrap) as reader:
        records = TopicTail(reader, identity, RecreationCheck(bootstrap))
        await records.open(topics, begin, from_start=from_start)
        yield records


def topic_recreated(topic: str) -> UsageError:
    """Return the error for a topic that is no longer the one that was being read."""
    return UsageError(
        f"topic {topic}: must hold the next message, but was made anew or shortened while it was read; start "
        "again, with a cursor (which shows whether anything would be skipped) or from the beginning"
    )


async def consume(
    bootstrap: str,
    topic: str,
    *,
    from_start: bool = True,
    until_end: bool = False,
    identity: Callable[[Record], Hashable] = by_release_id,
) -> AsyncIterator[Record]:
    """Yield each record of a topic once, in order per partition (see ``TopicTail``).

    ``until_end`` stops at the end that the topic had when it was opened.
    """
    async with open_tail(bootstrap, [topic], from_start=from_start, identity=identity) as records:
        async for batch in records.existing():
            for record in batch:
                yield record
        while not until_end:
            for record in await records.poll():
                yield record


async def _before_end(reader: Any, ends: Mapping[TopicPartition, int]) -> bool:
    for at, end in ends.items():
        if await reader.position(at) < end:
            return True
    return False


class _DuplicateFilter:
    """Remembers records by identity, in order to drop copies and to detect contradictions."""

    def __init__(self, identity: Callable[[Record], Hashable]) -> None:
        self._identity = identity
        self._digests: dict[Hashable, bytes] = {}

    def first(self, record: Record) -> bool:
        name = self._identity(record)
        digest = hashlib.blake2b(record.value, digest_size=16).digest()
        known = self._digests.setdefault(name, digest)
        if known != digest:
            place = f"partition {record.partition}, offset {record.offset}"
            msg = f"{place}: differs from an earlier record of its identity"
            raise FinalityError(msg)
        if len(self._digests) > COPIES_REMEMBERED:
            del self._digests[next(iter(self._digests))]
        return known is digest
