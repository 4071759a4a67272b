"""The presence times of devices in a privacy day.

The rules are those of ``contribution`` and ``presence``, applied to a finished day instead of tick by tick. A device is
present at a tick if it was observed within ``validity`` before the tick and on the same privacy day. If residents are
ignored, a resident counts only after it was absent at ``EMPTY_TICKS`` ticks in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from stream.policy.privacy_days import EARLY, PrivacyDays
from stream.records import Micros, ObservationBatch
from stream.sensing.contribution import EMPTY_TICKS, ContributionBound


class Hidden(NamedTuple):
    """The tick at which a bound hides most devices."""

    tick: Micros
    share: Fraction
    """The hidden share of the devices that would count without the bound."""


class DeviceDays:
    """The ticks of each privacy day at which each device is present."""

    def __init__(self, definition: ContributionBound) -> None:
        self._definition = definition
        self._days = PrivacyDays(definition.day_starts, definition.timezone)
        self._ticks: dict[tuple[int, str], int] = {}
        """(number of the day, device) -> a bit for each tick; bit n is the nth tick after the day's start."""

    def add(self, observed: Iterable[tuple[str, Micros]]) -> None:
        """Add devices with the times at which they were observed, in any order."""
        validity = self._definition.validity
        self.add_stays((device, time, time + validity) for device, time in observed)

    def add_stays(self, stays: Iterable[tuple[str, Micros, Micros]]) -> None:
        """Add devices with the start of a stay and its end, in any order; the day of its start cuts it."""
        tick = self._definition.tick_length
        for device, time, end in stays:
            day = self._days.at(time)
            before = day.start // tick + 1
            first, behind = -(-time // tick), -(-end // tick)
            behind = min(behind, day.end // tick + 1)
            if first < behind:
                key = day.number, device
                self._ticks[key] = self._ticks.get(key, 0) | (1 << behind - before) - (1 << first - before)

    def add_batch(self, batch: ObservationBatch) -> None:
        """Add the observations of a batch."""
        self.add((row.device, row.time) for row in batch.rows if row.is_sighting)

    def covering(self, share: Fraction) -> int:
        """Return the smallest number of ticks that this share of device-days does not exceed; 0 if there are none."""
        lengths = sorted(len(ticks) for _, ticks in self._counting())
        return lengths[-(-len(lengths) * share.numerator // share.denominator) - 1] if lengths else 0

    def most_hidden(self, most: int) -> Hidden | None:
        """Return the tick of the busiest day at which a bound of ``most`` ticks hides most devices; None if none."""
        present, hidden, device_days = Counter[Micros](), Counter[Micros](), list(self._counting())
        busy = Counter[int]()
        for number, ticks in device_days:
            busy[number] += len(ticks)
        busiest = max(busy, key=lambda number: (busy[number], -number), default=None)
        for number, ticks in device_days:
            if number != busiest:
                continue
            start = self._days.start(number) // self._definition.tick_length + 1
            present.update((start + each) * self._definition.tick_length for each in ticks)
            hidden.update((start + each) * self._definition.tick_length for each in ticks[most:])
        if not hidden:
            return None
        tick = min(hidden, key=lambda each: (-hidden[each], each))
        return Hidden(tick, Fraction(hidden[tick], present[tick]))

    def _counting(self) -> Iterator[tuple[int, list[int]]]:
        """Yield for each device-day the day's number and the ticks at which the device counts without a bound."""
        for (number, _), bits in self._ticks.items():
            ticks = [place for place in range(bits.bit_length()) if bits >> place & 1]
            if self._definition.ignore_residents:
                ticks = _without_residence(ticks, EARLY // self._definition.tick_length)
            if ticks:
                yield number, ticks


def _without_residence(ticks: list[int], early: int) -> list[int]:
    """Return the ticks at which a device counts; a resident is present within the day's first ``early`` ticks."""
    if ticks[0] >= early:
        return ticks
    for place, (tick, following) in enumerate(pairwise(ticks), start=1):
        if following - tick > EMPTY_TICKS:
            return ticks[place:]
    return []
