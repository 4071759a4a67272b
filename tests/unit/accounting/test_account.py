"""The account: every privacy unit, every reader, everybody together, against a second way to the same figures."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

import orjson
import pytest

from stream.accounting.account_state import WindowRun
from stream.accounting.costs import as_decimal, coalition_cost, is_infinite
from stream.accounting.units import DeviceCosts
from stream.pipeline import Pipeline
from stream.policy.fields import decimal_string
from stream.records import DAY, MINUTE, CountCharge, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.validation import load_policy
from stream.schemas import LEAKAGE, parse_time
from tests.support.small_building import (
    ATTRIBUTES,
    COUNTS,
    EVENING,
    SITE,
    account_of,
    audit_of,
    bodies,
    building,
    day_outputs,
    laboratory,
    messages,
    outputs_of,
    people,
    policy_text,
    run,
)

SEEN = people()
MECHANISMS = {"grouped": "pegasus", "plain": "laplace", "smooth": "filter"}
AUDIENCES = ("facilities", "public", "board")


@cache
def day_records() -> list[dict[str, Any]]:
    return account_of(day_outputs())


def figures(entries: list[dict[str, Any]], tick: int, *, ticks: int, devices: int, w: int) -> dict[str, dict[str, Any]]:
    """Work the account out from audit entries alone: window -> reader -> unit -> epsilon."""
    windows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["release"] in MECHANISMS:
            windows[entry["window_end"]].append(entry)
    report: dict[str, dict[str, Any]] = {}
    costs: dict[str, list[tuple[int, Fraction]]] = defaultdict(list)
    for end, charged in windows.items():
        at = parse_time(end)
        day, edge = at // DAY, at % DAY < ticks * tick
        report[end] = {}
        for reader in (*AUDIENCES, "all"):
            now = Fraction(0)
            for release, mechanism in MECHANISMS.items():
                paid = {
                    Fraction(entry["nano"], 10**9)
                    for entry in charged
                    if entry["release"] == release and entry["nano"] and reader in ("all", entry["audience"])
                }
                if paid and mechanism == "pegasus":
                    now += max(paid) * 8 / 10 + sum(paid, Fraction(0)) * 2 / 10
                elif paid:
                    now += max(paid)
            costs[reader].append((at, now))
            today = max(of_day(costs[reader], of, ticks * tick) for of in (day, day - edge))
            total = sum((cost for _, cost in costs[reader]), Fraction(0))
            sliding = sum((cost for _, cost in costs[reader][-w:]), Fraction(0))
            report[end][reader] = {
                "presence_tuple": now, "tuple_moved": 2 * now,
                "observation": 2 * ticks * now, "observation_moved": 4 * ticks * now,
                "device_w_event": sliding, "device_w_event_moved": 2 * sliding, "person_w_event": devices * sliding,
                "device_day": today, "device_day_moved": 2 * today, "person_day": devices * today,
                "device_total": total, "person_total": devices * total,
            }  # fmt: skip
    return report


def of_day(costs: list[tuple[int, Fraction]], day: int, edge: int) -> Fraction:
    """Every tick of the UTC day and those after it at which its last observation counts, the first ones twice."""
    begins = day * DAY
    once = sum((cost for at, cost in costs if begins <= at < begins + DAY + edge), Fraction(0))
    return once + sum((cost for at, cost in costs if begins <= at < begins + edge), Fraction(0))


def assert_account(outputs: list[Any], tick: int, ticks: int, devices: int = 3) -> None:
    wanted = figures(audit_of(outputs), tick, ticks=ticks, devices=devices, w=12)
    records = [record for record in account_of(outputs) if record["kind"] == "counts"]
    assert [record["window_end"] for record in records] == list(wanted)
    for record in records:
        report = record["audiences"] | {"all": record["coalition"]}
        for reader, units in wanted[record["window_end"]].items():
            assert {unit: Fraction(report[reader][unit]) for unit in units} == units, (record["window_end"], reader)


def test_every_figure_follows_from_the_audit_entries_alone() -> None:
    assert_account(day_outputs(), 15 * MINUTE, ticks=1)
    totals = day_records()[-1]["coalition"]
    assert Fraction(totals["device_total"]) > 200


def test_an_observation_counts_at_as_many_ticks_as_its_validity_spans() -> None:
    """V = 10 min and a tick of 5 min: 2 ticks, so 4 epsilon added or removed and 8 epsilon replaced."""
    seen = people(hours=3, start=EVENING - 5 * 60 * MINUTE)  # from before a UTC midnight to after it
    outputs = outputs_of(building(releases=COUNTS, tick="5min"), seen)
    assert_account(outputs, 5 * MINUTE, ticks=2)
    units = account_of(outputs)[0]["audiences"]["facilities"]
    assert Fraction(units["observation"]) == 4 * Fraction(units["presence_tuple"])
    assert Fraction(units["observation_moved"]) == 8 * Fraction(units["presence_tuple"])


def test_a_person_is_as_many_devices_as_the_policy_says() -> None:
    policy = load_policy(policy_text(head="[privacy]\ndevices_per_person = 2\n"))
    outputs = outputs_of(policy, SEEN[:700])
    assert_account(outputs, 15 * MINUTE, ticks=1, devices=2)


def test_what_is_moved_or_replaced_costs_twice_and_an_observation_also_ends_the_one_before_it() -> None:
    costs = DeviceCosts(Fraction("0.1"), Fraction("0.2"), Fraction("0.4"), Fraction("0.5")).units(devices_per_person=3)
    assert {unit: decimal_string(cost) for unit, cost in costs.items()} == {
        "presence_tuple": "0.1", "tuple_moved": "0.2", "observation": "0.4", "observation_moved": "0.8",
        "device_w_event": "0.4", "device_w_event_moved": "0.8", "person_w_event": "1.2",
        "device_day": "0.5", "device_day_moved": "1", "person_day": "1.5",
    }  # fmt: skip


def test_a_day_costs_every_tick_of_it_and_both_its_edges() -> None:
    """From before one UTC midnight to after the next: 96 ticks of 15 min, and 2 for an observation's one tick."""
    policy = building(releases=COUNTS)
    records = account_of(outputs_of(policy, people(start=EVENING - 6 * 60 * MINUTE)))
    of = {record["window_end"]: record["audiences"]["public"] for record in records}
    whole = [of[f"2026-03-04T{time}:00Z"]["device_day"] for time in ("00:00", "00:15")]
    assert Fraction(whole[0]) == 98 * Fraction("0.6"), "the day before still counts at the tick that ends it"
    assert Fraction(whole[1]) == (1 + 1 + 1) * Fraction("0.6"), "the day at hand: its first tick twice"
    assert {Fraction(units["device_day_moved"]) / Fraction(units["device_day"]) for units in of.values()} == {2}


