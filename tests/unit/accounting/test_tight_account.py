"""The account at a delta: beside the epsilons added up, what everything charged costs by the law of its loss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest

from stream.accounting.account import Account
from stream.accounting.account_state import AccountState
from stream.accounting.composition import Gaussian, Laplace, Noise, compose
from stream.accounting.units import UNITS
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, CountCharge, DayTerms, Micros, WindowCharges
from stream.release.account_stage import account_stage, rebuild_account
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from tests.support.small_building import (
    SITE,
    account_of,
    audit_of,
    building,
    day_outputs,
    outputs_of,
    people,
    policy_text,
)

TICK = 5 * MINUTE
MIDNIGHT: Micros = parse_time("2026-03-03T00:00:00Z")
DELTA = Fraction(1, 1_000_000)
PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { facilities = "0.5", public = "0.1" }
"""


def counted(policy: Policy, charges: Iterable[tuple[Micros, tuple[CountCharge, ...]]], **how: Any) -> list[Any]:
    """Return the account's records after these windows."""
    stage = account_stage(policy, SITE, laboratory=True)
    stage = replace(stage, tick_length=TICK, ticks_per_observation=2, **how)
    _, made = scan(stage, [WindowCharges(SITE, end, each) for end, each in charges], stage.initial())
    return [orjson.loads(record.value) for record in made]


def charge(audience: str, epsilon: str, name: str = "plain", mechanism: str = "laplace") -> CountCharge:
    return CountCharge(name, audience, mechanism, Fraction(epsilon))


def whole_day(*charges: CountCharge) -> list[tuple[Micros, tuple[CountCharge, ...]]]:
    """Return the windows of one UTC day and of the observations that reach into it and out of it."""
    return [(MIDNIGHT + n * TICK, charges) for n in range(290)]


def price(*releases: Noise, group: int = 1) -> float:
    return compose(releases, DELTA, group).approximate


def assert_near(found: dict[str, float], wanted: float) -> None:
    """As the running stream may be: never below, and not by more than a tenth above."""
    assert found["delta"] == 1e-6
    assert wanted - 1e-6 <= found["epsilon"] <= 1.1 * wanted, (found, wanted)


def test_a_day_of_windows_costs_less_at_delta_than_its_epsilons_added_up() -> None:
    """292 windows at 0.1: 29.2 added up, 9.01 at 1e-6."""
    record = counted(building(releases=PLAIN), whole_day(charge("public", "0.1")))[-1]
    units = record["audiences"]["public"]
    assert units["device_day"] == "29.2"
    assert list(units["tight"]) == [name for name, unit in UNITS.items() if unit.scope.accumulates]
    assert_near(units["tight"]["device_day"], 9.009)
    assert_near(units["tight"]["device_day_moved"], price(Laplace(Decimal("0.1"), 2 * 292)))
    assert_near(units["tight"]["person_day"], price(Laplace(Decimal("0.1"), 292), group=3))
    assert_near(units["tight"]["device_total"], price(Laplace(Decimal("0.1"), 290)))
    assert_near(units["tight"]["person_total"], price(Laplace(Decimal("0.1"), 290), group=3))
    assert_near(units["tight"]["device_w_event"], price(Laplace(Decimal("0.1"), 12)))


def test_the_last_window_is_exact_where_that_is_asked_for() -> None:
    end = MIDNIGHT + 288 * TICK
    *_, day, after = counted(building(releases=PLAIN), whole_day(charge("public", "0.1")), exact_from=end + TICK)
    assert after["audiences"]["public"]["tight"]["device_total"]["epsilon"] == pytest.approx(
        price(Laplace(Decimal("0.1"), 290)), abs=1.1e-6
    )
    assert day["audiences"]["public"]["tight"]["device_total"]["epsilon"] > price(Laplace(Decimal("0.1"), 289)) + 1e-3


def test_readers_of_one_chain_know_what_the_finest_knows() -> None:
    both = (charge("facilities", "0.5"), charge("public", "0.1"))
    record = counted(building(releases=PLAIN), whole_day(*both))[-1]
    assert record["coalition"]["tight"] == record["audiences"]["facilities"]["tight"]


def test_the_grouper_of_pegasus_is_added_up_and_its_noise_is_composed() -> None:
    record = counted(building(), whole_day(charge("public", "0.1", "grouped", "pegasus")))[-1]
    tight = record["audiences"]["public"]["tight"]["device_total"]
    assert_near(tight, price(Laplace(Decimal("0.08"), 290)) + 290 * 0.02)


