"""Readiness of the processes on Kafka: broker, and a worker's partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from connectors.monitoring.monitor import Monitor
from connectors.operations.monitoring.watches import watch_engine
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import raise_if_cancelled
from connectors.storage.kafka.topic_readers import topic_names
from connectors.storage.kafka.writers import KafkaWriterFactory
from stream.engine.partition import PartitionEngine
from stream.release.validation import Policy
from stream.runners.partition_tasks import TaskManager

POLL_SECONDS, ANSWER_VALID_SECONDS = 15.0, 45.0
"""Seconds between two queries of the broker, and the age of the last answer beyond which a process is not ready."""
ANSWER_SECONDS = 10.0
"""Seconds that the broker has to answer."""
log = structlog.get_logger("tacet.monitoring")


class BrokerWatch:
    """Checks periodically whether the broker is available."""

    def __init__(self, monitor: Monitor, servers: str) -> None:
        """Make readiness depend on the broker's answer."""
        self._servers, self._answered = servers, -ANSWER_VALID_SECONDS
        monitor.health.require("broker", lambda: time.monotonic() - self._answered < ANSWER_VALID_SECONDS)

    async def poll(self) -> None:
        """Query the broker until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await topic_names(self._servers)
                self._answered = time.monotonic()
            except Exception as error:  # unavailable or not authorised: not ready in both cases
                raise_if_cancelled(error)
                log.debug("broker does not answer", error=type(error).__name__)
            await asyncio.sleep(POLL_SECONDS)


class WorkerWatch:
    """Monitors a worker: ready while the broker answers and every assigned partition is open."""

    def __init__(self, monitor: Monitor, policy: Policy, servers: str) -> None:
        self._monitor, self._policy = monitor, policy
        self._broker = BrokerWatch(monitor, servers)
        self._engines: dict[int, PartitionEngine] = {}
        self._tasks: TaskManager | None = None

    def engine(self, number: int, partition: PartitionEngine) -> PartitionEngine:
        """Register a partition's engine, and return it."""
        self._engines[number] = partition
        return partition

    def begin(
        self,
        tasks: TaskManager,
        writer_factory: KafkaWriterFactory,
        is_settled: Callable[[], bool],
        is_open: Callable[[], bool],
    ) -> None:
        """Monitor the assigned partitions and their commits."""
        self._tasks = tasks
        engine = watch_engine(self._monitor, self._policy, self._open_engines, wall_clock)
        writer_factory.observers.append(engine.committed)
        self._monitor.health.require("group", is_settled)
        self._monitor.health.require("partitions", is_open)

    def _open_engines(self) -> list[PartitionEngine]:
        tasks = {} if self._tasks is None else self._tasks.tasks
        return [self._engines[number] for number in tasks if number in self._engines]

    async def during(self, work: Coroutine[Any, Any, int]) -> int:
        """Run the worker with the broker check beside it."""
        if self._monitor.address is None:
            return await work
        polling = asyncio.create_task(self._broker.poll())
        try:
            return await self._monitor.during(work)
        finally:
            polling.cancel()

    def failed(self, error: BaseException) -> None:
        """Log the error that ended it."""
        self._monitor.failed(error)
