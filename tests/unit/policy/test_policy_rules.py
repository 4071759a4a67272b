"""Rules of the policy document, tried on its models alone: limits, and what must be given together."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stream.policy.attributes import BREAK, DayShape
from stream.policy.counts import LARGEST_COUNT, LONGEST_W, MOST_KNOWN, CountRelease, Query
from stream.policy.mechanisms import SPARSE_VECTOR
from stream.policy.privacy import Mobility, check_unit
from stream.policy.privacy_days import privacy_days
from stream.policy.thresholds import MOST_BOOKINGS, Booking, ThresholdRelease
from stream.policy.validation_errors import MOST_REPORTED, refusals, shown
from stream.records import DAY, MINUTE, SECOND
from stream.release.validation import load_policy


def refused(model: type[BaseModel], fields: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(fields)
    return str(caught.value)


def query(**fields: Any) -> dict[str, Any]:
    return {"name": "q", "kind": "jump", "windows": 2, "threshold": 1} | fields


def count_release(**fields: Any) -> dict[str, Any]:
    return {"name": "r", "query": "count", "mechanism": "filter", "epsilon": {"public": "1"}} | fields


def threshold_release(**fields: Any) -> dict[str, Any]:
    return {"name": "t", "query": "threshold", "threshold": 5, "epsilon": {"public": "1"}} | fields


# --- counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        query(threshold=LARGEST_COUNT),
        query(windows=LONGEST_W),
        query(kind="low", windows=1, threshold=0),
        {"name": "q", "kind": "window-sum", "windows": 1},
        {"name": "q", "kind": "heatmap", "windows": 2},
        {"name": "q", "kind": "heatmap", "windows": MOST_KNOWN},
    ],
)
def test_a_query_within_its_limits_is_accepted(fields: dict[str, Any]) -> None:
    assert Query.model_validate(fields).windows == fields["windows"]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        (query(threshold=1_000_000_001), "less than or equal to 1000000000"),
        (query(threshold=-1), "greater than or equal to 0"),
        (query(threshold=None), "threshold must be given with jump and low, and only with them"),
        (query(kind="low", threshold=None), "threshold must be given with jump and low, and only with them"),
        (query(kind="window-sum"), "threshold must be given with jump and low, and only with them"),
        (query(kind="heatmap"), "threshold must be given with jump and low, and only with them"),
        (query(windows=1), "at least 2 windows"),
        (query(threshold=0), "a threshold of at least 1"),
        (query(windows=LONGEST_W + 1), "less than or equal to 2016"),
        ({"name": "q", "kind": "heatmap", "windows": 1}, "heatmap must have 2 to 336 windows"),
        ({"name": "q", "kind": "heatmap", "windows": MOST_KNOWN + 1}, "heatmap must have 2 to 336 windows"),
    ],
)
def test_a_query_beyond_its_limits_is_refused(fields: dict[str, Any], rule: str) -> None:
    assert rule in refused(Query, fields)


def test_one_span_of_revisions_needs_no_brackets() -> None:
    assert CountRelease.model_validate(count_release(revise="1h")).revise == ("1h",)
    assert CountRelease.model_validate(count_release(revise=["1d", "1h"])).revise == ("1d", "1h")


def test_revised_values_and_queries_are_published_under_names_of_their_own() -> None:
    queries = [query(name="rush")]
    release = CountRelease.model_validate(count_release(revise="1h", queries=queries))
    assert release.revised_name == "r-revised"
    assert release.published_names == ("r", "r-revised", "rush")
    assert CountRelease.model_validate(count_release()).published_names == ("r",)


def test_a_window_is_charged_a_wth_of_epsilon_rounded_up() -> None:
    release = CountRelease.model_validate(count_release(mechanism="uniform", w=7))
    assert release.windows_paid == 7
    assert release.charge("public") == Fraction(142_857_143, 10**9)
    assert CountRelease.model_validate(count_release()).charge("public") == 1


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"refresh": "12h"}, "must be whole days"),
        ({"refresh": "367d"}, "at most 366"),
        ({"daily_budget": {"public": "0.999999999"}}, "must pay for at least one release"),
        ({"w_budget": {"public": "0.5"}}, "must pay for at least one release"),
        ({"daily_budget": {"board": "2"}}, "must belong to an audience that has an epsilon"),
        ({"mechanism": "uniform"}, "w must be given with uniform, sample and ba"),
        ({"w": 3}, "w must be given with uniform, sample and ba"),
        ({"mechanism": "laplace", "revise": "1h"}, "revise must be used with filter"),
        ({"mechanism": "uniform", "w": 2, "epsilon": {"a": "1", "b": "1"}}, "audience"),
    ],
)
def test_a_count_release_whose_keys_do_not_fit_is_refused(fields: dict[str, Any], rule: str) -> None:
    assert rule in refused(CountRelease, count_release(**fields))


def test_a_budget_of_exactly_one_release_and_a_year_are_accepted() -> None:
    release = CountRelease.model_validate(count_release(daily_budget={"public": "1"}, refresh="366d"))
    assert release.refresh_days == 366


# --- privacy ------------------------------------------------------------------------------------------


def rows(states: int) -> list[list[float]]:
    return [[1.0] + [0.0] * (states - 1)] * states


@pytest.mark.parametrize("states", [2, 3, 512])
def test_a_model_of_moves_has_2_to_512_states(states: int) -> None:
    assert len(Mobility.model_validate({"forward": rows(states)}).forward) == states


@pytest.mark.parametrize("states", [1, 513])
def test_a_model_of_fewer_or_more_states_is_refused(states: int) -> None:
    assert "forward" in refused(Mobility, {"forward": rows(states)})


@pytest.mark.parametrize(
    "wrong",
    [
        [[0.5, 0.4], [0.5, 0.5]],
        [[0.5, 0.5], [0.6, 0.5]],
        [[0.5, 0.5, 0.0], [0.5, 0.5]],
        [[0.5, 0.5], [1.0]],
        [[1.1, -0.1], [0.5, 0.5]],
    ],
)
def test_rows_of_moves_that_are_no_probabilities_are_refused(wrong: list[list[float]]) -> None:
    assert "forward" in refused(Mobility, {"forward": wrong})


SITE = """
[[audience]]
name = "public"

