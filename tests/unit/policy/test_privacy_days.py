"""Privacy days: which instants each contains, and which starts a policy may declare."""

from __future__ import annotations

import random
from datetime import date
from itertools import pairwise

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, HOUR, MINUTE, PrivacyDay
from stream.release.validation import Policy, load_policy, validate
from stream.schemas import parse_time, rfc3339
from tests.support.day_policies import day_site
from tests.support.small_building import policy_text

DAILY = day_site(residents="ignore")


def number(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days


def start(day: str, day_starts: str, timezone: str) -> str:
    return rfc3339(PrivacyDays(day_starts, timezone).start(number(day)))


# ---- which instants ------------------------------------------------------------------------------------


def test_a_day_holds_its_end_and_not_its_start() -> None:
    days = PrivacyDays("04:00", "America/Los_Angeles")
    begins, ends = parse_time("2026-03-02T04:00:00-08:00"), parse_time("2026-03-03T04:00:00-08:00")
    day = PrivacyDay(number("2026-03-02"), begins, ends)
    for instant in (begins + 1, begins + 11 * HOUR, ends):
        assert days.at(instant) == day
    assert days.at(begins).number == day.number - 1
    assert days.at(begins).end == begins
    assert days.at(ends + 1).number == day.number + 1


@pytest.mark.parametrize(
    ("day", "begins"),
    [
        ("2026-03-28", "2026-03-28T01:30:00Z"),
        ("2026-03-29", "2026-03-29T01:30:00Z"),  # 02:30 is skipped; the offset before gives 03:30 in summer time
        ("2026-03-30", "2026-03-30T00:30:00Z"),
        ("2026-10-24", "2026-10-24T00:30:00Z"),
        ("2026-10-25", "2026-10-25T00:30:00Z"),  # 02:30 comes twice; the first is meant
        ("2026-10-26", "2026-10-26T01:30:00Z"),
    ],
)
def test_a_time_that_clocks_skip_or_show_twice_stands_for_one_instant(day: str, begins: str) -> None:
    assert start(day, "02:30", "Europe/Berlin") == begins


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-08", 24), ("2026-03-07", 23), ("2026-10-31", 25), ("2026-11-01", 24)]
)
def test_the_days_on_which_the_clocks_change_have_23_and_25_hours(day: str, hours: int) -> None:
    """The clocks change at 02:00: within the day that began at 04:00 on the date before."""
    days = PrivacyDays("04:00", "America/Los_Angeles")
    assert days.start(number(day) + 1) - days.start(number(day)) == hours * HOUR


def test_a_date_that_a_zone_left_out_is_a_day_without_an_instant() -> None:
    """Samoa had no 30 December 2011."""
    days = PrivacyDays("04:00", "Pacific/Apia")
    left_out = number("2011-12-30")
    assert days.start(left_out) == days.start(left_out + 1)
    assert days.at(days.start(left_out)).number == left_out - 1
    assert days.at(days.start(left_out) + 1).number == left_out + 1


ZONES = ["America/St_Johns", "Europe/London", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "UTC"]


@pytest.mark.parametrize("timezone", ZONES)
@pytest.mark.parametrize("day_starts", ["00:00", "02:30", "23:55"])
def test_days_follow_one_another_without_hole_or_overlap(day_starts: str, timezone: str) -> None:
    days = PrivacyDays(day_starts, timezone)
    starts = [days.start(each) for each in range(number("1970-01-01"), number("2101-01-01"))]
    assert all(one <= other <= one + 26 * HOUR for one, other in pairwise(starts))


@pytest.mark.parametrize("timezone", ZONES)
def test_the_day_of_an_instant_does_not_depend_on_what_was_asked_before(timezone: str) -> None:
    rng, days = random.Random(timezone), PrivacyDays("00:30", timezone)
    for _ in range(300):
        instant = rng.randrange(60 * 365 * DAY)
        day = days.at(instant)
        assert day.start < instant <= day.end
        assert day == PrivacyDays("00:30", timezone).at(instant)
        assert (day.start, day.end) == (days.start(day.number), days.start(day.number + 1))


def test_a_day_has_the_number_of_the_date_on_which_it_begins() -> None:
    days = PrivacyDays("23:30", "Asia/Kathmandu")
    day = days.at(parse_time("2026-03-03T12:00:00+05:45"))
    assert day.number == number("2026-03-02")
    assert day.start == parse_time("2026-03-02T23:30:00+05:45")


