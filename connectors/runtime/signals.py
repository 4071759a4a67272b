"""Signals that ask a service to stop, and what is waited for after one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Give an event that SIGTERM or SIGINT sets, in place of ending the process.

    A process that was told to stop ends by itself: SIGTERM said once more does not cut it off.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        if stop.is_set():  # 'timeout' and others tell a process and then its group: the same word may come twice
            signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


async def first_to_end(*works: Coroutine[Any, Any, object]) -> None:
    """Do several things at once until one of them ends, raise what ended it, and break off the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def within(seconds: float, work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do the work; from the stop signal on wait no longer than ``seconds``. Return whether it was done."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.wait({doing}, timeout=seconds)
    if doing.done():
        doing.result()
    return doing.done()
