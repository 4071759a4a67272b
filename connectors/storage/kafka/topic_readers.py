"""Bounded reads of topics: what a partition contains now, or between two offsets; retried while a broker is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from connectors.storage.kafka import aiokafka_client
from connectors.storage.kafka.aiokafka_client import fetched_offsets
from connectors.storage.kafka.client import MAX_MESSAGE, check_visible, partitions_of, read_with_retry, reader_of
from stream.engine.ports import LossError
from stream.schemas import SNAPSHOT


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