def test_refused_windows_cost_nothing() -> None:
    refused = [record for record in day_records() if record["refused"]]
    assert refused
    for record in refused:
        assert Fraction(record["audiences"]["board"]["presence_tuple"]) == Fraction("0.1")
        assert Fraction(record["coalition"]["presence_tuple"]) == Fraction("2.02"), "the others paid as before"


@pytest.mark.parametrize(
    ("mechanism", "epsilons", "cost"),
    [("laplace", ["1", "0.1"], "1"), ("filter", ["0.2", "0.5", "0.5"], "0.5"), ("laplace", [], "0"),
     ("pegasus", ["1", "0.1"], "1.02"), ("pegasus", ["1", "1"], "1"), ("pegasus", ["0.3", "0.2", "0.1"], "0.36"),
     ("pegasus", ["0.5", "0"], "0.5"), ("laplace", ["0", "0"], "0")],
)  # fmt: skip
def test_a_coalition_pays_the_largest_epsilon_and_each_grouper(mechanism: str, epsilons: list[str], cost: str) -> None:
    assert coalition_cost(mechanism, [Fraction(epsilon) for epsilon in epsilons]) == Fraction(cost)


def test_an_epsilon_without_an_end_is_rounded_up_at_its_eighteenth_digit() -> None:
    assert [as_decimal(Fraction(n, 3)) for n in (1, 2, 3)] == [Decimal(f"0.{'3' * 17}4"), Decimal(f"0.{'6' * 17}7"), 1]


