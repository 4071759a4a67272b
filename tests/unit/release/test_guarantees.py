"""Guarantees of a policy: every privacy unit, and attributes beside counts of the same zone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from connectors.lab.simulation.policy import policy_text as simulated_policy
from stream.accounting.units import Cells, day_cells
from stream.errors import PolicyError
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.records import MINUTE
from stream.release.attribute_guarantees import attribute_guarantees
from stream.release.count_guarantees import count_guarantees, counts_exponent
from stream.release.validation import load_policy
from tests.support.small_building import ATTRIBUTES, building, policy_text

OFFICES = 'zones = { kind = "office" }'


def refusal(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policy(text, "building.toml")
    return str(caught.value)


def counting_offices(epsilon: str, privacy: str = "") -> str:
    return (
        policy_text(head=f"[privacy]\n{privacy}\n")
        + f"""
[[release]]
name = "door"
query = "count"
mechanism = "laplace"
zones = {{ kind = ["office", "lobby"] }}
epsilon = {{ board = "{epsilon}" }}
"""
    )


def test_counts_over_offices_whose_attributes_are_released_are_refused() -> None:
    text = refusal(counting_offices("1"))
    assert text.startswith("building.toml: release 'office-day'")
    assert "max_factor = 20.09" in text
    assert f"got {math.exp(1 + 3 * 12 * 1):.4g}" in text


def test_the_factor_is_epsilon_plus_devices_times_ticks_times_counts() -> None:
    """exp(1 + 3 devices * 12 ticks * e) <= e^3 exactly where e <= 2/36."""
    load_policy(counting_offices("0.0555"))
    assert "all" in refusal(counting_offices("0.0557"))
    load_policy(counting_offices("0.33", "ticks_per_attribute = 2"))
    refusal(counting_offices("0.34", "ticks_per_attribute = 2"))
    load_policy(counting_offices("0.16", "devices_per_person = 1"))
    refusal(counting_offices("0.17", "devices_per_person = 1"))


@pytest.mark.parametrize(("mechanism", "exponent"), [("uniform", 1), ("sample", 12), ("ba", 12)])
def test_a_w_event_release_may_spend_all_it_has_at_each_of_the_ticks(mechanism: str, exponent: int) -> None:
    """Counts one hour apart cost sample all of epsilon each time: 1 + 3 devices * 12 ticks * 0.05 = 2.8 at most."""
    text = counting_offices("0.05").replace(
        'mechanism = "laplace"\nzones = { kind = ["office"',
        f'mechanism = "{mechanism}"\nw = 4\nzones = {{ kind = ["office"',
    )
    policy = load_policy(text)
    epsilon = Fraction("0.05")
    together = counts_exponent(policy, "dbh", "x", frozenset(["board"]))
    assert together == 3 * exponent * epsilon * (3 if mechanism == "uniform" else 1)


def test_a_coalition_of_readers_who_see_only_one_each_is_bounded_too() -> None:
    """The board sees counts only and facilities attributes only: together they break it."""
    assert "for all at dbh" in refusal(counting_offices("1"))


def test_the_example_policies_keep_their_promises() -> None:
    building()
    load_policy(simulated_policy(simulate(SimulatorConfig(scale=0.05))))


def test_the_simulated_policy_would_be_refused_with_its_offices_counted() -> None:
    text = simulated_policy(simulate(SimulatorConfig(scale=0.05)))
    assert 'kind = ["classroom", "open", "corridor"]' in text
    refusal(text.replace('"corridor"] }', '"corridor", "office"] }'))


def test_an_attribute_alone_above_the_limit_is_refused() -> None:
    refusal(policy_text().replace('facilities = "1", public = "0.2"', 'facilities = "3.1", public = "0.2"'))


BUDGETED = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { public = "1", facilities = "0.5" }
"""


def budgeted(more: str) -> dict[str, Mapping[str, Any]]:
    """Return what each reader of a release with budgets is promised: 288 windows a day, two ticks an observation."""
    return {p.reader: p.units for p in count_guarantees(building(releases=BUDGETED + more, tick="5min"))}


