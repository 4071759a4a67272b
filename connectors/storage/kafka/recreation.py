"""Detects that a topic was deleted and created again while it was read.

The offsets of the new topic begin at 0 again. A reader that does not notice continues at its position, and skips the
records before it. Kafka tells this client no topic ids, so records are compared: whenever records have arrived, and
before they are used, the record that was read before them must still be at its offset.

Two cases are accepted, because nothing is left to compare: retention has deleted that record, or the new topic has the
same record at the same offset.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from connectors.storage.kafka.client import read_with_retry

Batches = Mapping[TopicPartition, Sequence[Any]]
"""The records that a consumer has fetched, by partition."""


FEW_BYTES = 64 << 10
"""How much of a partition is fetched at once where one record is wanted; a larger record comes nevertheless."""


class _Read(NamedTuple):
    """A record that was read: its offset and a digest of its value."""

    offset: int
    digest: bytes


class RecreationCheck:
    """Remembers the last record that was read of each partition, and compares it with the partition."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._last: dict[TopicPartition, _Read] = {}
        self._unread: set[TopicPartition] = set()

    def begin_at_first(self, places: Iterable[TopicPartition]) -> None:
        """Expect the first record of these partitions; those of which a record is remembered are left out."""
        self._unread |= {*places} - self._last.keys()

    async def begin_at_end(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the present end of these partitions, and remember the last record before it."""
        last, ends = await _last_values(self._bootstrap, places)
        self._last |= {at: _read(offset, value) for at, (offset, value) in last.items()}
        self.begin_at_first(places)
        return ends

    async def recreated_before(self, batches: Batches) -> str | None:
        """Return a topic that was recreated before these records of it were fetched; None if there is none.

        Raises:
            NoAnswerError: no broker answers. The records must not be used.
        """
        fetched = {at: records for at, records in batches.items() if records}
        recreated = await self._find(fetched.keys() & self._last.keys())
        new = {at: int(fetched[at][0].offset) for at in fetched.keys() & self._unread}
        for at, first in (await _first_offsets(self._bootstrap, new)).items():
            recreated = recreated or (str(at.topic) if first != new[at] else None)
        if recreated is None:
            self._unread -= fetched.keys()
            self._last |= {at: _read(records[-1].offset, records[-1].value) for at, records in fetched.items()}
        return recreated

    async def recreated(self) -> str | None:
        """Return a topic that was recreated since records of it were fetched; None if there is none.

        Raises:
            NoAnswerError: no broker answers.
        """
        return await self._find(self._last)

    async def _find(self, places: Iterable[TopicPartition]) -> str | None:
        last = {at: self._last[at] for at in places}
        values = await _values_at(self._bootstrap, {at: read.offset for at, read in last.items()})
        for at, value in sorted(values.items()):
            if value is None or _read(last[at].offset, value) != last[at]:
                return str(at.topic)
        return None


def _read(offset: int, value: bytes | None) -> _Read:
    return _Read(offset, hashlib.blake2b(value or b"", digest_size=16).digest())


async def _values_at(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, bytes | None]:
    """Return the value at one offset of each given partition; None if there is no record.

    A partition that no longer reaches back to its offset is left out.
    """

    async def read(reader: Any) -> dict[TopicPartition, bytes | None]:
        begins, ends = await _bounds_of(reader, offsets)
        found: dict[TopicPartition, bytes | None] = {at: None for at, offset in offsets.items() if begins[at] <= offset}
        async for at, record in _between(
            reader, {at: (offset, offset + 1) for at, offset in offsets.items() if begins[at] <= offset < ends[at]}
        ):
            found[at] = record.value or b""
        return found

    return await read_with_retry(bootstrap, read, most_bytes=FEW_BYTES) if offsets else {}


async def _first_offsets(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """Return the offset of the first record of each given partition, up to a given one; None if there is none.

    A partition that no longer reaches back to its given offset is left out.
    """

    async def read(reader: Any) -> dict[TopicPartition, int | None]:
        begins, ends = await _bounds_of(reader, offsets)
        found: dict[TopicPartition, int | None] = {at: None for at, offset in offsets.items() if begins[at] <= offset}
        spans = {at: (begins[at], min(offsets[at] + 1, ends[at])) for at in found}
        async for at, record in _between(reader, {at: span for at, span in spans.items() if span[0] < span[1]}):
            first = found[at]
            found[at] = record.offset if first is None else first
        return found

    return await read_with_retry(bootstrap, read, most_bytes=FEW_BYTES) if offsets else {}


async def _last_values(
    bootstrap: str, places: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, tuple[int, bytes]], dict[TopicPartition, int]]:
    """Return offset and value of the last record of each given partition, if it has one, and the end of each."""

    async def read(reader: Any) -> tuple[dict[TopicPartition, tuple[int, bytes]], dict[TopicPartition, int]]:
        begins, ends = await _bounds_of(reader, places)
        found: dict[TopicPartition, tuple[int, bytes]] = {}
        starts, step = dict(ends), 4  # marks of transactions have offsets too
        while waiting := [at for at in places if at not in found and starts[at] > begins[at]]:
            spans = {at: (max(begins[at], starts[at] - step), starts[at]) for at in waiting}
            async for at, record in _between(reader, spans):
                found[at] = record.offset, record.value or b""
            starts |= {at: start for at, (start, _) in spans.items()}
            step *= 4
        return found, ends

    return await read_with_retry(bootstrap, read)


async def _bounds_of(
    reader: Any, places: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first retained offset and the end of each partition."""
    places = [*places]
    reader.assign(places)
    return await reader.beginning_offsets(places), await reader.end_offsets(places)


async def _between(
    reader: Any, spans: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncIterator[tuple[TopicPartition, Any]]:
    """Yield the records within [start, end) of each partition, in order."""
    if spans:
        reader.assign([*spans])
    for at, (start, _) in spans.items():
        reader.seek(at, start)
    waiting = [*spans]
    while waiting:
        for at, records in (await reader.getmany(*waiting, timeout_ms=500)).items():
            for record in records:
                if record.offset < spans[at][1]:
                    yield at, record
        waiting = [at for at in waiting if await reader.position(at) < spans[at][1]]
