"""Fields of a released record, and what they may depend on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from stream.errors import KeyFileError
from stream.keys import ForwardKeys, key_day_of
from stream.mechanisms.noise import half_width_95, sum_half_width_95
from stream.operators import scan
from stream.pipeline import Pipeline
from stream.records import DAY, DayAttribute, DayClosed, OccupancyWindow, Published
from stream.release.validation import Policy
from stream.schemas import AUDIT, parse_time
from tests.support.small_building import (
    ATTRIBUTES,
    SITE,
    bodies,
    building,
    day_outputs,
    laboratory,
    messages,
    outputs_of,
    people,
    policy_text,
    unchecked,
)

SEEN = people()

RECORD = {
    "v", "release_id", "site", "audience", "release", "window_start", "window_end", "values", "released", "reason",
    "mechanism", "epsilon", "spend", "noise_scale", "half_width_95", "half_width_kind", "coverage",
    "policy_version", "laboratory",
}  # fmt: skip
LEVELS = {"levels", "levels_half_width_95"}
OPTIONAL = {
    "plain": LEVELS, "grouped": LEVELS | {"noisy", "levels_noisy", "levels_draws"}, "smooth": {"noisy"},
}  # fmt: skip


def one_release(mechanism: str, epsilon: str = 'board = "0.5"', more: str = "", zones: str = "{}") -> Policy:
    return building(
        releases=f"""