def test_what_has_no_proven_law_is_added_up() -> None:
    """Beside a release of the same name that prunes, or whose noise is its own, nothing is gained."""
    how: dict[str, Any] = {"plain": {"plain": ()}}
    record = counted(building(releases=PLAIN), whole_day(charge("public", "0.1")), **how)[-1]
    units = record["audiences"]["public"]
    assert units["tight"]["device_total"]["epsilon"] == float(units["device_total"]) == 29.0


PRUNED = """
[[release]]
name = "pruned"
query = "count"
mechanism = "laplace"
levels = ["zone", "floor"]
shares = { zone = "0.5", floor = "0.5" }
epsilon = { public = "1" }
prune = { share = "0.2", below = 5 }
"""
SHARED = PRUNED.replace('prune = { share = "0.2", below = 5 }\n', "")
OWN = PLAIN.replace('mechanism = "laplace"', 'mechanism = "sample"\nw = 4').replace('facilities = "0.5", ', "")


@pytest.mark.parametrize(
    ("release", "shares"),
    [(PLAIN, (1,)), (SHARED, (Fraction(1, 2), Fraction(1, 2))), (PRUNED, ()), (OWN, ())],
)
def test_a_release_has_plain_noise_only_where_nothing_else_decides(release: str, shares: tuple[Any, ...]) -> None:
    assert tuple(account_stage(building(releases=release), SITE, laboratory=True).plain.values()) == (shares,)


def test_denied_windows_cost_nothing_at_any_delta() -> None:
    denied = replace(charge("public", "0"), reason="budget")
    record = counted(building(releases=PLAIN), whole_day(denied))[-1]
    assert {one["epsilon"] for one in record["audiences"]["public"]["tight"].values()} == {0.0}


def test_delta_is_the_policys() -> None:
    policy = load_policy(policy_text(head='[privacy]\ndelta = "1e-9"\n'))
    units = account_of(outputs_of(policy, people()[:600]))[-1]["audiences"]["public"]
    assert {one["delta"] for one in units["tight"].values()} == {1e-9}


def test_tight_is_never_more_than_the_epsilons_added_up() -> None:
    for record in account_of(day_outputs()):
        for units in (*record["audiences"].values(), record["coalition"]):
            for unit, one in units["tight"].items():
                assert one["epsilon"] <= float(units[unit]) + 1e-6


# --- days that are paid as a whole ----------------------------------------------------------------------

DAYS = PrivacyDays("04:00", "America/Los_Angeles")
FOUR: Micros = parse_time("2026-03-03T04:00:00-08:00")
SIGMA2 = {"public": Fraction(478), "facilities": Fraction(137)}


def paid(audience: str, end: Micros, attempt: int = 1) -> CountCharge:
    terms = DayTerms(DAYS.at(end), "gaussian", (SIGMA2[audience],), 96)
    return CountCharge("plain", audience, "laplace", Fraction(2), attempt=attempt, terms=terms)


def by_day(ends: Iterable[Micros], *audiences: str, attempt: int = 1) -> list[dict[str, Any]]:
    windows = [(end, tuple(paid(audience, end, attempt) for audience in audiences)) for end in ends]
    return counted(building(releases=PLAIN), windows, privacy_days=DAYS)


def day_of(times: int, variance: Fraction = SIGMA2["public"]) -> Gaussian:
    return Gaussian(variance, times)


def test_a_paid_day_costs_its_price_once_whatever_its_windows() -> None:
    first, *_, last = by_day([FOUR + n * TICK for n in range(1, 200)], "public")
    for record in (first, last):
        units = record["audiences"]["public"]
        assert units["device_day"] == units["device_total"] == units["presence_tuple"] == "inf"
        assert_near(units["tight"]["device_day"], price(day_of(96)))
        assert_near(units["tight"]["device_total"], price(day_of(96)))
        assert_near(units["tight"]["person_day"], price(day_of(96), group=3))
        for unit in ("presence_tuple", "tuple_moved", "observation", "observation_moved", "device_w_event"):
            assert_near(units["tight"][unit], price(day_of(192)))
        assert_near(units["tight"]["device_day_moved"], price(day_of(192)))
    assert price(day_of(96)) <= 2


def test_days_add_up_and_w_windows_may_touch_two() -> None:
    records = by_day([FOUR - TICK, FOUR, FOUR + TICK, FOUR + 100 * TICK], "public")
    tight = [record["audiences"]["public"]["tight"] for record in records]
    assert_near(tight[1]["device_total"], price(day_of(96)))
    assert_near(tight[2]["device_total"], price(day_of(192)))
    assert_near(tight[2]["device_w_event"], price(day_of(384)))
    assert_near(tight[2]["presence_tuple"], price(day_of(192)))
    assert_near(tight[2]["device_day"], price(day_of(96)))
    assert_near(tight[3]["device_w_event"], price(day_of(192)))


