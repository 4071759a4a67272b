"""Who may write a partition's results: one transactional producer per partition, and the broker says which.

Taking a partition means initialising its transactional id. From then on the broker refuses whatever an earlier
owner still sends, and has ended what that owner had begun; only then are snapshot and audit read. All that is
pending and one snapshot are one transaction: readers of committed records see all of it or nothing.

What a transaction that was never committed left in the audit topic can be read by whoever reads uncommitted.
So a new owner reads those entries too: they must come out again equal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionCoordinatorFenced,
)

from connectors.kafka.bounded import first_used, last_snapshot, read_one, read_range
from connectors.kafka.client import BROKER_PATIENCE, MAX_RECORD, connect, partitions_of, producer_of
from connectors.kafka.closing import close
from connectors.kafka.cloud_events import headers_of
from connectors.kafka.patience import patiently
from stream.errors import UsageError
from stream.runners.agreement import Records
from stream.runners.contract import FencedError, InterruptedWriteError, Output
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, QUARANTINE, SNAPSHOT

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT = 60.0
"""Seconds after which the broker ends a transaction by itself, and so fences who had begun it.

Longer than any commit takes; as long may a writer that hangs, and that nobody has fenced, hold readers back."""
COMMIT_TIMEOUT = 30.0
"""Seconds after which a transaction that the broker has not ended is given up, to be looked for anew."""
NOTHING_AGREED: Records = {}
_FENCED = (
    IllegalOperation,  # aiokafka's word for one more send after it was fenced
    ProducerFenced,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)


@dataclass(frozen=True, slots=True)
class EngineTopics:
    """The topics between which a worker works."""

    source: str = OBSERVATIONS
    snapshot: str = SNAPSHOT
    audit: str = AUDIT
    results: tuple[str, ...] = ()
    """Where releases and accounts go; what lies there must have its books."""


async def transactional(bootstrap: str, name: str) -> Any:
    """Return the one producer of a transactional id; every earlier one is fenced, its transaction ended.

    TimeoutError when no broker does that in time.
    """
    producer = producer_of(
        bootstrap, transactional_id=name, transaction_timeout_ms=int(TRANSACTION_TIMEOUT * 1000)
    )  # fmt: skip
    try:
        await connect(producer, bootstrap)
    except BaseException:
        await close(producer)
        raise
    return producer


@asynccontextmanager
async def transaction(producer: Any) -> AsyncIterator[None]:
    """Write all that is sent meanwhile, or nothing; who was interrupted must take a producer anew.

    Raises:
        FencedError: another one has taken the transactional id.
        InterruptedWriteError: the broker did not say what became of it.
    """
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            await producer.begin_transaction()
            yield
            await producer.commit_transaction()
    except (*_FENCED, AssertionError) as error:  # aiokafka asserts when a fenced producer is used once more
        raise FencedError("another owner has taken it") from error
    except (KafkaConnectionError, KafkaTimeoutError, TimeoutError) as error:
        raise InterruptedWriteError(f"a write was interrupted ({type(error).__name__})") from error
    except KafkaError as error:
        if error.retriable or type(error) is KafkaError:  # what aiokafka makes of a connection that broke
            raise InterruptedWriteError(f"a write was interrupted ({type(error).__name__})") from error
        raise


class KafkaJournal:
    """Where a worker takes its partitions (see ``stream.runners.contract.Journal``)."""

    def __init__(self, bootstrap: str, *, fence: str, topics: EngineTopics = EngineTopics()) -> None:
        """Take the cluster's name under which its writers fence each other, one per partition."""
        self._bootstrap = bootstrap
        self._fence = fence
        self._topics = topics
        self.observers: list[Callable[[Sequence[Output]], None]] = []
        """Called with what a transaction held, when it is committed."""

    async def start(self) -> None:
        """Wait for a broker that is just starting; UsageError when a topic is missing."""
        await patiently(self._find_topics, ConnectionError)

    async def _find_topics(self) -> None:
        probe = producer_of(self._bootstrap)
        try:
            await connect(probe, self._bootstrap)
            for topic in (self._topics.snapshot, self._topics.audit):
                await partitions_of(probe.client, topic)
        except ConnectionError:
            log.warning("no broker answers yet")
            raise
        finally:
            await close(probe)

    async def take(self, partition: int) -> KafkaWriter:
        """Become the partition's one writer, with patience for a broker that is away."""
        name = f"{self._fence}-{partition}"

        async def ask() -> Any:
            return await asyncio.wait_for(transactional(self._bootstrap, name), BROKER_PATIENCE / 3)

        producer = await patiently(ask, ConnectionError, TimeoutError)
        return KafkaWriter(self._bootstrap, producer, partition, self._topics, self.observers)


