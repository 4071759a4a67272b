"""``--metrics`` of the processes on Kafka: readiness of a worker or an ingest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from connectors.cli.metrics import ANSWERED_WITHIN, ASK_EVERY, watch_engine
from connectors.monitoring.monitor import Monitor
from connectors.runtime.clock import wall_clock
from connectors.storage.kafka.topic_readers import topic_names
from connectors.storage.kafka.writers import KafkaWriterFactory
from stream.engine.partition import PartitionEngine
from stream.release.validation import Policy
from stream.runners.partition_tasks import TaskManager

ASK_WITHIN = 10.0
"""Seconds for an answer of the broker."""
log = structlog.get_logger("tacet.monitoring")


class BrokerWatch:
    """Checks periodically whether the broker is available."""

    def __init__(self, monitor: Monitor, servers: str) -> None:
        """Make readiness depend on the broker's answer."""
        self._servers, self._answered = servers, -ANSWERED_WITHIN
        monitor.health.require("broker", lambda: time.monotonic() - self._answered < ANSWERED_WITHIN)

    async def poll(self) -> None:
        """Query the broker until cancelled."""
        while True:
            try:
                await asyncio.wait_for(topic_names(self._servers), ASK_WITHIN)
                self._answered = time.monotonic()
            except Exception as error:  # unavailable or not authorised: not ready in both cases
                log.debug("broker does not answer", error=type(error).__name__)
            await asyncio.sleep(ASK_EVERY)


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
        asking = asyncio.create_task(self._broker.poll())
        try:
            return await self._monitor.during(work)
        finally:
            asking.cancel()

    def failed(self, error: BaseException) -> None:
        """Log the error that ended it."""
        self._monitor.failed(error)
