"""Releases that count changes, through the real release stage and pipeline: charges, runs, records, policy changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from stream.encoding import encode_message
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.keys import LaboratoryKeys
from stream.mechanisms.base import RevisedDay, Values, whole
from stream.policy.privacy_days import PrivacyDays
from stream.records import CHANGES, DAY, HOUR, MINUTE, CountCharge, LevelCounts, Micros, OccupancyWindow, Published
from stream.release.budgets import Budgets
from stream.release.count_plan import count_plans
from stream.release.ledger_writer import LedgerWriter
from stream.release.revisions import RevisionPlan
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from tests.support.day_policies import change_release, day_release, put_through, shared, visit_site
from tests.support.small_building import building, laboratory, messages, people

TICK = 5 * MINUTE
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
DAYS = PrivacyDays("04:00", "America/Los_Angeles")
FOUR: Micros = parse_time("2026-03-03T04:00:00-08:00")
"""A start of a privacy day."""
PLACE = f"""
[site.dbh]
sources = ["10.0.0.1"]
timezone = "America/Los_Angeles"
{visit_site()}
zones = [
  {{ id = "101", floor = "1", capacity = 20, access_points = ["02:00:00:00:01:01"] }},
  {{ id = "201", floor = "2", capacity = 20, access_points = ["02:00:00:00:02:01"] }},
]
[[audience]]
name = "public"
[[audience]]
name = "facilities"
"""
BOTH = PLACE.replace("visits = 4", 'visits = 4\ncontribution = "8h"')
"""A site that bounds ticks and visits."""
LEVELS = shared(zone="0.2", floor="0.3", building="0.5")
RELEASE = change_release(more=LEVELS)
COUNTS = LevelCounts((5, 3), (4, 2), (9,))


def policy(release: str = RELEASE, site: str = PLACE) -> Policy:
    return load_policy(site + release)


def windows(first: Micros, number: int, counts: LevelCounts | None = COUNTS) -> list[OccupancyWindow]:
    ends = [first + n * TICK for n in range(number)]
    return [OccupancyWindow("dbh", end, (9, 9), Fraction(1), DAYS.at(end), None, counts) for end in ends]


def released(
    items: Iterable[OccupancyWindow], stage: ReleaseStage | None = None, state: ReleaseState | None = None
) -> tuple[list[dict[str, Any]], list[CountCharge], ReleaseState]:
    """Return records of both audiences, charges and the state of windows put through the stage."""
    stage = stage or ReleaseStage(policy(), "dbh", KEYS)
    records, _, charges, state = put_through(stage, items, state or stage.initial())
    return records, charges, state


def of_public(records: Iterable[dict[str, Any]], key: str = "reason") -> list[Any]:
    return [record[key] for record in records if record["audience"] == "public"]


# ---- charges --------------------------------------------------------------------------------------------


def test_a_day_is_charged_once_and_every_window_is_released() -> None:
    site = PLACE.replace("[site.dbh]", '[site.dbh]\ntick = "30min"')
    records, charges, _ = released(half_hours(FOUR, 49), ReleaseStage(policy(site=site), "dbh", KEYS))
    assert of_public(records) == [None] * 49
    assert of_public(records, "spend") == ["2", *["0"] * 47, "2"]
    terms = charges[0].terms
    assert terms is not None
    assert (terms.noise, terms.ticks, len(terms.parameters)) == (CHANGES, 8, 3)


def test_a_record_says_how_a_day_is_bounded_and_of_what_each_level_has_noise() -> None:
    records, _, _ = released(windows(FOUR + TICK, 1))
    record = records[0]
    assert (record["unit"], record["noise"], record["delta"]) == ("device_day", "gaussian", "0.000001")
    assert record["bounded_to"] == "4 visits"
    assert record["values"].keys() == record["noise_scale"].keys() == {"101", "201"}
    assert record["levels"].keys() == record["levels_noise_scale"].keys() == {"floor", "building"}
    assert "noisy" not in record, "the noise of windows is not independent"
    finer = {record["audience"]: record["noise_scale"]["101"] for record in records}
    assert finer["facilities"] < finer["public"]


@pytest.mark.parametrize("level", ["zone", "floor", "building"])
def test_a_level_alone_is_released_with_all_of_the_price(level: str) -> None:
    alone = ReleaseStage(policy(change_release(more=shared(**{level: "1"}))), "dbh", KEYS)
    records, charges, _ = released(windows(FOUR + TICK, 2), alone)
    assert of_public(records) == [None, None]
    assert charges[0].terms is not None
    assert len(charges[0].terms.parameters) == 1
    shown = records[0]["values"], records[0].get("levels", {})
    assert {"zone": bool(shown[0]), "floor": "floor" in shown[1], "building": "building" in shown[1]}[level]


# ---- one run a day --------------------------------------------------------------------------------------


def test_without_counts_by_visits_it_waits_and_charges_nothing() -> None:
    records, charges, state = released(windows(FOUR + TICK, 2, None))
    assert of_public(records) == ["waiting"] * 2
    assert not any(charge.epsilon for charge in charges)
    later, _, _ = released(windows(FOUR + DAY + TICK, 2), state=state)
    assert of_public(later, "spend") == ["2", "0"]


def test_a_day_that_began_before_the_release_did_is_paid_from_then_on() -> None:
    records, _, _ = released(windows(FOUR + 6 * HOUR, 3))
    assert of_public(records, "spend") == ["2", "0", "0"]


def test_a_day_goes_on_after_a_restart_with_the_same_bytes() -> None:
    stage, items = ReleaseStage(policy(), "dbh", KEYS), windows(FOUR + TICK, 40)
    straight, _, _ = released(items)
    first, _, state = released(items[:17], stage)
    again, _, _ = released(items[17:], stage, stage.decode(stage.encode(state)))
    assert first + again == straight


def test_a_run_whose_sums_are_lost_is_not_begun_again() -> None:
    """A second run within a day would cost a second day."""
    stage = ReleaseStage(policy(), "dbh", KEYS)
    _, _, state = released(windows(FOUR + TICK, 3), stage)
    state.operator_states = {}
    records, charges, state = released(windows(FOUR + 4 * TICK, 3), stage, state)
    assert of_public(records) == ["waiting"] * 3
    assert not any(charge.epsilon for charge in charges)
    later, _, _ = released(windows(FOUR + DAY + TICK, 2), stage, state)
    assert of_public(later) == [None, None]


def test_a_window_that_is_denied_ends_the_run_of_its_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later windows tell of it: they hold the sums of all changes before them."""
    stage, passed = ReleaseStage(policy(), "dbh", KEYS), FOUR + 3 * TICK
    monkeypatch.setattr(Budgets, "record_within_factor", lambda self, state, end, *line: end != passed)
    records, _, state = released(windows(FOUR + TICK, 5), stage)
    assert of_public(records) == [None, None, "factor", "waiting", "waiting"]
    later, _, _ = released(windows(FOUR + DAY + TICK, 2), stage, state)
    assert of_public(later) == [None, None]


