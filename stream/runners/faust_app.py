"""Faust: the app of a worker, with one agent.

Faust provides the agent, the group membership, the life cycle and the driver of aiokafka's consumer. Its tables, its
producer, its transactions and its web server are not used. State, position and publishing belong to
``stream.runners.partition_tasks``. Clients of Kafka belong to the caller, who passes them as a ``KafkaClients``.

Faust's own consumer treats offsets that never came as acknowledged, delivers messages that it had fetched before a
seek, and skips messages during a rebalance. Each of these loses messages for good. Here a partition is opened from its
snapshot at every assignment, and a message is delivered to the agent only if its offset is the expected one. Any other
message is dropped and fetched again from the expected offset.

A worker uses ``create_app``, ``TacetApp`` (``start``, ``stop``, ``crashed``, ``crash_reason``,
``rebalancing_count``), its ``consumer`` (``grace``, ``unopened``, ``reopen_lost``, ``ended_tasks``), ``is_settled``,
``is_open`` and ``TaskWatch``. Nothing else of Faust is used outside of this module.

Internals of faust-streaming 0.15.3 and mode 0.7.1 (both pinned exactly) that are overridden or read, and why:

- ``BootStrategy.enable_kafka_producer``: nothing is sent through Faust, and its producer would not use this project's
  connections.
- ``Recovery._wait``: Faust waits for ``broker_request_timeout``. When that wait times out, mode behaves as if the
  service had been asked to stop: Faust then opens no partition any more, logs nothing, and stays in the group.
- ``TableManager.recovery``: returns the recovery with that change.
- ``App._create_directories``: creates nothing on disk, because the snapshot topic holds all state.
- ``AIOKafkaConsumerThread._create_worker_consumer``: lets the caller change aiokafka's consumer before it starts.
- ``AIOKafkaConsumerThread._commit``: Faust crashes the app when a commit of the group's offset fails; here that is
  logged, since the snapshot decides where to resume. It uses ``_ensure_consumer``.
- ``Consumer._new_consumer_thread``: returns the thread with these changes.
- ``Consumer.perform_seek``: Faust seeks to the group's committed offsets; here partitions are opened from their
  snapshots.
- ``Consumer._drain_messages``: Faust delivers any offset that is not lower than the last one; here only the expected
  offset is delivered, in the order of each partition, and a rebalance ends the delivery. It uses
  ``_wait_next_records``, ``suspend_flow`` and ``flow_active``.
- ``Consumer.on_buffer_full``: Faust stops fetching a partition whose queue is full; here delivery waits for room.
- ``Consumer._filter_committable_offsets``: Faust commits what its streams have acknowledged, which here is nothing
  (``noack``); the offset committed for the group is the one that a snapshot covers (``_committed_offset`` is the last
  one committed).
- ``Service._get_tasks`` and ``Service._futures`` (``TaskWatch``): mode does not report a task that ends by itself.
- ``App.rebalancing``, ``App.rebalancing_count`` and ``Consumer.flow_active`` show whether the first assignment is over
  and messages flow; ``App.crashed`` and ``App.crash_reason`` show a failure inside Faust.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import faust
from aiokafka.errors import IllegalStateError, KafkaError
from faust.app import BootStrategy
from faust.tables import TableManager
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from stream.engine.ports import FencedError
from stream.records import Micros
from stream.runners.partition_tasks import PartitionTask, TaskManager
from stream.settings import SESSION_TIMEOUT

log = logging.getLogger(__name__)
T = TypeVar("T")

METADATA_AGE_MS = 10_000
"""Milliseconds after which a worker refreshes its metadata of topics: one may have been deleted and recreated."""
MILLISECOND: Micros = 1000
LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp that the broker set."""
RETAKE_AFTER = 0.5
"""Seconds after which a partition whose writer was interrupted is reopened."""
RETAKES = 20
"""Maximum number of times in a row that a partition is reopened without a checkpoint; then the worker stops."""
HOLE_TRIES = 3
"""A hole in the offsets is looked into when the broker itself skips it this many times in a row."""


class KafkaClients(Protocol):
    """What a worker needs of the clients of Kafka besides Faust."""

    def prepare(self, consumer: Any) -> None:
        """Change an aiokafka consumer that has not been started, so that it uses this project's connections."""

    def ended_tasks(self, consumer: Any) -> list[str]:
        """Return which of an aiokafka consumer's own tasks have ended: without any one of them nothing arrives."""

    async def with_retry(self, call: Callable[[], Awaitable[T]], *errors: type[Exception]) -> T:
        """Call until it succeeds; ``errors`` cause a retry, any other error is raised at once."""


