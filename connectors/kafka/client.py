"""Apache Kafka as the log: what is written, what is read, and how surely.

Producers are idempotent and wait for all replicas; readers see committed records only. Every record of a site
goes to the partition that Kafka's default partitioner gives its name, on every topic, so other producers and
consumers agree.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.partitioner import murmur2

from stream.errors import DataError, FinalityError, UsageError
from stream.records import Heartbeat, ObservationBatch
from stream.runners.tenure import LossError
from stream.schemas import OBSERVATIONS, SNAPSHOT, encode_message, parse_record

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_RECORD = 16 << 20
"""Largest record in bytes: a snapshot of one partition."""
BROKER_PATIENCE = 60.0
"""Seconds for which a broker may be away before a read fails."""
COPIES_REMEMBERED = 1 << 17
"""How many of the last distinct records a reader remembers in order to drop their copies."""
ANSWER_MS = 15_000
"""Milliseconds after which a request that no broker has answered is sent again, to whoever leads then."""
LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp that the broker gave."""
TOGETHER_MS = 100
"""Milliseconds within which a window's records are expected in all of their topics."""

PRODUCER: dict[str, Any] = {
    "enable_idempotence": True,
    "acks": "all",
    "compression_type": "zstd",
    "linger_ms": 0,  # writers wait for each answer: lingering would add its time, and nothing to batch
    "max_batch_size": 256 << 10,
    "max_request_size": MAX_RECORD,
    "request_timeout_ms": 120_000,
}


def partition_of(site: str, partitions: int) -> int:
    """Return a site's partition in [0, partitions), as Kafka's default partitioner has it (murmur2)."""
    return int(murmur2(site.encode()) & 0x7FFFFFFF) % partitions


def producer_of(bootstrap: str, **options: Any) -> Any:
    """Return a producer that asks again after ``ANSWER_MS`` and gives up after ``request_timeout_ms``."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **PRODUCER, **options)
    # aiokafka takes one time for both: a leader that hangs would be waited for as long as a broker that is away.
    producer.client._request_timeout_ms = ANSWER_MS  # noqa: SLF001
    return producer


class KafkaSink:
    """Where a connector puts its batches and heartbeats.

    ``append`` returns when every replica has the message. Messages of a site keep the order of the calls,
    also when several calls wait at the same time.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str = OBSERVATIONS,
        encode: Callable[[ObservationBatch | Heartbeat], bytes] = encode_message,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._encode = encode
        self._producer: Any = None
        self._partitions = 0
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Connect; UsageError when the topic does not exist."""
        self._producer = producer_of(self._bootstrap)
        await connect(self._producer, self._bootstrap)
        self._partitions = len(await partitions_of(self._producer.client, self._topic))

    async def append(self, message: ObservationBatch | Heartbeat) -> None:
        """Write one message durably."""
        partition = partition_of(message.site, self._partitions)
        async with self._turn:
            acknowledged = await self._producer.send(
                self._topic, self._encode(message), key=message.site.encode(), partition=partition
            )
        answer = await acknowledged
        if self._topic == OBSERVATIONS and answer.timestamp_type != LOG_APPEND_TIME:
            msg = f"topic {self._topic}: must have message.timestamp.type=LogAppendTime; set it with kafka-configs.sh"
            raise UsageError(msg)

    async def stop(self) -> None:
        """Write what is left and disconnect."""
        if self._producer is not None:
            await self._producer.stop()


async def connect(client: Any, bootstrap: str) -> None:
    """Start a client of Kafka; ConnectionError when no broker answers."""
    try:
        await client.start()
    except KafkaConnectionError as error:
        raise ConnectionError(f"no Kafka broker answers at {bootstrap}") from error


# --- bounded reads --------------------------------------------------------------------------------------


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
    async with _reader(bootstrap) as reader:
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


@asynccontextmanager
async def _reader(bootstrap: str, *, committed: bool = True) -> AsyncIterator[Any]:
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_partition_fetch_bytes=MAX_RECORD,
        fetch_max_wait_ms=100,
    )
    try:
        await connect(reader, bootstrap)
        yield reader
    finally:
        await reader.stop()


async def _patiently(bootstrap: str, read: Callable[[Any], Awaitable[T]], *, committed: bool = True) -> T:
    """Read with a fresh reader, again while the broker is away; reading twice changes nothing."""
    async with asyncio.timeout(BROKER_PATIENCE):
        while True:
            try:
                async with _reader(bootstrap, committed=committed) as reader:
                    return await asyncio.wait_for(read(reader), 20)
            except (KafkaError, ConnectionError, TimeoutError) as error:
                log.info("log not readable yet: %s", type(error).__name__)
                await asyncio.sleep(0.3)


async def partitions_of(client: Any, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions; UsageError when it does not exist."""
    client.add_topic(topic)
    await client.force_metadata_update()
    known = client.cluster.partitions_for_topic(topic)
    if not known:
        msg = f"topic {topic}: does not exist; create it with 'tacet topics create'"
        raise UsageError(msg)
    return sorted(known)


# --- following a topic ----------------------------------------------------------------------------------


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
    """Identify an audit record: site and position in its chain."""
    return record.key, _field(record, "sequence")


def by_offset(record: Record) -> Hashable:
    """Identify every record by its place: nothing is a copy."""
    return record.partition, record.offset


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
    identity: Callable[[Record], Hashable] = by_release_id,
) -> AsyncIterator[Following]:
    """Open topics that exist at their first record, or at their present end."""
    async with _reader(bootstrap) as reader:
        client = reader._client  # noqa: SLF001 - no public way to ask without a subscription
        places = [TopicPartition(topic, number) for topic in topics for number in await partitions_of(client, topic)]
        reader.assign(places)
        begins, ends = await reader.beginning_offsets(places), await reader.end_offsets(places)
        for at in places:
            reader.seek(at, begins[at] if from_start else ends[at])
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


async def topics(bootstrap: str) -> list[str]:
    """Return the names of all topics this client may see."""
    return sorted(await partition_counts(bootstrap))


async def partition_counts(bootstrap: str) -> dict[str, int]:
    """Return the number of partitions of every topic this client may see."""
    async with _reader(bootstrap) as reader:
        cluster = await reader._client.fetch_all_metadata()  # noqa: SLF001 - the public way gives names only
        return {name: len(cluster.partitions_for_topic(name) or ()) for name in cluster.topics()}


async def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Return, per partition of a topic, the offset after its last record."""
    async with _reader(bootstrap) as reader:
        places = [TopicPartition(topic, number) for number in await partitions_of(reader._client, topic)]  # noqa: SLF001
        return {at.partition: end for at, end in (await reader.end_offsets(places)).items()}


async def begins(bootstrap: str, topic: str) -> dict[int, int]:
    """Return, per partition of a topic, the offset of its first record that is kept."""
    async with _reader(bootstrap) as reader:
        places = [TopicPartition(topic, number) for number in await partitions_of(reader._client, topic)]  # noqa: SLF001
        return {at.partition: begin for at, begin in (await reader.beginning_offsets(places)).items()}
