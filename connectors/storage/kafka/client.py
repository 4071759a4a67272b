"""Apache Kafka as the log: what is written, what is read, and how surely.

Producers are idempotent and wait for all replicas; readers see committed records only. Every record of a site
goes to the partition that Kafka's default partitioner gives its name, on every topic, so other producers and
consumers agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from aiokafka.partitioner import murmur2

from connectors.kafka.answering import answering
from connectors.kafka.closing import close
from connectors.kafka.connection import Access
from stream.errors import UsageError
from stream.messages import encode_message
from stream.records import Message
from stream.schemas import OBSERVATIONS

MAX_RECORD = 16 << 20
"""Largest record in bytes: a snapshot of one partition."""
MAX_MESSAGE = MAX_RECORD + (64 << 10)
"""The same with what Kafka puts around it."""
BROKER_PATIENCE = 60.0
"""Seconds for which a broker may be away before a read fails."""
PATIENCE_MS = int(BROKER_PATIENCE * 1000)
LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp that the broker gave."""

PRODUCER: dict[str, Any] = {
    "enable_idempotence": True,
    "acks": "all",
    "compression_type": "zstd",
    "linger_ms": 0,  # writers wait for each answer: lingering would add its time, and nothing to batch
    "max_batch_size": 256 << 10,
    "max_request_size": MAX_MESSAGE,
    "request_timeout_ms": 120_000,
}


for _name in ("aiokafka.cluster", "aiokafka.consumer.fetcher"):  # NotAllowedError says it, where it matters
    logging.getLogger(_name).addFilter(lambda line: "not authorized" not in line.msg.lower())


def partition_of(site: str, partitions: int) -> int:
    """Return a site's partition in [0, partitions), as Kafka's default partitioner has it (murmur2)."""
    return int(murmur2(site.encode()) & 0x7FFFFFFF) % partitions


def producer_of(bootstrap: str, **options: Any) -> Any:
    """Return a producer; what no broker takes for ``request_timeout_ms`` has failed."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **PRODUCER, **options)
    answering(producer.client)
    return producer


class NotAllowedError(UsageError):
    """Kafka does not let this user do what its role needs."""


class KafkaSink:
    """Where a connector puts its messages.

    ``append`` returns when every replica has the message. Messages of a site keep the order of the calls,
    also when several calls wait at the same time.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str = OBSERVATIONS,
        encode: Callable[[Message], bytes] = encode_message,
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

    async def append(self, message: Message) -> None:
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
        raise ConnectionError(f"no Kafka broker answers at {bootstrap}{Access().describe()}") from error


@asynccontextmanager
async def reader_of(bootstrap: str, *, committed: bool = True) -> AsyncIterator[Any]:
    """Give a consumer that belongs to no group; it sees committed records only, unless it is told otherwise."""
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_partition_fetch_bytes=MAX_MESSAGE,
        fetch_max_wait_ms=100,
        request_timeout_ms=PATIENCE_MS,
    )
    answering(reader._client)  # noqa: SLF001 - see there
    try:
        await connect(reader, bootstrap)
        yield reader
    finally:
        await close(reader)


async def partitions_of(client: Any, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions; UsageError when it does not exist, or may not be seen."""
    await refuse_unseen(client, topic)
    known = client.cluster.partitions_for_topic(topic)
    if not known:
        msg = f"topic {topic}: does not exist; create it with 'tacet topics create'"
        raise UsageError(msg)
    return sorted(known)


async def refuse_unseen(client: Any, topic: str) -> None:
    """Raise NotAllowedError for a topic that this user may not see; whoever asks for its records would wait in vain."""
    client.add_topic(topic)
    await client.force_metadata_update()
    if client.cluster.partitions_for_topic(topic) is None:  # that answer may be to a question asked before
        await client.force_metadata_update()
    if topic in client.cluster.unauthorized_topics:
        raise not_open(topic)


def not_open(topic: str) -> NotAllowedError:
    """Return what to say of a topic that this user may not read."""
    return NotAllowedError(f"topic {topic}: must be open to this user; 'tacet topics acls' prints what each role needs")
