"""An event loop with virtual time; a test can pause it as SIGSTOP pauses a process."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Does not wait: moves its loop's clock to the next moment at which there is something to do."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everything waits, and nothing will ever happen"
            self.loop.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own; nothing in it takes any time."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Return seconds."""
        return self.now

    def pause(self, seconds: float) -> None:
        """Let time go by in which the loop does not run."""
        self.now += seconds


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on such a loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def virtual_loop() -> VirtualLoop:
    """Return the running loop, which must be a virtual one."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
