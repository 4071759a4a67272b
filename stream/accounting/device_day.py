"""One device's day: which counts it can change, and how many.

    symbol   here       meaning
    D        day        beginning of a UTC day
    T        tick       tick length, which divides a day
    V                   validity of an observation
    n        reach      ceil(V / T): ticks at which one observation counts

Take away all that is observed of one device in [D, D + 24 h). Then counts differ

* by one device less at each tick of the day, of which there are 24 h / T, and at the n ticks from D + 24 h on, where
  the day's last observation may still count;
* by one device more at each of the n ticks from D on: the last observation of the evening before, which the day's
  first one ended, now counts for all of V.

So one device's day is 24 h / T + 2 n counts, and a device that was there the evening before, at D, throughout the
day and just before its end attains that. The bound does not change where pseudonyms turn over at D: the observation
that ends the old name is taken away with the rest of its day.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from stream.policy.privacy_day import PrivacyDays
from stream.records import DAY, Micros


class Cells(NamedTuple):
    """Counts of one device's day in windows one after another: those it may lack, and those it may have more."""

    less: int
    more: int = 0

    def cost(self, epsilon: Fraction, windows_paid: int) -> Fraction:
        """Return the most that they cost where an epsilon pays for any so many windows in a row.

        Neighbours in the sense of w-event privacy differ in one device at each window: what is lacking makes one
        such step, what is more another.
        """
        return self.epsilons(windows_paid) * epsilon

    def epsilons(self, windows_paid: int) -> int:
        """Return how many epsilons they cost at most; see ``cost``."""
        return -(-self.less // windows_paid) - -self.more // windows_paid

    def rounded(self, windows_paid: int) -> Cells:
        """Return the cells after which no window to come is paid by one before."""
        return Cells(*(-(-number // windows_paid) * windows_paid for number in self))


def whole_day(tick_length: Micros, reach: int, windows: int | None = None) -> Cells:
    """Return the counts that one device's day can change, if so many windows of a UTC day are released (None: all).

    The windows of a UTC day are those that begin in it, so the one that ends at D comes on top, and with it
    ``reach`` - 1 windows after the day.
    """
    return Cells((DAY // tick_length if windows is None else windows) + reach, reach)


def days_of(window_end: Micros, tick_length: Micros, reach: int) -> dict[int, Cells]:
    """Return the UTC days whose observations can change the counts of a window, with how many of them."""
    day, since = divmod(window_end, DAY)
    return {day - 1: Cells(1), day: Cells(1, 1)} if since < reach * tick_length else {day: Cells(1)}


def privacy_days_of(window_end: Micros, days: PrivacyDays, reach: Micros) -> dict[int, Cells]:
    """Return the privacy days whose observations can change the counts of a window, as ``days_of`` does of UTC days.

    Args:
        window_end: the tick. A privacy day is (start, end]: the tick at its start is the last of the day before.
        days: of the site.
        reach: how long one observation counts, in whole ticks.
    """
    day = days.at(window_end)
    if window_end - day.start <= reach:
        return {days.at(day.start).number: Cells(1), day.number: Cells(1, 1)}
    return {day.number: Cells(1)}


def cost_of_days(held: Mapping[int, Fraction], cells: Mapping[int, Cells], cost: Fraction) -> dict[int, Fraction]:
    """Return what the days of a window have cost a reader, with one that costs so much for each count."""
    return {day: held.get(day, Fraction(0)) + (each.less + each.more) * cost for day, each in cells.items()}
