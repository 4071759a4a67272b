"""Run ``tacet`` on a clock that goes faster: python -m tests.acceptance.hurried TIMES WALL ORIGIN VERB ...

``ORIGIN`` is what the monotonic clock of this machine says, in nanoseconds, at ``WALL``, in microseconds since 1970;
other processes that know both know what time it is in here. What event loops and time limits go by is as it was.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from stream.records import Micros


@dataclass(slots=True)
class Hurried:
    """A wall clock and a monotonic one, both ``times`` as fast."""

    times: int
    wall: Micros
    origin: int
    _held: int | None = None
    """What the monotonic clock said last: a wall clock that is asked right after it says the same moment, so that a
    pause between the two, made longer by ``times``, is no clock that was set."""

    def now(self) -> Micros:
        """Return what time it is in there."""
        return self.wall + (time.monotonic_ns() - self.origin) * self.times // 1000

    def monotonic_ns(self) -> int:
        """Return nanoseconds, and hold them for the wall clock."""
        self._held = _MONOTONIC() - self.origin
        return self._held * self.times

    def time_ns(self) -> int:
        """Return nanoseconds since 1970."""
        stored, self._held = self._held, None
        return self.wall * 1000 + (_MONOTONIC() - self.origin if stored is None else stored) * self.times


_MONOTONIC = time.monotonic_ns


def main() -> None:
    """Set the clocks and do what the remaining words say."""
    times, wall, origin = map(int, sys.argv[1:4])
    hurried = Hurried(times, wall, origin)
    time.monotonic_ns, time.time_ns = hurried.monotonic_ns, hurried.time_ns

    from connectors.cli.main import main as tacet

    sys.argv[1:] = sys.argv[4:]
    tacet()


if __name__ == "__main__":
    main()
