"""Following topics: what they held when they were opened, then what comes, each record once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from connectors.kafka.client import partitions_of, reader_of
from stream.errors import DataError, FinalityError
from stream.schemas import parse_record

COPIES_REMEMBERED = 1 << 17
"""How many of the last distinct records a reader remembers in order to drop their copies."""
TOGETHER_MS = 100
"""Milliseconds within which a window's records are expected in all of their topics."""


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


class Following:
    """Several topics read as one: what they held when they were opened, then what comes.

    Copies are dropped by identity, within each topic. FinalityError when two records of one identity differ:
    one of them was published wrongly.
    """

    def __init__(self, reader: Any, ends: Mapping[TopicPartition, int], identity: Callable[[Record], Hashable]) -> None:
        self._reader = reader
        self._ends = ends
        self._once = {at.topic: _Once(identity) for at in ends}
        self._later: list[Any] = []

    def end(self, topic: str) -> int:
        """Return the furthest end that a partition of a topic had at the beginning."""
        return max((end for at, end in self._ends.items() if at.topic == topic), default=0)

    def ends(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and the end that it had at the beginning."""
        return ((at.topic, at.partition, end) for at, end in self._ends.items())

    async def present(self) -> AsyncIterator[list[Record]]:
        """Yield what was there at the beginning, each partition in order."""
        while await _short_of(self._reader, self._ends):
            raws = await self._read(500)
            self._later += [raw for raw in raws if not self._was_there(raw)]
            yield self._first([raw for raw in raws if self._was_there(raw)])

    async def coming(self) -> list[Record]:
        """Return what has come since, in the order of arrival; waits a moment, also for nothing.

        What comes together is returned together: records of one window lie in several topics.
        """
        raws, self._later = self._later, []
        raws += await self._read(500)
        if raws:
            raws += await self._read(TOGETHER_MS)
        return self._first(raws)

    async def _read(self, wait_ms: int) -> list[Any]:
        batches = await self._reader.getmany(timeout_ms=wait_ms)
        return [raw for batch in batches.values() for raw in batch]

    def _was_there(self, raw: Any) -> bool:
        return bool(raw.offset < self._ends[TopicPartition(raw.topic, raw.partition)])

    def _first(self, raws: list[Any]) -> list[Record]:
        records = [
            (raw.topic, Record(raw.partition, raw.offset, raw.key or b"", raw.value or b"", raw.timestamp, raw.topic))
            for raw in raws
        ]
        return [record for topic, record in records if self._once[topic].first(record)]


@asynccontextmanager
async def following(
    bootstrap: str,
    topics: Sequence[str],
    *,
    from_start: bool = True,
    begin: Callable[[str, int], int] | None = None,
    identity: Callable[[Record], Hashable] = by_release_id,
) -> AsyncIterator[Following]:
    """Open topics that exist at their first record that is kept, or at their present end.

    ``begin`` gives an offset by topic and partition before which nothing is read, also where more is kept.
    """
    async with reader_of(bootstrap) as reader:
        client = reader._client  # noqa: SLF001 - no public way to ask without a subscription
        places = [TopicPartition(topic, number) for topic in topics for number in await partitions_of(client, topic)]
        reader.assign(places)
        begins, ends = await reader.beginning_offsets(places), await reader.end_offsets(places)
        for at in places:
            first = begins[at] if begin is None else max(begins[at], min(begin(*at), ends[at]))
            reader.seek(at, first if from_start else ends[at])
        yield Following(reader, ends, identity)


async def consume(
    bootstrap: str,
    topic: str,
    *,
    from_start: bool = True,
    until_end: bool = False,
    identity: Callable[[Record], Hashable] = by_release_id,
) -> AsyncIterator[Record]:
    """Yield each record of a topic once, in order per partition (see ``Following``).

    ``until_end`` stops at the end that the topic had at the beginning.
    """
    async with following(bootstrap, [topic], from_start=from_start, identity=identity) as records:
        async for batch in records.present():
            for record in batch:
                yield record
        while not until_end:
            for record in await records.coming():
                yield record


async def _short_of(reader: Any, ends: Mapping[TopicPartition, int]) -> bool:
    for at, end in ends.items():
        if await reader.position(at) < end:
            return True
    return False


class _Once:
    """Remembers records by identity, so that a copy is dropped and a contradiction is seen."""

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
