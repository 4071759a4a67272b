"""Writes a connector's messages to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from connectors.storage.kafka.client import connect, partition_of, partitions_of, producer_of
from stream.encoding import encode_message
from stream.errors import UsageError
from stream.records import Message
from stream.schemas import OBSERVATIONS

LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp that the broker set."""


class KafkaSink:
    """Writes a connector's messages to Kafka.

    ``append`` returns when every replica has the message. Messages of a site keep the order of the calls, also if
    several calls wait at the same time.
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
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Connect; UsageError if the topic does not exist."""
        self._producer = producer_of(self._bootstrap)
        await connect(self._producer, self._bootstrap)
        self._partitions = len(await partitions_of(self._producer, self._topic))

    async def append(self, message: Message) -> None:
        """Write one message durably."""
        partition = partition_of(message.site, self._partitions)
        async with self._lock:
            acknowledged = await self._producer.send(
                self._topic, self._encode(message), key=message.site.encode(), partition=partition
            )
        answer = await acknowledged
        if self._topic == OBSERVATIONS and answer.timestamp_type != LOG_APPEND_TIME:
            msg = f"topic {self._topic}: must have message.timestamp.type=LogAppendTime; set it with kafka-configs.sh"
            raise UsageError(msg)

    async def stop(self) -> None:
        """Flush and disconnect."""
        if self._producer is not None:
            await self._producer.stop()