# --- consumer -----------------------------------------------------------------------------------------


class StrictMessage(ConsumerMessage):  # type: ignore[misc]
    """A message, the partition task for which it is delivered, and the offset that was expected."""

    __slots__ = ("after_loss", "expected_offset", "stamp", "task")
    task: PartitionTask
    expected_offset: int
    after_loss: bool
    """Whether messages between the offset that had to come and this one are gone, by consent."""
    stamp: Micros | None
    """The time at which the broker appended it; None if the topic stores the producer's time instead."""


class StrictThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The consumer's thread; a failed commit of the group's offset stops no worker."""

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        consumer = super()._create_worker_consumer(transport)
        self.app.clients.prepare(consumer)
        return consumer

    def ended_tasks(self) -> list[str]:
        """Return which of aiokafka's own tasks have ended."""
        ended: list[str] = self.app.clients.ended_tasks(self._ensure_consumer())
        return ended

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # The group's committed offset only serves displays of lag; the snapshot decides where to resume.
        wanted = {driver.ensure_aiokafka_TP(tp): offset for tp, offset in offsets.items() if tp in self.assignment()}
        if not wanted:  # everything was taken away meanwhile; aiokafka refuses an empty commit
            return True
        try:
            await self._ensure_consumer().commit(wanted)
        except KafkaError as error:
            log.info("group offset not committed: %s", type(error).__name__)
            return False
        return True


