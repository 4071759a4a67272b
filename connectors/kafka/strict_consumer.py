"""A Faust consumer that hands on a message only if it is the next one.

Faust's own consumer treats offsets that never came as acknowledged, hands on what it had fetched before a
seek, and skips messages while a rebalance is under way; each of these loses messages for good. Here a
partition is opened from its snapshot at every assignment, and a message goes to the agent only when its
offset is the one expected; anything else is dropped and fetched again from the expected offset.

The internals overridden are those of faust-streaming 0.15.3 with aiokafka 0.14.0, both pinned exactly.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from aiokafka.errors import KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from connectors.kafka.answering import answering
from connectors.kafka.client import LOG_APPEND_TIME
from connectors.kafka.patience import patiently
from stream.records import Micros
from stream.runners.contract import FencedError, LossError
from stream.runners.tenure import Tenure
from stream.runners.tenures import Tenures

log = logging.getLogger(__name__)

OPEN_TIMEOUT = 60.0
"""Seconds within which all partitions of an assignment must have been opened; Faust gives up after 90."""
FETCH_WAIT_MS = 100
"""Milliseconds for which the broker may hold back an answer when there is nothing new."""
MILLISECOND: Micros = 1000
RETAKE_AFTER = 0.5
"""Seconds after which a partition is opened anew whose writer was interrupted."""
RETAKES = 20
"""So many times in a row a partition is opened anew without a checkpoint in between; then the worker stops."""
HOLE_TRIES = 3
"""A hole in the offsets is believed when the broker itself skips it this many times in a row."""


class StrictMessage(ConsumerMessage):  # type: ignore[misc]
    """A message, the tenure that it was handed on for, and the offset that had to come."""

    __slots__ = ("follows", "stamp", "tenure")
    tenure: Tenure
    follows: int
    stamp: Micros | None
    """When the broker appended it; None where the topic keeps the producer's time instead."""


class StrictThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The consumer's thread; a failed commit of the group's offset stops nobody."""

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes 1500 ms; seeks and questions about offsets wait behind a fetch for so long.
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
        answering(consumer._client)  # noqa: SLF001 - see there
        return consumer

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # The group's committed offset is a figure for lag displays; the snapshot says where to go on.
        wanted = {driver.ensure_aiokafka_TP(tp): offset for tp, offset in offsets.items() if tp in self.assignment()}
        try:
            await self._ensure_consumer().commit(wanted)
        except KafkaError as error:
            log.info("group offset not committed: %s", type(error).__name__)
            return False
        return True


class StrictConsumer(driver.Consumer):  # type: ignore[misc]
    """Consumer whose position is the snapshot's, and whose deliveries have no holes and no repeats."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tenures: Tenures = self.app.tenures
        self._holes: dict[TP, tuple[int, int, int]] = {}
        self._opening = asyncio.Lock()
        self._lost: dict[int, tuple[Tenure, float]] = {}
        self._retakes: Counter[int] = Counter()
        self.grace = 5.0
        """Seconds for which a partition that another owner has taken is left alone: soon the group says whose it is."""

    def _new_consumer_thread(self) -> StrictThread:
        return StrictThread(self, loop=self.loop, beacon=self.beacon)

    # --- position -----------------------------------------------------------------------------------

    async def perform_seek(self) -> None:
        """Open every assigned source partition from its snapshot; called once after each assignment."""
        self._tenures.release()
        self._holes.clear()
        self._lost.clear()
        try:
            await asyncio.wait_for(self._open_assigned(), OPEN_TIMEOUT)
        except Exception as failure:
            self._tenures.fail(failure)
            raise

    async def _open_assigned(self) -> None:
        async with self._opening:
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
        await self.seek_wait({tp: tenure.delivered})
        log.info("partition %d opened at offset %d", tp.partition, tenure.delivered)

    async def _bounds(self, tp: TP) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            return (await self.earliest_offsets(tp))[tp], (await self.highwaters(tp))[tp]

        return await patiently(ask, KafkaError, seconds=OPEN_TIMEOUT)  # a broker that restarts refuses for a moment

    async def retake(self) -> None:
        """Open anew what was lost while the group still says that it is this worker's.

        A writer that was interrupted: at once. One that another owner has fenced: when the group has had time
        to say so, for a worker that slept through a rebalance believes for a moment to own what it had.
        """
        async with self._opening:
            for tp in self._assigned():
                tenure = self._tenures.held.get(tp.partition)
                if tenure is not None and self._may_retake(tenure):
                    await asyncio.wait_for(self._open(tp), OPEN_TIMEOUT)

    def _may_retake(self, tenure: Tenure) -> bool:
        number = tenure.partition
        if tenure.acknowledged is not None:
            self._retakes[number] = 0
        if tenure.lost is None or not self.flow_active:
            return False
        known, since = self._lost.get(number, (None, 0.0))
        if known is not tenure:
            since = time.monotonic()
            self._lost[number] = tenure, since
        wait = self.grace if isinstance(tenure.lost, FencedError) else RETAKE_AFTER
        if time.monotonic() - since < wait:
            return False
        self._retakes[number] += 1
        if self._retakes[number] > RETAKES:
            raise tenure.lost
        return True

    # --- delivery -----------------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                records, _ = await self._wait_next_records(timeout=1.0)
                await asyncio.sleep(0)
                for tp, batch in (records or {}).items():
                    if not await self._unless_suspended(self._deliver(driver.TP(tp.topic, tp.partition), batch)):
                        break
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except Exception as failure:
            self._tenures.fail(failure)
            raise

    async def _unless_suspended(self, delivering: Coroutine[Any, Any, bool]) -> bool:
        """Deliver until all is handed on, or a rebalance begins: what then waits for room is given up."""
        ended = await self.wait_first(delivering, self.suspend_flow.wait())
        return delivering in ended.done and bool(ended.results[ended.done.index(delivering)])

    async def _deliver(self, tp: TP, batch: Iterable[Any]) -> bool:
        """Hand on a partition's records in order; False when a rebalance has begun and the fetch is void."""
        tenure, compared = self._tenures.held.get(tp.partition), False
        for record in batch:
            if tenure is not None and tenure.lost is not None:
                return True  # it will be opened anew; the other partitions of this fetch go on
            if tenure is None or tenure.ended or not self.flow_active:
                return False
            if record.offset < tenure.delivered:
                if not compared:  # a topic that was made anew is given from its beginning
                    await tenure.refuse_another_log(functools.partial(self._bounds, tp))
                    compared = True
                continue
            if record.offset > tenure.delivered and not await self._believe_hole(tp, tenure, record.offset):
                await self.seek_wait({tp: tenure.delivered})
                return True
            await self._hand_on(tp, tenure, record)
            tenure.delivered = record.offset + 1
        return True

    async def _believe_hole(self, tp: TP, tenure: Tenure, offset: int) -> bool:
        begin = (await self.earliest_offsets(tp))[tp]
        if begin > tenure.delivered:
            where = f"partition {tp.partition} of the observations"
            msg = f"{where}: {begin - tenure.delivered} messages were deleted before they were read"
            raise LossError(msg)
        expected, seen, times = self._holes.get(tp, (-1, -1, 0))
        times = times + 1 if (expected, seen) == (tenure.delivered, offset) else 1
        self._holes[tp] = (tenure.delivered, offset, times)
        return times >= HOLE_TRIES

    async def _hand_on(self, tp: TP, tenure: Tenure, record: Any) -> None:
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
        message.tenure, message.follows = tenure, tenure.delivered
        message.stamp = record.timestamp * MILLISECOND if record.timestamp_type == LOG_APPEND_TIME else None
        await self.callback(message)

    def on_buffer_full(self, tp: TP) -> None:
        """Do not pause a partition whose queue is full: delivery waits for room, in order."""

    # --- acknowledgement ----------------------------------------------------------------------------

    def ack(self, message: Any) -> bool:
        """Forget a message; what is acknowledged is what a snapshot covers."""
        self._unacked_messages.discard(message)
        return False

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        covered = {
            driver.TP(self.app.source, tenure.partition): tenure.acknowledged
            for tenure in self._tenures.held.values()
            if tenure.acknowledged is not None
        }
        return {tp: offset for tp, offset in covered.items() if self._committed_offset[tp] != offset}

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Never take offsets that did not come for acknowledged."""


class StrictTransport(driver.Transport):  # type: ignore[misc]
    """Faust's aiokafka transport with the strict consumer."""

    Consumer = StrictConsumer
