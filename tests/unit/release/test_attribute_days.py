"""A zone's day is queried for attributes once, live or late, over changes of policy and time zone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from stream.accounting.charge_history import ChargeHistory, ChargeLine
from stream.errors import PolicyError
from stream.local_time import span_of_day
from stream.pipeline import Pipeline
from stream.records import DAY, DayAttribute, DayClosed, Published
from stream.release.backfill import BackfillStage
from stream.release.stage import ReleaseStage
from stream.release.state import (
    LocalDay,
    QueriedDays,
    ReleaseState,
    ZoneQuery,
    decode_queried_days,
    encode_queried_days,
)
from stream.release.validation import Policy
from tests.support.small_building import ATTRIBUTES, SITE, audit_of, bodies, building, laboratory

LOS_ANGELES = "America/Los_Angeles"
OFFICES = 'zones = { kind = "office" }'
PLAIN = building(releases=ATTRIBUTES)
MONTHLY = building(releases=ATTRIBUTES.replace(OFFICES, f"{OFFICES}\ndays_per_month = 1"))


def renamed(more: str = "", zones: str = OFFICES, name: str = "office-2") -> Policy:
    return building(releases=ATTRIBUTES.replace(OFFICES, f"{zones}\n{more}").replace("office-day", name))


def moved(policy: Policy, timezone: str) -> Policy:
    site = policy.site[SITE].model_copy(update={"timezone": timezone})
    return policy.model_copy(update={"site": {SITE: site}})


def closed(day: str, *, zones: str = "xy", timezone: str = LOS_ANGELES, later: int = 0) -> DayClosed:
    """Close a day with an early arrival in each of the zones, so many days after it is over."""
    _, end = span_of_day(day, ZoneInfo(timezone))
    records = tuple(DayAttribute(SITE, zone, day, "arrival", "09:00", end) for zone in zones)
    return DayClosed(SITE, day, end + later * DAY, records)


def step(policy: Policy, state: ReleaseState, item: DayClosed) -> list[dict[str, Any]]:
    """Release a day live, with a state that has been through its byte form; return the records."""
    stage = ReleaseStage(policy, SITE, laboratory())
    _, made = stage.step(state, item)
    return bodies(made, "private")


def adopted(policy: Policy, old: Policy, state: ReleaseState) -> ReleaseState:
    return ReleaseStage(policy, SITE, laboratory()).migrate(ReleaseStage(old, SITE, laboratory()).encode(state), {})


def late(policy: Policy, state: ReleaseState, item: DayClosed) -> list[Published]:
    return BackfillStage(policy, SITE, laboratory()).release_late(state, item, ReleaseState())


def reasons(records: Iterable[dict[str, Any]]) -> dict[str, set[str | None]]:
    report: dict[str, set[str | None]] = {}
    for record in records:
        report.setdefault(record["zone"], set()).add(record["reason"])
    return report


def test_a_day_asked_live_is_not_asked_late_as_the_ledger_tells() -> None:
    state = ReleaseState()
    _, made = ReleaseStage(PLAIN, SITE, laboratory()).step(state, closed("2026-03-03"))
    other = renamed()
    stage, books = BackfillStage(other, SITE, laboratory()), ReleaseState()
    stage.load_full_history(books, audit_of(made), {PLAIN.version: PLAIN})
    assert reasons(bodies(late(other, books, closed("2026-03-03")), "private")) == {"x": {"asked"}, "y": {"asked"}}
    assert reasons(bodies(late(other, books, closed("2026-03-04")), "private")) == {"x": {None}, "y": {None}}


def test_a_day_asked_late_is_not_asked_live_by_another_clock() -> None:
    """The fourth in Tokyo holds seventeen hours of the third in Los Angeles."""
    state, there = ReleaseState(), moved(PLAIN, "Asia/Tokyo")
    assert reasons(bodies(late(PLAIN, state, closed("2026-03-03", zones="x")), "private")) == {"x": {None}}
    state = adopted(there, PLAIN, state)
    made = step(there, state, closed("2026-03-04", timezone="Asia/Tokyo"))
    assert reasons(made) == {"x": {"asked"}, "y": {None}}
    assert {record["spend"] for record in made if record["zone"] == "x"} == {"0"}
    made = step(there, state, closed("2026-03-05", timezone="Asia/Tokyo"))
    assert reasons(made) == {"x": {None}, "y": {None}}


def test_a_date_that_a_change_of_time_zone_brings_again_is_left_out() -> None:
    """Its records would have the ids of those that were published."""
    east, west = moved(PLAIN, "Pacific/Kiritimati"), moved(PLAIN, "Pacific/Pago_Pago")
    state = ReleaseState()
    assert step(east, state, closed("2026-03-03", timezone="Pacific/Kiritimati"))
    state = adopted(west, east, state)
    assert step(west, state, closed("2026-03-03", timezone="Pacific/Pago_Pago", later=2)) == []
    assert reasons(step(west, state, closed("2026-03-04", timezone="Pacific/Pago_Pago", later=2))) == {
        "x": {None}, "y": {None},
    }  # fmt: skip


def test_days_of_a_month_are_counted_over_a_rename() -> None:
    state = ReleaseState()
    step(PLAIN, state, closed("2026-03-03"))
    other = renamed("days_per_month = 1")
    state = adopted(other, PLAIN, state)
    assert reasons(step(other, state, closed("2026-03-04"))) == {"x": {"month"}, "y": {"month"}}
    assert reasons(step(other, state, closed("2026-04-03"))) == {"x": {None}, "y": {None}}


def test_a_day_does_not_count_against_itself_in_its_month() -> None:
    state = ReleaseState()
    late(renamed(zones='zones = { ids = "x" }', name="one"), state, closed("2026-03-03"))
    both = renamed("days_per_month = 1")
    assert reasons(bodies(late(both, state, closed("2026-03-03")), "private")) == {"x": {"asked"}, "y": {None}}
    assert reasons(bodies(late(both, state, closed("2026-03-04")), "private")) == {"x": {"month"}, "y": {"month"}}


def test_asked_days_survive_their_byte_form_and_a_month() -> None:
    state = QueriedDays()
    for number in range(1, 32):
        day = f"2026-03-{number:02d}"
        state.note(LocalDay(day, *span_of_day(day, ZoneInfo(LOS_ANGELES))), "x", "arrival", 1.0)
    assert decode_queried_days(orjson.loads(orjson.dumps(encode_queried_days(state)))) == state
    state.forget("2026-03-31")
    assert min(state.days).local_day == "2026-03-02"
    assert state.in_month("2026-03-31", "x", ["arrival"]) == 29
    assert state.in_month("2026-03-31", "x", ["breaks"]) == state.in_month("2026-03-31", "y", ["arrival"]) == 0


def test_days_that_only_touch_share_no_instant() -> None:
    third, fourth, fifth = (
        LocalDay(day, *span_of_day(day, ZoneInfo(LOS_ANGELES))) for day in ("2026-03-03", "2026-03-04", "2026-03-05")
    )
    state = QueriedDays()
    state.note(fourth, "x", "arrival", 1.0)
    assert [state.zones_of(day) for day in (third, fourth, fifth)] == [frozenset(), {"x"}, frozenset()]


@pytest.mark.parametrize("zones", ["x", "xy"])
def test_a_day_is_asked_by_all_releases_of_its_zone_together_and_then_no_more(zones: str) -> None:
    level = ATTRIBUTES.partition("[release.attributes.occupancy_level]")
    two = building(releases=level[0] + level[0].replace("office-day", "more").replace("arrival", "departure"))
    state = ReleaseState()
    records = tuple(
        DayAttribute(SITE, zone, "2026-03-03", name, "09:00", 0) for zone in zones for name in ("arrival", "departure")
    )
    item = DayClosed(SITE, "2026-03-03", closed("2026-03-03").window_end, records)
    made = bodies(late(two, state, item), "private")
    assert {record["release"] for record in made if record["reason"] is None} == {"office-day", "more"}
    assert {record["reason"] for record in bodies(late(two, state, item), "private")} == {"asked"}


def test_two_releases_that_ask_the_same_attribute_of_a_zone_are_refused_at_load() -> None:
    rule = "an attribute of a zone must belong to one release only"
    with pytest.raises(PolicyError, match=rule):
        building(releases=ATTRIBUTES + ATTRIBUTES.replace("office-day", "more"))
    with pytest.raises(PolicyError, match=rule):
        building(
            releases=ATTRIBUTES + ATTRIBUTES.replace("office-day", "more").replace(OFFICES, 'zones = { ids = "x" }')
        )


def other_ids(policy: Policy) -> Policy:
    """Give the offices other ids, at the same access points."""
    site = policy.site[SITE]
    zones = tuple(
        zone.model_copy(update={"id": f"new-{zone.id}"} if zone.kind == "office" else {}) for zone in site.zones
    )
    return policy.model_copy(update={"site": {SITE: site.model_copy(update={"zones": zones})}})


def test_days_of_a_month_are_counted_over_a_new_id_of_their_zones() -> None:
    """Known by its access points, live as in the ledger: another id is not another room."""
    first, second = Pipeline(PLAIN, SITE, laboratory()), Pipeline(other_ids(MONTHLY), SITE, laboratory())
    states = first.initial()
    states.release, _ = ReleaseStage(PLAIN, SITE, laboratory()).step(states.release, closed("2026-03-03"))
    state = second.migrate(first.encode(states)).release
    item = closed("2026-03-04")
    records = tuple(replace(record, zone=f"new-{record.zone}") for record in item.attributes)
    made = step(other_ids(MONTHLY), state, replace(item, attributes=records))
    assert reasons(made) == {"new-x": {"month"}, "new-y": {"month"}}


def test_what_was_asked_and_charged_goes_on_under_every_name_that_its_zone_has_now() -> None:
    asked, charged = QueriedDays(), ChargeHistory()
    day = LocalDay("2026-03-03", *span_of_day("2026-03-03", ZoneInfo(LOS_ANGELES)))
    asked.note(day, "x", "arrival", 1.0)
    asked.note(day, "y", "breaks", 2.0)
    charged.note(day.start, "r/v/1", ChargeLine("laplace", 1, ("w", "x")), {"a": Fraction(1)})
    now = {"x": frozenset({"x", "z"}), "y": frozenset({"y", "z"})}
    asked.rename(now)
    charged.rename(now)
    assert asked.days[day] == {
        "x": ZoneQuery(frozenset(["arrival"]), 1.0), "y": ZoneQuery(frozenset(["breaks"]), 2.0),
        "z": ZoneQuery(frozenset(["arrival", "breaks"]), 2.0),
    }  # fmt: skip
    assert charged.covering("z") == charged.covering("w") == {"r/v/1"}
