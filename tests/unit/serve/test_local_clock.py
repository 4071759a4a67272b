"""A site's local clock: offsets, their changes, local days and privacy days."""

from __future__ import annotations

import pytest

from connectors.serve.history.local_clock import SiteClock, class_of, date_of
from stream.records import DAY, HOUR, MINUTE, Micros
from stream.schemas import parse_time

BERLIN = SiteClock("Europe/Berlin", "03:00")
SPRING, AUTUMN = parse_time("2018-03-25T01:00:00Z"), parse_time("2018-10-28T01:00:00Z")
"""The changes of clocks in Berlin."""


def day(text: str) -> int:
    return parse_time(f"{text}T00:00:00Z") // DAY


@pytest.mark.parametrize(
    ("instant", "offset"),
    [(SPRING - 1, HOUR), (SPRING, 2 * HOUR), (AUTUMN - 1, 2 * HOUR), (AUTUMN, HOUR)],
)
def test_the_offset_is_local_time_minus_utc(instant: Micros, offset: Micros) -> None:
    assert BERLIN.offset(instant) == offset
    assert BERLIN.local(instant) == instant + offset
    assert SiteClock("UTC").offset(instant) == 0


def test_a_span_without_a_change_has_one_offset() -> None:
    start, end = parse_time("2018-01-01T00:00:00Z"), parse_time("2018-03-01T00:00:00Z")
    assert BERLIN.shifts(start, end) == [(start, HOUR)]


@pytest.mark.parametrize("before", [MINUTE, 5 * MINUTE, HOUR, 11 * HOUR + 7 * MINUTE, 40 * DAY + MINUTE])
@pytest.mark.parametrize("after", [MINUTE, 3 * HOUR, 40 * DAY])
def test_a_change_of_clocks_is_found_to_the_minute(before: Micros, after: Micros) -> None:
    for change, old, new in ((SPRING, HOUR, 2 * HOUR), (AUTUMN, 2 * HOUR, HOUR)):
        assert BERLIN.shifts(change - before, change + after) == [(change - before, old), (change, new)]


def test_all_changes_of_a_year_are_found_in_order() -> None:
    start, end = parse_time("2018-01-01T00:00:00Z"), parse_time("2019-01-01T00:00:00Z")
    assert BERLIN.shifts(start, end) == [(start, HOUR), (SPRING, 2 * HOUR), (AUTUMN, HOUR)]


@pytest.mark.parametrize(
    ("date", "hours", "start"),
    [
        ("2018-01-31", 24, "2018-01-30T23:00:00Z"), ("2018-03-25", 23, "2018-03-24T23:00:00Z"),
        ("2018-10-28", 25, "2018-10-27T22:00:00Z"),
    ],
)  # fmt: skip
def test_a_local_day_has_23_24_or_25_hours(date: str, hours: int, start: str) -> None:
    first, after = BERLIN.day_span(day(date))
    assert (first, after - first) == (parse_time(start), hours * HOUR)
    assert date_of(day(date)) == date


@pytest.mark.parametrize(
    ("date", "kind"),
    [("2018-01-29", "workday"), ("2018-02-02", "workday"), ("2018-02-03", "saturday"), ("2018-02-04", "sunday")],
)
def test_weekends_have_classes_of_their_own(date: str, kind: str) -> None:
    assert class_of(day(date)) == kind


def test_privacy_days_start_at_the_time_of_the_policy_and_cover_the_span() -> None:
    start, end = parse_time("2018-01-31T12:00:00Z"), parse_time("2018-02-02T01:59:00Z")
    days = list(BERLIN.privacy_days(start, end))
    assert [each.start for each in days] == [parse_time(f"2018-{each}T02:00:00Z") for each in ("01-31", "02-01")]
    assert days[0].end == days[1].start
    assert len(list(BERLIN.privacy_days(start, end + 2 * MINUTE))) == 3
    assert len(list(BERLIN.privacy_days(days[0].start, days[0].start + 1))) == 1
    midnight = next(SiteClock("Europe/Berlin").privacy_days(start, end))
    assert midnight.start == parse_time("2018-01-30T23:00:00Z")