def test_windows_that_are_lost_do_not_end_it() -> None:
    records, _, _ = released([*windows(FOUR + TICK, 3), *windows(FOUR + 9 * TICK, 2)])
    assert of_public(records) == [None] * 5


def test_a_day_longer_than_25_hours_is_denied_behind_them() -> None:
    long = [
        replace(each, privacy_day=DAYS.at(FOUR + TICK)._replace(end=FOUR + 2 * DAY))
        for each in windows(FOUR + 25 * HOUR - TICK, 4)
    ]
    assert of_public(released(long)[0]) == [None, None, "waiting", "waiting"]


@pytest.mark.parametrize(
    ("other", "reasons"),
    [
        (policy(site=PLACE.replace('sources = ["10.0.0.1"]', 'sources = ["10.0.0.1"]\nmax_devices = 9')), [None] * 2),
        (
            policy(RELEASE + day_release("day"), PLACE.replace("visits = 4", 'visits = 4\ncontribution = "8h"')),
            [None] * 2,
        ),
        (policy(RELEASE.replace('"2"', '"3"')), ["waiting"] * 2),
        (policy(site=PLACE.replace("visits = 4", "visits = 3")), ["waiting"] * 2),
        (policy(site=PLACE.replace('"10min"', '"15min"')), ["waiting"] * 2),
        (policy(change_release("other", more=LEVELS)), [None] * 2),
    ],
    ids=["elsewhere", "another release", "epsilon", "visits", "gap", "another name"],
)
def test_a_change_of_policy_continues_the_run_on_equal_terms_alone(other: Policy, reasons: list[str | None]) -> None:
    stage, now = ReleaseStage(policy(), "dbh", KEYS), ReleaseStage(other, "dbh", KEYS)
    _, _, state = released(windows(FOUR + TICK, 5), stage)
    names = {zone.id: frozenset([zone.id]) for zone in other.site["dbh"].zones}
    records, charges, _ = released(windows(FOUR + 6 * TICK, 2), now, now.migrate(stage.encode(state), names))
    moves = [record for record in records if record["release"] != "day"]
    assert of_public(moves) == reasons
    paid = {charge.release for charge in charges if charge.terms is not None and charge.epsilon}
    assert ("moves" in paid or "other" in paid) == (reasons[0] is None)


