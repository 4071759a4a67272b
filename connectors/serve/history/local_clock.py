"""A site's local clock: the hours and days by which its history is aggregated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from stream.local_time import span_of_day
from stream.policy.privacy_days import privacy_days
from stream.records import DAY, EPOCH, MINUTE, Micros, PrivacyDay

DayClass = Literal["workday", "saturday", "sunday"]
DAY_CLASSES: tuple[DayClass, ...] = ("workday", "saturday", "sunday")
_SATURDAY = 5


class Shift(NamedTuple):
    """A UTC offset, and the instant from which it applies."""

    start: Micros
    offset: Micros
    """Local time minus UTC."""


class SiteClock(NamedTuple):
    """A site's UTC offsets, and the start of its privacy days."""

    timezone: str
    """IANA name."""
    day_starts: str | None = None
    """Local time ``HH:MM`` at which its privacy days start; None if it has none."""

    def offset(self, instant: Micros) -> Micros:
        """Return local time minus UTC at an instant."""
        away = (EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(self.timezone)).utcoffset()
        return (away or timedelta()) // timedelta(microseconds=1)

    def shifts(self, start: Micros, end: Micros) -> list[Shift]:
        """Return the offsets within a span of time, the first from its start; changes are located to the minute."""
        found = [Shift(start, self.offset(start))]
        before = start
        for instant in (*range(start + DAY, end, DAY), end):
            if self.offset(instant) != found[-1].offset:
                found.append(self._shift(before, instant))
            before = instant
        return found

    def _shift(self, before: Micros, after: Micros) -> Shift:
        old = self.offset(before)
        while after - before > MINUTE:
            middle = (before + after) // 2 // MINUTE * MINUTE
            middle = middle if middle > before else before + MINUTE
            before, after = (middle, after) if self.offset(middle) == old else (before, middle)
        return Shift(after, self.offset(after))

    def local(self, instant: Micros) -> Micros:
        """Return local time, as microseconds since 1970-01-01 00:00 local time."""
        return instant + self.offset(instant)

    def day_span(self, number: int) -> tuple[Micros, Micros]:
        """Return the first instant of a local day, given by days since 1970-01-01, and the first after it."""
        return span_of_day(_date(number).isoformat(), ZoneInfo(self.timezone))

    def privacy_days(self, start: Micros, end: Micros) -> Iterator[PrivacyDay]:
        """Yield, in order, each privacy day that may contain a window between two instants."""
        days = privacy_days(self.day_starts or "00:00", self.timezone)
        day = days.at(start + 1)
        while day.start < end:
            yield day
            day = days.at(day.end + 1)


def class_of(number: int) -> DayClass:
    """Return the class of a day, given by days since 1970-01-01."""
    return DAY_CLASSES[max(0, _date(number).weekday() - _SATURDAY + 1)]


def date_of(number: int) -> str:
    """Return the ISO date of a day, given by days since 1970-01-01."""
    return _date(number).isoformat()


def _date(number: int) -> date:
    return EPOCH.date() + timedelta(days=number)
