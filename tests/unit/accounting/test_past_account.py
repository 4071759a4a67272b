"""The books of the past, added up again for any coalition and any moment."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from stream.accounting.costs import readers_of
from stream.errors import UsageError
from stream.local_time import span_of_day
from stream.operators import scan
from stream.pipeline import Pipeline, SiteState
from stream.records import MINUTE, DayAttribute, DayClosed, Heartbeat, ObservationBatch, OccupancyWindow, Published
from stream.release.account_stage import past_account
from stream.release.backfill import BackfillStage
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy
from stream.schemas import parse_record, parse_time
from tests.support.small_building import (
    ATTRIBUTES,
    COUNTS,
    SITE,
    account_of,
    audit_of,
    building,
    laboratory,
    messages,
    outputs_of,
    people,
)

MODEL = """
model.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }
information_target = 0.5
"""
RELEASES = COUNTS + ATTRIBUTES.replace('zones = { kind = "office" }', 'zones = { kind = "office" }' + MODEL)
NAMES = ("facilities", "public", "board")


def fed(
    pipeline: Pipeline, log: Iterable[ObservationBatch | Heartbeat], state: SiteState | None = None
) -> tuple[SiteState, list[Published]]:
    """Drive a pipeline over messages; return its last state and all outputs in order."""
    current, outputs = pipeline.initial() if state is None else state, list[Published]()
    for message in log:
        current, made = pipeline.step(current, message)
        for out in made:
            assert isinstance(out, Published)
            outputs.append(out)
    return current, outputs


def everything(policy: Policy, **options: Any) -> tuple[Any, ...]:
    """Return audit entries, streamed account records and shown values of two days in the building."""
    made = outputs_of(policy, people(hours=50), **options)
    private = [parse_record(out.value) for out in made if ".private." in out.topic]
    shown = {body["release_id"]: body["value"] for body in private if body["released"] and "value" in body}
    return audit_of(made), account_of(made), shown


@pytest.fixture(scope="module")
def aligned() -> tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    policy = building(releases=RELEASES, tick="30min")
    return policy, *everything(policy)


def past(
    policies: list[Policy] | Policy | tuple[Policy, Policy],
    audit: list[dict[str, Any]],
    shown: dict[str, Any],
    members: list[str] | None = None,
) -> list[dict[str, Any]]:
    readers = readers_of(NAMES) if members is None else {"them": frozenset(members)}
    return past_account([policies] if isinstance(policies, Policy) else policies, SITE, readers, audit, shown)


def test_the_books_add_up_to_every_streamed_record(
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policy, audit, records, shown = aligned
    assert past(policy, audit, shown) == records
    days = [record for record in records if record["kind"] == "attributes"]
    assert days
    assert any(0 in figures["exact"].values() for record in days for figures in record["attributes"].values())
    assert {tuple(record["left"]) for record in records if record["kind"] == "counts"} == {("plain/board",)}
    assert any(record["refused"] for record in records)


def test_at_any_earlier_time_the_books_of_then_are_enough(
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policy, audit, records, shown = aligned
    for place in (0, 5, len(records) // 2, len(records) - 2):
        end = records[place]["window_end"]
        until = [record for record in records if parse_time(record["window_end"]) <= parse_time(end)]
        entries = [entry for entry in audit if parse_time(entry["window_end"]) <= parse_time(end)]
        assert past(policy, entries, shown) == until


@pytest.mark.parametrize("name", NAMES)
def test_a_coalition_of_one_is_that_audience(
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]], name: str
) -> None:
    policy, audit, records, shown = aligned
    mine = past(policy, audit, shown, [name])
    for record, streamed in zip(mine, records, strict=True):
        assert record["audiences"]["them"] == streamed["audiences"][name]
        for attribute, figures in record["attributes"].items():
            for figure, readers in figures.items():
                assert readers["them"] == streamed["attributes"][attribute][figure][name]


def test_a_coalition_that_does_not_stream_pays_between_its_members_and_all(
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policy, audit, records, shown = aligned
    mine = past(policy, audit, shown, ["facilities", "board"])
    for record, streamed in zip(mine, records, strict=True):
        cost = float(record["audiences"]["them"]["device_total"])
        assert cost >= float(streamed["audiences"]["facilities"]["device_total"])
        assert cost <= float(streamed["coalition"]["device_total"])
    # pegasus at 1 and 0.1: 0.8 + 0.2 x 1.1; laplace at 0.5 and 0.25: the finer of them
    assert mine[0]["audiences"]["them"]["presence_tuple"] == "1.52"


def test_a_window_off_the_grid_of_local_days_makes_no_difference() -> None:
    """Local midnight at 18:30 UTC, ticks on the hour: the day is released at 19:00."""
    policy = building(releases=RELEASES, tick="1h")
    text_policy = policy.model_copy(
        update={"site": {SITE: policy.site[SITE].model_copy(update={"timezone": "Asia/Kolkata"})}}
    )
    audit, records, shown = everything(text_policy)
    days = [record for record in records if record["kind"] == "attributes"]
    assert days
    assert all("T19:00" in record["window_end"] for record in days)
    assert past(text_policy, audit, shown) == records


def test_an_ordered_second_release_adds_up_too() -> None:
    policy = building(releases=RELEASES, tick="1h")
    audit, records, shown = everything(policy, attempt=2)
    assert all(entry["release_id"].endswith("#2") for entry in audit)
    assert past(policy, audit, shown) == records


def test_a_value_that_was_not_handed_in_counts_as_withheld(
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policy, audit, _, _ = aligned
    report = [record for record in past(policy, audit, {}) if record["kind"] == "attributes"]
    assert all(0 not in figures["theorem_1"].values() for r in report for figures in r["attributes"].values())


def test_books_of_a_release_that_the_policy_does_not_have_are_refused(
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policy, audit, _, shown = aligned
    with pytest.raises(UsageError, match="must have the release office-days of ledger entry"):
        past(policy, [entry | {"release": "office-days"} for entry in audit], shown)


# --- a policy that has changed ------------------------------------------------------------------------

HOURLY = """
[[release]]
name = "hourly"
query = "count"
mechanism = "uniform"
w = 4
zones = { kind = "lobby" }
epsilon = { public = "0.5" }
"""
CHANGED = (
    RELEASES.replace('mechanism = "pegasus"', 'mechanism = "laplace"')
    .replace('"00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4', '"00" = 0.1, "01" = 0.3, "10" = 0.3, "11" = 0.3')
    .replace('daily_budget = { board = "10" }', 'daily_budget = { board = "20" }')
)


@pytest.fixture(scope="module")
def changed() -> tuple[tuple[Policy, Policy], list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Two policies whose releases bear the same names, each in force for part of three days."""
    first, second = (building(releases=releases + HOURLY, tick="1h") for releases in (RELEASES, CHANGED))
    log = list(messages(people(hours=78), first, after=6 * 60 * MINUTE))
    cut = len(log) // 2
    pipeline = Pipeline(first, SITE, laboratory())
    states, made = fed(pipeline, log[:cut])
    after = Pipeline(second, SITE, laboratory())
    made += fed(after, log[cut:], after.migrate(pipeline.encode(states)))[1]
    private = [parse_record(out.value) for out in made if ".private." in out.topic]
    shown = {body["release_id"]: body["value"] for body in private if body["released"] and "value" in body}
    return (first, second), audit_of(made), account_of(made), shown