class StrictConsumer(driver.Consumer):  # type: ignore[misc]
    """A consumer whose position is the snapshot's, and whose deliveries have no gaps and no repeats."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._task_manager: TaskManager = self.app.task_manager
        self._holes: dict[TP, tuple[int, int, int]] = {}
        self._opening = asyncio.Lock()
        self._lost: dict[int, tuple[PartitionTask, float]] = {}
        self._retakes: Counter[int] = Counter()
        self.grace = 5.0
        """Seconds for which a partition with another owner is left alone: the group soon decides whose it is."""

    def _new_consumer_thread(self) -> StrictThread:
        return StrictThread(self, loop=self.loop, beacon=self.beacon)

    # --- position -----------------------------------------------------------------------------------

    async def perform_seek(self) -> None:
        """Open every assigned source partition from its snapshot; called once after each assignment.

        It may take long: the worker's watchdog limits it. No message is delivered meanwhile. If a rebalance begins
        while an earlier opening runs, Faust lets that opening finish and messages flow. When the opening for the new
        assignment is done, Faust empties its queues, including messages of partitions that are already open.
        """
        self.stop_flow()
        self._task_manager.release()
        self._holes.clear()
        self._lost.clear()
        with self._task_manager.failing():
            await self._open_assigned()

    async def _open_assigned(self) -> None:
        async with self._opening:
            self._task_manager.release()  # a partition reopened while this waited may have been revoked
            opening = [asyncio.create_task(self._open(tp)) for tp in self._assigned()]
            try:
                await asyncio.gather(*opening)
            finally:
                for task in opening:
                    task.cancel()
                if opening:
                    await asyncio.wait(opening)

    def _assigned(self) -> list[TP]:
        return sorted(tp for tp in self.assignment() if tp.topic == self.app.source)

    async def _open(self, tp: TP) -> None:
        task = await self._task_manager.open(tp.partition, functools.partial(self._bounds, tp))
        try:
            await self.seek_wait({tp: task.fetch_offset})
        except IllegalStateError:
            if tp in self.assignment():
                raise
            log.info("partition %d was taken away while it was opened", tp.partition)  # its next assignment opens it
            return
        log.info("partition %d opened at offset %d", tp.partition, task.fetch_offset)

    def unopened(self) -> list[int]:
        """Return the partitions that the group has assigned to this worker and that do not deliver messages."""
        assigned = [tp.partition for tp in self._assigned()]
        if self.app.rebalancing or not self.flow_active:
            return assigned
        tasks = self._task_manager.tasks
        return [number for number in assigned if number not in tasks or tasks[number].ended]

    async def _bounds(self, tp: TP) -> tuple[int, int]:
        async def read_bounds() -> tuple[int, int]:
            return (await self.earliest_offsets(tp))[tp], (await self.highwaters(tp))[tp]

        # A broker that restarts refuses for a moment.
        bounds: tuple[int, int] = await self.app.clients.with_retry(read_bounds, KafkaError)
        return bounds

    async def reopen_lost(self) -> None:
        """Reopen lost partitions that the group still assigns to this worker.

        If the writer was interrupted, the partition is reopened at once. If another owner has fenced the writer, the
        worker first gives the group time to reassign the partition: a worker that was paused during a rebalance still
        believes for a moment that it owns its old partitions.
        """
        async with self._opening:
            for tp in self._assigned():
                task = self._task_manager.tasks.get(tp.partition)
                if task is not None and self._may_reopen(task):
                    await self._open(tp)

    def _may_reopen(self, task: PartitionTask) -> bool:
        number = task.partition
        if task.committed_offset is not None:
            self._retakes[number] = 0
        if task.loss_error is None or not self.flow_active:
            return False
        known, since = self._lost.get(number, (None, 0.0))
        if known is not task:
            since = time.monotonic()
            self._lost[number] = task, since
        wait = self.grace if isinstance(task.loss_error, FencedError) else RETAKE_AFTER
        if time.monotonic() - since < wait:
            return False
        self._retakes[number] += 1
        if self._retakes[number] > RETAKES:
            raise task.loss_error
        return True

    def ended_tasks(self) -> list[str]:
        """Return which of aiokafka's own tasks have ended."""
        ended: list[str] = self._thread.ended_tasks()
        return ended

    # --- delivery -----------------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        with self._task_manager.failing():
            while not (self.should_stop or fetcher.should_stop):
                try:
                    records, _ = await self._wait_next_records(timeout=1.0)
                except self.consumer_stopped_errors:
                    if not self.app.should_stop:
                        raise
                    return
                await asyncio.sleep(0)
                for tp, batch in (records or {}).items():
                    if not await self._unless_suspended(self._deliver(driver.TP(tp.topic, tp.partition), batch)):
                        break

    async def _unless_suspended(self, delivering: Coroutine[Any, Any, bool]) -> bool:
        """Deliver until everything is delivered or a rebalance begins; a rebalance ends the wait for room."""
        ended = await self.wait_first(delivering, self.suspend_flow.wait())
        return delivering in ended.done and bool(ended.results[ended.done.index(delivering)])

    async def _deliver(self, tp: TP, batch: Iterable[Any]) -> bool:
        """Deliver a partition's records in order; False if a rebalance has begun and the fetch is void."""
        task, compared = self._task_manager.tasks.get(tp.partition), False
        for record in batch:
            if task is not None and task.loss_error is not None:
                return True  # it will be reopened; the other partitions of this fetch continue
            if task is None or task.ended or not self.flow_active:
                return False
            if record.offset < task.fetch_offset:
                if not compared:  # a recreated topic is delivered from its beginning
                    await task.check_same_log(functools.partial(self._bounds, tp))
                    compared = True
                continue
            if record.offset > task.fetch_offset and not await self._accept_gap(tp, task, record.offset):
                await self.seek_wait({tp: task.fetch_offset})
                return True
            after_loss = record.offset > task.fetch_offset and await task.accept_hole(record.offset)
            await self._enqueue(tp, task, record, after_loss)
            task.fetch_offset = record.offset + 1
        return True

    async def _accept_gap(self, tp: TP, task: PartitionTask, offset: int) -> bool:
        if (await self.earliest_offsets(tp))[tp] > task.fetch_offset:  # deleted before they were read
            await task.check_same_log(functools.partial(self._bounds, tp))
        expected, seen, times = self._holes.get(tp, (-1, -1, 0))
        times = times + 1 if (expected, seen) == (task.fetch_offset, offset) else 1
        self._holes[tp] = (task.fetch_offset, offset, times)
        return times >= HOLE_TRIES

    async def _enqueue(self, tp: TP, task: PartitionTask, record: Any, after_loss: bool) -> None:
        message = StrictMessage(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp / 1000.0,
            record.timestamp_type,
            record.headers,
            record.key,
            record.value,
            record.checksum,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )
        message.task, message.expected_offset, message.after_loss = task, task.fetch_offset, after_loss
        message.stamp = record.timestamp * MILLISECOND if record.timestamp_type == LOG_APPEND_TIME else None
        await self.callback(message)

    def on_buffer_full(self, tp: TP) -> None:
        """Do not pause a partition whose queue is full: delivery waits for room, in order."""

    # --- the offset of the group ----------------------------------------------------------------------

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        covered = {
            driver.TP(self.app.source, task.partition): task.committed_offset
            for task in self._task_manager.tasks.values()
            if task.committed_offset is not None
        }
        return {tp: offset for tp, offset in covered.items() if self._committed_offset[tp] != offset}


class StrictTransport(driver.Transport):  # type: ignore[misc]
    """Faust's aiokafka transport with the strict consumer."""

    Consumer = StrictConsumer