def test_a_continued_run_gives_the_bytes_of_one_that_was_not_interrupted() -> None:
    stage = ReleaseStage(policy(), "dbh", KEYS)
    now = ReleaseStage(policy(site=PLACE.replace("[site.dbh]", "[site.dbh]\nmax_devices = 9")), "dbh", KEYS)
    items = windows(FOUR + TICK, 20)
    straight, _, _ = released(items)
    _, _, state = released(items[:9], stage)
    names = {zone: frozenset([zone]) for zone in ("101", "201")}
    after, _, _ = released(items[9:], now, now.migrate(stage.encode(state), names))
    assert [record["values"] for record in after] == [record["values"] for record in straight[18:]]


def test_releases_that_count_no_changes_store_nothing_of_them() -> None:
    ticks = policy(day_release("day"), PLACE.replace(visit_site(), 'day_starts = "04:00"\ncontribution = "8h"'))
    stage = ReleaseStage(ticks, "dbh", KEYS)
    _, _, state = released([replace(each, bounded=(1, 1)) for each in windows(FOUR + TICK, 2)], stage)
    assert b'"changes"' not in stage.encode(state)


# ---- revised values -------------------------------------------------------------------------------------

DAILY = RELEASE + 'revise = ["1d"]\n'


def half_hours(first: Micros, number: int) -> list[OccupancyWindow]:
    """Windows of half an hour; people come and go."""
    ends = [first + (n + 1) * 30 * MINUTE for n in range(number)]
    many = [20 + n * 7 % 50 for n in range(number)]
    return [
        OccupancyWindow("dbh", end, (9, 9), Fraction(1), DAYS.at(end), None, LevelCounts((m, 3), (m, 3), (m + 3,)))
        for end, m in zip(ends, many, strict=True)
    ]


def revising(more: str = "") -> ReleaseStage:
    site = PLACE.replace("[site.dbh]", f'[site.dbh]\ntick = "30min"\n{more}')
    return ReleaseStage(policy(DAILY, site), "dbh", KEYS)


def revised_of(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["release"] == "moves-revised"]


def test_a_day_is_revised_once_with_windows_of_the_next_and_costs_nothing() -> None:
    stage, items = revising(), half_hours(FOUR, 48 + 12)
    records, entries, charges, _ = put_through(stage, items, stage.initial())
    revised, first = revised_of(records), {record["release_id"]: record for record in records}
    assert [each["revises"] for each in revised if each["audience"] == "public"] == [
        record["release_id"] for record in records if record["release"] == "moves" and record["audience"] == "public"
    ][:48]
    for each in revised:
        assert (each["spend"], each["bounded_to"], each["half_width_kind"]) == ("0", "4 visits", "posterior")
        assert each["levels"].keys() == first[each["revises"]]["levels"].keys()
    assert any(each["values"] != first[each["revises"]]["values"] for each in revised)
    plain = ReleaseStage(policy(RELEASE, PLACE.replace("[site.dbh]", '[site.dbh]\ntick = "30min"')), "dbh", KEYS)
    _, entries_without, charges_without, _ = put_through(plain, items, plain.initial())
    assert len(entries) == len(entries_without)
    assert [each.epsilon for each in charges] == [each.epsilon for each in charges_without]


