"""What is known of the clocks of the engines that send traps, so that none is taken twice or late; pure.

A sender of traps is the authority over its own time (RFC 3414, section 2.2): how often it started, and the seconds
since. Both only ever go forward here, at the pace of this machine's clock where nothing is heard, and a message is new
if it is no older than 150 s by that and its tag was not seen since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.snmp.reasons import NOT_IN_TIME_WINDOW, REPLAYED
from stream.records import SECOND, Micros

WINDOW = 150
"""Seconds by which a message may be old (RFC 3414, section 2.2.3)."""
LAST_BOOTS = 2**31 - 1
"""An engine that has started so often is believed no more."""
SLOW = 5_000
"""An engine's clock may lose one second in so many: one that says nothing for weeks is not taken for an old message."""
MARK = 16
"""Octets of a tag by which a message is known again."""


class Clock(NamedTuple):
    """What is known of one engine's clock."""

    boots: int
    time: int
    """The latest that it said, in seconds."""
    at: Micros
    """When it said so, by this machine's clock."""
    floor: int
    """Nothing that is older is taken under these boots; it never falls."""

    def least(self, now: Micros) -> int:
        """Return the oldest time that is taken at ``now``."""
        passed = max(0, now - self.at) // SECOND
        return max(self.floor, self.time + passed - passed // SLOW - WINDOW)


class Mark(NamedTuple):
    """A message that was taken: its engine, boots and time, and the beginning of its tag."""

    engine: bytes
    boots: int
    time: int
    mark: bytes


@dataclass(slots=True)
class Engines:
    """The clocks, the messages of the last 150 s, and what of both is not durable yet.

    Marks are of genuine messages only, so their number is bounded by what known users send in 150 s.
    """

    clocks: dict[bytes, Clock] = field(default_factory=dict)
    seen: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """By engine the marks of its messages, each with its time."""
    fresh: list[Mark] = field(default_factory=list)
    """Taken since the last time that all was durable."""

    @classmethod
    def remembered(cls, clocks: dict[bytes, Clock], marks: Iterable[Mark]) -> Engines:
        """Return what was known when the receiver last stopped."""
        known = cls(dict(clocks))
        for engine, boots, time, mark in marks:
            if engine in clocks and boots == clocks[engine].boots:
                known.seen.setdefault(engine, {})[mark] = time
        return known

    def take(self, message: Mark, now: Micros) -> str | None:
        """Take a genuine message of an engine if it is new; else return why not, and change nothing."""
        engine, boots, time, mark = message
        clock = self.clocks.get(engine)
        if boots >= LAST_BOOTS:
            return NOT_IN_TIME_WINDOW
        if clock is None or boots > clock.boots:
            clock = Clock(boots, time, now, time - WINDOW)
            self.seen[engine] = {}
        elif boots < clock.boots or time < clock.least(now):
            return NOT_IN_TIME_WINDOW
        seen = self.seen.setdefault(engine, {})
        if mark in seen:
            return REPLAYED
        floor = clock.least(now)
        if time > clock.time:
            clock = clock._replace(time=time, at=now)
        self.clocks[engine] = clock._replace(floor=max(floor, clock.least(now)))
        self._forget(seen, self.clocks[engine].floor)
        seen[mark] = time
        self.fresh.append(message)
        return None

    @staticmethod
    def _forget(seen: dict[bytes, int], floor: int) -> None:
        """Drop what would be refused by its age alone; the first that would not be ends it."""
        while seen:
            oldest = next(iter(seen))
            if seen[oldest] >= floor:
                break
            del seen[oldest]