# ---- what a policy may say -----------------------------------------------------------------------------


def policy(site: str, *, tick: str = "5min", timezone: str = "America/Los_Angeles", head: str = "") -> Policy:
    text = policy_text(site=site, tick=tick, head=head)
    return load_policy(text.replace("America/Los_Angeles", timezone), "building.toml")


def refusal(site: str, *, tick: str = "5min", timezone: str = "America/Los_Angeles", head: str = "") -> str:
    with pytest.raises(PolicyError) as caught:
        policy(site, tick=tick, timezone=timezone, head=head)
    return str(caught.value)


def test_contribution_is_whole_ticks_of_a_day() -> None:
    assert policy(DAILY).site["dbh"].contribution_ticks == 96
    assert policy(DAILY.replace("8h", "59min"), tick="15min").site["dbh"].contribution_ticks == 3
    assert policy("").site["dbh"].contribution_ticks == 0


@pytest.mark.parametrize(
    ("site", "told"),
    [
        ('contribution = "8h"', "contribution needs day_starts"),
        ('residents = "ignore"', "residents needs day_starts"),
        ('day_starts = "04:00"', "day_starts: needs contribution, which is not given, got 04:00"),
        (DAILY.replace("8h", "4min"), "contribution must be at least one tick and at most 1d, got 240 s"),
        (DAILY.replace("8h", "1441min"), "contribution must be at least one tick and at most 1d, got 86460 s"),
        (DAILY.replace("04:00", "24:00"), "day_starts: must be a time of day below 24:00 such as '04:00', got '24:00'"),
        (DAILY.replace("04:00", "4:00"), "day_starts: must be a time of day below 24:00 such as '04:00', got '4:00'"),
        (DAILY.replace("ignore", "forget"), "residents: must be 'ignore' or 'count', got 'forget'"),
        (DAILY.replace("04:00", "04:01"), "got 04:01, which is between two on 1970-01-01"),
    ],
)
def test_what_bounds_a_day_is_given_whole(site: str, told: str) -> None:
    report = refusal(site)
    assert "site.dbh" in report
    assert told in report


@pytest.mark.parametrize(
    ("timezone", "tick", "between"),
    [
        ("Asia/Kathmandu", "15min", None),
        ("Asia/Kathmandu", "30min", "1986-01-01"),  # 05:30 before, 05:45 since
        ("Australia/Lord_Howe", "30min", None),
        ("Australia/Lord_Howe", "1h", "1970-01-01"),
        ("Africa/Monrovia", "1min", "1970-01-01"),  # 44 minutes and 30 seconds until 1972
    ],
)
def test_the_day_starts_at_a_tick_on_every_date(timezone: str, tick: str, between: str | None) -> None:
    site = DAILY.replace("04:00", "00:30").replace("ignore", "count")
    if between is None:
        policy(site, tick=tick, timezone=timezone)
    else:
        report = refusal(site, tick=tick, timezone=timezone)
        assert "day_starts must be at a tick on every date, got 00:30" in report
        assert f"between two on {between}" in report


def test_residents_need_a_tick_in_the_first_half_hour() -> None:
    policy(DAILY, tick="30min")
    policy(DAILY.replace("ignore", "count"), tick="1h")
    assert "residents = 'ignore' needs a tick of at most 30min, got 60min" in refusal(DAILY, tick="1h")


def test_names_that_change_within_a_day_are_refused() -> None:
    report = refusal(DAILY, head='[pseudonym]\nttl = "1h"\n')
    assert "pseudonym.ttl: must not be given with site.dbh.day_starts, at which names change, got 3600 s" in report


def test_days_change_the_version_of_a_policy_only_where_they_are_given() -> None:
    assert policy("").version == policy('residents = "count"').version
    versions = {policy(site).version for site in ("", DAILY, DAILY.replace("8h", "10h"), DAILY.replace("04", "05"))}
    assert len(versions) == 4


def test_a_policy_with_days_is_the_same_when_read_back_from_its_document() -> None:
    made = policy(DAILY)
    assert validate(PolicyDocument.from_document(made.document())) == made


def test_a_site_in_utc_may_begin_its_day_at_any_tick() -> None:
    for minute in range(0, 60, 5):
        made = policy(DAILY.replace("04:00", f"23:{minute:02}"), timezone="UTC").site["dbh"]
        assert PrivacyDays(made.day_starts or "", made.timezone).start(1) % (5 * MINUTE) == 0
