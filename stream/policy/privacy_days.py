"""Privacy days: the days of a site that one price pays for, from one ``day_starts`` to the next.

The day of a date is (start, end], as windows are: its start is the instant at which the site's clocks show
``day_starts`` on that date, and the tick at that instant is the last of the day before. Where the clocks show
that time twice, the first counts; where they skip it, the instant counts that the offset before the gap gives
(02:30 becomes 03:30 where they go from 02:00 to 03:00). So days follow one another without hole or overlap,
some of 23 and some of 25 hours. A date that a zone has left out altogether is a day without an instant.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from stream.records import EPOCH, MINUTE, Micros, PrivacyDay

EARLY: Micros = 30 * MINUTE
"""Whoever is present at a tick so soon after the day's start is a resident."""
CHECKED_DATES = (0, (date(2101, 1, 1) - EPOCH.date()).days)
"""Dates, by number, on which the start is looked at before a policy is taken: 1970 to 2100."""


class PrivacyDays:
    """The privacy days of a time zone that begin at one time of day."""

    def __init__(self, day_starts: str, timezone: str) -> None:
        """Take a local time ``HH:MM``, below 24:00, and the zone's IANA name."""
        self._starts = time.fromisoformat(day_starts)
        self._zone = ZoneInfo(timezone)
        self._held = PrivacyDay(0, 0, 0)

    def at(self, instant: Micros) -> PrivacyDay:
        """Return the day that an instant lies in."""
        held = self._held
        if not held.start < instant <= held.end:
            self._held = held = self._find(instant)
        return held

    def _find(self, instant: Micros) -> PrivacyDay:
        number = (_moment(instant).astimezone(self._zone).date() - EPOCH.date()).days
        while self.start(number) >= instant:
            number -= 1
        while self.start(number + 1) < instant:
            number += 1
        return PrivacyDay(number, self.start(number), self.start(number + 1))

    def start(self, number: int) -> Micros:
        """Return the start of a day, given by its date in days since 1970-01-01."""
        local = datetime.combine(EPOCH.date() + timedelta(days=number), self._starts, self._zone)  # fold 0
        return (local.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=64)
def privacy_days(day_starts: str, timezone: str) -> PrivacyDays:
    """Return the privacy days that begin at a time of day in a zone: one object, which remembers the day at hand."""
    return PrivacyDays(day_starts, timezone)


@lru_cache(maxsize=64)
def date_off_tick(day_starts: str, timezone: str, tick_length: Micros) -> str | None:
    """Return the first date from 1970 to 2100 on which the privacy day starts between two ticks; None: none does."""
    days = PrivacyDays(day_starts, timezone)
    off = next((number for number in range(*CHECKED_DATES) if days.start(number) % tick_length), None)
    return None if off is None else (EPOCH.date() + timedelta(days=off)).isoformat()


def _moment(instant: Micros) -> datetime:
    return EPOCH + timedelta(microseconds=instant)
