"""The clocks of sending engines, and replay protection; pure.

A sender of traps is the authority over its own time (RFC 3414, section 2.2): its boots, and the seconds since the last
one. Both only move forward here; without messages they advance with this machine's clock. A message is new if it is at
most 150 s old by that time and its tag was not seen since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.sources.snmp.drop_reasons import NOT_IN_TIME_WINDOW, REPLAYED
from stream.records import SECOND, Micros

WINDOW = 150
"""Maximum age of a message in seconds (RFC 3414, section 2.2.3)."""
LAST_BOOTS = 2**31 - 1
"""An engine with so many boots is no longer accepted."""
SLOW = 5_000
"""An engine's clock may lose one second in so many, so that a message after weeks of silence does not count as old."""
MARK = 16
"""Octets of a tag that identify a message."""


class Clock(NamedTuple):
    """The known time of one engine."""

    boots: int
    time: int
    """The latest time that it reported, in seconds."""
    at: Micros
    """The time of that report, by this machine's clock."""
    floor: int
    """The oldest time that is accepted under these boots; it never decreases."""

    def least(self, now: Micros) -> int:
        """Return the oldest time that is accepted at ``now``."""
        passed = max(0, now - self.at) // SECOND
        return max(self.floor, self.time + passed - passed // SLOW - WINDOW)


class Mark(NamedTuple):
    """An accepted message: its engine, boots and time, and the beginning of its tag."""

    engine: bytes
    boots: int
    time: int
    mark: bytes


@dataclass(slots=True)
class Engines:
    """The clocks, the messages of the last 150 s, and the part of both that is not durable yet.

    Marks belong to genuine messages only, so their number is limited by the rate at which known users send.
    """

    clocks: dict[bytes, Clock] = field(default_factory=dict)
    seen_messages: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """By engine the marks of its messages, each with its time."""
    fresh: list[Mark] = field(default_factory=list)
    """Marks since the last durable write."""

    @classmethod
    def remembered(cls, clocks: dict[bytes, Clock], marks: Iterable[Mark]) -> Engines:
        """Return the state at the receiver's last stop."""
        known = cls(dict(clocks))
        for engine, boots, time, mark in marks:
            if engine in clocks and boots == clocks[engine].boots:
                known.seen_messages.setdefault(engine, {})[mark] = time
        return known

    def accept(self, message: Mark, now: Micros) -> str | None:
        """Accept a genuine message of an engine if it is new; otherwise return why not, and change nothing."""
        engine, boots, time, mark = message
        clock = self.clocks.get(engine)
        if boots >= LAST_BOOTS:
            return NOT_IN_TIME_WINDOW
        if clock is None or boots > clock.boots:
            clock = Clock(boots, time, now, time - WINDOW)
            self.seen_messages[engine] = {}
        elif boots < clock.boots or time < clock.least(now):
            return NOT_IN_TIME_WINDOW
        seen = self.seen_messages.setdefault(engine, {})
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
        """Drop marks that would be refused by their age alone; stop at the first that would not."""
        while seen:
            oldest = next(iter(seen))
            if seen[oldest] >= floor:
                break
            del seen[oldest]
