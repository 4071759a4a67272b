"""iCalendar files: times and places, every recurrence inside the span, and no work without a limit."""

from __future__ import annotations

import io
import resource
import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.calendars import reader
from connectors.calendars.reader import LARGEST_FILE, LONGEST_PLACE, MOST_COMPONENTS, Occurrence, read_calendar
from stream.errors import DataError, UsageError
from stream.records import DAY, HOUR, Micros
from stream.schemas import parse_time
from tests.support.icalendar_files import NEEDLES, calendar, event

SPAN = (parse_time("2026-03-23T00:00:00Z"), parse_time("2026-04-06T00:00:00Z"))
"""Two weeks; the clocks of Berlin go forward on the Sunday between them."""


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reader ask this process, without limits: to start one takes longer than to read a small file."""

    def asked(words: Any, *, input: bytes, **options: Any) -> SimpleNamespace:  # noqa: A002
        answer = io.BytesIO()
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(input)))
            patch.setattr(sys, "stdout", SimpleNamespace(buffer=answer))
            with pytest.raises(SystemExit, match="0"):
                reader.main()
        return SimpleNamespace(stdout=answer.getvalue())

    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", asked)


def at(text: str) -> Micros:
    return parse_time(f"2026-{text}Z")


def starts(content: bytes) -> list[Micros]:
    return [each.start for each in read_calendar(content, SPAN, "Europe/Berlin")]


def test_times_are_read_in_the_zone_that_they_name_and_else_in_the_sites() -> None:
    found = read_calendar(
        calendar(
            event("20260324T080000Z"),
            event(";TZID=America/New_York:20260325T080000"),
            event("20260326T080000"),
            event(";VALUE=DATE:20260329"),
        ),
        SPAN, "Europe/Berlin",
    )  # fmt: skip
    midnight = at("03-28T23:00:00")
    assert found == [
        Occurrence(at("03-24T08:00:00"), at("03-24T09:00:00"), "", False),
        Occurrence(at("03-25T12:00:00"), at("03-25T13:00:00"), "", False),
        Occurrence(at("03-26T07:00:00"), at("03-26T08:00:00"), "", False),
        Occurrence(midnight, midnight + DAY - HOUR, "", True),  # the day on which the clocks go forward
    ]


def test_a_series_recurs_at_its_local_time_with_its_exceptions_and_moved_events() -> None:
    series = event(
        ";TZID=Europe/Berlin:20250106T090000", "RRULE:FREQ=WEEKLY;BYDAY=MO,WE",
        "EXDATE;TZID=Europe/Berlin:20260325T090000",
    )  # fmt: skip
    moved = event(";TZID=Europe/Berlin:20260402T150000", "RECURRENCE-ID;TZID=Europe/Berlin:20260401T090000")
    content = calendar(series, moved).replace(b"UID:1@", b"UID:0@")
    assert starts(content) == [at("03-23T08:00:00"), at("03-30T07:00:00"), at("04-02T13:00:00")]


@pytest.mark.usefixtures("in_this_process")
def test_an_event_that_overlaps_the_span_belongs_to_it_and_one_beside_it_does_not() -> None:
    content = calendar(event("20260322T233000Z"), event("20260322T230000Z"), event("20260406T000000Z"))
    assert starts(content) == [SPAN[0] - HOUR // 2]


@pytest.mark.usefixtures("in_this_process")
def test_cancelled_events_are_left_out_and_those_that_leave_time_free_unless_asked_for() -> None:
    content = calendar(
        event("20260324T080000Z", "STATUS:CANCELLED"), event("20260325T080000Z", "TRANSP:TRANSPARENT"),
        event("20260326T080000Z", "STATUS:TENTATIVE"),
    )  # fmt: skip
    assert starts(content) == [at("03-26T08:00:00")]
    assert len(read_calendar(content, SPAN, "UTC", transparent=True)) == 2


@pytest.mark.usefixtures("in_this_process")
def test_places_that_were_not_asked_for_are_not_returned() -> None:
    content = calendar(
        event("20260324T080000Z", place="Blue room"),
        event("20260324T080000Z", place="Blue room\\; Red room"),
        event("20260324T080000Z", place="Hall\\, first floor"),
        event("20260324T080000Z", place="needle-note"),
        event("20260324T080000Z", place="Blue room" + " " * LONGEST_PLACE),
    )
    found = read_calendar(content, SPAN, "UTC", places=["Red room", "Blue room", "Hall, first floor"])
    assert [each.place for each in found] == ["Blue room", "Blue room", "Hall, first floor", "Red room"]
    assert {each.place for each in read_calendar(content, SPAN, "UTC")} == {""}


def test_nothing_else_of_an_event_leaves_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bytes] = []
    run = subprocess.run

    def watched(*arguments: Any, **options: Any) -> Any:
        done = run(*arguments, **options)
        told.append(done.stdout + done.stderr)
        return done

    monkeypatch.setattr(subprocess, "run", watched)
    read_calendar(calendar(event("20260324T080000Z", place="needle-note")), SPAN, "UTC", places=["Red room"])
    with pytest.raises(DataError) as refused:
        read_calendar(calendar(event("20260324T080000Z"), event("needle-text", "RRULE:needle")), SPAN, "UTC")
    said = b"".join(told).decode() + str(refused.value)
    assert said
    assert not [needle for needle in NEEDLES if needle in said]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "must be an iCalendar file"),
        (b"<html>", "must be an iCalendar file"),
        (calendar() + calendar(), "must be an iCalendar file"),
        (b"BEGIN:VCALENDAR\r\n" + b" " * LARGEST_FILE, f"at most {LARGEST_FILE} bytes"),
        (b"Begin:VEVENT\r\n" * (MOST_COMPONENTS + 1), f"at most {MOST_COMPONENTS} components"),
        (calendar(event("2026032480000Z")), "whose times and rules can be read"),
        (calendar(event("20260324T080000Z"), event("20260324T080000Z", "RRULE:FREQ=SOMETIMES")), "rules can be read"),
        (calendar(event("20260324T080000Z", "EXDATE:never")), "must have events whose times and rules"),
        (calendar(event(";TZID=Nowhere:20260324T080000")), "time zone that is neither known nor in the file"),
        (calendar(event("20260324T080000Z", "RRULE:FREQ=SECONDLY")), "recurs more than once a day"),
        (calendar(event("20260324T080000Z", "RRULE:FREQ=MINUTELY;COUNT=3")), "recurs more than once a day"),
        (calendar(event("20260324T080000Z", "RRULE:FREQ=WEEKLY", "RRULE:FREQ=HOURLY")), "more than once a day"),
        (calendar(event("20260324T080000Z", "RRULE:FREQ=DAILY;BYMINUTE=1,2")), "several times a day"),
        (calendar(event("20260324T080000Z", "EXRULE:FREQ=DAILY")), "no event with EXRULE"),
        (calendar(event("20260324T080000Z", "DTEND:20260324T075959Z")), "ends before it starts"),
        (calendar(event("20260324T080000", "DTEND:20260324T060000Z")), "ends before it starts"),
        (calendar(event("20260324T080000Z", "DURATION:-PT1H")), "ends before it starts"),
    ],
)
def test_a_hostile_or_unreadable_file_is_refused_as_a_whole_by_a_rule(content: bytes, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        read_calendar(content, SPAN, "Europe/Berlin")


def test_a_rule_that_asks_for_endless_work_is_ended_by_the_process_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It matches no day, so each such event is searched for up to the year 9999."""
    monkeypatch.setattr(reader, "PROGRAM", reader.PROGRAM.replace("main(", "main(processor_seconds=2"))
    run, ended = subprocess.run, list[int]()

    def watched(*arguments: Any, **options: Any) -> Any:
        try:
            return run(*arguments, **options)
        except subprocess.CalledProcessError as error:
            ended.append(error.returncode)
            raise

    monkeypatch.setattr(subprocess, "run", watched)
    endless = event("20260324T080000Z", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30")
    with pytest.raises(DataError, match="must be readable within"):
        read_calendar(calendar(*[endless] * 200), SPAN, "UTC")
    assert ended in ([-signal.SIGXCPU], [-signal.SIGKILL])  # not by the time on the wall


def test_a_process_that_cannot_start_is_an_error_of_the_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no memory or process number left: a caller tries again later, and nothing ends."""

    def none_left(*arguments: Any, **options: Any) -> Any:
        raise BlockingIOError("fork")

    monkeypatch.setattr(subprocess, "run", none_left)
    with pytest.raises(DataError, match="because the process that reads it cannot be started"):
        read_calendar(calendar(), SPAN, "UTC")


def test_too_many_occurrences_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PROGRAM", reader.PROGRAM.replace("main(", "main(most_occurrences=13"))
    daily = event("20260301T080000Z", "RRULE:FREQ=DAILY")
    with pytest.raises(DataError, match="at most 13 occurrences"):
        read_calendar(calendar(daily), SPAN, "UTC")


def test_without_the_optional_libraries_the_message_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="need icalendar; 'deploy/install ENVIRONMENT --extras'"):
        read_calendar(calendar(), SPAN, "UTC")
