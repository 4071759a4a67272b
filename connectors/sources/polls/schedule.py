"""When a source is polled, and when its table is handed over; pure.

    start      interval / 2      next start
      |--- walk ---|---------------|
                   hand-over: every row bears this time

A poll starts at a fixed offset in its interval, which follows from the names of site and source. It must be complete
within its limit. The whole table is handed over at the middle of the interval and at no other moment, whether the walk
took one second or nearly all of its limit: the time of arrival is the same for every table. After failures the next
starts are left out, so that the grid stays.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from stream.policy.polls import SHORT_INTERVAL
from stream.records import MINUTE, SECOND, Micros

LONGEST_BACK_OFF: Micros = 30 * MINUTE
SHORT_SHARE = 10
"""A poll that is more frequent than usual may take at most this part of its interval."""


class PollTimes(NamedTuple):
    """One poll: its start, the time by which its table must be whole, and its hand-over."""

    start: Micros
    limit: Micros
    hand_over: Micros


class PollGrid(NamedTuple):
    """The grid of one source's polls."""

    interval: Micros
    offset: Micros

    @classmethod
    def of_source(cls, site: str, source: str, interval: Micros) -> PollGrid:
        """Return the grid of a source; its offset is whole seconds below the interval."""
        digest = hashlib.sha256(f"{site}\0{source}".encode()).digest()
        return cls(interval, int.from_bytes(digest[:8], "big") % (interval // SECOND) * SECOND)

    def next_poll(self, now: Micros, failures: int = 0) -> PollTimes:
        """Return the first poll that starts after ``now``.

        Failures in a row double the distance between two starts, up to ``LONGEST_BACK_OFF``: only points of a
        coarser grid are used.
        """
        step = self.interval * min(2 ** min(failures, 16), max(1, LONGEST_BACK_OFF // self.interval))
        start = (now - self.offset) // step * step + step + self.offset
        half = self.interval // 2
        within = half if self.interval >= SHORT_INTERVAL else self.interval // SHORT_SHARE
        return PollTimes(start, start + within, start + half)
