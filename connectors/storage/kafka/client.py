"""Clients of Apache Kafka, with retries and a bounded shutdown.

- Producers are idempotent and wait for all replicas; readers see committed records only.
- Every record of a site goes to the partition that Kafka's default partitioner gives the site's name, on every topic,
  so other producers and consumers agree.
- A failed request is repeated with growing waits while a broker is away (``with_retry``).
- A client disconnects without waiting for a broker that does not answer (``close``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import stamina
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from aiokafka.partitioner import murmur2

from connectors.runtime.retries import log_error_kinds_only
from connectors.storage.kafka.aiokafka_client import answering, topic_partitions
from connectors.storage.kafka.aiokafka_errors import is_no_answer
from connectors.storage.kafka.connection import Access
from connectors.storage.kafka.timeouts import (
    BROKER_PATIENCE,
    CLOSE_TIMEOUT,
    FETCH_WAIT_MS,
    PATIENCE_MS,
    PRODUCER_REQUEST_MS,
    READ_TIMEOUT,
)
from stream.errors import TacetError, UsageError

log = logging.getLogger(__name__)

MAX_RECORD = 16 << 20
"""Maximum size of a record in bytes: a snapshot of one partition."""
MAX_MESSAGE = MAX_RECORD + (64 << 10)
"""The same with Kafka's overhead."""

PRODUCER: dict[str, str | int] = {
    "enable_idempotence": True,
    "acks": "all",
    "compression_type": "zstd",
    "linger_ms": 0,  # writers wait for each acknowledgement: lingering would add its time and batch nothing
    "max_batch_size": 256 << 10,
    "max_request_size": MAX_MESSAGE,
    "request_timeout_ms": PRODUCER_REQUEST_MS,
}


for _name in ("aiokafka.cluster", "aiokafka.consumer.fetcher"):  # NotAllowedError reports it where it matters
    logging.getLogger(_name).addFilter(lambda line: "not authorized" not in line.msg.lower())


def partition_of(site: str, partitions: int) -> int:
    """Return a site's partition in [0, partitions), by Kafka's default partitioner (murmur2)."""
    return int(murmur2(site.encode()) & 0x7FFFFFFF) % partitions


def producer_of(bootstrap: str, **options: Any) -> Any:
    """Return a producer; a record that no broker accepts within ``request_timeout_ms`` has failed."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **PRODUCER, **options)
    answering(producer)
    return producer


class NotAllowedError(UsageError):
    """Kafka denies this user an operation that its role needs."""


class AbsentTopicError(UsageError):
    """A topic does not exist, or this broker does not know it yet."""


async def connect(client: Any, bootstrap: str) -> None:
    """Start a client of Kafka; ConnectionError if no broker answers."""
    try:
        await client.start()
    except KafkaError as error:
        if not is_no_answer(error):
            raise
        raise ConnectionError(f"no Kafka broker answers at {bootstrap}{Access().describe()}") from error


@asynccontextmanager
async def reader_of(bootstrap: str, *, committed: bool = True, most_bytes: int = MAX_MESSAGE) -> AsyncIterator[Any]:
    """Yield a consumer without a group; it sees committed records only, unless ``committed`` is false.

    ``most_bytes`` bounds what is fetched of a partition at once; a larger record comes alone.
    """
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_partition_fetch_bytes=most_bytes,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        request_timeout_ms=PATIENCE_MS,
    )
    answering(reader)
    try:
        await connect(reader, bootstrap)
        yield reader
    finally:
        await close(reader)


async def partitions_of(owner: Any, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions; ``owner`` is a consumer, a producer or an administrator.

    Raises:
        AbsentTopicError: it does not exist.
        NotAllowedError: this user may not see it.
    """
    known = await check_visible(owner, topic)
    if not known:
        msg = f"topic {topic}: does not exist; create it with 'tacet topics create'"
        raise AbsentTopicError(msg)
    return sorted(known)


async def check_visible(owner: Any, topic: str) -> set[int]:
    """Return the numbers of a topic's partitions, none if it does not exist.

    NotAllowedError if this user may not see it: a reader would wait for its records in vain.
    """
    known = await topic_partitions(owner, topic)
    if known is None:
        raise not_authorized(topic)
    return known


def not_authorized(topic: str) -> NotAllowedError:
    """Return the error for a topic that this user may not read."""
    return NotAllowedError(f"topic {topic}: must be open to this user; 'tacet topics acls' prints what each role needs")


async def close(client: Any) -> None:
    """Disconnect, without waiting for a broker that does not answer or for tasks that wait for one.

    aiokafka's sender ignores cancellation while it looks for a coordinator.
    """
    stopping = asyncio.ensure_future(client.stop())
    stopping.add_done_callback(_log_client_failure)
    try:
        await asyncio.wait({stopping}, timeout=CLOSE_TIMEOUT)
    finally:
        stopping.cancel()


def _log_client_failure(stopping: asyncio.Future[None]) -> None:
    if not stopping.cancelled() and stopping.exception() is not None:
        log.info("a client did not close cleanly: %s", type(stopping.exception()).__name__)


# --- retries ----------------------------------------------------------------------------------------

T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 0.3, 1.0
"""Seconds between two attempts."""


class NoAnswerError(TacetError, TimeoutError):
    """The broker has not answered for longer than the limit."""


async def with_retry(call: Callable[[], Awaitable[T]], *errors: type[Exception], seconds: float = BROKER_PATIENCE) -> T:
    """Call ``call`` until it succeeds; ``errors`` cause a retry, any other error is raised at once.

    Raises:
        NoAnswerError: no attempt succeeded for so many seconds.
    """
    retrying = stamina.AsyncRetryingCaller(
        attempts=None, timeout=None, wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT, wait_jitter=FIRST_WAIT
    )
    try:
        async with asyncio.timeout(seconds):
            return await retrying(errors, call)
    except TimeoutError:
        msg = f"Kafka: must answer within {seconds:g} s; no answer came"
        raise NoAnswerError(msg) from None


async def read_with_retry(
    bootstrap: str, read: Callable[[Any], Awaitable[T]], *, committed: bool = True, most_bytes: int = MAX_MESSAGE
) -> T:
    """Read with a new reader, and again while the broker is away; reading twice changes nothing."""

    async def once() -> T:
        async with reader_of(bootstrap, committed=committed, most_bytes=most_bytes) as reader:
            try:
                async with asyncio.timeout(READ_TIMEOUT):
                    return await read(reader)
            except TopicAuthorizationFailedError as error:  # a visible topic need not be readable
                raise not_authorized(str(error.args[0])) from None

    return await with_retry(once, KafkaError, ConnectionError, TimeoutError)


log_error_kinds_only()