def test_a_day_costs_no_more_windows_than_its_budget_pays() -> None:
    """And those beside the UTC day that its observations reach into: one before, one after; see ``whole_day``."""
    units = budgeted('daily_budget = { public = "2" }')
    assert units["public"]["device_day"] == 2 + (1 + 1 + 2)
    assert units["public"]["device_day_moved"] == 2 * units["public"]["device_day"]
    assert units["public"]["presence_tuple"] == 1
    assert units["facilities"]["device_day"] == 292 * Fraction("0.5")  # without a budget all windows
    # Of the finest epsilon where both get a window, which beside the day is all that can be; 2 and 288 windows in it.
    assert units["all"]["device_day"] == 4 + 2 + 288 * Fraction("0.5")


def test_windows_on_both_sides_of_midnight_are_paid_by_two_budgets() -> None:
    """After the UTC day two consecutive windows count its observations; the budgets of two days pay one each."""
    units = budgeted('daily_budget = { public = "1" }')
    assert units["public"]["device_day"] == 1 + (1 + 1 + 2)


def test_one_price_for_several_windows_is_paid_at_both_edges_of_a_devices_day() -> None:
    """Three windows may have higher counts, and 291 lower ones; neighbours of w-event privacy differ one way only."""
    cells = day_cells(5 * MINUTE, 3)
    assert cells == Cells(288 + 3, 3)
    assert cells.cost(Fraction(1, 2), 12) == Fraction(25 + 1, 2)


def test_a_budget_of_several_days_may_be_spent_on_one() -> None:
    units = budgeted('daily_budget = { public = "20" }\nrefresh = "7d"')
    assert units["public"]["device_day"] == 20 + 4


