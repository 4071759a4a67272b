"""Counts from a topic of Kafka that is not ours: whoever counts writes a row a record, the clock closes windows.

The topic is read from the first row on that may be in time, by the time that each record bears there, and again from
there when a broker was away: copies change nothing. A window is closed when its lateness is over by this machine's
clock and the topic was then read to its end; while it cannot be read, none is.
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

from connectors.counters.gathering import Gathering
from connectors.files.cells import CellRules
from connectors.intake.clock import wall_clock
from connectors.intake.troubles import EVERY, Troubles
from connectors.kafka.bounded import read_tail
from connectors.kafka.client import NotAllowedError, not_open, partition_of, partitions_of, reader_of
from stream.errors import UsageError
from stream.messages import counted_of
from stream.policy.document import Policy
from stream.records import SECOND, Micros
from stream.schemas import OBSERVATIONS
from stream.sensing.stamp import AHEAD

POLL = 1.0
"""Seconds between two looks at the topic."""
TAIL = 5_000
"""So many of a partition's last messages are looked through for a site's last window."""
PATIENCE = 45.0
"""Seconds for which the topic may not be read before this is no longer called well."""
_OWN = "tacet."
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
log = structlog.get_logger("tacet.run")


class Taker(Protocol):
    """Where windows go."""

    async def append(self, message: Any) -> None:
        """Return when a window is durable."""


async def windows_behind(bootstrap: str, policy: Policy, partitions: int) -> dict[str, Micros]:
    """Return, for each site of counts, the window behind the last in the log's latest messages, where one is there.

    An ingest need not be allowed to read what it writes: then it knows none.
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
    """Refuse to read what another program writes from a topic of our own, or from what is no name of one."""
    if not _NAME.fullmatch(topic) or topic in {".", ".."}:
        raise UsageError(f"{option}: must be a topic's name, of 1 to 249 letters, digits, '.', '_' and '-'")
    if topic.startswith(_OWN):
        raise UsageError(f"{option}: must be the topic that {writer}, not one of {_OWN}…, got {topic!r}")


class CountsTopic:
    """One topic, read by one process."""

    def __init__(
        self, bootstrap: str, topic: str, gathering: Gathering, *, clock: Callable[[], Micros] = wall_clock
    ) -> None:
        self.gathering = gathering
        self._bootstrap, self._topic, self._clock = bootstrap, topic, clock
        self._open: AsyncExitStack | None = None
        self._reader: Any = None
        self._well: Micros | None = None

    @property
    def is_read(self) -> bool:
        """Whether the topic was read to its end lately."""
        return self._well is not None and self._clock() - self._well < PATIENCE * SECOND

    async def pour(self, sink: Taker, stop: asyncio.Event) -> None:
        """Give windows to a sink as they are over, until ``stop`` or the last one.

        Raises:
            UsageError: there is no such topic, or this user may not read it.
        """
        troubles, said = Troubles(event="count_rows_dropped"), self._clock()
        try:
            while not (stop.is_set() or self.gathering.over):
                now = self._clock()
                if await _unless(stop, self._read(now)):
                    await self._hand_on(now, sink, stop)
                if self._clock() - said > EVERY * SECOND:
                    said = self._clock()
                    for line in troubles.news(self.gathering.dropped, {}):
                        log.warning(**line)
                await _pause(stop)
        finally:
            await self._close()

    async def _hand_on(self, now: Micros, sink: Taker, stop: asyncio.Event) -> None:
        for window in self.gathering.close(now):
            await sink.append(window)
            if stop.is_set():
                return

    async def _read(self, now: Micros) -> bool:
        """Read what the topic holds; return whether that was all of it."""
        try:
            if self._reader is None:
                await self._begin()
            places = list(self._reader.assignment())
            ends = await self._reader.end_offsets(places)
            while await self._is_short(ends):
                for rows in (await self._reader.getmany(timeout_ms=500)).values():
                    for row in rows:
                        self.gathering.take(row.value or b"", min(row.timestamp * 1000, now + AHEAD))
                await asyncio.sleep(0)
        except TopicAuthorizationFailedError:
            raise not_open(self._topic) from None
        except (KafkaError, ConnectionError, TimeoutError) as error:
            log.warning("topic not read", topic=self._topic, error=type(error).__name__)
            await self._close()
            return False
        self._well = now
        return True

    async def _begin(self) -> None:
        """Open the topic at the first row that may be in time."""
        self._open = AsyncExitStack()
        self._reader = await self._open.enter_async_context(reader_of(self._bootstrap))
        client = self._reader._client  # noqa: SLF001 - no public way to ask without a subscription
        try:
            numbers = await partitions_of(client, self._topic)
        except UsageError as error:
            raise UsageError(f"--topic: {error}") from None
        places = [TopicPartition(self._topic, number) for number in numbers]
        since = self.gathering.begin_again()
        found = await self._reader.offsets_for_times(dict.fromkeys(places, since // 1000))
        ends = await self._reader.end_offsets(places)
        self._reader.assign(places)
        for at in places:
            first = found.get(at)
            self._reader.seek(at, ends[at] if first is None else first.offset)

    async def _is_short(self, ends: dict[TopicPartition, int]) -> bool:
        return any([await self._reader.position(at) < end for at, end in ends.items()])

    async def _close(self) -> None:
        """Let go of the topic; it is opened again where it is read again."""
        opened, self._open, self._reader = self._open, None, None
        if opened is not None:
            with suppress(KafkaError, ConnectionError, TimeoutError):
                await opened.aclose()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, bool]) -> bool:
    """Return what the work says; False where ``stop`` comes first, for a broker that is away may never answer."""
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
        await asyncio.wait_for(stop.wait(), POLL)
