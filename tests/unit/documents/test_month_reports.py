"""A month's report: which records it reads, what it says, what it never says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from connectors.documents.month import Band, Month, MonthReader, extreme, rooms, week
from connectors.documents.report import Report, month_report, report_languages
from connectors.documents.template import as_text, statements
from connectors.storage.site_metadata import SiteMetadata
from stream.records import HOUR, MINUTE, Micros
from stream.schemas import parse_time
from tests.support.hostile_names import HOSTILE_NAMES, as_shown
from tests.support.released_months import SITE, bodies, office_day, starts

MARCH = Month(2026, 3)
TICK = 30 * MINUTE
BUSY = {"hall": office_day(110), "201": office_day(4), "202": lambda _: 60}


def read(*records: Any, site: SiteMetadata = SITE) -> MonthReader:
    reader = MonthReader(site, MARCH)
    for each in records:
        for body in each:
            reader.add(body)
    return reader


def said(reader: MonthReader, **options: Any) -> str:
    return as_text(month_report(reader, "facilities", **options).markdown)


@pytest.fixture(scope="module")
def two_months() -> Report:
    before = bodies(MARCH.before, {"hall": office_day(60), "201": office_day(4), "202": lambda _: 60}, seed=2)
    return month_report(read(before, bodies(MARCH, BUSY)), "facilities")


def test_the_month_is_the_sites_own() -> None:
    assert Month.parse("2026-03") == MARCH
    assert Month(2026, 1).before == Month(2025, 12)
    assert len(starts(MARCH)) == 31 * 48 - 2, "the clocks are put forward"
    for text in ("2026-13", "2026", "2026-3-1"):
        with pytest.raises(ValueError):
            Month.parse(text)


def test_statements_of_two_months(two_months: Report) -> None:
    text = as_text(two_months.markdown)
    assert two_months.title == "Library, March 2026"
    assert two_months.name == "dbh-2026-03"
    assert "1486 of 1486 windows" in text
    assert "Busiest hour of the week: Tue 13:00 to 14:00" in text
    assert "Quietest day: one of 9 days" in text
    assert " % more than in the month before" in text
    assert "| 201 | 60 |" in text, "never above half of its capacity"
    assert "| 202 | 40 |" in text, "always full"
    assert "<!--" not in text


def test_the_page_has_its_drawings_and_loads_nothing(two_months: Report) -> None:
    assert two_months.page.count("<svg") == 3
    assert two_months.page.count('role="img" aria-label=') == 3
    for outside in ("<script", 'http-equiv="refresh', "src=", "url(", "href="):
        assert outside not in two_months.page


def test_of_several_days_three_are_named(two_months: Report) -> None:
    named = re.search(r"Quietest day: one of 9 days, among them (.*)", as_text(two_months.markdown))
    assert named is not None
    assert len(named[1].split("; ")) == 3
    assert all(re.fullmatch(r"(Sat|Sun) \d+ March", day) for day in named[1].split("; "))


def test_a_report_says_how_many_windows_of_the_best_covered_place_there_are() -> None:
    part = [body | {"values": {"hall": 1}, "levels": {"building": 1}} for body in bodies(MARCH, BUSY)]
    assert "1486 of 1486 windows" in said(read(list(bodies(MARCH, BUSY))[:-7] + part[-7:]))


def test_a_month_without_records_has_a_report_that_says_so() -> None:
    report = month_report(read(), "facilities")
    text = as_text(report.markdown)
    assert "0 of 1486 windows" in text
    assert "No count of the whole building is released" in text
    assert "Busiest" not in text
    assert "<svg" not in report.page


def test_a_week_has_an_entry_for_each_of_its_hours_from_monday_on() -> None:
    office = office_day(100)
    means = week(read(bodies(MARCH, {"hall": office})).values()["building"], ZoneInfo(SITE["timezone"]))
    assert len(means) == 7 * 24
    (noon, sunday) = (means[12], means[6 * 24 + 12])
    assert noon is not None
    assert sunday is not None
    assert noon.low > 50 > sunday.high


def test_without_the_month_before_nothing_is_compared() -> None:
    text = said(read(bodies(MARCH, BUSY)))
    assert "too few released windows for a comparison" in text
    assert "than in the month before" not in text


def test_a_month_like_the_one_before_may_be_no_change() -> None:
    text = said(read(bodies(MARCH.before, BUSY, seed=3), bodies(MARCH, BUSY)))
    assert "so it may be none" in text


def test_windows_that_were_not_covered_are_left_out() -> None:
    halfway = starts(MARCH)[700]

    def coverage(start: Micros) -> float:
        return 0.5 if start < halfway else 1.0

    reader = read(bodies(MARCH, BUSY, coverage=coverage))
    assert len(reader.values()["building"].start) == 1486 - 700


@pytest.mark.parametrize(
    "more",
    [
        {"half_width_95": None, "values": None, "released": False, "levels": None},
        {"site": "other"},
        {"mechanism": "laplace/heatmap"},
        {"counted": "people"},
        {"revises": "dbh/occupancy/facilities/2026-03-01T00:00:00Z"},
        {"attribute": "arrival"},
    ],
)
def test_other_records_are_passed_over(more: dict[str, Any]) -> None:
    assert read(bodies(MARCH, BUSY, more=more)).values() == {}


def test_another_attempt_takes_the_place_of_the_first() -> None:
    first = list(bodies(MARCH, BUSY))[:5]
    again = [body | {"release_id": f"{body['release_id']}#2", "values": dict.fromkeys(body["values"], 7)}
             for body in first[1:2]]  # fmt: skip
    for order in ([*first, *again], [*again, *first]):
        values = read(order).values()["zone:hall"]
        assert len(values.noisy) == 5
        assert values.noisy[sorted(values.start).index(values.start[1]) if order[0] is first[0] else 0] == 7


def test_a_window_counts_once_however_late_its_attempts_come() -> None:
    """A backfilled window is followed by another attempt of a window after it."""
    first = list(bodies(MARCH, BUSY))[:3]
    again = first[1] | {"release_id": f"{first[1]['release_id']}#2", "values": dict.fromkeys(first[1]["values"], 7)}
    values = read(first, [again]).values()["zone:hall"]
    late = read([first[0], first[2], first[1]], [first[2] | {"release_id": f"{first[2]['release_id']}#2"}])
    assert [*values.start] == [*map(parse_time, (each["window_start"] for each in first))]
    assert values.noisy[1] == 7
    assert sorted(late.values()["zone:hall"].start) == [*values.start]
    assert len(late.values()["zone:hall"].law) == 3


def test_noise_without_a_law_yields_no_statement() -> None:
    more = {"mechanism": "sample", "half_width_kind": "posterior"}
    reader = read(bodies(MARCH, BUSY, more=more))
    text = said(reader)
    assert "has no law" in text
    assert "No counts of single rooms with a known noise" in text
    assert "Busiest" not in text


def test_a_room_counted_for_part_of_the_day_is_never_said_to_be_below_anything() -> None:
    more = {"unit": "device_day", "noise": "laplace", "bounded_to": "6h", "delta": "0"}
    reader = read(bodies(MARCH, BUSY, more=more))
    capacities = {zone["zone"]: zone["capacity"] for zone in SITE["zones"]}
    found = {room.zone: room for room in rooms(reader.values(), capacities, TICK)}
    assert found["201"].most is None
    assert found["201"].full_at_most is None
    assert found["202"].full_at_least > 100, "what was counted was there"
    assert "Of 3 rooms each device counts for a part of the day only" in said(reader)


def test_the_building_is_a_sum_of_as_many_noises_as_zones() -> None:
    values = read(bodies(MARCH, BUSY)).values()["building"]
    assert {law.draws for law in values.law if law is not None} == {3}
    changed = [body | {"levels": {"building": body["levels"]["building"] + 1}} for body in bodies(MARCH, BUSY)]
    assert not read(changed).values()["building"].known, "a figure that is no sum has no law of a sum"


def test_names_are_shown_as_they_are() -> None:
    hostile = "<img src=x> | **b**"
    zones = [zone | {"metadata": {"name": hostile}} for zone in SITE["zones"]]
    page = month_report(read(bodies(MARCH, BUSY), site=SITE | {"zones": zones, "name": hostile}), "facilities").page
    assert "<img" not in page
    assert "&lt;img src=x&gt; | **b**" in page


@pytest.fixture(scope="module")
def a_month() -> MonthReader:
    return read(bodies(MARCH, BUSY))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_room_of_any_name_has_its_row_and_begins_nothing(a_month: MonthReader, name: str) -> None:
    a_month.site = SITE | {"name": name, "zones": [zone | {"metadata": {"name": name}} for zone in SITE["zones"]]}
    report = month_report(a_month, "facilities")
    shown = as_shown(name).replace("⟦", "(").replace("⟧", ")")
    assert f"| {shown} | 60 |" in as_text(report.markdown)
    assert f"| {shown} | 40 |" in as_text(report.markdown)
    assert report.title == f"{as_shown(name)}, March 2026"
    assert report.page.count("<svg") == 2
    assert not re.search("<script|<img|<a ", report.page)
    report.page.encode()


def test_the_share_of_quiet_rooms_can_be_chosen() -> None:
    reader = read(bodies(MARCH, BUSY))
    assert "never above 10 %" in said(reader, share=0.1)


def test_all_days_that_may_be_the_extreme_are_named() -> None:
    bands = {"a": Band(10, 8, 12), "b": Band(8.5, 7.5, 9.5), "c": Band(7, 6, 7.9), "d": Band(11, 9, 13)}
    assert extreme(bands, highest=True) == ["d", "a", "b"]
    assert extreme(bands, highest=False) == ["c", "b"]
    assert extreme({}, highest=True) == []


def test_no_figure_differs_between_languages(two_months: Report) -> None:
    before = bodies(MARCH.before, {"hall": office_day(60), "201": office_day(4), "202": lambda _: 60}, seed=2)
    german = month_report(read(before, bodies(MARCH, BUSY)), "facilities", language="de")
    assert german.title == "Library, März 2026"
    assert "Vollste Stunde der Woche: Di 13 bis 14 Uhr" in as_text(german.markdown)

    def figures(text: str) -> dict[str, list[str]]:
        return {name: sorted(re.findall(r"\d+(?:\.\d+)?", row.replace(":00", "").replace(",", ".")))
                for name, row in statements(text).items()}  # fmt: skip

    assert figures(german.markdown) == figures(two_months.markdown)


def hours(count: Callable[[Micros], int]) -> float:
    return sum(count(start) >= 36 for start in starts(MARCH)) * TICK / HOUR


def test_hours_that_a_room_was_full_have_two_ends() -> None:
    office = office_day(60)
    capacities = {zone["zone"]: zone["capacity"] for zone in SITE["zones"]}
    found = {r.zone: r for r in rooms(read(bodies(MARCH, BUSY | {"202": office})).values(), capacities, TICK)}
    room = found["202"]
    assert room.full_at_most is not None
    assert room.full_at_least <= hours(office) <= room.full_at_most


def test_a_file_of_words_for_each_language() -> None:
    folder = Path(__file__).parents[3] / "connectors" / "documents"
    assert [f"report.{language}.md" for language in report_languages()] == sorted(
        path.name for path in folder.glob("report.*.md")
    )
