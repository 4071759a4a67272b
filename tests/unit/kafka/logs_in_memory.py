"""Partitions in memory, and readers of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from connectors.storage.kafka import client, topic_readers, topic_tail


@dataclass
class Log:
    """What a partition holds: values by offset; each is followed by the mark of a transaction."""

    records: dict[int, bytes]
    begin: int = 0

    @property
    def end(self) -> int:
        """The offset behind the last mark."""
        return max(self.records, default=self.begin - 2) + 2


@dataclass
class Cluster:
    """Partitions that any reader sees."""

    logs: dict[TopicPartition, Log]
    limits: list[int] = field(default_factory=list)
    """How much each reader may fetch at once."""
    fetches: int = 0


class Reader:
    """Fetches two records of a partition at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._logs = cluster, cluster.logs
        self._positions: dict[TopicPartition, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return {*self._positions}

    def assign(self, places: list[TopicPartition]) -> None:
        assert len(places) == len(set(places)) > 0
        self._positions = dict.fromkeys(places, -1)

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._positions[at] = offset

    async def position(self, at: TopicPartition) -> int:
        return self._positions[at]

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self._logs[at].begin for at in places}

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self._logs[at].end for at in places}

    async def getmany(self, *places: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        del timeout_ms
        self._cluster.fetches += 1
        assert self._cluster.fetches < 1000, "it waits for ever"
        found = {}
        for at in places or self._positions:
            log, position = self._logs[at], self._positions[at]
            if not log.begin <= position <= log.end:
                raise OffsetOutOfRangeError({at: position})
            there = sorted(n for n in log.records if n >= position)[:2]
            self._positions[at] = there[-1] + 1 if len(there) == 2 else log.end
            found[at] = fetched(at, log, *there)
        return found


def fetched(at: TopicPartition, log: Log, *offsets: int) -> list[Any]:
    """Return records as a consumer gives them."""
    return [
        SimpleNamespace(topic=at.topic, partition=at.partition, offset=n, key=b"k", value=log.records[n], timestamp=0)
        for n in offsets
    ]


def let_read(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """Let all readers read these partitions."""

    @asynccontextmanager
    async def reader_of(
        bootstrap: str, *, committed: bool = True, most_bytes: int = client.MAX_MESSAGE
    ) -> AsyncIterator[Reader]:
        assert committed
        cluster.limits.append(most_bytes)
        yield Reader(cluster)

    async def partitions_of(reader: Reader, topic: str) -> list[int]:
        return [at.partition for at in cluster.logs if at.topic == topic]

    monkeypatch.setattr(client, "reader_of", reader_of)
    for module in (topic_readers, topic_tail):
        monkeypatch.setattr(module, "reader_of", reader_of)
        monkeypatch.setattr(module, "partitions_of", partitions_of)
