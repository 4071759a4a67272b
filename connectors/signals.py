"""Signals that ask a service to stop, and what is waited for after one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Give an event that SIGTERM or SIGINT sets, in place of ending the process."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def within(seconds: float, work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do the work; from the stop signal on wait no longer than ``seconds``. Return whether it was done."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.wait({doing}, timeout=seconds)
    if doing.done():
        doing.result()
    return doing.done()
