"""A Faust consumer that delivers a message only if its offset is the next one.

Faust's own consumer treats offsets that never came as acknowledged, delivers messages that it had fetched before a
seek,
and skips messages during a rebalance. Each of these loses messages for good. Here a partition is opened from its
snapshot at every assignment, and a message is delivered to the agent only if its offset is the expected one. Any other
message is dropped and fetched again from the expected offset.

Internals of faust-streaming 0.15.3 with aiokafka 0.14.0 (both pinned exactly) that are overridden, and why:

- ``AIOKafkaConsumerThread._create_worker_consumer``: sets aiokafka's ``_fetch_max_wait_ms``, which Faust fixes at
  1500 ms, and replaces the client by the one of ``aiokafka_client``.
- ``AIOKafkaConsumerThread._commit``: Faust crashes the app when a commit of the group's offset fails; here that is
  logged, since the snapshot decides where to resume.
- ``Consumer._new_consumer_thread``: returns the thread with these changes.
- ``Consumer.perform_seek``: Faust seeks to the group's committed offsets; here partitions are opened from their
  snapshots.
- ``Consumer._drain_messages``: Faust delivers any offset that is not lower than the last one; here only the expected
  offset is delivered, in the order of each partition, and a rebalance ends the delivery. It uses
  ``_wait_next_records``, ``suspend_flow`` and ``flow_active``.
- ``Consumer.on_buffer_full``: Faust stops fetching a partition whose queue is full; here delivery waits for room.
- ``Consumer.ack``: Faust collects acknowledged offsets; here the snapshot decides what is acknowledged, so a message
  only leaves ``_unacked_messages``.
- ``Consumer._filter_committable_offsets``: the offset committed for the group is the one that a snapshot covers
  (``_committed_offset`` is the last one committed).
- ``Consumer._add_gap``: Faust marks missing offsets as acknowledged; here this does nothing.
- ``ended_tasks`` reads aiokafka's ``_fetcher._fetch_task``, ``_coordinator._coordination_task`` and
  ``_client._sync_task``: aiokafka does not report the end of one of them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from aiokafka.errors import IllegalStateError, KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from connectors.storage.kafka.aiokafka_client import answering
from connectors.storage.kafka.client import LOG_APPEND_TIME, with_retry
from stream.engine.ports import FencedError
from stream.records import Micros
from stream.runners.partition_tasks import PartitionTask, TaskManager

log = logging.getLogger(__name__)

FETCH_WAIT_MS = 100
"""Milliseconds for which the broker may delay an answer if there is nothing new."""
MILLISECOND: Micros = 1000
RETAKE_AFTER = 0.5
"""Seconds after which a partition whose writer was interrupted is reopened."""
RETAKES = 20
"""Maximum number of times in a row that a partition is reopened without a checkpoint; then the worker stops."""
HOLE_TRIES = 3
"""A hole in the offsets is looked into when the broker itself skips it this many times in a row."""


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
        # Faust fixes 1500 ms; seeks and requests for offsets wait that long behind a fetch.
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
        answering(consumer._client)  # noqa: SLF001 - see ``answering``
        return consumer

    def ended_tasks(self) -> list[str]:
        """Return which of aiokafka's own tasks have ended: without any one of them no more messages arrive."""
        consumer = self._ensure_consumer()
        own = {
            "aiokafka's fetcher": consumer._fetcher._fetch_task,  # noqa: SLF001
            "aiokafka's group member": consumer._coordinator._coordination_task,  # noqa: SLF001
            "aiokafka's look at the cluster": consumer._client._sync_task,  # noqa: SLF001
        }
        return [name for name, task in own.items() if task is not None and task.done()]

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # The group's committed offset only serves displays of lag; the snapshot decides where to resume.
        wanted = {driver.ensure_aiokafka_TP(tp): offset for tp, offset in offsets.items() if tp in self.assignment()}
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
        self._tenures: TaskManager = self.app.tenures
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
        while an
        earlier opening runs, Faust lets that opening finish and messages flow. When the opening for the new assignment
        is done,
        Faust empties its queues, including messages of partitions that are already open.
        """
        self.stop_flow()
        self._tenures.release()
        self._holes.clear()
        self._lost.clear()
        with self._tenures.failing():
            await self._open_assigned()

    async def _open_assigned(self) -> None:
        async with self._opening:
            self._tenures.release()  # a partition reopened while this waited may have been revoked
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
        tenure = await self._tenures.open(tp.partition, functools.partial(self._bounds, tp))
        try:
            await self.seek_wait({tp: tenure.fetch_offset})
        except IllegalStateError:
            if tp in self.assignment():
                raise
            log.info("partition %d was taken away while it was opened", tp.partition)  # its next assignment opens it
            return
        log.info("partition %d opened at offset %d", tp.partition, tenure.fetch_offset)

    def unopened(self) -> list[int]:
        """Return the partitions that the group has assigned to this worker and that do not deliver messages."""
        assigned = [tp.partition for tp in self._assigned()]
        if self.app.rebalancing or not self.flow_active:
            return assigned
        held = self._tenures.tasks
        return [number for number in assigned if number not in held or held[number].ended]

    async def _bounds(self, tp: TP) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            return (await self.earliest_offsets(tp))[tp], (await self.highwaters(tp))[tp]

        return await with_retry(ask, KafkaError)  # a broker that restarts refuses for a moment

    async def reopen_lost(self) -> None:
        """Reopen lost partitions that the group still assigns to this worker.

        If the writer was interrupted, the partition is reopened at once. If another owner has fenced the writer, the
        worker
        first gives the group time to reassign the partition: a worker that was paused during a rebalance still believes
        for a
        moment that it owns its old partitions.
        """
        async with self._opening:
            for tp in self._assigned():
                tenure = self._tenures.tasks.get(tp.partition)
                if tenure is not None and self._may_reopen(tenure):
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
        with self._tenures.failing():
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
        tenure, compared = self._tenures.tasks.get(tp.partition), False
        for record in batch:
            if tenure is not None and tenure.loss_error is not None:
                return True  # it will be reopened; the other partitions of this fetch continue
            if tenure is None or tenure.ended or not self.flow_active:
                return False
            if record.offset < tenure.fetch_offset:
                if not compared:  # a recreated topic is delivered from its beginning
                    await tenure.check_same_log(functools.partial(self._bounds, tp))
                    compared = True
                continue
            if record.offset > tenure.fetch_offset and not await self._accept_gap(tp, tenure, record.offset):
                await self.seek_wait({tp: tenure.fetch_offset})
                return True
            after_loss = record.offset > tenure.fetch_offset and await tenure.accept_hole(record.offset)
            await self._enqueue(tp, tenure, record, after_loss)
            tenure.fetch_offset = record.offset + 1
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

    # --- acknowledgement ----------------------------------------------------------------------------

    def ack(self, message: Any) -> bool:
        """Forget a message; only offsets that a snapshot covers count as acknowledged."""
        self._unacked_messages.discard(message)
        return False

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        covered = {
            driver.TP(self.app.source, tenure.partition): tenure.committed_offset
            for tenure in self._tenures.tasks.values()
            if tenure.committed_offset is not None
        }
        return {tp: offset for tp, offset in covered.items() if self._committed_offset[tp] != offset}

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Never count missing offsets as acknowledged."""


class StrictTransport(driver.Transport):  # type: ignore[misc]
    """Faust's aiokafka transport with the strict consumer."""

    Consumer = StrictConsumer