class KafkaWriter:
    """A partition's one writer (see ``stream.runners.contract.Writer``)."""

    def __init__(
        self, bootstrap: str, producer: Any, partition: int, topics: EngineTopics,
        observers: Sequence[Callable[[Sequence[Output]], None]] = (),
    ) -> None:  # fmt: skip
        self._observers = observers
        self._bootstrap = bootstrap
        self._producer = producer
        self._partition = partition
        self._topics = topics

    async def last_snapshot(self) -> bytes | None:
        """Return the newest committed snapshot; LossError when there was one and it is gone."""
        return await last_snapshot(self._bootstrap, self._partition, topic=self._topics.snapshot)

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        """Return the audit records from ``offset`` on, uncommitted ones too, and the offset after the last.

        LossError when the log does not reach so far, or no longer back to it.
        """
        return await read_range(self._bootstrap, self._topics.audit, self._partition, offset, committed=False)

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        """Return key and value of one message of the input; None where there is none at this offset."""
        return await read_one(self._bootstrap, self._topics.source, self._partition, offset)

    async def released(self) -> str | None:
        """Return a topic of results that holds, or has held, a record of this partition; None if none does."""
        return await first_used(self._bootstrap, self._topics.results, self._partition)

    async def commit(self, outputs: Sequence[Output], snapshot: bytes, agreed: Records = NOTHING_AGREED) -> int | None:
        """Write records in order and the snapshot, all or none; return the offset after the last audit record.

        ``agreed`` are records of the control topic, of names that nobody else writes.

        Raises:
            UsageError: the snapshot is larger than a record may be.
            FencedError: another owner has taken the partition.
            InterruptedWriteError: the broker did not say what became of it.
        """
        if len(snapshot) > MAX_RECORD:
            msg = (
                f"partition {self._partition}: its snapshot must be at most {MAX_RECORD // 2**20} MiB, got "
                f"{len(snapshot) / 2**20:.1f}; give filters a smaller max_count, or the sites more partitions"
            )
            raise UsageError(msg)
        async with transaction(self._producer):
            audit_end = await self._write(outputs, snapshot)
            for name, value in agreed.items():
                await self._producer.send_and_wait(CONTROL, value, key=name.encode(), partition=0)
        for observer in self._observers:
            observer(outputs)
        return audit_end

    async def _write(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        audit = [output for output in outputs if output.topic == self._topics.audit]
        others = [output for output in outputs if output.topic != self._topics.audit]
        offsets = await self._publish(audit)
        await self._publish(others)
        key = str(self._partition).encode()
        await self._producer.send_and_wait(self._topics.snapshot, snapshot, key=key, partition=self._partition)
        return max(offsets) + 1 if offsets else None

    async def _publish(self, outputs: Sequence[Output]) -> list[int]:
        """Send records in order; return the acknowledged offsets.

        A record is stamped with its window's end. Only quarantine, which belongs to no window, has the time at
        which it is written: the broker deletes it seven days after its stamp, whenever the refused thing was.
        """
        waiting: list[asyncio.Future[Any]] = []
        try:
            for output in outputs:
                waiting.append(  # noqa: PERF401 - what was sent before an error must be known
                    await self._producer.send(
                        output.topic,
                        output.value,
                        key=output.key,
                        partition=self._partition,
                        timestamp_ms=None if output.topic == QUARANTINE else output.timestamp_ms,
                        headers=headers_of(output.topic, output.id, output.timestamp_ms),
                    )
                )
        finally:  # also where a later one cannot be sent: each answer is asked for
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer.offset for answer in answers if not isinstance(answer, BaseException)]

    async def close(self) -> None:
        """Disconnect; what was not committed is void."""
        await close(self._producer)