def test_revised_values_are_nearer_than_first_ones() -> None:
    stage, items = revising(), half_hours(FOUR, 48 + 12)
    records, _, _, _ = put_through(stage, items, stage.initial())
    truth = {each.window_end: each.by_visits for each in items}
    off = dict.fromkeys(("moves", "moves-revised"), 0)
    due = {each["revises"] for each in revised_of(records)}
    for record in records:
        if record["release"] == "moves-revised" or record["release_id"] in due:
            counts = truth[parse_time(record["window_end"])]
            assert counts is not None
            off[record["release"]] += abs(record["levels"]["building"] - counts.building[0])
    assert off["moves-revised"] < off["moves"]


def test_revisions_go_on_after_a_restart_and_under_another_policy_on_equal_terms() -> None:
    stage, other, items = revising(), revising("max_devices = 9"), half_hours(FOUR, 48 + 12)
    straight, _, _, _ = put_through(stage, items, stage.initial())
    names = {zone: frozenset([zone]) for zone in ("101", "201")}
    for cut in (20, 50):
        first, _, _, state = put_through(stage, items[:cut], stage.initial())
        again, _, _, _ = put_through(stage, items[cut:], stage.decode(stage.encode(state)))
        assert first + again == straight
        moved, _, _, _ = put_through(other, items[cut:], other.migrate(stage.encode(state), names))
        values = [[each["values"] for each in revised_of(records)] for records in (first + moved, straight)]
        assert values[0] == values[1]


def test_a_revision_reads_released_values_alone() -> None:
    """Other values of the finer audience give the same bytes; a window never reaches a revision."""
    chosen = policy(DAILY, PLACE.replace("[site.dbh]", '[site.dbh]\ntick = "30min"'))
    (plan,) = count_plans(chosen, "dbh")
    writer, items = LedgerWriter.of(chosen, "dbh", KEYS, 1), half_hours(FOUR, 48 + 12)

    def told(finer: int) -> list[bytes]:
        revision, held = RevisionPlan(plan, "1d", chosen.site["dbh"], writer), dict[str, Any]()
        came = list[Published]()
        for n, window in enumerate(items):
            made = {each: flat(n + finer * (each == Fraction(4)), window, n == 48) for each in plan.mechanisms}
            came += revision.window(held, {}, window.window_end, window.coverage, made)
        return [each.value for each in came if ".public." in each.topic]

    assert len(told(0)) == 48
    assert told(0) == told(5)


def flat(value: int, window: OccupancyWindow, is_next_day: bool) -> Values:
    """Values of the five nodes, with the revised ones of the day before where the next begins."""
    nodes = np.full(5, value)
    assert window.privacy_day is not None
    day = RevisedDay(window.privacy_day.number - 1, np.arange(5), np.full((48, 5), value), np.ones((48, 5), int), True)
    return Values(nodes, nodes, whole(nodes), noisy=nodes, histories=[day] if is_next_day else [])


# ---- through the whole pipeline -------------------------------------------------------------------------

WHOLE = building(site=visit_site(), releases=change_release(more=LEVELS))
LOG = [encode_message(item) for item in messages(people(hours=40), WHOLE)]
CUT = len(LOG) * 2 // 3


def fed(partition: PartitionEngine, first: int = 0, last: int = len(LOG)) -> list[OutputRecord]:
    return [out for offset in range(first, last) for out in partition.process(offset, None, LOG[offset])]


@pytest.fixture(scope="module")
def straight() -> Sequence[OutputRecord]:
    return fed(PartitionEngine(WHOLE, laboratory()))


def test_a_takeover_gives_the_same_bytes(straight: Sequence[OutputRecord]) -> None:
    partition, other = PartitionEngine(WHOLE, laboratory()), PartitionEngine(WHOLE, laboratory())
    first = fed(partition, 0, CUT)
    assert other.restore(partition.snapshot(CUT, 0)) == CUT
    assert first + fed(other, CUT) == straight


def test_after_a_loss_it_waits_for_the_next_day(straight: Sequence[OutputRecord]) -> None:
    partition = PartitionEngine(WHOLE, laboratory())
    fed(partition, 0, CUT)
    partition.resume_after_loss(CUT + 20)
    reasons = of_public(
        orjson.loads(out.value) for out in fed(partition, CUT + 20) if out.topic == "tacet.private.public.moves.v1"
    )
    assert reasons.index(None) > 10
    assert set(reasons[: reasons.index(None)]) == {"waiting"}
    assert set(reasons[reasons.index(None) :]) == {None}
