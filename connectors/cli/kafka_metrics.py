"""--metrics of what works on Kafka: when a worker, or an ingest, is ready there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from connectors.commands.watching import ANSWERED_WITHIN, ASK_EVERY, watch_engine
from connectors.intake.clock import wall_clock
from connectors.kafka.bounded import topic_names
from connectors.kafka.writers import KafkaJournal
from connectors.monitoring.monitor import Monitor
from stream.policy.document import Policy
from stream.runners.partition import Partition
from stream.runners.tenures import Tenures

ASK_WITHIN = 10.0
"""Seconds for an answer of the broker."""
log = structlog.get_logger("tacet.monitoring")


class BrokerWatch:
    """Asks the broker now and then whether it is there."""

    def __init__(self, monitor: Monitor, servers: str) -> None:
        """Let readiness need that it answers."""
        self._servers, self._answered = servers, -ANSWERED_WITHIN
        monitor.health.require("broker", lambda: time.monotonic() - self._answered < ANSWERED_WITHIN)

    async def ask(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                await asyncio.wait_for(topic_names(self._servers), ASK_WITHIN)
                self._answered = time.monotonic()
            except Exception as error:  # away, or no longer to be asked by this user: the same to who waits
                log.debug("broker does not answer", error=type(error).__name__)
            await asyncio.sleep(ASK_EVERY)


class WorkerWatch:
    """Watches a worker: ready while the broker answers and every partition it was given is open."""

    def __init__(self, monitor: Monitor, policy: Policy, servers: str) -> None:
        self._monitor, self._policy = monitor, policy
        self._broker = BrokerWatch(monitor, servers)
        self._engines: dict[int, Partition] = {}
        self._tenures: Tenures | None = None

    def engine(self, number: int, partition: Partition) -> Partition:
        """Know the engine that has been made for a partition, and return it."""
        self._engines[number] = partition
        return partition

    def begin(self, tenures: Tenures, journal: KafkaJournal, settled: Callable[[], bool]) -> None:
        """Watch the partitions held, and what is committed for them."""
        self._tenures = tenures
        engine = watch_engine(self._monitor, self._policy, self._held, wall_clock)
        journal.observers.append(engine.committed)
        self._monitor.health.require("group", settled)
        self._monitor.health.require("partitions", lambda: not any(each.ended for each in tenures.held.values()))

    def _held(self) -> list[Partition]:
        tenures = {} if self._tenures is None else self._tenures.held
        return [self._engines[number] for number in tenures if number in self._engines]

    async def during(self, work: Coroutine[Any, Any, int]) -> int:
        """Do the worker's work, and ask the broker beside it."""
        if self._monitor.address is None:
            return await work
        asking = asyncio.create_task(self._broker.ask())
        try:
            return await self._monitor.during(work)
        finally:
            asking.cancel()

    def failed(self, error: BaseException) -> None:
        """Tell what ended it."""
        self._monitor.failed(error)
