"""Charges of a late release: budgets over windows on both sides, and an account in the order of windows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.operations.account import in_order
from connectors.storage.embedded.reader import read_outbox, read_topic
from stream.accounting.costs import readers_of
from stream.errors import UsageError
from stream.records import DAY, MINUTE
from stream.release.account_stage import past_account
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, LEAKAGE, parse_time, rfc3339
from tests.acceptance.test_backfill import backfill, new_key, run

TICK = 15 * MINUTE
FIRST = parse_time("2026-03-02T00:15:00Z")
DAYS = 3
NOON = FIRST - TICK + DAY // 2
SOON = FIRST + 120 * TICK
"""Long enough after noon, and over midnight."""
REVISED = FIRST + 158 * TICK
"""Some of a day's windows have been revised behind the first 48 of the next."""
BUILDING = """
privacy = { w = 12 }
[site.dbh]
sources = ["127.0.0.1"]
tick = "15min"
validity = "30min"
[[site.dbh.zones]]
id = "hall"
kind = "open"
capacity = 9
access_points = ["02:00:00:00:0e:01"]
[[audience]]
name = "facilities"
[[audience]]
name = "public"
"""
COUNTS = """
[[release]]
name = "occ"
query = "count"
mechanism = "{mechanism}"
epsilon = {{ {epsilon} }}
{more}
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days with somebody in the hall for some of each hour."""
    folder = tmp_path_factory.mktemp("recording")
    rows = [(FIRST + hour * DAY // 24, hour % 5) for hour in range(24 * DAYS)]
    lines = [f"{rfc3339(time)},00:00:5e:00:53:0{who},02:00:00:00:0e:01,dbh" for time, who in rows]
    (folder / "o.csv").write_text("\n".join(["time,device,access_point,site", *lines, ""]))
    return folder


def counts(more: str = "", *, mechanism: str = "laplace", epsilon: str = 'facilities = "1"') -> Policy:
    return load_policy(BUILDING + COUNTS.format(mechanism=mechanism, epsilon=epsilon, more=more))


def entries(where: Path) -> list[dict[str, Any]]:
    return [orjson.loads(value) for value in read_topic(where, AUDIT)]


def leakage(where: Path) -> list[Mapping[str, Any]]:
    return in_order([orjson.loads(value) for value in read_topic(where, LEAKAGE)])


def by_day(audit: Iterable[dict[str, Any]], audience: str = "facilities") -> dict[int, Fraction]:
    spent: dict[int, Fraction] = defaultdict(Fraction)
    for entry in audit:
        if entry["audience"] == audience:
            spent[(parse_time(entry["window_end"]) - TICK) // DAY] += Fraction(entry["nano"], 10**9)
    return spent


def by_window(audit: Iterable[dict[str, Any]]) -> dict[int, Fraction]:
    spent: defaultdict[int, Fraction] = defaultdict(Fraction)
    for entry in audit:
        spent[parse_time(entry["window_end"])] += Fraction(entry["nano"], 10**9)
    return spent


def largest_run(audit: Iterable[dict[str, Any]], w: int = 12) -> Fraction:
    spent = by_window(audit)
    return max(sum((spent.get(end + n * TICK, Fraction(0)) for n in range(w)), Fraction(0)) for end in spent)


# --- budgets ------------------------------------------------------------------------------------------


def test_a_day_three_days_back_pays_once_for_what_was_live_and_what_comes_late(recording: Any, tmp_path: Path) -> None:
    day, key = (recording, counts('daily_budget = { facilities = "20" }')), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    backfill(day, tmp_path / "s", key)
    assert set(by_day(entries(tmp_path / "s")).values()) == {20}


def test_what_a_day_has_left_pays_for_its_late_windows(recording: Any, tmp_path: Path) -> None:
    day, key = (recording, counts('daily_budget = { facilities = "54" }')), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    assert by_day(entries(tmp_path / "s"))[FIRST // DAY] == 49
    backfill(day, tmp_path / "s", key)
    assert by_day(entries(tmp_path / "s"))[FIRST // DAY] == 54


def test_no_run_of_windows_costs_more_than_its_budget_on_either_side_of_a_late_one(
    recording: Any, tmp_path: Path
) -> None:
    day, key = (recording, counts('w_budget = { facilities = "3" }')), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    backfill(day, tmp_path / "s", key, first=FIRST + 7 * TICK)
    assert largest_run(entries(tmp_path / "s")) == 3


def test_windows_far_from_the_live_ones_are_paid_for_as_live(recording: Any, tmp_path: Path) -> None:
    day, key = (recording, counts('w_budget = { facilities = "3" }')), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    backfill(day, tmp_path / "s", key)
    spent = by_window(entries(tmp_path / "s"))
    far = [spent[FIRST + n * TICK] for n in range(30)]
    assert {sum(far[n : n + 12]) for n in range(19)} == {3}


def test_a_live_window_after_a_backfill_counts_what_came_late(recording: Any, tmp_path: Path) -> None:
    day, key = (recording, counts('daily_budget = { facilities = "34" }')), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=FIRST + 33 * TICK, last=FIRST + 34 * TICK)
    backfill(day, tmp_path / "s", key)
    run(day, tmp_path / "s", key, first=None, last=SOON)
    assert by_day(entries(tmp_path / "s"))[FIRST // DAY] == 34


# --- the account --------------------------------------------------------------------------------------


def recomputed(policy: Policy, where: Path) -> list[dict[str, Any]]:
    return past_account([policy], "dbh", readers_of(["facilities", "public"]), entries(where), {})


@pytest.mark.parametrize("mechanism", ["laplace", "pegasus", "uniform"])
def test_the_account_after_a_backfill_is_that_of_a_run_without_gaps(
    recording: Any, tmp_path: Path, mechanism: Any
) -> None:
    more = "w = 12" if mechanism == "uniform" else ""
    policy, key = counts(more, mechanism=mechanism), new_key(tmp_path)
    run((recording, policy), tmp_path / "late", key, first=NOON, last=SOON)
    backfill((recording, policy), tmp_path / "late", key)
    run((recording, policy), tmp_path / "whole", key, first=None, last=SOON)
    assert leakage(tmp_path / "late") == leakage(tmp_path / "whole") == recomputed(policy, tmp_path / "late")


def test_the_account_at_a_time_says_what_had_been_spent_up_to_it_late_or_not(recording: Any, tmp_path: Path) -> None:
    day, key = (recording, counts()), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    backfill(day, tmp_path / "s", key, first=FIRST + 30 * TICK, last=FIRST + 39 * TICK)
    for record in leakage(tmp_path / "s"):
        end = parse_time(record["window_end"])
        spent = {at: cost for at, cost in by_window(entries(tmp_path / "s")).items() if at <= end}
        report = record["audiences"]["facilities"]
        assert Fraction(report["device_total"]) == sum(spent.values())
        assert Fraction(report["device_w_event"]) == sum(c for at, c in spent.items() if at > end - 12 * TICK)
        open_days = {end // DAY, (end - 2 * TICK) // DAY}  # an observation counts at two ticks
        assert Fraction(report["device_day"]) == max(of_device_day(spent, day) for day in open_days)


def of_device_day(spent: dict[int, Fraction], day: int) -> Fraction:
    """Every tick of the UTC day and the two after it, its first two twice."""
    since = {at: at - day * DAY for at in spent}
    return sum(
        (c * (1 + (since[at] < 2 * TICK)) for at, c in spent.items() if 0 <= since[at] < DAY + 2 * TICK), Fraction(0)
    )


def test_a_second_release_of_a_window_adds_to_what_the_window_cost(recording: Any, tmp_path: Path) -> None:
    policy, key = counts(epsilon='facilities = "1", public = "0.25"'), new_key(tmp_path)
    run((recording, policy), tmp_path / "s", key, first=None, last=SOON)
    backfill((recording, policy), tmp_path / "s", key, attempt=2, names=["occ"], last=FIRST + 60 * TICK)
    by_end = {record["window_end"]: record for record in leakage(tmp_path / "s")}
    twice, once = by_end[rfc3339(FIRST + 30 * TICK)], by_end[rfc3339(FIRST + 90 * TICK)]
    assert [twice["audiences"][name]["presence_tuple"] for name in ("facilities", "public")] == ["2", "0.5"]
    assert twice["coalition"]["presence_tuple"] == "2"
    assert twice["audiences"]["facilities"]["device_w_event"] == "24"
    assert [once["audiences"]["facilities"][unit] for unit in ("presence_tuple", "device_w_event")] == ["1", "12"]
    assert leakage(tmp_path / "s") == recomputed(policy, tmp_path / "s")


def test_the_largest_window_that_temporal_knowledge_works_on_may_be_a_second_release(
    recording: Any, tmp_path: Path
) -> None:
    text = BUILDING.replace("w = 12", "w = 12, mobility = { forward = [[0.9, 0.1], [0.1, 0.9]] }")
    policy = load_policy(text + COUNTS.format(mechanism="laplace", epsilon='facilities = "0.1"', more=""))
    double = load_policy(text + COUNTS.format(mechanism="laplace", epsilon='facilities = "0.2"', more=""))
    key = new_key(tmp_path)
    soon = FIRST + 60 * TICK
    run((recording, policy), tmp_path / "s", key, first=None, last=soon)
    run((recording, double), tmp_path / "double", key, first=None, last=soon)
    run((recording, policy), tmp_path / "once", key, first=None, last=soon)
    backfill((recording, policy), tmp_path / "s", key, attempt=2, names=["occ"], last=FIRST + 20 * TICK)
    found, expected, once = (
        leakage(tmp_path / name)[-1]["audiences"]["facilities"] for name in ("s", "double", "once")
    )
    assert found["temporal"] == expected["temporal"] > once["temporal"]


def test_what_was_released_under_an_earlier_policy_is_accounted_for_by_that_policy(
    recording: Any, tmp_path: Path
) -> None:
    grouped, plain, key = counts(mechanism="pegasus"), counts(epsilon='facilities = "0.5"'), new_key(tmp_path)
    lines = (recording / "o.csv").read_text().splitlines(keepends=True)
    (tmp_path / "o.csv").write_text("".join(lines[:18]))  # up to 16:05
    run((tmp_path, grouped), tmp_path / "s", key, first=NOON)
    run((recording, plain), tmp_path / "s", key, first=None, last=SOON, accept_policy=True)
    with pytest.raises(UsageError, match="must be given for every version"):
        backfill((recording, plain), tmp_path / "s", key)
    backfill((recording, plain), tmp_path / "s", key, earlier=[grouped])
    spent = by_window(entries(tmp_path / "s"))
    assert (spent[FIRST], spent[NOON], spent[SOON]) == (Fraction(1, 2), Fraction(1), Fraction(1, 2))
    last = leakage(tmp_path / "s")[-1]["audiences"]["facilities"]
    assert Fraction(last["device_total"]) == sum(spent.values())
    readers = readers_of(["facilities", "public"])
    again = past_account([plain, grouped], "dbh", readers, entries(tmp_path / "s"), {})
    assert [record["audiences"] for record in again] == [record["audiences"] for record in leakage(tmp_path / "s")]


# --- what is not released late ------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["sample", "ba"])
def test_mechanisms_that_hold_budget_over_release_nothing_late(recording: Any, tmp_path: Path, mechanism: Any) -> None:
    day, key = (recording, counts("w = 6", mechanism=mechanism)), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    before = entries(tmp_path / "s")
    for n in range(6):
        backfill(day, tmp_path / "s", key, first=FIRST + n * TICK, last=FIRST + n * TICK)
        with pytest.raises(UsageError, match="other mechanisms than sample or ba or sparse-vector, got occ"):
            backfill(day, tmp_path / "s", key, attempt=2, names=["occ"], first=NOON + n * TICK, last=NOON + n * TICK)
    assert entries(tmp_path / "s") == before


@pytest.mark.parametrize("span", ["1h", "1d"])
def test_revised_values_come_out_again_with_the_window_that_they_revise(
    recording: Any, tmp_path: Path, span: str
) -> None:
    day, key = (recording, counts(f'revise = "{span}"', mechanism="filter")), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=None, last=REVISED)
    stored = [value for _, value in read_outbox(tmp_path / "s", "facilities", 0)]
    made = backfill(day, tmp_path / "s", key)
    assert made.emitted == []
    assert sorted(made.stored) == sorted(stored)
    assert {orjson.loads(value)["release"] for value in stored} == {"occ", "occ-revised"}


@pytest.mark.parametrize("span", ["1h", "1d"])
def test_what_is_released_late_is_revised_once_too_as_far_as_more_comes(
    recording: Any, tmp_path: Path, span: str
) -> None:
    day, key = (recording, counts(f'revise = "{span}"', mechanism="filter")), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=SOON)
    made = backfill(day, tmp_path / "s", key, last=NOON - TICK)
    records = [orjson.loads(each.value) for each in made.emitted if ".private." in each.topic]
    late = [record["release_id"] for record in records if record["release"] == "occ"]
    revised = [record for record in records if record["release"] == "occ-revised"]
    assert [record["revises"] for record in revised] == late
    assert len(late) == (NOON - FIRST) // TICK
    assert revised[-1]["lag"] == 0
    again = backfill(day, tmp_path / "s", key, last=NOON - TICK)
    assert (again.emitted, len(again.stored)) == ([], 2 * len(late))


def test_answers_to_queries_come_out_again_with_the_window_they_were_given_for(recording: Any, tmp_path: Path) -> None:
    query = '[[release.queries]]\nname = "hour"\nkind = "window-sum"\nwindows = 12\n'
    day, key = (recording, counts(query)), new_key(tmp_path)
    run(day, tmp_path / "s", key, first=None, last=SOON)
    stored = [value for _, value in read_outbox(tmp_path / "s", "facilities", 0)]
    made = backfill(day, tmp_path / "s", key)
    assert made.emitted == []
    assert sorted(made.stored) == sorted(stored)
    assert {orjson.loads(value)["release"] for value in stored} == {"occ", "hour"}
