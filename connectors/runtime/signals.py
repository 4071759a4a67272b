"""Signals that stop a service, and cancellations that a client has lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM or SIGINT sets, instead of ending the process.

    The process then ends by itself: a second SIGTERM does not interrupt it.
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
        if stop.is_set():  # 'timeout' and others signal a process and then its group: the same signal may come twice
            signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


async def first_to_end(*works: Coroutine[Any, Any, object]) -> None:
    """Run several coroutines until one of them ends, raise its error, and cancel the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def raise_if_cancelled(error: BaseException | None = None) -> None:
    """Raise CancelledError if this task is cancelled.

    A client of Kafka may end the request that it cancels with another error, or with a result: then the task would
    continue, and whoever has cancelled it would wait for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


async def within(seconds: float, work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do the work; after the stop signal wait no longer than ``seconds``. Return whether it was done."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.wait({doing}, timeout=seconds)
    if doing.done():
        doing.result()
    return doing.done()
