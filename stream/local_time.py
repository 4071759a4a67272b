"""Site-local time: days, months, and the position of an instant in the week."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from stream.mechanisms.base import WeekSlot
from stream.policy.privacy_days import privacy_days
from stream.records import EPOCH, Micros
from stream.schemas import parse_time

MONTH_DAYS = 30
MIDNIGHT = "00:00"


def busiest_month(days: Iterable[str], now: str) -> int:
    """Return the greatest number of these dates in any 30 consecutive days that include ``now``."""
    today = date.fromisoformat(now)
    away = [(date.fromisoformat(day) - today).days for day in days]
    firsts = range(1 - MONTH_DAYS, 1)
    return max(sum(first <= day < first + MONTH_DAYS for day in away) for first in firsts)


def within_month(local_day: str, now: str) -> bool:
    """Whether a date lies in the 30 days that end with ``now``."""
    return (date.fromisoformat(now) - date.fromisoformat(local_day)).days < MONTH_DAYS


def span_of_day(local_day: str, timezone: ZoneInfo) -> tuple[Micros, Micros]:
    """Return the first and the last instant (exclusive) of a site-local date."""
    first = date.fromisoformat(local_day)
    bounds = [datetime.combine(moment, time(), timezone) for moment in (first, first + timedelta(days=1))]
    start, end = (parse_time(bound.isoformat()) for bound in bounds)
    return start, end


def slot_of(end: Micros, timezone: str, day_starts: str = MIDNIGHT) -> WeekSlot:
    """Return a window's position in the site-local week and its day, which begins at ``day_starts``."""
    local = (EPOCH + timedelta(microseconds=end)).astimezone(ZoneInfo(timezone))
    day = privacy_days(day_starts, timezone).at(end).number
    return WeekSlot(2 * local.hour + local.minute // 30, local.hour, local.weekday() >= 5, day)