[[release]]
name = "r"
query = "count"
mechanism = "{mechanism}"
zones = {zones}
epsilon = {{ {epsilon} }}
{more}
"""
    )


def stage_of(policy: Policy, keys: Any = None) -> Any:
    return Pipeline(policy, SITE, keys or laboratory()).stages.release


def records_of(
    policy: Policy, counts: Sequence[tuple[int, ...]], coverage: str = "1", keys: Any = None
) -> list[dict[str, Any]]:
    tick, first = policy.site[SITE].tick, 20_000 * DAY
    items = [OccupancyWindow(SITE, first + n * tick, row, Fraction(coverage)) for n, row in enumerate(counts)]
    return bodies(scan(stage_of(policy, keys), items)[1], "private")


# --- open groups ----------------------------------------------------------------------------------------


def groups_after(policy: Policy, first: int, windows: int) -> list[list[int]]:
    """Sizes of the open groups after each of some windows of equal counts."""
    stage, tick = stage_of(policy), policy.site[SITE].tick
    state, sizes = stage.initial(), []
    counts = (5,) * len(policy.site[SITE].zones)
    for n in range(windows):
        state, _ = stage.step(state, OccupancyWindow(SITE, first + n * tick, counts, Fraction(1)))
        sizes += [held.size.tolist() for held in state.operator_states.values()]
    return sizes


def test_open_groups_close_where_the_key_day_ends() -> None:
    policy = one_release("pegasus", 'board = "100"')
    tick = policy.site[SITE].tick
    before, last, first, after = groups_after(policy, 20_000 * DAY - tick, 4)
    assert set(before) == set(first) == {1}
    assert 2 in last, "the window that ends at midnight still belongs to the day before"
    assert 2 in after


def test_a_window_that_is_refused_closes_the_open_groups_and_enters_none() -> None:
    policy = one_release("pegasus", 'board = "100"', 'daily_budget = { board = "200" }')
    first, second, third = groups_after(policy, 20_000 * DAY + policy.site[SITE].tick, 3)
    assert set(first) == {1}
    assert 2 in second
    assert set(third) == {0}


def test_a_second_attempt_asks_no_attributes() -> None:
    policy, seen = building(releases=ATTRIBUTES), people(hours=29)
    assert bodies(outputs_of(policy, seen), "private")
    assert not bodies(outputs_of(policy, seen, attempt=2), "private")


# --- the record ----------------------------------------------------------------------------------------


def test_a_count_record_has_every_field_that_says_how_good_it_is() -> None:
    tick = building().site[SITE].tick
    for body in bodies(day_outputs(), "private"):
        if "attribute" in body:
            continue
        assert set(body) - OPTIONAL[body["release"]] == RECORD
        assert OPTIONAL[body["release"]] <= set(body)
        assert parse_time(body["window_end"]) - parse_time(body["window_start"]) == tick
        name = f"{SITE}/{body['release']}/{body['audience']}/{body['window_end']}"
        assert body["release_id"] == name
        assert body["half_width_kind"] == ("noise" if body["release"] == "plain" else "posterior")
        assert body["laboratory"] is True
        assert body["coverage"] == 1


def test_every_declared_zone_is_in_every_record_zeros_included() -> None:
    zones = {"grouped": ["a", "b", "c", "d"], "plain": ["a", "b", "c", "d"], "smooth": ["a", "b", "c"]}
    for body in bodies(day_outputs(), "private"):
        if body.get("values") is not None:
            assert list(body["values"]) == zones[body["release"]]
            assert list(body["half_width_95"]) == list(body["noise_scale"]) == zones[body["release"]]
            assert all(type(value) is int for value in body["values"].values())


def test_a_window_without_anybody_is_released_like_any_other() -> None:
    records = records_of(one_release("laplace"), [(0,) * 6] * 50)
    assert len(records) == 50
    assert all(body["released"] for body in records)
    assert len({body["values"]["a"] for body in records}) > 3


def test_records_come_in_the_order_of_windows_and_are_published_at_their_end() -> None:
    for audience in ("facilities", "public", "board"):
        times = [out.time for out in day_outputs() if out.topic == f"tacet.private.{audience}.grouped.v1"]
        assert times == sorted(set(times))
    for out in day_outputs():
        if ".private." in out.topic and "office-day" not in out.topic:
            assert out.time == parse_time(bodies([out], "private")[0]["window_end"])


def test_coverage_is_told() -> None:
    assert {body["coverage"] for body in records_of(one_release("laplace"), [(1,) * 6] * 3, "1/2")} == {0.5}


def test_noise_scale_and_half_width_are_of_the_epsilon_that_the_counts_spend() -> None:
    for body in bodies(day_outputs(), "private"):
        if body["release"] in ("grouped", "plain") and body["released"]:
            share = Fraction(body["epsilon"]) * (Fraction(4, 5) if body["release"] == "grouped" else 1)
            assert set(body["noise_scale"].values()) == {float(1 / share)}
            if body["release"] == "plain":
                assert set(body["half_width_95"].values()) == {half_width_95(share)}


# --- values ---------------------------------------------------------------------------------------------


def test_laplace_is_left_as_it_is_and_may_be_negative() -> None:
    values = [v for body in records_of(one_release("laplace"), [(0,) * 6] * 200) for v in body["values"].values()]
    assert min(values) < -3
    assert abs(sum(values) / len(values)) < 6 * math.sqrt(2 / 0.25 / len(values)), "false alarm below 1e-8"


@pytest.mark.parametrize("mechanism", ["pegasus", "filter"])
def test_pegasus_and_filter_are_never_negative(mechanism: Any) -> None:
    policy = one_release(mechanism, 'board = "0.1"', 'levels = ["zone", "floor", "building"]')
    records = records_of(policy, [(0,) * 6] * 150)
    assert min(value for body in records for value in body["values"].values()) == 0
    assert min(body["levels"]["building"] for body in records) >= 0


def test_audiences_of_equal_epsilon_share_one_value() -> None:
    records = records_of(one_release("laplace", 'board = "0.5", public = "0.50", facilities = "0.6"'), [(3,) * 6] * 30)
    by_audience = {
        name: [b["values"] for b in records if b["audience"] == name] for name in ("board", "public", "facilities")
    }
    assert by_audience["board"] == by_audience["public"] != by_audience["facilities"]


def test_a_mechanism_reads_only_the_zones_of_its_release() -> None:
    policy = one_release("pegasus", zones='{ ids = ["a", "c"] }')
    quiet = records_of(policy, [(3, 0, 5, 0, 0, 0)] * 40)
    busy = records_of(policy, [(3, n, 5, 9 * n, 1, 1) for n in range(40)])
    assert quiet == busy
    assert list(quiet[0]["values"]) == ["a", "c"]


def test_other_counts_other_noise_same_counts_same_noise() -> None:
    policy = one_release("laplace")
    counts = [(3, 0, 5, 2, 0, 0)] * 20
    other = [(3, 0, 5, 2, 0, 1)] * 20
    one, same, changed = records_of(policy, counts), records_of(policy, counts), records_of(policy, other)
    assert one == same
    unchanged = [(a["values"][zone], b["values"][zone]) for a, b in zip(one, changed, strict=True) for zone in "abcd"]
    assert sum(a != b for a, b in unchanged) > 40, "no difference of two releases tells the difference of the counts"


# --- floors and buildings ---------------------------------------------------------------------------------


def test_levels_of_laplace_are_the_sums_of_the_zones_unclamped() -> None:
    policy = one_release("laplace", more='levels = ["zone", "floor", "building"]')
    records = records_of(policy, [(0,) * 6] * 100)
    for body in records:
        floors: defaultdict[Any, Any] = defaultdict(int)
        for zone, floor in zip("abcdxy", "112222", strict=True):
            floors[floor] += body["values"][zone]
        assert body["levels"] == {"floor": dict(floors), "building": sum(floors.values())}
    assert min(body["levels"]["building"] for body in records) < 0


def test_levels_are_sums_before_clamping_not_sums_of_what_was_clamped() -> None:
    """Of empty zones, clamped values add up to a bias; what was there before clamping does not."""
    policy = one_release("pegasus", 'board = "0.2"', 'levels = ["zone", "building"]\nsmoother = "average"')
    records = records_of(policy, [(0,) * 6] * 200)
    zero = sum(body["levels"]["building"] == 0 for body in records)
    clamped = sum(sum(body["values"].values()) == 0 for body in records)
    assert zero > 60
    assert clamped < 20


@pytest.mark.parametrize("mechanism", ["pegasus", "filter", "laplace"])
def test_levels_never_contradict_each_other(mechanism: Any) -> None:
    policy = one_release(mechanism, 'board = "0.2"', 'levels = ["zone", "floor", "building"]')
    for body in records_of(policy, [(0, 0, 0, 0, 0, 40)] * 50):
        assert sum(body["levels"]["floor"].values()) == body["levels"]["building"]


def test_levels_have_half_widths_of_their_own() -> None:
    policy = one_release("laplace", more='levels = ["zone", "floor", "building"]')
    [body] = records_of(policy, [(1,) * 6])
    floor = {"1": sum_half_width_95(Fraction("0.5"), 2), "2": sum_half_width_95(Fraction("0.5"), 4)}
    whole = sum_half_width_95(Fraction("0.5"), 6)
    assert body["levels_half_width_95"] == {"floor": floor, "building": whole}
    single = half_width_95(Fraction("0.5"))
    assert single < floor["1"] < floor["2"] < whole < 6 * single


def test_the_half_width_of_a_sum_covers_95_percent_and_one_less_does_not() -> None:
    for n, epsilon in ((1, "1"), (2, "0.5"), (5, "0.1")):
        width = sum_half_width_95(Fraction(epsilon), n)
        a = math.exp(-float(Fraction(epsilon)))
        pmf, size = {0: 1.0}, 60 * int(n**0.5 + 1) * int(1 / float(Fraction(epsilon)) + 1)
        one = {k: (1 - a) / (1 + a) * a ** abs(k) for k in range(-size, size + 1)}
        for _ in range(n):
            grown: dict[int, float] = defaultdict(float)
            for k, p in pmf.items():
                if p > 1e-12:
                    for z, q in one.items():
                        if q > 1e-9:
                            grown[k + z] += p * q
            pmf = grown
        assert sum(p for k, p in pmf.items() if abs(k) > width) <= 0.05 + 1e-5
        assert sum(p for k, p in pmf.items() if abs(k) > width - 1) > 0.05 - 1e-5


# --- attributes -------------------------------------------------------------------------------------------


def test_an_attribute_record_says_whose_and_when_and_its_value_only_if_shown() -> None:
    records = [body for body in bodies(day_outputs(), "private") if "attribute" in body]
    assert len(records) == 6
    for body in records:
        assert (body["day"], body["window_start"], body["window_end"]) == (
            "2026-03-03", "2026-03-03T08:00:00Z", "2026-03-04T08:00:00Z",
        )  # fmt: skip
        assert body["release_id"].endswith(f"/2026-03-03/{body['zone']}/{body['attribute']}")
        assert ("value" in body) == body["released"]
        assert body["spend"] == body["epsilon"]
        assert body["coverage"] == 1


def test_all_attribute_records_of_a_day_are_published_at_one_time() -> None:
    times = {out.time for out in day_outputs() if ".office-day." in out.topic}
    assert times == {parse_time("2026-03-04T08:00:00Z")}


def test_the_coverage_of_an_attribute_is_the_least_of_its_day() -> None:
    policy = building()
    stage = stage_of(policy)
    state = stage.initial()
    first = parse_time("2026-03-03T08:00:00Z")
    tick = policy.site[SITE].tick
    for n, coverage in enumerate(("1", "1/2", "1")):
        state, _ = stage.step(state, OccupancyWindow(SITE, first + n * tick, (1,) * 6, Fraction(coverage)))
        state = stage.decode(stage.encode(state))
    closed = DayClosed(
        SITE, "2026-03-03", first + DAY, (DayAttribute(SITE, "x", "2026-03-03", "arrival", "09:00", first + DAY),)
    )
    assert {body["coverage"] for body in bodies(stage.step(state, closed)[1], "private")} == {0.5}


def test_a_sensitive_value_is_never_shown_and_the_others_are_nested_over_audiences() -> None:
    policy = building()
    stage = stage_of(policy)
    shown = defaultdict(set)
    for number in range(400):
        day = f"20{10 + number // 336:02d}-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}"
        value = ("09:00", "10:00", "10:15", None)[number % 4]
        records = tuple(DayAttribute(SITE, zone, day, "arrival", value, 0) for zone in "xy")
        for body in bodies(stage.step(stage.initial(), DayClosed(SITE, day, 0, records))[1], "private"):
            if body["released"]:
                shown[body["audience"]].add((body["zone"], day, body["value"]))
    assert {value for _, _, value in shown["facilities"]} == {"09:00", "10:00"}
    assert shown["public"] < shown["facilities"]
    assert len(shown["public"]) > 20


def test_the_value_of_an_empty_day_is_shown_only_where_absence_is_public() -> None:
    for absent, wanted in (("sensitive", 0), ("public", 1)):
        policy = unchecked(
            policy_text(f"""