# --- app ----------------------------------------------------------------------------------------------


class _ConsumerOnly(BootStrategy):  # type: ignore[misc]
    """Starts no producer."""

    enable_kafka_producer = False


class _Recovery(Recovery):  # type: ignore[misc]
    """Faust's service that opens partitions after each assignment."""

    async def _wait(self, coro: Any, timeout: float | None = None) -> None:  # noqa: ASYNC109 - Faust's
        del timeout  # see the head of the module
        await super()._wait(coro)


class _TableManager(TableManager):  # type: ignore[misc]
    """A manager without tables, through which Faust opens partitions."""

    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery


class TacetApp(faust.App):  # type: ignore[misc]
    """A Faust app over a given transport; it writes no folders and starts no web server."""

    task_manager: TaskManager
    clients: KafkaClients
    source: str
    BootStrategy = _ConsumerOnly

    def _create_directories(self) -> None:
        """Create nothing on disk: the snapshot topic holds all state."""


def create_app(
    *,
    brokers: str,
    group: str,
    source: str,
    task_manager: TaskManager,
    clients: KafkaClients,
    transport: Callable[[Any, Any], Any] = StrictTransport,
    session_timeout: float = SESSION_TIMEOUT,
) -> TacetApp:
    """Return the app: one agent on ``source`` that passes each message to the task for which it was read.

    ``brokers`` is a list of ``host:port`` separated by commas. ``session_timeout`` is in seconds: when a worker has
    been silent for so long, its partitions are assigned to another.
    """
    app = TacetApp(
        group,
        broker=";".join(f"kafka://{broker.strip()}" for broker in brokers.split(",")),
        broker_session_timeout=session_timeout,
        broker_heartbeat_interval=session_timeout / 4,
        broker_request_timeout=session_timeout + 5.0,  # longer than a join waits; a hung broker is detected earlier
        broker_commit_interval=1.0,
        consumer_max_fetch_size=16 << 20,
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=METADATA_AGE_MS,
        stream_buffer_maxsize=256,  # messages of up to a thousand rows; the strict consumer waits for room
        stream_wait_empty=False,
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        agent_supervisor="mode.CrashingSupervisor",
        TableManager=_TableManager,
    )
    app.task_manager, app.clients, app.source = task_manager, clients, source
    app.transport = transport(app.conf.broker_consumer, app)
    topic = app.topic(source, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")

    async def engine(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            with task_manager.failing():
                await message.task.process(
                    message.expected_offset, message.offset, message.key, message.value or b"", message.stamp,
                    after_loss=message.after_loss,
                )  # fmt: skip

    app.agent(topic, name="engine", concurrency=1)(engine)
    return app


def is_settled(app: TacetApp) -> bool:
    """Return whether the group has assigned this worker its partitions, and messages flow."""
    return bool(app.rebalancing_count and not app.rebalancing and app.consumer.flow_active)


def is_open(app: TacetApp) -> bool:
    """Return whether, besides, all assigned partitions are open."""
    return is_settled(app) and not app.consumer.unopened()


LOOKS = 4
"""A task counts as ended after it is missing in this many consecutive checks: a service starts before its tasks."""


class TaskWatch:
    """Detects tasks of an app's services that have ended by themselves.

    mode crashes a service when one of its tasks raises. A task that returns or is cancelled just ends, and the rest of
    the service continues.
    """

    def __init__(self, root: Any) -> None:
        """``root`` is the service under which all others run."""
        self._root = root
        self._missing: dict[tuple[Any, int, str], int] = {}
        """(service, its restart count, task name) -> number of consecutive checks in which the task was missing."""

    def ended(self) -> list[str]:
        """Check once; return the names of tasks that have ended although their service continues."""
        missing = {
            (service, service.restart_count, name)
            for service in {*_services(self._root.beacon)}
            if service.started and not service.should_stop
            for name in {task.fun.__qualname__ for task in service._get_tasks()} - _running(service)  # noqa: SLF001
        }
        self._missing = {each: self._missing.get(each, 0) + 1 for each in missing}
        return sorted(name for (_, _, name), times in self._missing.items() if times >= LOOKS)


def _services(node: Any) -> Iterator[Any]:
    """Yield the services of a tree, some more than once."""
    if hasattr(node.data, "_get_tasks"):
        yield node.data
    for child in list(node.children):
        if hasattr(child, "children"):
            yield from _services(child)


def _running(service: Any) -> set[str]:
    futures = [future for future in list(service._futures) if not future.done()]  # noqa: SLF001
    return {getattr(getattr(future, "__wrapped__", None), "__qualname__", "") for future in futures}
