"""Privacy days: from one ``day_starts`` of a site to the next.

The day of a date is (start, end], like windows. Its start is the instant at which the site's clocks show ``day_starts``
on that date; the tick at that instant is the last of the day before. If the clocks show that time twice, the first
instant is used. If they skip it, the instant is computed with the offset before the gap (02:30 becomes 03:30 if the
clocks go from 02:00 to 03:00). So days follow one another without gap or overlap; some have 23 hours and some 25. A
date that a time zone has skipped altogether is a day without an instant.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from stream.records import DAY, EPOCH, MINUTE, Micros, PrivacyDay

EARLY: Micros = 30 * MINUTE
"""A device that is present at a tick within this time after the day's start is a resident."""
CHECKED_DATES = (0, (date(2101, 1, 1) - EPOCH.date()).days)
"""Range of dates, by number, whose start is checked before a policy is accepted: 1970 to 2100."""
_EPOCH_DATE = EPOCH.date().toordinal()
_MICROSECOND = timedelta(microseconds=1)


class PrivacyDays:
    """The privacy days of a time zone that begin at one time of day."""

    def __init__(self, day_starts: str, timezone: str) -> None:
        """``day_starts`` is a local time ``HH:MM`` below 24:00, ``timezone`` an IANA name."""
        self._starts = time.fromisoformat(day_starts)
        self._since_midnight = timedelta(hours=self._starts.hour, minutes=self._starts.minute) // _MICROSECOND
        self._zone = ZoneInfo(timezone)
        self._cached = PrivacyDay(0, 0, 0)

    def at(self, instant: Micros) -> PrivacyDay:
        """Return the privacy day of an instant."""
        cached = self._cached
        if not cached.start < instant <= cached.end:
            self._cached = cached = self._find(instant)
        return cached

    def _find(self, instant: Micros) -> PrivacyDay:
        number = (_moment(instant).astimezone(self._zone).date() - EPOCH.date()).days
        while self.start(number) >= instant:
            number -= 1
        while self.start(number + 1) < instant:
            number += 1
        return PrivacyDay(number, self.start(number), self.start(number + 1))

    def start(self, number: int) -> Micros:
        """Return the start of a day, given by its date in days since 1970-01-01."""
        local = datetime.combine(date.fromordinal(_EPOCH_DATE + number), self._starts, self._zone)  # fold 0
        offset = local.utcoffset()
        assert offset is not None  # noqa: S101
        return number * DAY + self._since_midnight - offset // _MICROSECOND


@lru_cache(maxsize=64)
def privacy_days(day_starts: str, timezone: str) -> PrivacyDays:
    """Return the privacy days of a start and a time zone: one shared object, which caches the latest day."""
    return PrivacyDays(day_starts, timezone)


@lru_cache(maxsize=64)
def date_off_tick(day_starts: str, timezone: str, tick_length: Micros) -> str | None:
    """Return the first date from 1970 to 2100 whose privacy day starts between two ticks; None if there is none."""
    days = PrivacyDays(day_starts, timezone)
    off = next((number for number in range(*CHECKED_DATES) if days.start(number) % tick_length), None)
    return None if off is None else (EPOCH.date() + timedelta(days=off)).isoformat()


def _moment(instant: Micros) -> datetime:
    return EPOCH + timedelta(microseconds=instant)
