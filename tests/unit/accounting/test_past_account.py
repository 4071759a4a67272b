"""The books of the past, added up again for any coalition and any moment."""

from __future__ import annotations

import pytest
from core_ground import ATTRIBUTES, COUNTS, SITE, account_of, audit_of, building, outputs_of, people

from stream.account_stage import past_account
from stream.accounting.account import readers_of
from stream.errors import UsageError
from stream.schemas import parse_record, parse_time

MODEL = """
model.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }
information_target = 0.5
"""
RELEASES = COUNTS + ATTRIBUTES.replace('zones = { kind = "office" }', 'zones = { kind = "office" }' + MODEL)
NAMES = ("facilities", "public", "board")


def everything(policy, **options):
    """Return audit entries, streamed account records and shown values of two days in the building."""
    made = outputs_of(policy, people(hours=50), **options)
    private = [parse_record(out.value) for out in made if ".private." in out.topic]
    shown = {body["release_id"]: body["value"] for body in private if body["released"] and "value" in body}
    return audit_of(made), account_of(made), shown


@pytest.fixture(scope="module")
def aligned():
    return building(releases=RELEASES), *everything(building(releases=RELEASES))


def past(policy, audit, shown, members=None):
    readers = readers_of(NAMES) if members is None else {"them": frozenset(members)}
    return past_account(policy, SITE, readers, audit, shown)


def test_the_books_add_up_to_every_streamed_record(aligned):
    policy, audit, records, shown = aligned
    assert past(policy, audit, shown) == records
    days = [record for record in records if record["kind"] == "attributes"]
    assert days
    assert any(0 in figures["exact"].values() for record in days for figures in record["attributes"].values())
    assert {tuple(record["left"]) for record in records if record["kind"] == "counts"} == {("plain/board",)}
    assert any(record["refused"] for record in records)


def test_at_any_earlier_time_the_books_of_then_are_enough(aligned):
    policy, audit, records, shown = aligned
    for place in (0, 5, len(records) // 2, len(records) - 2):
        end = records[place]["window_end"]
        until = [record for record in records if parse_time(record["window_end"]) <= parse_time(end)]
        entries = [entry for entry in audit if parse_time(entry["window_end"]) <= parse_time(end)]
        assert past(policy, entries, shown) == until


@pytest.mark.parametrize("name", NAMES)
def test_a_coalition_of_one_is_that_audience(aligned, name):
    policy, audit, records, shown = aligned
    mine = past(policy, audit, shown, [name])
    for record, streamed in zip(mine, records, strict=True):
        assert record["audiences"]["them"] == streamed["audiences"][name]
        for attribute, figures in record["attributes"].items():
            for figure, readers in figures.items():
                assert readers["them"] == streamed["attributes"][attribute][figure][name]


def test_a_coalition_that_does_not_stream_pays_between_its_members_and_all(aligned):
    policy, audit, records, shown = aligned
    mine = past(policy, audit, shown, ["facilities", "board"])
    for record, streamed in zip(mine, records, strict=True):
        cost = float(record["audiences"]["them"]["device_total"])
        assert cost >= float(streamed["audiences"]["facilities"]["device_total"])
        assert cost <= float(streamed["coalition"]["device_total"])
    # pegasus at 1 and 0.1: 0.8 + 0.2 x 1.1; laplace at 0.5 and 0.25: the finer of them
    assert mine[0]["audiences"]["them"]["presence_tuple"] == "1.52"


def test_a_window_off_the_grid_of_local_days_makes_no_difference():
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


def test_an_ordered_second_release_adds_up_too(aligned):
    policy = aligned[0]
    audit, records, shown = everything(policy, attempt=2)
    assert all(entry["release_id"].endswith("#2") for entry in audit)
    assert past(policy, audit, shown) == records


def test_a_value_that_was_not_handed_in_counts_as_withheld(aligned):
    policy, audit, _, _ = aligned
    told = [record for record in past(policy, audit, {}) if record["kind"] == "attributes"]
    assert all(0 not in figures["theorem_1"].values() for r in told for figures in r["attributes"].values())


def test_books_of_a_release_that_the_policy_does_not_have_are_refused(aligned):
    _, audit, _, shown = aligned
    with pytest.raises(UsageError, match="must have the release office-day of ledger entry"):
        past(building(releases=COUNTS), audit, shown)
