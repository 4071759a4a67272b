"""An ingest's leases on its sources: claimed, renewed, given back.

Two ingests that send for one source would drop each other's rows. So each claims its sources in the control topic and
writes heartbeats there. The acknowledgements carry the broker's time, with which the ingest compares its own clock: the
engine refuses a message from the future.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

import stamina
from aiokafka.errors import KafkaError

from connectors.storage.kafka.client import NotAllowedError, close, connect, partition_of, producer_of
from connectors.storage.kafka.cluster import decide, read
from connectors.storage.kafka.topic_readers import read_tail
from stream.encoding import sender_of
from stream.engine.cluster_state import (
    BEAT,
    ClusterState,
    Pair,
    Records,
    SourceTakenError,
    claim,
    displaced,
    sign_of_life,
)
from stream.errors import TacetError, UsageError
from stream.records import MINUTE, SECOND, Micros
from stream.schemas import CONTROL, OBSERVATIONS

log = logging.getLogger(__name__)

CLOCKS_APART: Micros = 1 * MINUTE
"""Maximum difference between the ingest's clock and the broker's.

Beyond it the ingest stops, since the engine would refuse its messages without its knowledge.
"""
TAIL = 500
"""Number of each partition's last messages that are searched for the newest session."""


class DisplacedError(TacetError):
    """Another ingest has claimed a source; messages of this one would be dropped."""


class ClockApartError(TacetError):
    """This machine's clock and the broker's disagree."""


class _OwnerMaybeGoneError(UsageError):
    """A source belongs to another ingest, which has sent no heartbeat since the first check."""


def wall() -> Micros:
    """Return the time by this machine's clock."""
    return time.time_ns() // 1000


class SourceLeases:
    """The leases of one ingest."""

    def __init__(self, bootstrap: str, pairs: Iterable[Pair], *, clock: Callable[[], Micros] = wall) -> None:
        self._bootstrap = bootstrap
        self._pairs = tuple(pairs)
        self._clock = clock
        self._id = secrets.token_hex(8)
        self._producer: Any = None

    async def start(self, partitions: int, *, session: Micros | None = None, take_over: bool = False) -> Micros:
        """Claim the sources; return the session, later than any before it.

        ``session`` is a recording's own session, which it must keep: its copies are recognised by it. If an ingest was
        killed, the call waits until its leases have expired by the broker's clock, however long one attempt takes.

        Raises:
            SourceTakenError: another live ingest sends for one of the sources.
            UsageError: a recording is older than what its sources sent.
            ClockApartError: this machine's clock differs from the broker's.
        """
        self._producer = producer_of(self._bootstrap)
        await connect(self._producer, self._bootstrap)
        newest = await self._newest(partitions)
        seen: dict[str, Micros] = {}
        waiting = stamina.AsyncRetryingCaller(
            attempts=None, timeout=None, wait_initial=1.0, wait_max=1.0, wait_jitter=0.0
        )

        async def claimed() -> Micros:
            now = await self._beat()
            try:
                return await self._claim(session, newest, now, take_over=take_over)
            except SourceTakenError as refusal:
                if await self._has_heartbeat_since(seen):
                    raise
                raise _OwnerMaybeGoneError(str(refusal)) from None

        return await waiting(_OwnerMaybeGoneError, claimed)

    async def _has_heartbeat_since(self, seen: dict[str, Micros]) -> bool:
        """Return whether another ingest has sent a heartbeat since the first check."""
        beats = (await read(self._bootstrap)).beats
        moved = any(beats.get(name, 0) > at for name, at in seen.items())
        if not seen:
            seen.update((name, at) for name, at in beats.items() if name != self._id)
        return moved

    async def _claim(self, session: Micros | None, newest: Micros, now: Micros, *, take_over: bool) -> Micros:
        """Claim all sources at once, or none."""
        claimed = newest

        def rule(control: ClusterState) -> Records:
            nonlocal claimed
            fixed = session is not None
            wanted = max(self._clock(), newest + 1) if session is None else session
            claimed, records = claim(
                control, self._id, self._pairs, wanted, now=now, take_over=take_over, fixed=fixed
            )  # fmt: skip
            return records

        await decide(self._bootstrap, rule)
        return claimed

    async def _newest(self, partitions: int) -> Micros:
        """Return the newest session of these sources in the log's latest messages; -1 if there is none.

        An ingest may lack the right to read the topic that it writes. Then it knows only the claims in the control
        topic.
        """
        with suppress(NotAllowedError):
            return await self._newest_in_log(partitions)
        return -1

    async def _newest_in_log(self, partitions: int) -> Micros:
        newest = -1
        for partition in sorted({partition_of(site, partitions) for site, _ in self._pairs}):
            for value in await read_tail(self._bootstrap, OBSERVATIONS, partition, TAIL):
                sender = sender_of(value)
                if sender is not None and (sender.site, sender.source) in self._pairs:
                    newest = max(newest, sender.session)
        return newest

    async def renew(self) -> NoReturn:
        """Renew the leases for ever.

        Raises:
            DisplacedError: another ingest has claimed a source.
            ClockApartError: this machine's clock differs from the broker's.
        """
        while True:
            await asyncio.sleep(BEAT / SECOND)
            try:
                await self._beat()
                lost = displaced(await read(self._bootstrap), self._id, self._pairs)
            except (KafkaError, ConnectionError, TimeoutError) as error:
                log.warning("sources were not renewed: %s", type(error).__name__)
                continue
            if lost is not None:
                site, source = lost
                msg = f"source {source} of site {site}: another ingest has taken it; this one has stopped"
                raise DisplacedError(msg)

    async def _beat(self) -> Micros:
        """Write a heartbeat; return the broker's time of it."""
        before = self._clock()
        stamp = await self._write(sign_of_life(self._id))
        if not before - CLOCKS_APART <= stamp <= self._clock() + CLOCKS_APART:
            msg = (
                f"clock: must agree with the broker's within {CLOCKS_APART // SECOND} s, is "
                f"{abs(before - stamp) // SECOND} s {'ahead' if before > stamp else 'behind'}"
            )
            raise ClockApartError(msg)
        return stamp

    async def _write(self, records: Records) -> Micros:
        stamp = 0
        for key, value in records.items():
            answer = await self._producer.send_and_wait(CONTROL, value, key=key.encode(), partition=0)
            stamp = answer.timestamp * 1000
        return stamp

    async def stop(self) -> None:
        """Give the leases back and disconnect."""
        if self._producer is None:
            return
        try:
            async with asyncio.timeout(2.0):
                await self._write(sign_of_life(self._id, alive=False))
        except (KafkaError, TimeoutError) as error:
            log.info("sources were not released: %s", type(error).__name__)
        await close(self._producer)