def test_only_infinity_is_infinite_however_large_a_sum_of_epsilons_is() -> None:
    assert [is_infinite(epsilon) for epsilon in (math.inf, 1e300, Fraction(10) ** 400)] == [True, False, False]


def test_further_charges_of_the_latest_window_add_to_it() -> None:
    stage = account_stage(building(), SITE, laboratory=True)
    charge = CountCharge("plain", "facilities", "laplace", Fraction(1, 2))
    state, report = stage.initial(), []
    for end, attempt in ((DAY, 1), (DAY, 2), (DAY + MINUTE, 1)):
        state, made = stage.step(state, WindowCharges(SITE, end, (replace(charge, attempt=attempt),)))
        report += bodies(made, LEAKAGE)
    units = ("presence_tuple", "device_w_event", "device_total")
    found = [[record["audiences"]["facilities"][unit] for unit in units] for record in report]
    assert found == [["0.5", "0.5", "0.5"], ["1", "1", "1"], ["0.5", "1.5", "1.5"]]


def test_attempts_of_one_window_that_are_charged_together_add_up() -> None:
    stage = account_stage(building(), SITE, laboratory=True)
    charge = CountCharge("plain", "facilities", "laplace", Fraction(1, 2))
    _, made = stage.step(stage.initial(), WindowCharges(SITE, DAY, (charge, replace(charge, attempt=2))))
    [record] = bodies(made, LEAKAGE)
    assert record["audiences"]["facilities"]["presence_tuple"] == "1"


def test_temporal_leakage_is_that_of_the_largest_epsilon_so_far() -> None:
    moves = "[privacy.mobility]\nforward = [[0.8, 0.2], [0.4, 0.6]]\n"
    stage = account_stage(load_policy(policy_text() + moves), SITE, laboratory=True)
    state, report = stage.initial(), []
    for number, epsilon in enumerate(("0.5", "0.1")):
        charge = CountCharge("plain", "facilities", "laplace", Fraction(epsilon))
        state, made = stage.step(state, WindowCharges(SITE, DAY + number * MINUTE, (charge,)))
        report += [body["audiences"]["facilities"]["temporal"] for body in bodies(made, LEAKAGE)]
    assert report[0] == report[1] > 0.5


@pytest.mark.parametrize(("windows", "epsilons"), [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3)])
def test_windows_of_a_w_event_release_cost_an_epsilon_for_every_w_begun(windows: int, epsilons: int) -> None:
    assert WindowRun(Fraction(1), w=3).cost(windows).pure == epsilons


def test_any_w_windows_cost_no_more_than_the_epsilons_that_pay_for_them_however_long_a_release_runs() -> None:
    stage = replace(account_stage(building(), SITE, laboratory=True), w=6)
    state, found = stage.initial(), []
    charge = CountCharge("plain", "facilities", "sample", Fraction(1, 2), w=3)
    for number in range(10):
        state, made = stage.step(state, WindowCharges(SITE, DAY + number * MINUTE, (charge,)))
        found += [body["audiences"]["facilities"]["device_w_event"] for body in bodies(made, LEAKAGE)]
    assert found == ["0.5"] * 3 + ["1"] * 7