def test_entries_of_several_policies_add_up_each_by_the_policy_of_its_version(
    changed: tuple[tuple[Policy, Policy], list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policies, audit, records, shown = changed
    assert {entry["policy_version"] for entry in audit} == {policy.version for policy in policies}
    assert past(policies, audit, shown) == past(policies[::-1], audit, shown) == records
    days = [record for record in records if record["kind"] == "attributes"]
    assert {record["policy_version"] for record in days} == {policy.version for policy in policies}
    costs = [record["coalition"]["presence_tuple"] for record in records if record["kind"] == "counts"]
    assert {costs[0], costs[-1]} == {"2.52", "2.5"}  # PeGaSus has groupers of its own


@pytest.mark.parametrize("given", [0, 1])
def test_entries_of_a_policy_that_is_not_given_are_refused_by_version(
    changed: tuple[tuple[Policy, Policy], list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]], given: int
) -> None:
    policies, audit, _, shown = changed
    with pytest.raises(UsageError) as caught:
        past(policies[given], audit, shown)
    assert policies[1 - given].version in str(caught.value)
    assert policies[given].version in str(caught.value)


def test_a_policy_that_no_entry_needs_does_no_harm(
    changed: tuple[tuple[Policy, Policy], list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
    aligned: tuple[Policy, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]],
) -> None:
    policy, audit, records, shown = aligned
    assert past([*changed[0], policy], audit, shown) == records


# --- a day that was asked under two policies ----------------------------------------------------------

LATE = ATTRIBUTES.replace("office-day", "office-2").replace('after = "10:00"', 'after = "12:00"')
ONE, TWO = building(releases=ATTRIBUTES), building(releases=LATE)
ASKED = "2026-03-03"
CLOSED = DayClosed(
    SITE,
    ASKED,
    parse_time("2026-03-04T08:00:00Z"),
    tuple(DayAttribute(SITE, "x", ASKED, name, None, 0) for name in ("arrival", "occupancy_level")),
)


def asked_twice(*, withheld: bool = True) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the entries of a day that each of two policies asked, as ledgers of old may hold them, and its values."""
    made = [ReleaseStage(policy, SITE, laboratory()).step(ReleaseState(), CLOSED)[1] for policy in (ONE, TWO)]
    entries = [entry for outputs in made for entry in audit_of(outputs)]
    value = {} if withheld else {f"{SITE}/office-2/facilities/{ASKED}/x/arrival": "11:00"}
    return entries, value


@pytest.mark.parametrize("policies", [[ONE, TWO], [TWO, ONE]])
def test_a_day_asked_under_two_policies_is_one_record_with_all_that_was_asked(policies: list[Policy]) -> None:
    entries, _ = asked_twice()
    [record] = past(policies, entries, {})
    assert record["policy_version"] == TWO.version
    figures = record["attributes"][f"{ASKED}/x/arrival"]
    # arrival twice at 1, by two rules, and the level twice at 1: whatever one proves of another
    assert figures["bound"]["facilities"] == figures["bound"]["all"] == pytest.approx(math.exp(4))
    assert figures["bound"]["public"] == pytest.approx(math.exp(0.4))
    assert figures["theorem_1"]["facilities"] == pytest.approx(math.exp(2))


def test_nothing_bounds_what_was_withheld_beside_a_value_that_another_policy_showed() -> None:
    entries, value = asked_twice(withheld=False)
    [record] = past([ONE, TWO], entries, value)
    report = record["attributes"]
    assert report[f"{ASKED}/x/arrival"]["bound"]["facilities"] == 0
    assert report[f"{ASKED}/x/occupancy_level"]["bound"]["facilities"] == "inf"
    assert report[f"{ASKED}/x/arrival"]["bound"]["public"] == pytest.approx(math.exp(0.4))


def test_no_model_of_one_policy_speaks_of_what_another_asked_too() -> None:
    modelled = building(releases=RELEASES)
    made = [ReleaseStage(policy, SITE, laboratory()).step(ReleaseState(), CLOSED)[1] for policy in (modelled, TWO)]
    both = [entry for outputs in made for entry in audit_of(outputs)]
    [record] = past([modelled, TWO], both, {})
    assert all("exact" not in figures for figures in record["attributes"].values())
    [record] = past([modelled, TWO], audit_of(made[0]), {})
    assert all("exact" in figures for figures in record["attributes"].values())


# --- a zone that has another id -------------------------------------------------------------------------

DOOR = """
[[release]]
name = "door"
query = "count"
mechanism = "laplace"
zones = { kind = "office" }
epsilon = { board = "0.01" }
"""


def other_ids(policy: Policy) -> Policy:
    """Give the offices other ids, at the same access points."""
    site = policy.site[SITE]
    zones = tuple(
        zone.model_copy(update={"id": f"new-{zone.id}"} if zone.kind == "office" else {}) for zone in site.zones
    )
    return policy.model_copy(update={"site": {SITE: site.model_copy(update={"zones": zones})}})


def test_a_habit_goes_on_over_a_new_id_of_its_zones_streamed_and_added_up_again() -> None:
    first = building(releases=ATTRIBUTES)
    second = other_ids(first)
    log = list(messages(people(hours=104), first))
    pipeline, after = Pipeline(first, SITE, laboratory()), Pipeline(second, SITE, laboratory())
    states, made = fed(pipeline, log[: len(log) // 2])
    made += fed(after, log[len(log) // 2 :], after.migrate(pipeline.encode(states)))[1]
    private = [parse_record(out.value) for out in made if ".private." in out.topic]
    shown = {body["release_id"]: body["value"] for body in private if body["released"] and "value" in body}
    records = account_of(made)
    days = [record["habit"]["office-day/arrival"]["public"]["days"] for record in records]
    assert {record["policy_version"] for record in records} == {first.version, second.version}
    assert days == [1, 2, 3]
    assert past([first, second], audit_of(made), shown) == records


@pytest.mark.parametrize("late_name", ["new-x", "x"])
def test_counts_of_a_zone_count_beside_its_attributes_under_whatever_id(late_name: str) -> None:
    """One policy has charged for its counts, and another asks about that day later, or the other way round."""
    counted, query = building(releases=DOOR), building(releases=ATTRIBUTES)
    if late_name == "x":
        counted = other_ids(counted)
    else:
        query = other_ids(query)
    day = span_of_day("2026-03-03", ZoneInfo("America/Los_Angeles"))
    windows = [OccupancyWindow(SITE, end, (0,) * 6, Fraction(1)) for end in range(day[0], day[1], 15 * MINUTE)]
    live = ReleaseStage(counted, SITE, laboratory())
    state, made = scan(live, windows)
    records = (DayAttribute(SITE, late_name, "2026-03-03", "arrival", "11:00", day[1]),)
    late = BackfillStage(query, SITE, laboratory())
    late.load_full_history(state, audit_of(made), {counted.version: counted})
    made += late.release_late(state, DayClosed(SITE, "2026-03-03", day[1], records), ReleaseState())
    report = past([counted, query], audit_of(made), {})[-1]["attributes"][f"2026-03-03/{late_name}/arrival"]
    assert report["with_counts"]["all"] == pytest.approx(math.exp(1 + 3 * 12 * 0.01))
    assert report["with_counts"]["public"] == pytest.approx(math.exp(0.2))
