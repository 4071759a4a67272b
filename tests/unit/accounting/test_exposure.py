"""What one day's attributes have given away, figure by figure."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import orjson
import pytest

from stream.accounting.account_state import AccountState
from stream.accounting.adversaries import Habit, HabitKey, habits_renamed
from stream.accounting.attribute_leakage import AttributeAccount, AttributeReport, day_model
from stream.policy.attributes import AttributeRelease
from stream.records import DAY, AttributeCharge, WindowCharges
from stream.release.account_stage import account_stage
from tests.support.small_building import ATTRIBUTES, SITE, building

READERS = {"fine": frozenset({"fine"}), "coarse": frozenset({"coarse"}), "all": frozenset({"fine", "coarse"})}
PAIR = {"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}
W = {"000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40}
RULES = {
    "arrival": {"after": "10:00"},
    "departure": {"before": "16:00"},
    "breaks": {"above": 2},
}
OPEN: dict[str, str | int] = {"arrival": "09:00", "departure": "18:00", "breaks": 1}
OFFICE = ("arrival", "occupancy_level")
OFFICE_MODEL = 'zones = { kind = "office" }\nmodel.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }'


def release(joint: dict[str, float], **more: Any) -> AttributeRelease:
    names = list(RULES)[: len(next(iter(joint)))]
    attributes = {name: {"epsilon": {"fine": "1"}, "sensitive": RULES[name]} for name in names}
    body = {"name": "day", "query": "attributes", "attributes": attributes, "model": {"joint": joint}}
    return AttributeRelease.model_validate(body | more)


def books(joint: dict[str, float] | None = None, *, targets: Any = None) -> AttributeAccount:
    model = None if joint is None else day_model(release(joint))
    models = {} if model is None else {"day": model}
    return AttributeAccount(models=models, targets=targets or {})


def charge(
    attribute: str,
    epsilon: str,
    *,
    audience: str = "fine",
    shown: bool = False,
    zone: str = "x",
    day: str = "2026-03-02",
    of: str = "day",
    reason: str = "",
) -> AttributeCharge:
    return AttributeCharge(
        of, audience, Fraction(epsilon), reason=reason, zone=zone, attribute=attribute, day=day,
        shown=OPEN[attribute] if shown else None,
    )  # fmt: skip


def report(
    account: AttributeAccount,
    charges: list[AttributeCharge],
    readers: dict[str, frozenset[str]] = READERS,
    habits: dict[HabitKey, Habit] | None = None,
    counts: dict[str, dict[str, Fraction]] | None = None,
) -> AttributeReport:
    exponents = {
        (("2026-03-02", zone), who): exponent for zone, each in (counts or {}).items() for who, exponent in each.items()
    }
    return account.of_day(charges, readers, {} if habits is None else habits, exponents)


def figures(
    account: AttributeAccount,
    charges: list[AttributeCharge],
    attribute: str,
    reader: str = "fine",
    readers: dict[str, frozenset[str]] = READERS,
    counts: dict[str, dict[str, Fraction]] | None = None,
) -> dict[str, Any]:
    record = report(account, charges, readers, counts=counts)["attributes"][f"2026-03-02/x/{attribute}"]
    return {name: by_reader[reader] for name, by_reader in record.items()}


def test_a_withheld_attribute_alone_has_the_factor_of_theorem_1_everywhere() -> None:
    found = figures(books(), [charge("arrival", "0.7")], "arrival")
    assert found == dict.fromkeys(("theorem_1", "bound", "with_counts"), pytest.approx(math.exp(0.7)))


def test_what_two_releases_asked_of_one_attribute_adds_up() -> None:
    twice = [charge("arrival", "0.7"), charge("arrival", "0.4", of="renamed")]
    assert figures(books(), twice, "arrival")["bound"] == pytest.approx(math.exp(1.1))


def test_a_shown_attribute_has_factor_zero() -> None:
    found = figures(books(PAIR), [charge("arrival", "0.7", shown=True)], "arrival")
    assert set(found.values()) == {0}


def test_exact_is_the_factor_of_the_declared_model() -> None:
    both = [charge("arrival", "1"), charge("departure", "0.5")]
    assert figures(books(PAIR), both, "departure")["exact"] == pytest.approx(2.399250781, abs=2e-9)
    shown = [charge("arrival", "1", shown=True), charge("departure", "0.5")]
    assert figures(books(PAIR), shown, "departure")["exact"] == pytest.approx(0.618270477, abs=2e-9)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [("000", (3.74086680, 2.65137891, 2.63411080)), ("001", (1.13341242, 0.94650727, 0)),
     ("010", (1.51714524, 0, 0.91000537)), ("100", (0, 0.88993159, 0.54540100)), ("110", (0, 0, 0.25104343))],
)  # fmt: skip
def test_exact_of_three_attributes(shown: str, expected: tuple[Any, ...]) -> None:
    parts = zip(RULES, ("1", "0.5", "0.25"), shown, strict=True)
    charges = [charge(name, epsilon, shown=bit == "1") for name, epsilon, bit in parts]
    for name, factor in zip(RULES, expected, strict=True):
        assert figures(books(W), charges, name)["exact"] == pytest.approx(factor, abs=1e-8)


def test_an_attribute_that_was_not_asked_is_given_away_by_those_that_were() -> None:
    found = figures(books(PAIR), [charge("arrival", "1")], "departure")
    assert found["theorem_1"] == 1
    assert found["exact"] == found["with_counts"] == pytest.approx(1.455219159, abs=2e-9)
    assert found["bound"] == pytest.approx(math.e)


def test_without_a_model_nothing_is_said_of_attributes_that_were_not_asked() -> None:
    assert list(report(books(), [charge("arrival", "1")])["attributes"]) == ["2026-03-02/x/arrival"]


def test_the_bound_adds_up_everything_withheld_over_all_releases_of_the_zone() -> None:
    charges = [charge("arrival", "1"), charge("departure", "0.5", of="other"), charge("breaks", "9", zone="y")]
    assert figures(books(), charges, "arrival")["bound"] == pytest.approx(math.exp(1.5))


def test_no_bound_holds_for_every_model_beside_a_shown_record() -> None:
    charges = [charge("arrival", "1", shown=True), charge("departure", "0.5", of="other")]
    assert figures(books(), charges, "departure")["bound"] == "inf"


def test_the_bound_is_reached_and_never_passed_by_models() -> None:
    copies = {"00": 0.5, "11": 0.5}
    both = [charge("arrival", "1"), charge("departure", "0.5")]
    for joint in (PAIR, copies, {"00": 0.1, "01": 0.4, "10": 0.4, "11": 0.1}):
        found = figures(books(joint), both, "arrival")
        assert found["exact"] <= found["bound"] + 1e-9
    found = figures(books(copies), both, "arrival")
    assert found["exact"] == found["bound"]


def test_all_together_know_what_the_largest_epsilon_shows() -> None:
    charges = [
        charge("arrival", "1"), charge("arrival", "0.4", audience="coarse"),
        charge("departure", "0.8", audience="coarse"), charge("departure", "0.5"),
    ]  # fmt: skip
    largest = [charge("arrival", "1"), charge("departure", "0.8")]
    for attribute in ("arrival", "departure"):
        assert figures(books(PAIR), charges, attribute, "all") == figures(books(PAIR), largest, attribute)
    assert figures(books(PAIR), charges, "arrival", "coarse")["theorem_1"] == pytest.approx(math.exp(0.4))


def test_a_value_shown_to_one_of_them_is_known_to_all_together() -> None:
    charges = [charge("arrival", "1", shown=True), charge("arrival", "0.4", audience="coarse")]
    assert figures(books(), charges, "arrival", "all")["theorem_1"] == 0
    assert figures(books(), charges, "arrival", "coarse")["theorem_1"] == pytest.approx(math.exp(0.4))


def test_counts_of_the_same_zone_multiply_the_exact_factor() -> None:
    counts = {"x": {"fine": Fraction(3, 2), "coarse": Fraction(0), "all": Fraction(2)}}
    charges = [charge("arrival", "1"), charge("departure", "0.5")]
    found = figures(books(PAIR), charges, "departure", counts=counts)
    assert found["with_counts"] == pytest.approx(2.399250781 * math.exp(1.5), abs=1e-7)


def test_without_a_model_counts_multiply_the_bound_that_holds_for_every_model() -> None:
    """Copies of each other reach it: withheld arrival and departure say e^1.5 of either, whatever theorem_1 says."""
    counts = {"x": {"fine": Fraction(3, 2), "coarse": Fraction(0), "all": Fraction(2)}}
    charges = [charge("arrival", "1"), charge("departure", "0.5")]
    found = figures(books(), charges, "departure", "all", counts=counts)
    assert found["theorem_1"] == pytest.approx(math.exp(0.5))
    assert found["with_counts"] == pytest.approx(found["bound"] * math.exp(2)) == pytest.approx(math.exp(1.5 + 2))
    copies = figures(books({"00": 0.5, "11": 0.5}), charges, "departure", "all", counts=counts)
    assert copies["with_counts"] == found["with_counts"]


def test_without_a_model_nothing_bounds_what_was_withheld_beside_a_shown_value_counts_or_none() -> None:
    counts = {"x": {"fine": Fraction(1000)}}
    charges = [charge("arrival", "1", shown=True), charge("departure", "0.5")]
    for added in (None, counts):
        assert figures(books(), charges, "departure", counts=added)["with_counts"] == "inf"
        assert figures(books(), charges, "arrival", counts=added)["with_counts"] == 0


def test_counts_of_other_zones_do_not_matter() -> None:
    counts = {"y": {"fine": Fraction(9)}}
    found = figures(books(), [charge("arrival", "1")], "arrival", counts=counts)
    assert found["with_counts"] == pytest.approx(math.e)


def test_a_refused_record_is_no_evidence() -> None:
    refused = [charge("arrival", "1"), charge("departure", "0", reason="month")]
    alone = [charge("arrival", "1")]
    assert report(books(PAIR), refused)["attributes"] == report(books(PAIR), alone)["attributes"]


def test_a_day_that_contradicts_the_model_has_no_exact_factor() -> None:
    charges = [charge("arrival", "1", shown=True), charge("departure", "1", shown=True)]
    found = figures(books({"00": 0.4, "01": 0.3, "10": 0.3}), charges, "departure")
    assert found["exact"] is None
    assert found["with_counts"] == found["bound"] == 0


def test_a_habit_grows_with_every_day_on_which_it_was_asked_about() -> None:
    habits: dict[Any, Any] = {}
    for day in range(1, 21):
        charges = [charge("arrival", "0.2", day=f"2026-03-{day:02d}", zone=zone) for zone in "xy"]
        if day == 7:
            charges = [charge("arrival", "0", reason="month")]
        record = report(books(), charges, habits=habits)["habit"]
        if day == 5:
            assert record["day/arrival"]["fine"] == {"days": 5, "factor": pytest.approx(math.e, abs=1e-8)}
        if day == 7:
            assert record == {}
    assert record["day/arrival"]["all"] == {"days": 19, "factor": pytest.approx(math.exp(3.8), abs=1e-8)}
    assert habits[HabitKey(("x", "y"), "arrival", "fine")] == Habit(19, Fraction(19, 5))


def test_each_reader_has_the_habit_of_its_own_days_and_epsilons() -> None:
    habits: dict[Any, Any] = {}
    report(books(), [charge("arrival", "1")], habits=habits)
    report(books(), [charge("arrival", "0.5"), charge("arrival", "2", audience="coarse")], habits=habits)
    assert habits == {
        HabitKey(("x",), "arrival", "fine"): Habit(2, Fraction(3, 2)),
        HabitKey(("x",), "arrival", "coarse"): Habit(1, Fraction(2)),
        HabitKey(("x",), "arrival", "all"): Habit(2, Fraction(3)),
    }


def test_a_habit_goes_on_when_its_release_is_renamed() -> None:
    habits: dict[Any, Any] = {}
    report(books(), [charge("arrival", "1", zone=zone) for zone in "xy"], habits=habits)
    record = report(books(), [charge("arrival", "1", of="renamed", zone=zone) for zone in "xy"], habits=habits)["habit"]
    assert record["renamed/arrival"]["fine"] == {"days": 2, "factor": pytest.approx(math.exp(2), abs=1e-8)}


def test_a_habit_goes_on_at_the_largest_where_a_release_covers_other_zones() -> None:
    habits: dict[Any, Any] = {}
    report(books(), [charge("arrival", "1", zone="x", of="one")], habits=habits)
    report(books(), [charge("arrival", "2", zone="y", of="two")], habits=habits)
    both = report(books(), [charge("arrival", "1", zone=zone, of="both") for zone in "xyz"], habits=habits)["habit"]
    assert both["both/arrival"]["fine"] == {"days": 2, "factor": pytest.approx(math.exp(3), abs=1e-7)}
    alone = report(books(), [charge("arrival", "1", zone="z", of="alone")], habits=habits)["habit"]
    assert alone["alone/arrival"]["fine"]["days"] == 3
    other = report(books(), [charge("departure", "1", zone="z", of="alone")], habits=habits)["habit"]
    assert other["alone/departure"]["fine"]["days"] == 1


def test_zones_that_become_one_have_the_larger_of_their_habits() -> None:
    habits = {HabitKey(("x",), "arrival", "fine"): Habit(2, Fraction(5))}
    habits[HabitKey(("y",), "arrival", "fine")] = Habit(3, Fraction(1))
    one = {"x": {"x", "y"}, "y": {"x", "y"}}
    assert habits_renamed(habits, one) == {HabitKey(("x", "y"), "arrival", "fine"): Habit(3, Fraction(5))}


def test_a_habit_beyond_any_number_is_infinite() -> None:
    habits = {HabitKey(("x",), "arrival", reader): Habit(800, Fraction(800)) for reader in ("fine", "all")}
    record = report(books(), [charge("arrival", "1")], habits=habits)["habit"]["day/arrival"]
    assert record["fine"] == {"days": 801, "factor": "inf"}


def test_under_a_model_a_habit_grows_by_the_exact_factor_of_each_day() -> None:
    """Both withheld, exact 2.399 is more than e^0.5; arrival shown, 0.618 is less, and the day counts e^0.5."""
    habits: dict[Any, Any] = {}
    for _ in range(3):
        report(books(PAIR), [charge("arrival", "1"), charge("departure", "0.5")], habits=habits)
    record = report(books(PAIR), [charge("arrival", "1", shown=True), charge("departure", "0.5")], habits=habits)
    factor = 2.399250781**3 * math.exp(0.5)
    assert record["habit"]["day/departure"]["fine"] == {"days": 4, "factor": pytest.approx(factor, rel=1e-8)}


@pytest.mark.parametrize("joint", [PAIR, W, {"00": 0.5, "11": 0.5}, {"00": 0.1, "01": 0.4, "10": 0.4, "11": 0.1}])
def test_no_habit_is_told_as_less_than_the_exact_factors_of_its_zone_multiply_to(joint: dict[str, float]) -> None:
    names = list(RULES)[: len(next(iter(joint)))]
    habits: dict[HabitKey, Habit] = {}
    products: dict[Any, Any] = {}
    for day in range(1, 9):
        withheld = [name for place, name in enumerate(names) if day >> place & 1]
        charges = [
            charge(name, epsilon, shown=name not in withheld and zone == "x", zone=zone, day=f"2026-03-{day:02d}")
            for name, epsilon in zip(names, ("1", "0.5", "0.25"), strict=False)
            for zone in "xy"
        ]
        record = report(books(joint), charges, habits=habits)
        for name in names:
            for zone in "xy":
                exact = record["attributes"][f"2026-03-{day:02d}/{zone}/{name}"]["exact"]["fine"]
                products[name, zone] = products.get((name, zone), 1.0) * (exact or 1.0)
    for (name, zone), product in products.items():
        assert record["habit"][f"day/{name}"]["fine"]["factor"] >= product * (1 - 1e-8), (name, zone)


def test_a_day_that_contradicts_the_model_counts_as_without_one() -> None:
    habits: dict[HabitKey, Habit] = {}
    never_both = {"00": 0.4, "01": 0.3, "10": 0.3}
    both_shown = [charge("arrival", "1", shown=True), charge("departure", "0.5", shown=True)]
    record = report(books(never_both), both_shown, habits=habits)["habit"]
    assert record["day/departure"]["fine"] == {"days": 1, "factor": pytest.approx(math.exp(0.5), abs=1e-8)}


def test_a_day_on_which_the_model_is_certain_makes_the_habit_certain() -> None:
    """Two shown values of an exclusive or prove the third sensitive."""
    xor = {"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25}
    day = [charge("arrival", "1", shown=True), charge("departure", "1", shown=True), charge("breaks", "0.1")]
    habits: dict[Any, Any] = {}
    for _ in range(2):
        record = report(books(xor), day, habits=habits)
        assert record["attributes"]["2026-03-02/x/breaks"]["exact"]["fine"] == "inf"
        assert record["habit"]["day/breaks"]["fine"]["factor"] == "inf"


def test_habits_under_a_model_survive_the_byte_form_of_the_account() -> None:
    policy = building(releases=ATTRIBUTES.replace('zones = { kind = "office" }', OFFICE_MODEL))
    stage = account_stage(policy, SITE, laboratory=True)
    state = AccountState()
    charges = tuple(charge(name, "1", audience="facilities", of="office-day") for name in OFFICE)
    state, [before] = stage.step(state, WindowCharges(SITE, DAY, charges))
    again = stage.decode(stage.encode(state))
    assert again == state
    _, [after] = stage.step(again, WindowCharges(SITE, 2 * DAY, charges))
    one, two = (
        orjson.loads(record.value)["habit"]["office-day/arrival"]["all"]["factor"] for record in (before, after)
    )
    assert one > math.e
    assert two == pytest.approx(one**2, rel=1e-8)


def test_information_is_told_in_bits_beside_its_target() -> None:
    charges = [charge("arrival", "1"), charge("departure", "0.5")]
    found = report(books(PAIR, targets={"day": 0.5}), charges)["information"]["day"]
    nats = 0.335817322444 + 0.161786685061
    assert found["fine"] == {"bits": pytest.approx(nats / math.log(2), abs=1e-8), "target": 0.5}
    assert "coarse" not in found
    assert "target" not in report(books(PAIR), charges)["information"]["day"]["fine"]


def test_information_counts_only_what_was_asked() -> None:
    charges = [charge("arrival", "1"), charge("departure", "0", reason="guard")]
    bits = report(books(PAIR), charges)["information"]["day"]["fine"]["bits"]
    assert bits == pytest.approx(0.335817322444 / math.log(2), abs=1e-8)
