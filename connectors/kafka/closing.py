"""The end of a client of Kafka, which waits for no broker that does not answer."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

log = logging.getLogger(__name__)

CLOSE_TIMEOUT = 5.0
"""Seconds."""


async def close(client: Any) -> None:
    """Disconnect without waiting for a broker that does not answer, nor for the end of what waits for one.

    aiokafka's sender does not let itself be cancelled while it asks for a coordinator.
    """
    stopping = asyncio.ensure_future(client.stop())
    stopping.add_done_callback(_ended)
    try:
        await asyncio.wait({stopping}, timeout=CLOSE_TIMEOUT)
    finally:
        stopping.cancel()


def _ended(stopping: asyncio.Future[None]) -> None:
    if not stopping.cancelled() and stopping.exception() is not None:
        log.info("a client did not end well: %s", type(stopping.exception()).__name__)