def test_equal_epsilons_share_one_value_so_that_the_coalition_pays_one_grouper() -> None:
    """public and board both have 0.1 of the PeGaSus release: equal values, one grouper in the account."""
    public, board = (bodies(day_outputs(), f"tacet.private.{name}.grouped.v1") for name in ("public", "board"))
    assert [body["values"] for body in public] == [body["values"] for body in board]
    first = day_records()[0]["coalition"]["presence_tuple"]
    assert Fraction(first) == Fraction("1.02") + Fraction("0.5") + Fraction("0.5")


def test_the_factor_of_theorem_1_is_e_to_epsilon_for_what_was_withheld_and_zero_for_what_was_shown() -> None:
    shown_and_withheld = set()
    for seed in range(1, 7):
        outputs = outputs_of(building(releases=ATTRIBUTES), SEEN, laboratory(seed))
        [record] = [record for record in account_of(outputs) if record["kind"] == "attributes"]
        rows: dict[str, dict[str, float]] = defaultdict(dict)
        for body in bodies(outputs, "private"):
            if "attribute" in body:
                factor = 0.0 if body["released"] else math.exp(float(body["epsilon"]))
                rows[f"{body['day']}/{body['zone']}/{body['attribute']}"][body["audience"]] = factor
                shown_and_withheld.add((body["audience"], body["released"]))
        for row in rows.values():
            row["all"] = 0.0 if 0.0 in row.values() else max(row.values())
        report = {name: factors["theorem_1"] for name, factors in record["attributes"].items()}
        assert {name: pytest.approx(row, abs=1e-8) for name, row in rows.items()} == report
    assert ("facilities", True) in shown_and_withheld
    assert ("facilities", False) in shown_and_withheld


def test_there_is_one_account_record_for_each_window_and_each_day() -> None:
    ends = [(record["window_end"], record["kind"]) for record in day_records()]
    assert len(ends) == len(set(ends))
    audited = {entry["window_end"] for entry in audit_of(day_outputs()) if entry["release"] in MECHANISMS}
    assert {end for end, kind in ends if kind == "counts"} == audited
    assert [kind for _, kind in ends].count("attributes") == 1
    assert all(record["laboratory"] for record in day_records())


def test_the_account_holds_no_count_and_no_value() -> None:
    """It follows from ids, epsilons and outcomes: the same for everybody's observations but for coins."""
    others = outputs_of(building(), people(5, devices=60))
    by_end = {record["window_end"]: record for record in day_records() if record["kind"] == "counts"}
    records = [record for record in account_of(others) if record["kind"] == "counts"]
    shared = [record for record in records if record["window_end"] in by_end]
    assert shared == [by_end[record["window_end"]] for record in shared]
    assert len(shared) > 100


def test_a_policy_without_an_audience_keeps_what_that_audience_has_had() -> None:
    made = Pipeline(building(), SITE, laboratory())
    states = made.initial()
    for item in messages(SEEN[:800], building()):
        states, _ = made.step(states, item)
    before = states.account.totals["board"].total
    fewer = Pipeline(
        load_policy(policy_text().replace(', board = "0.1"', "").replace(', board = "0.25"', "").replace(
            'daily_budget = { board = "10" }', "").replace('[[audience]]\nname = "board"\n', "")),
        SITE, laboratory(),
    )  # fmt: skip
    states = fewer.migrate(made.encode(states))
    for item in list(messages(SEEN[:1500], building()))[-200:]:
        states, _ = fewer.step(states, item)
    assert before.pure > 0
    assert states.account.totals["board"].total == before
    back = made.migrate(fewer.encode(states))
    assert back.account.totals["board"].total == before


def test_the_record_is_the_same_bytes_each_time() -> None:
    again = account_of(run(Pipeline(building(), SITE, laboratory()), islice(messages(SEEN, building()), 200)))
    assert len(again) > 40
    assert [orjson.dumps(each) for each in again] == [orjson.dumps(each) for each in day_records()[: len(again)]]
    assert decimal_string(Fraction("28.80")) == "28.8"
