"""Patience with a broker that is away: what failed for that is asked again, with growing waits, for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from connectors.kafka.client import BROKER_PATIENCE

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 0.3, 1.0
"""Seconds between two questions."""


async def patiently(ask: Callable[[], Awaitable[T]], *errors: type[Exception], seconds: float = BROKER_PATIENCE) -> T:
    """Return the first answer; ``errors`` mean that there was none, anything else is raised at once.

    Raises:
        TimeoutError: there was none for so many seconds.
    """
    asking = stamina.AsyncRetryingCaller(
        attempts=None, timeout=None, wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT, wait_jitter=FIRST_WAIT
    )
    try:
        async with asyncio.timeout(seconds):
            return await asking(errors, ask)
    except TimeoutError:
        msg = f"Kafka: must answer within {seconds:g} s; no answer came"
        raise TimeoutError(msg) from None


def _say(details: RetryDetails) -> None:
    """Name the kind of error, never its text."""
    log.info("Kafka is asked again: %s", type(details.caused_by).__name__)


set_on_retry_hooks([_say])