[site.house]
sources = ["10.0.0.1"]
day_starts = "04:00"
contribution = "8h"

[[site.house.zones]]
id = "hall"
floor = "1"
capacity = 9
access_points = ["02:00:00:00:00:01"]

[[release]]
name = "r"
query = "count"
mechanism = "laplace"
unit = "device_day"
epsilon = { public = "1" }
"""
TICKS = 96
"""K: ticks of eight hours."""


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"noise": "gaussian", "unit": "window"}, "noise"),
        ({"delta": "1e-6"}, "delta must be used with noise = 'gaussian'"),
        ({"unit": "window", "delta": "1e-6"}, "delta must be used with unit = 'device_day'"),
        ({"mechanism": "pegasus"}, "unit = 'device_day' must be used with laplace or filter, got pegasus"),
        ({"daily_budget": {"public": "2"}}, "daily_budget"),
        ({"epsilon": {"public": "0.000000095"}}, "must leave each of a day's 96 windows at least 0.000000001 at house"),
    ],
)
def test_a_release_whose_unit_does_not_fit_is_refused(fields: dict[str, Any], rule: str) -> None:
    sites = load_policy(SITE).site
    release = CountRelease.model_validate(count_release(mechanism="laplace", unit="device_day") | fields)
    with pytest.raises(ValueError, match=rule.replace("(", r"\(")):
        check_unit(release, sites)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"epsilon": {"public": "0.000000096"}},
        {"noise": "gaussian", "delta": "1e-6"},
        {"noise": "gaussian", "epsilon": {"public": "0.000000095"}},
        {"unit": "window", "daily_budget": {"public": "2"}},
    ],
)
def test_a_release_whose_unit_fits_is_accepted(fields: dict[str, Any]) -> None:
    sites = load_policy(SITE).site
    assert sites["house"].contribution_ticks == TICKS
    check_unit(CountRelease.model_validate(count_release(mechanism="laplace", unit="device_day") | fields), sites)


def test_privacy_days_of_one_start_and_time_zone_are_one_object() -> None:
    days = privacy_days("04:00", "UTC")
    assert privacy_days("04:00", "UTC") is days
    assert days.at(DAY + 5 * 3600 * SECOND).number == 1
    assert privacy_days("05:00", "UTC") is not days


# --- thresholds ---------------------------------------------------------------------------------------

MEETING = {"zone": "hall", "day": "mon", "start": "09:00", "end": "10:30"}


@pytest.mark.parametrize(
    ("day", "clock", "booked"),
    [
        ("mon", "2026-03-02T09:00", True),
        ("mon", "2026-03-02T10:29", True),
        ("mon", "2026-03-02T10:30", False),
        ("mon", "2026-03-02T08:59", False),
        ("mon", "2026-03-03T09:30", False),
        ("tue", "2026-03-03T09:30", True),
        ("sun", "2026-03-08T09:30", True),
        ("2026-03-03", "2026-03-03T09:30", True),
        ("2026-03-03", "2026-03-10T09:30", False),
    ],
)
def test_a_booking_holds_on_its_days_from_its_start_to_before_its_end(day: str, clock: str, booked: bool) -> None:
    assert Booking.model_validate(MEETING | {"day": day}).holds(datetime.fromisoformat(clock)) == booked


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"day": "monday"}, "must be one of mon, tue, wed, thu, fri, sat, sun"),
        ({"day": "2026-02-30"}, "or a date such as"),
        ({"end": "09:00"}, "start must be before end, got 09:00 and 09:00"),
    ],
)
def test_a_booking_of_no_day_or_of_no_time_is_refused(fields: dict[str, Any], rule: str) -> None:
    assert rule in refused(Booking, MEETING | fields)


def test_a_schedule_has_ten_thousand_bookings_at_most() -> None:
    most = [MEETING] * 10_000
    assert len(ThresholdRelease.model_validate(threshold_release(schedule=most)).schedule) == MOST_BOOKINGS == len(most)
    assert "at most 10000" in refused(ThresholdRelease, threshold_release(schedule=[*most, MEETING]))


def test_a_threshold_release_is_charged_under_the_name_of_its_mechanism() -> None:
    release = ThresholdRelease.model_validate(threshold_release(epsilon={"b": "1", "a": "1"}))
    assert release.mechanism == SPARSE_VECTOR == "sparse-vector"
    assert list(release.audiences) == ["a", "b"]
    assert not release.free
    assert release.price == 1


@pytest.mark.parametrize(("within", "windows"), [(None, 1), ("5min", 1), ("10min", 2), ("14min", 2)])
def test_an_event_lasts_for_the_whole_windows_within_its_time(within: str | None, windows: int) -> None:
    fields = {} if within is None else {"within": within}
    assert ThresholdRelease.model_validate(threshold_release(**fields)).windows(5 * MINUTE) == windows


# --- messages and the shape of a day ------------------------------------------------------------------


class Model(BaseModel):
    """A model with more fields than a report has sentences."""

    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int


def report(document: dict[str, Any], model: type[BaseModel] = Model) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(document)
    return refusals(caught.value.errors(), model, document, "")


def test_a_report_has_five_sentences_at_most() -> None:
    assert [sentence.partition(":")[0] for sentence in report({})] == ["a", "b", "c", "d", "e"]
    assert MOST_REPORTED == 5


@pytest.mark.parametrize("value", [{}, {"a": 1}, [], [1], (1,), Query.model_validate(query())])
def test_tables_and_lists_are_not_shown(value: Any) -> None:
    assert shown(value) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, ", got 1"),
        ("x", ", got 'x'"),
        (Fraction(1, 2), ", got 1/2"),
        ("x" * 58, f", got '{'x' * 58}'"),
        ("x" * 59, f", got '{'x' * 59}…"),
        pytest.param(10**5000, ", got a number of thousands of digits", id="long"),
    ],
)
def test_a_value_is_shown_shortened(value: Any, text: str) -> None:
    assert shown(value) == text


class Entry(BaseModel):
    """An entry of a list."""

    n: int


class Lists(BaseModel):
    """A model with a list that must have two entries."""

    entries: list[Entry]
    others: list[int]

    @classmethod
    def made_too_short(cls) -> list[ErrorDetails]:
        """Return what a list of too few valid entries is reported as."""
        return [
            {"type": "too_short", "loc": ("entries",), "ctx": {"min_length": 2}, "input": [], "msg": ""},
            {"type": "int_type", "loc": ("entries", 0, "n"), "input": "x", "msg": ""},
            {"type": "too_short", "loc": ("others",), "ctx": {"min_length": 1}, "input": [], "msg": ""},
        ]


def test_a_list_is_too_short_only_if_its_entries_are_valid() -> None:
    document = {"entries": [{"n": "x"}], "others": []}
    sentences = refusals(Lists.made_too_short(), Lists, document, "")
    assert [sentence.partition(":")[0] for sentence in sentences] == ["entries[0].n", "others"]


@pytest.mark.parametrize(
    ("ticks", "empty", "breaks"), [(288, 3, 71), (5, 1, 2), (4, 1, 1), (1, 3, 0), (9, 3, 2), (8, 3, 1)]
)
def test_the_most_breaks_of_a_day(ticks: int, empty: int, breaks: int) -> None:
    """Between the first and the last occupied tick each break takes ``empty`` ticks and the occupied one after it."""
    shape = DayShape(ticks, 0, ticks, empty)
    assert shape.most_breaks == breaks
    assert max(shape.breaks_with(occupied).high for occupied in range(1, ticks + 1)) == breaks


def test_a_break_is_fifteen_minutes_without_occupancy() -> None:
    assert BREAK == 15 * MINUTE
