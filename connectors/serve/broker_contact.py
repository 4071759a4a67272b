"""Contact with Kafka's brokers, and tasks that outlive an outage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

from aiokafka.errors import KafkaError, KafkaTimeoutError

from connectors.runtime.signals import raise_if_cancelled
from connectors.storage.kafka.topic_readers import topic_names

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""Seconds between two requests that test whether a broker answers."""
PROBE_TIMEOUT = 10.0
"""Seconds for an answer."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""Seconds before an interrupted task is restarted, doubled each time up to the second number."""


class BrokerContact:
    """Tracks whether brokers answer a service."""

    def __init__(self, *, needed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """``needed``: without brokers there is nothing to serve, so an outage before the first answer is an error.

        ``clock`` gives seconds.
        """
        self._clock = clock
        self._answered = clock()
        self._is_lost = False
        self._is_needed = needed

    def outage_seconds(self) -> float | None:
        """Return the seconds since the last answer if no broker answers; None if one does."""
        return self._clock() - self._answered if self._is_lost else None

    def answered(self) -> None:
        """Record an answer."""
        if self._is_lost:
            log.warning("a broker answers again, after %.0f s", self._clock() - self._answered)
        self._answered, self._is_lost, self._is_needed = self._clock(), False, False

    def failed(self, error: BaseException) -> None:
        """Record that no broker answers."""
        if not self._is_lost:
            log.warning("no broker answers (%s); records that were read before are served", type(error).__name__)
        self._is_lost = True

    async def ask(self, servers: str) -> NoReturn:
        """Ask periodically whether a broker answers: a client that waits for records does not notice an outage."""
        while True:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT):
                    await topic_names(servers)
            except (KafkaError, ConnectionError, TimeoutError) as error:
                raise_if_cancelled(error)
                self.failed(error)
            else:
                self.answered()
            await asyncio.sleep(PROBE_SECONDS)

    async def lasting(self, follow: Callable[[], Awaitable[None]]) -> NoReturn:
        """Run a task that returns only by an error, and restart it after each error of an outage.

        Before the first answer, a service that needs its brokers fails instead.
        """
        wait = FIRST_WAIT
        while True:
            began = self._clock()
            try:
                await follow()
            except (KafkaError, ConnectionError, TimeoutError) as error:
                raise_if_cancelled(error)
                if self._is_needed or not is_outage(error):
                    raise
                self.failed(error)
            wait = FIRST_WAIT if self._clock() - began > LONGEST_WAIT else min(2 * wait, LONGEST_WAIT)
            await asyncio.sleep(wait)


def is_outage(error: BaseException) -> bool:
    """Return whether unavailable brokers can cause an error. Other errors come from their data or permissions."""
    return not isinstance(error, KafkaError) or bool(error.retriable) or isinstance(error, KafkaTimeoutError)
