"""An ingest's hold on its sources: claimed before it sends, confirmed every few seconds, given back at the end.

Two ingests that send for one source would drop each other's rows. So each claims its sources in the control
topic, and gives signs of life there; the answers carry the broker's time, with which it compares its clock,
since a message that claims to be from the future is refused by the engine.
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

from connectors.kafka.bounded import read_tail
from connectors.kafka.client import NotAllowedError, connect, partition_of, producer_of
from connectors.kafka.closing import close
from connectors.kafka.control import decide, read
from stream.errors import TacetError, UsageError
from stream.messages import sender_of
from stream.records import MINUTE, SECOND, Micros
from stream.runners.agreement import BEAT, SILENT, Control, Pair, Records, claim, displaced, sign_of_life
from stream.schemas import CONTROL, OBSERVATIONS

log = logging.getLogger(__name__)

CLOCKS_APART: Micros = 1 * MINUTE
"""An ingest whose clock is further from the broker's stops: the engine would refuse what it sends, unseen."""
TAIL = 500
"""So many of a partition's last messages are looked through for the newest session."""


class DisplacedError(TacetError):
    """Another ingest has taken a source; what this one sends would be dropped."""


class ClockApartError(TacetError):
    """This machine's clock and the broker's disagree."""


class _MayBeGoneError(UsageError):
    """A source is another ingest's, which has given no sign of life since it was first asked after."""


def wall() -> Micros:
    """Return the time by this machine's clock."""
    return time.time_ns() // 1000


class Claims:
    """The sources of one ingest."""

    def __init__(self, bootstrap: str, pairs: Iterable[Pair], *, clock: Callable[[], Micros] = wall) -> None:
        self._bootstrap = bootstrap
        self._pairs = tuple(pairs)
        self._clock = clock
        self._id = secrets.token_hex(8)
        self._producer: Any = None

    async def start(self, partitions: int, *, session: Micros | None = None, take_over: bool = False) -> Micros:
        """Claim the sources; return the session, later than any before it.

        ``session`` is a recording's own, which it must keep: its copies are known by it. What is left of an
        ingest that was killed is waited for until it counts as silent.

        Raises:
            UsageError: another ingest lives that sends for one of them; or a recording is older than what they sent.
            ClockApartError: this machine's clock is not the broker's.
        """
        self._producer = producer_of(self._bootstrap)
        await connect(self._producer, self._bootstrap)
        newest = await self._newest(partitions)
        seen: dict[str, Micros] = {}
        waiting = stamina.AsyncRetryingCaller(
            attempts=None, timeout=SILENT / SECOND + 1, wait_initial=1.0, wait_max=1.0, wait_jitter=0.0
        )

        async def claimed() -> Micros:
            now = await self._beat()
            try:
                return await self._claim(session, newest, now, take_over=take_over)
            except UsageError as refusal:
                if await self._lives(seen):
                    raise
                raise _MayBeGoneError(str(refusal)) from None

        return await waiting(_MayBeGoneError, claimed)

    async def _lives(self, seen: dict[str, Micros]) -> bool:
        """Return whether another ingest has given a sign of life since it was first asked after."""
        beats = (await read(self._bootstrap)).beats
        moved = any(beats.get(name, 0) > at for name, at in seen.items())
        if not seen:
            seen.update((name, at) for name, at in beats.items() if name != self._id)
        return moved

    async def _claim(self, session: Micros | None, newest: Micros, now: Micros, *, take_over: bool) -> Micros:
        """Claim all sources at once, or none."""
        held = newest

        def rule(control: Control) -> Records:
            nonlocal held
            fixed = session is not None
            wanted = max(self._clock(), newest + 1) if session is None else session
            held, records = claim(
                control, self._id, self._pairs, wanted, now=now, take_over=take_over, fixed=fixed
            )  # fmt: skip
            return records

        await decide(self._bootstrap, rule)
        return held

    async def _newest(self, partitions: int) -> Micros:
        """Return the newest session of these sources in the log's latest messages; -1 where there is none.

        An ingest need not be allowed to read what it writes: then the claims in the control topic are all it knows.
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

    async def keep(self) -> NoReturn:
        """Give signs of life for ever.

        Raises:
            DisplacedError: another ingest has taken a source.
            ClockApartError: this machine's clock is not the broker's.
        """
        while True:
            await asyncio.sleep(BEAT / SECOND)
            try:
                await self._beat()
                lost = displaced(await read(self._bootstrap), self._id, self._pairs)
            except (KafkaError, ConnectionError, TimeoutError) as error:
                log.warning("no sign of life given: %s", type(error).__name__)
                continue
            if lost is not None:
                site, source = lost
                msg = f"source {source} of site {site}: another ingest has taken it; this one has stopped"
                raise DisplacedError(msg)

    async def _beat(self) -> Micros:
        """Give a sign of life; return the broker's time of it."""
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
        """Give the sources back and disconnect."""
        if self._producer is None:
            return
        try:
            await asyncio.wait_for(self._write(sign_of_life(self._id, alive=False)), 2.0)
        except (KafkaError, TimeoutError) as error:
            log.info("sources not given back: %s", type(error).__name__)
        await close(self._producer)