def test_a_budget_of_w_windows_bounds_them_and_the_day() -> None:
    made = building(releases=BUDGETED + 'w_budget = { public = "3" }', tick="5min")
    [units] = [p.units for p in count_guarantees(made) if p.reader == "public"]
    assert units["device_w_event"] == 3
    assert units["device_day"] == min(292, -(-288 // made.privacy.w) * 3 + 4)


def test_a_budget_that_pays_every_window_changes_nothing() -> None:
    assert budgeted('daily_budget = { public = "288" }')["public"] == budgeted("")["public"]


def test_count_promises_hold_every_unit_for_every_reader_and_all_together() -> None:
    guarantees = {(p.release, p.reader): p.units for p in count_guarantees(building(tick="5min"))}
    assert {reader for release, reader in guarantees if release == "grouped"} == {
        "facilities",
        "public",
        "board",
        "all",
    }
    units = guarantees["plain", "facilities"]
    e = Fraction("0.5")
    wanted = {
        "presence_tuple": e, "tuple_moved": 2 * e, "observation": 4 * e, "observation_moved": 8 * e,
        "device_day": 292 * e, "device_day_moved": 584 * e, "person_day": 3 * 292 * e,
    }  # fmt: skip
    assert {unit: units[unit] for unit in wanted} == wanted


def test_a_coalition_pays_the_largest_epsilon_but_every_grouper() -> None:
    guarantees = {(p.release, p.reader): p.units["presence_tuple"] for p in count_guarantees(building())}
    assert guarantees["plain", "all"] == Fraction("0.5")
    assert guarantees["grouped", "all"] == Fraction("0.8") + Fraction("0.2") * (1 + Fraction("0.1"))


def test_attribute_promises_hold_factor_and_habit() -> None:
    guarantees = {(p.attribute, p.reader): p for p in attribute_guarantees(building())}
    arrival = guarantees["arrival", "public"]
    assert arrival.factor == pytest.approx(math.exp(0.2))
    assert arrival.with_counts == pytest.approx(math.exp(0.2))
    assert arrival.habit[20] == pytest.approx(math.exp(4))
    assert guarantees["arrival", "all"].epsilon == 1


def test_under_a_model_a_habit_is_promised_what_each_day_may_tell_at_most() -> None:
    model = 'model.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }'
    text = policy_text(ATTRIBUTES.replace(OFFICES, f"{OFFICES}\n{model}"))
    guarantees = {(p.attribute, p.reader): p for p in attribute_guarantees(load_policy(text))}
    arrival = guarantees["arrival", "facilities"]
    assert arrival.exact is not None
    assert arrival.exact > arrival.factor
    assert arrival.habit == {days: pytest.approx(arrival.exact**days) for days in (5, 20)}
    assert guarantees["arrival", "public"].habit[20] == pytest.approx(math.exp(4))  # it sees no level


# --- attributes of one zone that come from several releases -------------------------------------------

BEFORE_NOON = '{ before = "12:00" }'
AFTER_NOON = '{ after = "12:00" }'


def of_offices(name: str, attribute: str, sensitive: str, *, more: str = "", zones: str = OFFICES) -> str:
    return f"""
[[release]]
name = "{name}"
query = "attributes"
{zones}
{more}
[release.attributes.{attribute}]
epsilon = {{ facilities = "1" }}
sensitive = {sensitive}
"""


def logic_refusal(*releases: str) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policy(policy_text("".join(releases)), "building.toml")
    return str(caught.value)


def test_a_value_of_one_release_may_not_prove_an_attribute_of_another_sensitive() -> None:
    """Who comes after noon, which may be shown, also leaves after noon, which may not."""
    text = logic_refusal(of_offices("a", "arrival", BEFORE_NOON), of_offices("b", "departure", AFTER_NOON))
    assert text == (
        "building.toml: releases 'a' and 'b': no value of one attribute may prove another sensitive, "
        "got arrival = 12:15, which leaves departure only sensitive values"
    )


def test_a_value_may_not_prove_another_of_the_same_release_sensitive() -> None:
    both = of_offices("a", "arrival", BEFORE_NOON) + (
        f'[release.attributes.departure]\nepsilon = {{ facilities = "1" }}\nsensitive = {AFTER_NOON}\n'
    )
    assert logic_refusal(both).startswith("building.toml: release 'a': no value of one attribute may prove another")


def test_releases_that_share_only_some_zones_are_checked_where_they_meet() -> None:
    everywhere = of_offices("a", "arrival", BEFORE_NOON, zones="")
    assert "releases 'a' and 'b'" in logic_refusal(everywhere, of_offices("b", "departure", AFTER_NOON))


def test_releases_of_different_zones_say_nothing_of_each_other() -> None:
    halls = of_offices("b", "departure", AFTER_NOON, more='absent = "public"', zones='zones = { kind = "hall" }')
    load_policy(policy_text(of_offices("a", "arrival", BEFORE_NOON) + halls))


@pytest.mark.parametrize("public_first", [True, False])
def test_a_shown_absence_may_not_prove_the_attributes_of_another_release_sensitive(public_first: bool) -> None:
    shows = of_offices("a", "arrival", '{ after = "10:00" }', more='absent = "public"')
    hides = of_offices("b", "occupancy_level", "{ below = 0.3 }")
    text = logic_refusal(*([shows, hides] if public_first else [hides, shows]))
    assert text.startswith("building.toml: releases 'a' and 'b': absent must be the same")


def test_releases_of_one_zone_that_agree_and_give_nothing_away_are_let_through() -> None:
    for absent in ("public", "sensitive"):
        releases = of_offices("a", "arrival", '{ after = "10:00" }', more=f'absent = "{absent}"')
        releases += of_offices("b", "occupancy_level", "{ below = 0.3 }", more=f'absent = "{absent}"')
        load_policy(policy_text(releases))


@pytest.mark.parametrize("cap", ["", "\ncap = 2"])
def test_a_model_that_leaves_out_attributes_of_its_zones_is_refused(cap: str) -> None:
    """What a second release says of the day is outside its joint, so neither factors nor cap would hold."""
    model = 'model.joint = { "0" = 0.4, "1" = 0.6 }' + cap
    text = logic_refusal(
        of_offices("b", "occupancy_level", "{ below = 0.3 }"),
        of_offices("a", "arrival", '{ after = "10:00" }', more=model),
    )
    assert text.startswith("building.toml: releases 'a' and 'b': a model must hold every attribute")
