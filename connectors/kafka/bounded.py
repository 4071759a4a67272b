"""Reads of Kafka that end: what a partition holds now, between two offsets, with patience for a broker that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from connectors.kafka.client import not_open, partitions_of, reader_of, refuse_unseen
from connectors.kafka.patience import patiently
from stream.runners.contract import LossError
from stream.schemas import SNAPSHOT

T = TypeVar("T")


async def last_snapshot(bootstrap: str, partition: int, *, topic: str = SNAPSHOT) -> bytes | None:
    """Return the newest committed record of one snapshot partition, None if none was ever written.

    Marks of transactions and aborted records take offsets too, so it is looked for from the end backwards.
    LossError when there was one and it is gone.
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

    return await _patiently(bootstrap, read)


async def last_snapshots(bootstrap: str, *, topic: str = SNAPSHOT) -> dict[int, bytes | None]:
    """Return the newest snapshot of every partition."""
    async with reader_of(bootstrap) as reader:
        partitions = await partitions_of(reader._client, topic)  # noqa: SLF001 - no public way to ask without a subscription
    return {partition: await last_snapshot(bootstrap, partition, topic=topic) for partition in partitions}


async def read_range(
    bootstrap: str, topic: str, partition: int, start: int, *, committed: bool = True
) -> tuple[list[bytes], int]:
    """Return the values of one partition from ``start`` to its present end, and that end.

    Not ``committed`` gives also what was written in transactions that were never committed. LossError when
    the log no longer reaches ``start``.
    """

    async def read(reader: Any) -> tuple[list[bytes], int]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        if not begin <= start <= end:
            msg = f"partition {partition} of {topic}: offset {start} is needed, the log holds [{begin}, {end})"
            raise LossError(msg)
        return await _read(reader, at, start, end), end

    return await _patiently(bootstrap, read, committed=committed)


async def read_one(bootstrap: str, topic: str, partition: int, offset: int) -> tuple[bytes | None, bytes] | None:
    """Return key and value of the record at an offset that the log has reached; None where there is none."""

    async def read(reader: Any) -> tuple[bytes | None, bytes] | None:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        if not begin <= offset < end:
            return None
        for record in await _records(reader, at, offset, offset + 1):
            return record.key, record.value or b""
        return None

    return await _patiently(bootstrap, read)


async def read_tail(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """Return the values of the last ``count`` offsets of one partition."""

    async def read(reader: Any) -> list[bytes]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        return await _read(reader, at, max(begin, end - count), end)

    return await _patiently(bootstrap, read)


async def first_used(bootstrap: str, names: Sequence[str], partition: int) -> str | None:
    """Return the first topic in whose partition something was ever written; None where there is none."""

    async def read(reader: Any) -> str | None:
        places = [TopicPartition(name, partition) for name in names]
        written = await reader.end_offsets(places) if places else {}
        return next((at.topic for at in places if written[at] > 0), None)

    return await _patiently(bootstrap, read)


async def read_keyed(bootstrap: str, topic: str, partition: int) -> list[tuple[bytes, bytes | None, int]]:
    """Return key, value (None: taken away) and time in ms of all committed records of one partition."""

    async def read(reader: Any) -> list[tuple[bytes, bytes | None, int]]:
        at = TopicPartition(topic, partition)
        begin, end = await _bounds(reader, at)
        found = await _records(reader, at, begin, end)
        return [(record.key or b"", record.value, record.timestamp) for record in found]

    return await _patiently(bootstrap, read)


async def _bounds(reader: Any, at: TopicPartition) -> tuple[int, int]:
    await refuse_unseen(reader._client, at.topic)  # noqa: SLF001 - no public way to ask without a subscription
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


async def _patiently(bootstrap: str, read: Callable[[Any], Awaitable[T]], *, committed: bool = True) -> T:
    """Read with a fresh reader, again while the broker is away; reading twice changes nothing."""

    async def once() -> T:
        async with reader_of(bootstrap, committed=committed) as reader:
            try:
                return await asyncio.wait_for(read(reader), 20)
            except TopicAuthorizationFailedError as error:  # to be seen is not yet to be read
                raise not_open(str(error.args[0])) from None

    return await patiently(once, KafkaError, ConnectionError, TimeoutError)


async def topic_names(bootstrap: str) -> list[str]:
    """Return the names of all topics this client may see."""
    return sorted(await partition_counts(bootstrap))


async def partition_counts(bootstrap: str) -> dict[str, int]:
    """Return the number of partitions of every topic this client may see."""
    async with reader_of(bootstrap) as reader:
        cluster = await reader._client.fetch_all_metadata()  # noqa: SLF001 - the public way gives names only
        return {name: len(cluster.partitions_for_topic(name) or ()) for name in cluster.topics()}


async def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return, per partition of a topic, the offset after its last record."""
    async with reader_of(bootstrap) as reader:
        places = [TopicPartition(topic, number) for number in await partitions_of(reader._client, topic)]  # noqa: SLF001
        return {at.partition: end for at, end in (await reader.end_offsets(places)).items()}


async def begin_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return, per partition of a topic, the offset of its first record that is kept."""
    async with reader_of(bootstrap) as reader:
        places = [TopicPartition(topic, number) for number in await partitions_of(reader._client, topic)]  # noqa: SLF001
        return {at.partition: begin for at, begin in (await reader.beginning_offsets(places)).items()}
