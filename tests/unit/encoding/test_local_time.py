"""Site-local days and the month in which an attribute may be asked."""

from __future__ import annotations

from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from stream.local_time import MONTH_DAYS, busiest_month, slot_of, span_of_day, within_month
from stream.records import DAY, HOUR, MINUTE
from stream.schemas import parse_time, rfc3339

NOW = "2026-03-31"


def day(ago: int) -> str:
    return (date.fromisoformat(NOW) - timedelta(days=ago)).isoformat()


def test_a_month_is_the_30_days_that_end_today() -> None:
    assert [within_month(day(ago), NOW) for ago in (0, MONTH_DAYS - 1, MONTH_DAYS)] == [True, True, False]


@pytest.mark.parametrize(
    ("ago", "most"),
    [
        ((), 0),
        ((0, 29), 2),
        ((0, 30), 1),
        ((29, 28, 0, -1), 3),
        ((-29, 0), 2),
        ((-30, 0), 1),
        ((3, -3, 40, -40), 2),
        ((-1, -30), 1),
    ],
)
def test_the_busiest_month_is_any_30_days_with_today(ago: tuple[int, ...], most: int) -> None:
    """A late day is asked between days before and after it: (29, -1) are 31 days, (28, -1) are 30."""
    assert busiest_month(map(day, ago), NOW) == most


@pytest.mark.parametrize(("local", "hours"), [("2026-03-28", 24), ("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_is_as_long_as_clocks_make_it(local: str, hours: int) -> None:
    start, end = span_of_day(local, ZoneInfo("Europe/Berlin"))
    assert (end - start) // HOUR == hours
    assert rfc3339(start)[11:] in ("23:00:00Z", "22:00:00Z")


def test_a_slot_is_a_half_hour_an_hour_and_a_weekend_of_local_time() -> None:
    friday = parse_time("2026-03-06T22:35:00Z")
    slot = slot_of(friday, "Europe/Berlin")
    assert (slot.half_hour, slot.hour, slot.weekend) == (47, 23, False)
    saturday = slot_of(friday + 30 * MINUTE, "Europe/Berlin")
    assert (saturday.half_hour, saturday.hour, saturday.weekend) == (0, 0, True)
    assert saturday.day == slot.day + 1
    assert slot_of(friday + 30 * MINUTE, "Europe/Berlin", "04:00").day == slot.day, "its day began at 04:00"
    assert slot_of(friday + 3 * DAY, "Europe/Berlin").weekend is False, "Monday"
