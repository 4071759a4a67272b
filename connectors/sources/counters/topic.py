"""Counts from a Kafka topic of another program, one row a record.

The topic is read from the first row that may be in time, by the record's timestamp, and again from there after a broker
was away: copies change nothing. A window is closed when its lateness is over by this machine's clock and the topic was
then read to its end. While the topic cannot be read, no window is closed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from connectors.runtime.clock import wall_clock
from connectors.sources.counters.windows import WindowCollector
from connectors.sources.ingest.receiver import EVERY, DropReport
from connectors.sources.recordings.rows import WHOLE, CellRules
from connectors.storage.kafka.client import NotAllowedError, not_authorized, partition_of, partitions_of, reader_of
from connectors.storage.kafka.topic_readers import read_tail
from stream.encoding import counted_of
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.records import SECOND, Micros
from stream.schemas import OBSERVATIONS
from stream.sensing.counter_feed import INCOMPLETE
from stream.sensing.watermark import MAX_CLOCK_SKEW

POLL = 1.0
"""Seconds between two polls of the topic."""
TAIL = 5_000
"""Number of each partition's last messages that are searched for a site's last window."""
PATIENCE = 45.0
"""Seconds for which the topic may be unreadable before this source counts as failing."""
_OWN = "tacet."
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
log = structlog.get_logger("tacet.run")


class WindowSink(Protocol):
    """Receives closed windows."""

    async def append(self, message: Any) -> None:
        """Return when a window is durable."""


async def windows_behind(bootstrap: str, policy: PolicyDocument, partitions: int) -> dict[str, Micros]:
    """Return, for each site with counts, the window after the last one in the log's latest messages, if there is one.

    An ingest may lack the right to read the topic that it writes. Then it knows none.
    """
    sites = CellRules(policy).sites
    found: dict[str, Micros] = {}
    with suppress(NotAllowedError):
        for partition in sorted({partition_of(name, partitions) for name in sites}):
            for value in await read_tail(bootstrap, OBSERVATIONS, partition, TAIL):
                site, window = counted_of(value) or ("", 0)
                if site in sites:
                    found[site] = max(found.get(site, 0), window + sites[site].tick)
    return found


def check_topic(option: str, topic: str, writer: str = "people counters write") -> None:
    """Raise UsageError for a topic of this program, or for an invalid topic name."""
    if not _NAME.fullmatch(topic) or topic in {".", ".."}:
        raise UsageError(f"{option}: must be a topic's name, of 1 to 249 letters, digits, '.', '_' and '-'")
    if topic.startswith(_OWN):
        raise UsageError(f"{option}: must be the topic that {writer}, not one of {_OWN}…, got {topic!r}")


class CountsTopic:
    """One topic, read by one process."""

    def __init__(
        self, bootstrap: str, topic: str, collector: WindowCollector, *, clock: Callable[[], Micros] = wall_clock
    ) -> None:
        self.collector = collector
        self._bootstrap, self._topic, self._clock = bootstrap, topic, clock
        self._open: AsyncExitStack | None = None
        self._reader: Any = None
        self._last_read: Micros | None = None

    @property
    def is_read(self) -> bool:
        """Whether the topic was read to its end recently."""
        return self._last_read is not None and self._clock() - self._last_read < PATIENCE * SECOND

    async def deliver(self, sink: WindowSink, stop: asyncio.Event) -> None:
        """Pass windows to a sink when they are over, until ``stop`` or the last window.

        Raises:
            UsageError: there is no such topic, or this user may not read it.
        """
        report, last_report = DropReport(event="count_rows_dropped"), self._clock()
        try:
            while not (stop.is_set() or self.collector.over):
                now = self._clock()
                if await _unless(stop, self._read(now)):
                    await self._append_closed(now, sink, stop)
                if self._clock() - last_report > EVERY * SECOND:
                    last_report = self._clock()
                    for line in report.new_drops(self.collector.dropped, {}):
                        log.warning(**line, **({"rule": WHOLE} if line["reason"] == INCOMPLETE else {}))
                await _pause(stop)
        finally:
            await self._close()

    async def _append_closed(self, now: Micros, sink: WindowSink, stop: asyncio.Event) -> None:
        for window in self.collector.close(now):
            await sink.append(window)
            if stop.is_set():
                return

    async def _read(self, now: Micros) -> bool:
        """Read the topic; return whether its end was reached."""
        try:
            if self._reader is None:
                await self._begin()
            places = list(self._reader.assignment())
            ends = await self._reader.end_offsets(places)
            while await self._is_short(ends):
                for rows in (await self._reader.getmany(timeout_ms=500)).values():
                    for row in rows:
                        self.collector.process(row.value or b"", min(row.timestamp * 1000, now + MAX_CLOCK_SKEW))
                await asyncio.sleep(0)
        except TopicAuthorizationFailedError:
            raise not_authorized(self._topic) from None
        except (KafkaError, ConnectionError, TimeoutError) as error:
            log.warning("topic not read", topic=self._topic, error=type(error).__name__)
            await self._close()
            return False
        self._last_read = now
        return True

    async def _begin(self) -> None:
        """Open the topic at the first row that may be in time."""
        self._open = AsyncExitStack()
        self._reader = await self._open.enter_async_context(reader_of(self._bootstrap))
        try:
            numbers = await partitions_of(self._reader, self._topic)
        except UsageError as error:
            raise UsageError(f"--topic: {error}") from None
        places = [TopicPartition(self._topic, number) for number in numbers]
        since = self.collector.begin_again()
        found = await self._reader.offsets_for_times(dict.fromkeys(places, since // 1000))
        ends = await self._reader.end_offsets(places)
        self._reader.assign(places)
        for at in places:
            first = found.get(at)
            self._reader.seek(at, ends[at] if first is None else first.offset)

    async def _is_short(self, ends: dict[TopicPartition, int]) -> bool:
        return any([await self._reader.position(at) < end for at, end in ends.items()])

    async def _close(self) -> None:
        """Close the topic; the next read opens it again."""
        opened, self._open, self._reader = self._open, None, None
        if opened is not None:
            with suppress(KafkaError, ConnectionError, TimeoutError):
                await opened.aclose()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, bool]) -> bool:
    """Return the result of the work; False if ``stop`` comes first, because an absent broker may never answer."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return doing.done() and doing.result()
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.wait({doing, stopping})


async def _pause(stop: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL):
            await stop.wait()
