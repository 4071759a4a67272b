"""The port: a simulated log behind the product's own interface, for most schedules.

``Log`` implements ``WriterFactory`` and ``TransactionalWriter`` (``stream.engine.ports``): one writer per partition,
fenced by an epoch, all of a transaction or nothing, markers that take an offset, answers that are lost before or after
the decision. ``worker`` runs the product's ``TaskManager`` with its ``PartitionTask``s and engines over it. In place of
Faust's consumer it delivers each message in order; in place of the group an assignment changes when a schedule says so,
and a worker learns of it only when it runs: two workers often believe that they own a partition.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from connectors.keys import key_files
from connectors.storage.kafka.client import partition_of
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.engine.ports import FencedError, InterruptedWriteError, LossError, Output
from stream.errors import TacetError
from stream.pipeline import Options
from stream.records import Micros
from stream.runners.partition_tasks import PartitionTask, TaskManager
from stream.schemas import AUDIT, SNAPSHOT
from tests.simulation.occupancy import PARTITIONS, POLICY
from tests.simulation.processes import World

POLL = 0.1
"""Seconds between two looks at the assignment, and at the end of the input."""
CHECKPOINT_EVERY = 5.0
REOPEN_AFTER, GRACE = 0.5, 3.0
"""Seconds after which a partition is opened again whose commit was interrupted, or which another owner fenced."""
PATIENCE = 30.0
"""Seconds after which a write without an answer is given up."""


class Message(NamedTuple):
    """A message of the input."""

    offset: int
    key: bytes
    value: bytes
    stamp: Micros


@dataclass
class Entry:
    """A record of a transaction, or its marker."""

    offset: int
    value: bytes | None
    """None for a marker."""
    appended_ms: int
    epoch: int
    decided: bool | None = None
    """Whether it is committed; None while its transaction is open."""

    @property
    def committed(self) -> bool:
        return bool(self.decided) and self.value is not None


@dataclass
class Log:
    """The input and the results of a cluster, and who may write."""

    world: World
    input: list[list[Message]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    topics: dict[str, list[list[Entry]]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    """The epoch of a partition's writer."""
    latency: float = 0.002
    """Seconds that a request takes on average."""
    lost: float = 0.0
    """Share of the requests whose answer is lost."""
    available: bool = True
    aims: dict[tuple[str, str], Callable[[], bool]] = field(default_factory=dict)
    """By process and moment, a fault that happens when the process comes there; it returns whether an answer is lost.
    """

    def send(self, message: object) -> None:
        """Append a message of an ingest to the input."""
        site = message.site  # type: ignore[attr-defined]
        log = self.input[partition_of(site, PARTITIONS)]
        stamp = int(self.world.wall * 1_000_000) // 1000 * 1000
        log.append(Message(len(log), site.encode(), encode_message(message), stamp))  # type: ignore[arg-type]

    def partition(self, topic: str, number: int) -> list[Entry]:
        """Return the entries of a partition."""
        return self.topics.setdefault(topic, [[] for _ in range(PARTITIONS)])[number]

    def append(self, topic: str, number: int, value: bytes | None, epoch: int, *, decided: bool | None = None) -> int:
        """Append a record or a marker; return its offset."""
        entries = self.partition(topic, number)
        entries.append(Entry(len(entries), value, int(self.world.wall * 1000), epoch, decided))
        return len(entries) - 1

    def decide(self, number: int, epoch: int, *, commit: bool) -> None:
        """End a writer's open transaction."""
        for topic, partitions in self.topics.items():
            open_ = [entry for entry in partitions[number] if entry.decided is None and entry.epoch == epoch]
            for entry in open_:
                entry.decided = commit
            if open_:
                self.append(topic, number, None, epoch, decided=commit)

    async def request(self) -> bool:
        """Take the time of a request; return whether its answer arrives. Waits while the log is away."""
        chance = self.world.random
        await asyncio.sleep(self.latency * (0.5 + chance.random()))
        while not self.available:
            await asyncio.sleep(0.1)
        return chance.random() >= self.lost

    async def strikes(self, moment: str) -> bool:
        """Let a fault happen that is aimed at this moment; return whether the answer is lost."""
        assert self.world.current is not None
        strike = self.aims.pop((self.world.current.name, moment), None)
        if strike is None:
            return False
        lost = strike()
        await asyncio.sleep(0)  # whoever is killed comes no further, whoever is paused later
        return lost

    async def acquire(self, partition: int) -> Writer:
        """Become a partition's only writer; the former one's open transaction is aborted."""
        while not await self.request():
            await asyncio.sleep(0.3)
        epoch = self.epochs.get(partition, -1)
        self.decide(partition, epoch, commit=False)
        self.epochs[partition] = epoch + 1
        self.world.log("txn", f"partition {partition} has epoch {epoch + 1}")
        await self.strikes("opening")
        return Writer(self, partition, epoch + 1)


