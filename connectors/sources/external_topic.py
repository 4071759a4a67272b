"""A topic that another program writes, followed from where it was left: all of its partitions, by one reader.

Who sends for a source is agreed on elsewhere (``claims``), so no group divides the partitions; it only keeps how far
each was read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.intake.followed import Piece
from connectors.kafka.answering import answering
from connectors.kafka.client import PATIENCE_MS, connect, partitions_of
from connectors.kafka.closing import close
from stream.errors import DataError

WAIT_MS = 200
KEEP_WITHIN = 5.0
"""Seconds for the broker to note how far was read; it is asked again with the next message."""
ANSWERED_MS = 5_000
"""A partition's leader that has not answered for so long is away."""


class ForeignTopic:
    """The topic; a position is the offset that comes next."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        """Take brokers, topic, and the group under whose name it is kept how far was read."""
        self.name = topic
        self._bootstrap, self._group = bootstrap, group
        self._reader: Any = None
        self._places: list[TopicPartition] = []

    async def open(self) -> None:
        """Go on where the group has come; the first time at the end.

        Raises:
            ConnectionError: no broker answers.
            UsageError: there is no such topic, or it may not be read.
        """
        self._reader = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=self._group, enable_auto_commit=False,
            auto_offset_reset="none", fetch_max_wait_ms=100, request_timeout_ms=PATIENCE_MS,
        )  # fmt: skip
        answering(self._reader._client)  # noqa: SLF001 - see there
        await connect(self._reader, self._bootstrap)
        numbers = await partitions_of(self._reader._client, self.name)  # noqa: SLF001 - no public way
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
            else:  # a topic that was made anew, or has lost what was not read, begins where it does
                self._reader.seek(at, known if begins[at] <= known <= ends[at] else begins[at])

    async def read(self, most: int) -> tuple[Sequence[Piece], bool]:
        """Return messages; all there are have been read where every leader has answered lately that this is so."""
        known = self._reader.partitions_for_topic(self.name)
        if known and len(known) > len(self._places):
            msg = f"topic {self.name}: must keep its partitions while it is read, has got more; start again"
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
        return pieces, await self._whole()

    async def _whole(self) -> bool:
        now = time.time() * 1000
        for at in self._places:
            answered, end = self._reader.last_poll_timestamp(at), self._reader.highwater(at)
            if answered is None or end is None or now - answered > ANSWERED_MS:
                return False
            if await self._reader.position(at) < end:
                return False
        return True

    async def keep(self, reached: Mapping[Hashable, int]) -> bool:
        """Let the broker note how far was read."""
        offsets = {TopicPartition(self.name, cast(int, part)): end for part, end in reached.items()}
        try:
            await asyncio.wait_for(self._reader.commit(offsets), KEEP_WITHIN)
        except (KafkaError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """Disconnect; harmless on one that was never open."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await close(reader)

    def _unreadable(self, error: KafkaError) -> DataError:
        return DataError(f"topic {self.name}: must be one that can be read on, Kafka says {type(error).__name__}")