def test_another_attempt_is_another_price() -> None:
    end = FOUR + TICK
    windows = [(end, (paid("public", end),)), (end + TICK, (paid("public", end, 1), paid("public", end, 2)))]
    record = counted(building(releases=PLAIN), windows, privacy_days=DAYS)[-1]
    assert_near(record["audiences"]["public"]["tight"]["device_day"], price(day_of(192)))


def test_a_coalition_on_paid_days_knows_what_its_finest_member_knows() -> None:
    record = by_day([FOUR + TICK], "public", "facilities")[-1]
    assert record["coalition"]["tight"] == record["audiences"]["facilities"]["tight"]
    assert_near(record["coalition"]["tight"]["device_day"], price(day_of(96, SIGMA2["facilities"])))


def test_windows_and_days_of_one_site_compose() -> None:
    end = FOUR + 20 * TICK
    other = CountCharge("other", "public", "laplace", Fraction(1, 10))
    how: dict[str, Any] = {
        "privacy_days": DAYS,
        "zones": {"plain": (), "other": ()},
        "plain": {"other": (Fraction(1),)},
    }
    record = counted(building(releases=PLAIN), [(end, (paid("public", end), other))], **how)[-1]
    tight = record["audiences"]["public"]["tight"]
    assert_near(tight["device_day"], price(day_of(96), Laplace(Decimal("0.1"), 1)))
    assert_near(tight["observation"], price(day_of(192), Laplace(Decimal("0.1"), 4)))


def test_a_paid_laplace_day_has_its_epsilon_added_up_too() -> None:
    terms = DayTerms(DAYS.at(FOUR + TICK), "laplace", (Fraction(2, 96),), 96)
    one = CountCharge("plain", "public", "laplace", Fraction(2), terms=terms)
    units = counted(building(releases=PLAIN), [(FOUR + TICK, (one,))], privacy_days=DAYS)[-1]["audiences"]["public"]
    assert (units["device_day"], units["presence_tuple"], units["person_day"]) == ("2", "4", "6")
    assert units["tight"]["device_day"]["epsilon"] < 2


def test_unbounded_counts_of_a_site_with_privacy_days_go_by_these() -> None:
    """288 ticks of the day, and two for an observation's two ticks at either edge."""
    windows = [(FOUR + n * TICK, (charge("public", "0.1"),)) for n in range(-5, 292)]
    records = counted(building(releases=PLAIN), windows, privacy_days=DAYS)
    of = {record["window_end"]: record["audiences"]["public"] for record in records}
    whole = of["2026-03-04T12:10:00Z"]
    assert whole["device_day"] == "29.2"
    assert_near(whole["tight"]["device_day"], 9.009)
    assert of["2026-03-04T12:15:00Z"]["device_day"] == "0.5"


# --- state and books ------------------------------------------------------------------------------------


def through(stage: Account, state: AccountState) -> AccountState:
    again = stage.decode(stage.encode(state))
    assert stage.encode(again) == stage.encode(state)
    return again


def test_the_state_comes_back_whole_between_any_two_windows() -> None:
    stage = replace(account_stage(building(), SITE, laboratory=True), privacy_days=DAYS, tick_length=TICK)
    windows = [
        WindowCharges(SITE, end, (paid("public", end), charge("facilities", "0.5", "grouped", "pegasus")))
        for end in (FOUR + n * TICK for n in range(-20, 20))
    ]
    one, other = stage.initial(), stage.initial()
    for item in windows:
        one, made = stage.step(one, item)
        other, same = stage.step(through(stage, other), item)
        assert made == same


def test_the_books_give_the_same_account_and_an_exact_one_on_demand() -> None:
    outputs = outputs_of(building(), people()[:1500])
    streamed = account_of(outputs)[-1]
    _, again = rebuild_account([building()], SITE, audit_of(outputs), {})
    assert orjson.loads(again[-1].value) == streamed
    _, made = rebuild_account([building()], SITE, audit_of(outputs), {}, exact=True)
    exact = orjson.loads(made[-1].value)
    for reader, units in exact["audiences"].items():
        for unit, one in units["tight"].items():
            assert one["epsilon"] <= streamed["audiences"][reader]["tight"][unit]["epsilon"] <= 1.1 * one["epsilon"]
    assert exact["coalition"]["device_total"] == streamed["coalition"]["device_total"]
    assert math.isfinite(exact["coalition"]["tight"]["device_total"]["epsilon"])
