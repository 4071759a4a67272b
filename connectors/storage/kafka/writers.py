"""Transactional writers: one producer per partition may write its results, and the broker enforces that.

To take over a partition, a worker initialises the partition's transactional id. From then on the broker refuses
everything that an earlier owner still sends, and has ended that owner's open transaction. Only then are snapshot and
audit log read. All pending records and one snapshot are one transaction: readers of committed records see all of it or
nothing.

A reader of uncommitted records can read the audit entries of a transaction that was never committed. So a new owner
reads those entries too: its own entries must be equal to them.

Private records carry CloudEvents headers (CloudEvents 1.0, Kafka protocol binding, binary mode). The value is the
record itself, byte for byte as in an outbox; the headers repeat for any consumer what the record says. All of it
follows from the policy and the clock: the name of a release, its window, the kind of its records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.storage.kafka.client import MAX_RECORD, close, connect, partitions_of, producer_of, with_retry
from connectors.storage.kafka.timeouts import READ_TIMEOUT
from connectors.storage.kafka.topic_readers import count_missing, first_used, last_snapshot, read_one, read_range
from connectors.storage.kafka.transactions import transaction, transactional
from stream.engine.cluster_state import Records
from stream.engine.ports import Output
from stream.errors import UsageError
from stream.records import ReleaseId
from stream.schemas import (
    AUDIT,
    CONTROL,
    OBSERVATIONS,
    QUARANTINE,
    SNAPSHOT,
    event_type,
    is_private,
    parse_record,
    record_kind,
    rfc3339,
)

log = logging.getLogger(__name__)

Headers = list[tuple[str, bytes]]


def headers_of(output: Output) -> Headers:
    """Return the headers of a record; none if its topic is not private.

    ``ce_id`` is its release id: copies of a record have the same one. ``ce_time`` is the end of the window with which
    it is published.
    """
    if not is_private(output.topic):
        return []
    named = ReleaseId.parse(output.id)
    texts = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": output.id,
        "ce_source": f"/tacet/{named.site}",
        "ce_type": event_type(record_kind(parse_record(output.value))),
        "ce_time": rfc3339(output.timestamp_ms * 1000),
        "ce_subject": named.release,
    }
    return [(name, text.encode()) for name, text in texts.items()]


NOTHING_AGREED: Records = {}


@dataclass(frozen=True, slots=True)
class EngineTopics:
    """The topics that a worker reads and writes."""

    source: str = OBSERVATIONS
    snapshot: str = SNAPSHOT
    audit: str = AUDIT
    results: tuple[str, ...] = ()
    """Topics of releases and accounts; their records must match the ledger."""


class KafkaWriterFactory:
    """Creates the writers of partitions (see ``stream.engine.ports.WriterFactory``)."""

    def __init__(self, bootstrap: str, *, fence: str, topics: EngineTopics = EngineTopics()) -> None:
        """Set the cluster's name with which its writers fence each other, one per partition."""
        self._bootstrap = bootstrap
        self._fence = fence
        self._topics = topics
        self.observers: list[Callable[[Sequence[Output]], None]] = []
        """Called with the records of a transaction when it is committed."""

    async def start(self) -> None:
        """Wait for a broker that is starting; UsageError if a topic is missing."""
        await with_retry(self._find_topics, ConnectionError)

    async def _find_topics(self) -> None:
        probe = producer_of(self._bootstrap)
        try:
            await connect(probe, self._bootstrap)
            for topic in (self._topics.snapshot, self._topics.audit):
                await partitions_of(probe, topic)
        except ConnectionError:
            log.warning("no broker answers yet")
            raise
        finally:
            await close(probe)

    async def acquire(self, partition: int) -> KafkaWriter:
        """Become the partition's only writer; retries while a broker is away."""
        name = f"{self._fence}-{partition}"

        async def become_writer() -> Any:
            async with asyncio.timeout(READ_TIMEOUT):
                return await transactional(self._bootstrap, name)

        producer = await with_retry(become_writer, ConnectionError, TimeoutError)
        return KafkaWriter(self._bootstrap, producer, partition, self._topics, self.observers)


class KafkaWriter:
    """A partition's only writer (see ``stream.engine.ports.TransactionalWriter``)."""

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
        """Return the newest committed snapshot; LossError if there was one and it is gone."""
        return await last_snapshot(self._bootstrap, self._partition, topic=self._topics.snapshot)

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        """Return the audit records from ``offset`` on, including uncommitted ones, and the offset after the last.

        LossError if the log does not reach that offset, or no longer reaches back to it.
        """
        return await read_range(self._bootstrap, self._topics.audit, self._partition, offset, committed=False)

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        """Return key and value of one message of the input; None if there is none at this offset."""
        return await read_one(self._bootstrap, self._topics.source, self._partition, offset)

    async def missing(self, start: int, end: int) -> int:
        """Return how many offsets of the input in [start, end) hold neither a message nor a transaction marker."""
        return await count_missing(self._bootstrap, self._topics.source, self._partition, start, end)

    async def released(self) -> str | None:
        """Return a topic of results that contains, or has contained, a record of this partition; None if none does."""
        return await first_used(self._bootstrap, self._topics.results, self._partition)

    async def commit(
        self, outputs: Sequence[Output], snapshot: bytes, control_records: Records = NOTHING_AGREED
    ) -> int | None:
        """Write records in order and the snapshot, all or none; return the offset after the last audit record.

        ``control_records`` are records of the control topic, under names that no other process writes.

        Raises:
            UsageError: the snapshot is larger than a record may be.
            FencedError: another owner has taken over the partition.
            InterruptedWriteError: the broker did not report the result.
        """
        if len(snapshot) > MAX_RECORD:
            msg = (
                f"partition {self._partition}: its snapshot must be at most {MAX_RECORD // 2**20} MiB, got "
                f"{len(snapshot) / 2**20:.1f}; give filters a smaller max_count, or the sites more partitions"
            )
            raise UsageError(msg)
        async with transaction(self._producer):
            audit_end = await self._write(outputs, snapshot)
            for name, value in control_records.items():
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

        A record's timestamp is its window's end. Only quarantine, which belongs to no window, has the time at which it
        is written: the broker deletes it seven days after its timestamp, however old the refused message was.
        """
        waiting: list[asyncio.Future[Any]] = []
        try:
            for output in outputs:
                waiting.append(  # noqa: PERF401 - records sent before an error must be known
                    await self._producer.send(
                        output.topic,
                        output.value,
                        key=output.key,
                        partition=self._partition,
                        timestamp_ms=None if output.topic == QUARANTINE else output.timestamp_ms,
                        headers=headers_of(output),
                    )
                )
        finally:  # also if a later record cannot be sent: each acknowledgement is awaited
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer.offset for answer in answers if not isinstance(answer, BaseException)]

    async def close(self) -> None:
        """Disconnect; records that were not committed are void."""
        await close(self._producer)
