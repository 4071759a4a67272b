"""Floors of a site: their order, as the policy declares it or by number, and what their plans show."""

from __future__ import annotations

import random

import pytest

from connectors.serve.floor_plans import Plan
from connectors.serve.policy_description import described_plan, described_site, sites_of
from stream.errors import TacetError
from stream.policy.names import floor_level
from stream.release.validation import Policy, load_policy

FLOORS = ("UG2", "B1", "G", "1", "2. OG", "Level 3", "10", "roof")
"""From the bottom up."""


def policy(*, declared: str = "", floors: tuple[str, ...] = FLOORS) -> Policy:
    """Return a building with a zone on each floor, in no order."""
    names = {floor: floor.replace(". ", "-").replace(" ", "-") for floor in floors}
    zones = "".join(
        f'[[site.dbh.zones]]\nid = "z{number}"\nfloor = "{names[floor]}"\nkind = "hall"\ncapacity = 4\n'
        f'access_points = ["02:00:00:00:00:{number:02x}"]\n'
        for number, floor in enumerate(random.Random(2).sample(floors, len(floors)))
    )
    release = 'name = "o"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
    head = f'[site.dbh]\nsources = ["127.0.0.1"]\n{declared}\n'
    return load_policy(f'{head}{zones}[[audience]]\nname = "public"\n[[release]]\n{release}')


def shown(of: Policy) -> list[str]:
    return [floor.floor for floor in described_site(of, "dbh", {}, ("public",)).floors]


def test_floors_are_sorted_by_number_with_the_ground_floor_below_the_first() -> None:
    assert shown(policy()) == ["UG2", "B1", "G", "1", "2-OG", "Level-3", "10", "roof"]


@pytest.mark.parametrize("ground", ["G", "EG", "ground", "0", "Erdgeschoss", "RDC", "GF"])
def test_a_ground_floor_is_between_the_basement_and_the_first_floor(ground: str) -> None:
    assert floor_level("basement") < floor_level(ground) < floor_level("1")


@pytest.mark.parametrize(("low", "high"), [("-2", "-1"), ("K", "0"), ("9", "10"), ("2", "annex"), ("U3", "U1")])
def test_the_lower_floor_comes_first(low: str, high: str) -> None:
    assert floor_level(low) < floor_level(high)


def test_a_declared_order_wins() -> None:
    declared = 'floors = ["roof", "1", "G", "10", "UG2", "B1", "2-OG", "Level-3"]'
    assert shown(policy(declared=declared)) == ["roof", "1", "G", "10", "UG2", "B1", "2-OG", "Level-3"]
    assert policy(declared=declared).version == policy().version, "an order for display changes no guarantee"


@pytest.mark.parametrize("declared", ['floors = ["1"]', 'floors = ["1", "1", "2"]', 'floors = ["1", "2", "3"]'])
def test_an_order_that_does_not_have_each_floor_once_is_refused(declared: str) -> None:
    with pytest.raises(TacetError, match="floors must name each floor of the zones once"):
        policy(declared=declared, floors=("1", "2"))


def test_a_floor_has_a_plan_where_there_is_one() -> None:
    plans = {("dbh", "1"): Plan((0, 0, 1, 1)), ("other", "2"): Plan((0, 0, 1, 1))}
    floors = described_site(policy(floors=("1", "2")), "dbh", plans, ("public",)).floors
    assert [(floor.floor, floor.plan) for floor in floors] == [("1", "/api/v1/sites/dbh/plans/1"), ("2", None)]


def test_of_zones_without_a_release_for_a_reader_a_plan_shows_walls_and_no_name() -> None:
    plan = Plan((0, 0, 9, 9), {"a": "M0 0L1 1", "b": "M2 2L3 3"}, ("M4 4L5 5",))
    assert described_plan(plan, {"a"}) == Plan((0, 0, 9, 9), {"a": "M0 0L1 1"}, ("M4 4L5 5", "M2 2L3 3"))
    assert described_plan(plan, {"a", "b", "c"}) == plan
    assert described_plan(plan, frozenset()).zones == {}


def test_a_site_is_shown_to_audiences_that_have_a_release_of_it() -> None:
    assert sites_of(policy(), ("public",)) == sites_of(policy(), ("nobody", "public")) == ["dbh"]
    assert sites_of(policy(), ("nobody",)) == sites_of(policy(), ()) == []
