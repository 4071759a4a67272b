"""Blocking work in threads: the only way from an event loop into a thread.

Tests replace this one function, so that a simulated process needs no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")


async def offload(work: Callable[..., T], *arguments: object, limiter: CapacityLimiter | None = None) -> T:
    """Run work in a thread; return its result. A cancelled caller waits for the end of work that has begun.

    ``limiter`` bounds how many threads work at a time; by default anyio's own, 40 for the whole process.
    """
    return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)
