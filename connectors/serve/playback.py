"""Playback of a recorded day at an adjustable speed."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stream.errors import DataError
from stream.records import SECOND, Micros
from stream.schemas import parse_record, parse_time

SHOWN_FIRST = 3 / 8
"""Share of the span at which the playback starts: of a day, nine hours."""


def arrival_time(value: bytes) -> Micros:
    """Return when a record arrived: the end of its window, or for revised values the end of the window with which they
    were published. DataError if the record does not contain it."""
    record = parse_record(value)
    try:
        end = parse_time(record["window_end"])
        return int(end + record.get("lag", 0) * (end - parse_time(record["window_start"])))
    except (KeyError, TypeError, ValueError):
        raise DataError("record: must be a private release with the times of its window") from None


@dataclass(slots=True)
class Playback:
    """Records in the order of their arrival, and a simulated clock."""

    records: Sequence[tuple[Micros, bytes]]
    """Sorted by arrival; at least one."""
    speed: float
    """Times real time."""
    clock: Callable[[], float] = time.monotonic
    paused: bool = False
    _given: int = 0
    _base: Micros = field(init=False)
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()
        self._base = self.start + round((self.end - self.start) * SHOWN_FIRST)

    @property
    def start(self) -> Micros:
        """The time of the first record."""
        return self.records[0][0]

    @property
    def end(self) -> Micros:
        """The time of the last record."""
        return self.records[-1][0]

    def at(self) -> Micros:
        """Return the position of the playback."""
        run = 0.0 if self.paused else (self.clock() - self._since) * self.speed
        return min(self.end, self._base + round(run * SECOND))

    def due(self, most: int) -> list[bytes]:
        """Return the next records that have become due, ``most`` at a time.

        The caller adds them before it asks for more, so that none of them outlasts a move back.
        """
        upto = bisect_right(self.records, self.at(), key=lambda record: record[0])
        given = self._given
        self._given = max(given, min(upto, given + most))
        return [value for _, value in self.records[given : self._given]]

    def change(self, *, speed: float | None = None, paused: bool | None = None, at: Micros | None = None) -> bool:
        """Change speed, pause or position; return whether the position moved back, so that shown records must be
        dropped."""
        here = self.at()
        now = here if at is None else min(max(at, self.start), self.end)
        back = now < here
        self._base, self._since = now, self.clock()
        self.speed = self.speed if speed is None else speed
        self.paused = self.paused if paused is None else paused
        if back:
            self._given = 0
        return back