class Writer:
    """A partition's writer (``stream.engine.ports.TransactionalWriter``)."""

    def __init__(self, log: Log, partition: int, epoch: int) -> None:
        self._log, self._partition, self._epoch = log, partition, epoch

    async def last_snapshot(self) -> bytes | None:
        await self._log.request()
        found = [entry.value for entry in self._log.partition(SNAPSHOT, self._partition) if entry.committed]
        return found[-1] if found else None

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        await self._log.request()
        entries = self._log.partition(AUDIT, self._partition)
        if offset > len(entries):
            raise LossError("the audit ends before the state")
        return [entry.value for entry in entries[offset:] if entry.value is not None], len(entries)

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        await self._log.request()
        log = self._log.input[self._partition]
        return (log[offset].key, log[offset].value) if 0 <= offset < len(log) else None

    async def missing(self, start: int, end: int) -> int:
        return 0

    async def released(self) -> str | None:
        await self._log.request()
        topics = sorted(name for name in self._log.topics if name not in (AUDIT, SNAPSHOT))
        return next((name for name in topics if self._log.partition(name, self._partition)), None)

    def _check(self) -> None:
        if self._log.epochs[self._partition] != self._epoch:
            raise FencedError("another owner has taken it")

    async def _step(self, moment: str) -> None:
        """Send one request of a transaction."""
        arrived = not await self._log.strikes(moment) and await self._log.request()
        self._check()
        if not arrived:
            raise InterruptedWriteError("a write was interrupted")

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._commit(outputs, snapshot)
        except TimeoutError as late:
            raise InterruptedWriteError("a write was interrupted") from late

    async def _commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        log, number, audit_end = self._log, self._partition, None
        topic = AUDIT
        for output in outputs:
            if output.topic != topic:
                await self._step("records")
                topic = output.topic
            self._check()
            offset = log.append(output.topic, number, output.value, self._epoch)
            if output.topic == AUDIT:
                audit_end = offset + 1
        await self._step("snapshot")
        self._check()
        log.append(SNAPSHOT, number, snapshot, self._epoch)
        await self._step("commit")
        arrives = await log.request()
        self._check()
        if not arrives and log.world.random.random() < 0.5:  # the request is lost, not its answer
            raise InterruptedWriteError("a write was interrupted")
        log.decide(number, self._epoch, commit=True)
        answered = not await log.strikes("answer") and await log.request()
        if not (arrives and answered):
            raise InterruptedWriteError("a write was interrupted")
        return audit_end

    async def close(self) -> None:
        """Let go; what is open stays so until the next owner comes."""


@dataclass
class Assignment:
    """Which worker the group has given each partition."""

    owners: dict[int, str] = field(default_factory=dict)
    generation: int = 0

    def give(self, partition: int, name: str) -> None:
        """Give a partition to a worker."""
        self.owners[partition] = name
        self.generation += 1

    def of(self, name: str) -> list[int]:
        """Return a worker's partitions."""
        return sorted(number for number, owner in self.owners.items() if owner == name)


async def worker(log: Log, assignment: Assignment, name: str, key_file: Path) -> int:
    """Run a worker until it is told to stop or fails; return the exit code."""
    keys = key_files.FileKeys(key_file)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def engine(partition: int) -> PartitionEngine:
        return PartitionEngine(
            POLICY, keys, Options(), owns=lambda site: partition_of(site, PARTITIONS) == partition
        )  # fmt: skip

    serving = _Serving(log, assignment, name, TaskManager(engine, log, audit_topic=AUDIT))
    working = asyncio.create_task(serving.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    manager = serving.manager
    if not working.done():
        await manager.checkpoint(last=True)
    serving.end()
    working.cancel()
    await manager.close()
    failure = manager.failure or (working.exception() if working.done() and not working.cancelled() else None)
    if failure is None:
        return 0
    log.world.log(name, f"stopped: {type(failure).__name__}: {failure}")
    return 1 if isinstance(failure, TacetError) else 70


class _Serving:
    """Opens what is assigned, and delivers each message in order."""

    def __init__(self, log: Log, assignment: Assignment, name: str, manager: TaskManager) -> None:
        self._log, self._assignment, self._name, self.manager = log, assignment, name, manager
        self._generation = -1
        self._delivering: list[asyncio.Task[None]] = []
        self._lost: dict[int, tuple[PartitionTask, float]] = {}

    async def serve(self) -> None:
        """Work until something fails."""
        loop = asyncio.get_running_loop()
        saved = loop.time()
        while not self.manager.failed.is_set():
            if self._generation != self._assignment.generation:
                self._generation = self._assignment.generation
                await self._reassign()
            await self._reopen()
            if loop.time() - saved >= CHECKPOINT_EVERY:
                await self.manager.checkpoint()
                saved = loop.time()
            await asyncio.sleep(POLL)

    def end(self) -> None:
        """Deliver nothing more."""
        self.manager.end()
        for task in self._delivering:
            task.cancel()
        self._delivering.clear()

    async def _reassign(self) -> None:
        self.end()
        self.manager.release()
        self._lost.clear()
        for partition in self._assignment.of(self._name):
            await self._open(partition)

    async def _open(self, partition: int) -> None:
        with self.manager.failing():
            task = await self.manager.open(partition, self._bounds(partition))
        self._log.world.log(self._name, f"partition {partition} opened at offset {task.fetch_offset}")
        self._delivering.append(asyncio.create_task(self._deliver(partition, task)))

    def _bounds(self, partition: int) -> Callable[[], Awaitable[tuple[int, int]]]:
        async def bounds() -> tuple[int, int]:
            return 0, len(self._log.input[partition])

        return bounds

    async def _reopen(self) -> None:
        now = asyncio.get_running_loop().time()
        for partition in self._assignment.of(self._name):
            task = self.manager.tasks.get(partition)
            if task is None or task.loss_error is None:
                continue
            known, since = self._lost.get(partition, (None, 0.0))
            if known is not task:
                self._lost[partition] = task, now
                continue
            if now - since >= (GRACE if isinstance(task.loss_error, FencedError) else REOPEN_AFTER):
                await self._open(partition)

    async def _deliver(self, partition: int, task: PartitionTask) -> None:
        log = self._log.input[partition]
        with self.manager.failing():
            while not task.ended:
                if task.fetch_offset >= len(log):
                    await asyncio.sleep(POLL)
                    continue
                message = log[task.fetch_offset]
                await asyncio.sleep(0)
                expected, task.fetch_offset = task.fetch_offset, message.offset + 1
                await task.process(expected, message.offset, message.key, message.value, message.stamp)
