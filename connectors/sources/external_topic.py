"""A topic of another program, read by one reader from committed offsets.

The source leases (``source_leases``) decide which process reads, so the consumer group assigns no partitions. It only
stores the offsets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.runtime.signals import raise_if_cancelled
from connectors.sources.ingest.followed_logs import Piece
from connectors.storage.kafka.aiokafka_client import answering
from connectors.storage.kafka.client import close, connect, partitions_of
from connectors.storage.kafka.timeouts import PATIENCE_MS
from stream.errors import DataError

WAIT_MS = 200
KEEP_WITHIN = 5.0
"""Seconds within which the broker must commit offsets; otherwise they are committed with the next message."""
ANSWERED_MS = 5_000
"""Milliseconds without an answer after which a partition's leader counts as away."""


class ExternalTopic:
    """The topic; a position is the next offset."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        """Set brokers, topic, and the group under which offsets are committed."""
        self.name = topic
        self._bootstrap, self._group = bootstrap, group
        self._reader: Any = None
        self._places: list[TopicPartition] = []

    async def open(self) -> None:
        """Resume at the group's offset; the first time at the end.

        Raises:
            ConnectionError: no broker answers.
            UsageError: there is no such topic, or it may not be read.
        """
        self._reader = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=self._group, enable_auto_commit=False,
            auto_offset_reset="none", fetch_max_wait_ms=100, request_timeout_ms=PATIENCE_MS,
        )  # fmt: skip
        answering(self._reader)
        await connect(self._reader, self._bootstrap)
        numbers = await partitions_of(self._reader, self.name)
        self._places = [TopicPartition(self.name, number) for number in numbers]
        self._reader.assign(self._places)
        try:
            await self._go_on()
        except KafkaError as error:
            raise self._unreadable(error) from error

    async def _go_on(self) -> None:
        begins = await self._reader.beginning_offsets(self._places)
        ends = await self._reader.end_offsets(self._places)
        for at in self._places:
            known = await self._reader.committed(at)
            if known is None:
                self._reader.seek(at, ends[at])
            else:  # a recreated topic, or one that has lost unread records, is read from its first record
                self._reader.seek(at, known if begins[at] <= known <= ends[at] else begins[at])

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return messages, and whether the end was reached: every leader has confirmed that recently."""
        known = self._reader.partitions_for_topic(self.name)
        if known and len(known) > len(self._places):
            msg = f"topic {self.name}: has got more partitions while it was read; restart this process"
            raise DataError(msg)
        try:
            batches = await self._reader.getmany(timeout_ms=WAIT_MS, max_records=most)
        except KafkaError as error:
            raise self._unreadable(error) from error
        pieces = [
            Piece(raw.partition, raw.offset + 1, raw.value or b"", raw.timestamp * 1000)
            for raws in batches.values()
            for raw in raws
        ]
        return pieces, await self._is_complete()

    async def _is_complete(self) -> bool:
        now = time.time() * 1000
        for at in self._places:
            answered, end = self._reader.last_poll_timestamp(at), self._reader.highwater(at)
            if answered is None or end is None or now - answered > ANSWERED_MS:
                return False
            if await self._reader.position(at) < end:
                return False
        return True

    async def store_positions(self, positions: Mapping[Hashable, int]) -> bool:
        """Commit offsets to the broker."""
        offsets = {TopicPartition(self.name, cast(int, part)): end for part, end in positions.items()}
        try:
            async with asyncio.timeout(KEEP_WITHIN):
                await self._reader.commit(offsets)
        except (KafkaError, TimeoutError) as error:
            raise_if_cancelled(error)
            return False
        raise_if_cancelled()
        return True

    async def close(self) -> None:
        """Disconnect; harmless if the topic was never open."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await close(reader)

    def _unreadable(self, error: KafkaError) -> DataError:
        return DataError(f"topic {self.name}: cannot be read any more; Kafka reports {type(error).__name__}")