[[release]]
name = "d"
query = "attributes"
zones = {{ kind = "office" }}
absent = "{absent}"
[release.attributes.departure]
epsilon = {{ board = "9" }}
sensitive = {{ before = "16:00" }}
""")
        )
        closed = DayClosed(SITE, "2026-03-03", 0, (DayAttribute(SITE, "x", "2026-03-03", "departure", None, 0),))
        [body] = bodies(stage_of(policy).step(stage_of(policy).initial(), closed)[1], "private")
        assert body["released"] == bool(wanted)
        assert ("value" in body, body.get("value")) == (bool(wanted), None)


# --- keys --------------------------------------------------------------------------------------------------


def test_a_window_whose_day_has_no_key_any_more_is_not_released() -> None:
    policy = one_release("laplace")
    keys = ForwardKeys(20_000, bytes(32), "l", b"a" * 32)
    stage = stage_of(policy, keys)
    before = OccupancyWindow(SITE, 20_000 * DAY, (1,) * 6, Fraction(1))
    assert key_day_of(before.window_end - policy.site[SITE].tick) == 19_999
    with pytest.raises(KeyFileError):
        stage.step(stage.initial(), before)


def test_a_record_made_with_a_production_key_is_not_marked_as_a_laboratorys() -> None:
    records = records_of(one_release("laplace"), [(1,) * 6], keys=ForwardKeys(19_999, bytes(32), "l", b"a" * 32))
    assert [body["laboratory"] for body in records] == [False]


def test_each_utc_day_has_its_own_noise_key() -> None:
    """Knowing a later day's key tells nothing of an earlier day: its noise was drawn with another."""
    policy = one_release("laplace")
    first = 20_000 * DAY
    tick = policy.site[SITE].tick
    items = [OccupancyWindow(SITE, first + n * tick, (1,) * 6, Fraction(1)) for n in range(3)]
    old = ForwardKeys(19_999, bytes(32), "l", b"a" * 32)
    values = [body["values"] for body in bodies(scan(stage_of(policy, old), items)[1], "private")]
    later = [
        body["values"] for body in bodies(scan(stage_of(policy, old.from_key_day(20_000)), items[1:])[1], "private")
    ]
    assert later == values[1:]
    wrong = ForwardKeys(20_000, bytes(32), "l", b"a" * 32)
    assert [body["values"] for body in bodies(scan(stage_of(policy, wrong), items[1:])[1], "private")] != later


def test_what_is_published_has_topics_of_audit_audiences_and_account_only() -> None:
    topics = {out.topic for out in day_outputs() if isinstance(out, Published)}
    assert AUDIT in topics
    assert not [topic for topic in topics if "presence" in topic or "occupancy" in topic]
    restricted = building(head="[restricted]\noccupancy = true\n")
    made = Pipeline(restricted, SITE, laboratory())
    states, seen = made.initial(), set()
    for item in messages(SEEN[:300], restricted):
        states, more = made.step(states, item)
        for out in more:
            assert isinstance(out, Published)
            seen.add(out.topic)
    assert "tacet.occupancy.v1" in seen
