"""Waits of tests: minutes long, each with a message that says what did not come.

No test may depend on how long something takes. ``TACET_TEST_PATIENCE`` sets the seconds otherwise, for runs in which
many tests are meant to fail (``tests.mutants``).
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
PATIENCE = float(os.environ.get("TACET_TEST_PATIENCE", "600"))
"""Seconds after which a test gives up a wait."""


async def until(sign: Callable[[], object], what: str = "", every: float = 0.005) -> None:
    """Wait until a sign is true; fail with ``what`` was waited for, or the sign's own source."""
    end = time.monotonic() + PATIENCE
    while not sign():
        assert time.monotonic() < end, _in_vain(what or _source(sign))
        await asyncio.sleep(every)


def wait_until(sign: Callable[[], object], what: str = "", every: float = 0.05) -> None:
    """Wait as ``until`` does, where no event loop runs."""
    end = time.monotonic() + PATIENCE
    while not sign():
        assert time.monotonic() < end, _in_vain(what or _source(sign))
        time.sleep(every)


@asynccontextmanager
async def waiting_for(what: str, more: float = 0.0) -> AsyncIterator[None]:
    """Give what is done within the block its time, and some seconds more; fail with ``what`` was waited for."""
    try:
        async with asyncio.timeout(PATIENCE + more) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_in_vain(what, more)) from None


async def within_patience(doing: Awaitable[T], what: str) -> T:
    """Return what comes of an awaitable; fail with ``what`` was waited for."""
    async with waiting_for(what):
        return await doing


def _in_vain(what: str, more: float = 0.0) -> str:
    return f"waited {PATIENCE + more:.0f} s for {what}"


def _source(sign: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(sign).split())
    except (OSError, TypeError):
        return repr(sign)
