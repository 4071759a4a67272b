"""Readers of Kafka topics.

- **Bounded reads** return what a partition contains now, or between two offsets, and retry while a broker is away.
- **``TopicTail``** reads several topics as one: first what they contained when they were opened, then new records, each
  record once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from connectors.storage.kafka import aiokafka_client
from connectors.storage.kafka.aiokafka_client import fetched_offsets
from connectors.storage.kafka.client import (
    MAX_MESSAGE,
    check_visible,
    partitions_of,
    read_with_retry,
    reader_of,
)
from connectors.storage.kafka.recreation import RecreationCheck
from stream.engine.ports import LossError
from stream.errors import DataError, FinalityError, UsageError
from stream.schemas import SNAPSHOT, parse_record


async def last_snapshot(bootstrap: str, partition: int, *, topic: str = SNAPSHOT) -> bytes | None:
    """Return the newest committed record of one snapshot partition, None if none was ever written.

    Transaction markers and aborted records have offsets too, so the search goes backwards from the end. LossError if
    there was a record and it is gone.
    """

    async def read(reader: Any) -> bytes | None:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        start, step = end, 4
        while start > begin:
            start, step = max(begin, start - step), 4 * step
            records = await _read(reader, at, start, end)
            if records:
                return bytes(records[-1])
        if begin > 0:
            msg = f"partition {partition} of {topic}: its snapshot was deleted"
            raise LossError(msg)
        return None

    return await read_with_retry(bootstrap, read)


async def last_snapshots(bootstrap: str, *, topic: str = SNAPSHOT) -> dict[int, bytes | None]:
    """Return the newest snapshot of every partition."""
    async with reader_of(bootstrap) as reader:
        partitions = await partitions_of(reader, topic)
    return {partition: await last_snapshot(bootstrap, partition, topic=topic) for partition in partitions}


async def read_range(
    bootstrap: str, topic: str, partition: int, start: int, *, committed: bool = True
) -> tuple[list[bytes], int]:
    """Return the values of one partition from ``start`` to its present end, and that end.

    If not ``committed``, values of transactions that were never committed are included. LossError if the log no longer
    reaches back to ``start``.
    """

    async def read(reader: Any) -> tuple[list[bytes], int]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        if not begin <= start <= end:
            msg = (
                f"partition {partition} of {topic}: offset {start} is needed, the log holds [{begin}, {end}); "
                "'tacet recover --kafka' lists the remedies"
            )
            raise LossError(msg)
        return await _read(reader, at, start, end), end

    return await read_with_retry(bootstrap, read, committed=committed)


async def read_first(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """Return the values at the first retained offsets of one partition, at most ``count``."""

    async def read(reader: Any) -> list[bytes]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        return await _read(reader, at, begin, min(end, begin + count))

    return await read_with_retry(bootstrap, read)


async def read_one(bootstrap: str, topic: str, partition: int, offset: int) -> tuple[bytes | None, bytes] | None:
    """Return key and value of the record at an offset that the log has reached; None if there is none.

    A record of a transaction that is open or was aborted counts too: workers read observations whether or not somebody
    commits them, so that a foreign producer cannot hold them up.
    """

    async def read(reader: Any) -> tuple[bytes | None, bytes] | None:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        if not begin <= offset < end:
            return None
        for record in await _records(reader, at, offset, offset + 1):
            return record.key, record.value or b""
        return None

    return await read_with_retry(bootstrap, read, committed=False)


async def count_missing(bootstrap: str, topic: str, partition: int, start: int, end: int) -> int:
    """Return how many offsets in [start, end) hold nothing: no record, aborted or not, and no transaction marker.

    What a reader passes over can be either. Compaction takes records away and leaves their offsets empty.
    """

    async def read(reader: Any) -> int:
        at = TopicPartition(topic, partition)
        await check_visible(reader, topic)
        found, position = 0, start
        while position < end:
            offsets, after = await fetched_offsets(reader, at, position, MAX_MESSAGE)
            found += sum(position <= offset < end for offset in offsets)
            if after <= position:
                raise KafkaError(f"nothing came from offset {position} on")  # retried
            position = after
        return end - start - found

    return await read_with_retry(bootstrap, read)


async def read_tail(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """Return the values of the last ``count`` offsets of one partition."""

    async def read(reader: Any) -> list[bytes]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        return await _read(reader, at, max(begin, end - count), end)

    return await read_with_retry(bootstrap, read)


async def first_used(bootstrap: str, names: Sequence[str], partition: int) -> str | None:
    """Return the first topic in whose partition a record was ever written; None if there is none."""

    async def read(reader: Any) -> str | None:
        places = [TopicPartition(name, partition) for name in names]
        written = await reader.end_offsets(places) if places else {}
        return next((at.topic for at in places if written[at] > 0), None)

    return await read_with_retry(bootstrap, read)


async def read_keyed(bootstrap: str, topic: str, partition: int) -> list[tuple[bytes, bytes | None, int]]:
    """Return key, value (None: deleted) and time in ms of all committed records of one partition."""

    async def read(reader: Any) -> list[tuple[bytes, bytes | None, int]]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        found = await _records(reader, at, begin, end)
        return [(record.key or b"", record.value, record.timestamp) for record in found]

    return await read_with_retry(bootstrap, read)


async def _bounds(reader: Any, at: TopicPartition) -> tuple[int, int]:
    await check_visible(reader, at.topic)
    begin = (await reader.beginning_offsets([at]))[at]
    end = (await reader.end_offsets([at]))[at]
    return int(begin), int(end)


async def _read(reader: Any, at: TopicPartition, start: int, end: int) -> list[bytes]:
    return [record.value or b"" for record in await _records(reader, at, start, end)]


async def _records(reader: Any, at: TopicPartition, start: int, end: int) -> list[Any]:
    reader.assign([at])
    reader.seek(at, start)
    found: list[Any] = []
    while await reader.position(at) < end:
        records = (await reader.getmany(at, timeout_ms=500)).get(at, ())
        found += [record for record in records if start <= record.offset < end]
    return found


async def topic_names(bootstrap: str) -> list[str]:
    """Return the names of all topics that this client may see."""
    return sorted(await partition_counts(bootstrap))


async def partition_counts(bootstrap: str) -> dict[str, int]:
    """Return the number of partitions of every topic this client may see."""
    async with reader_of(bootstrap) as reader:
        return await aiokafka_client.partition_counts(reader)


async def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return, per partition of a topic, the offset after its last record, whether or not it was committed."""
    async with reader_of(bootstrap, committed=False) as reader:
        places = [TopicPartition(topic, number) for number in await partitions_of(reader, topic)]
        return {at.partition: end for at, end in (await reader.end_offsets(places)).items()}


async def begin_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return, per partition of a topic, the offset of its first retained record."""
    async with reader_of(bootstrap) as reader:
        places = [TopicPartition(topic, number) for number in await partitions_of(reader, topic)]
        return {at.partition: begin for at, begin in (await reader.beginning_offsets(places)).items()}


# --- following topics -------------------------------------------------------------------------------

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

    async def present(self) -> AsyncIterator[list[Record]]:
        """Yield the records that existed when the last topics were opened, each partition in order."""
        while await _before_end(self._reader, self._ends):
            raws = await self._read(500)
            self._later += [raw for raw in raws if not self._was_there(raw)]
            yield self._first([raw for raw in raws if self._was_there(raw)])

    async def coming(self) -> list[Record]:
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
        async for batch in records.present():
            for record in batch:
                yield record
        while not until_end:
            for record in await records.coming():
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
