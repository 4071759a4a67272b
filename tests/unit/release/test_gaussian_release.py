"""Gaussian noise, filters at every level, and levels without zones, through the real release stage."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from stream.errors import PolicyError
from stream.keys import LaboratoryKeys
from stream.mechanisms.gaussian import half_width_95
from stream.operators import scan
from stream.policy.counts import CountRelease
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, HOUR, MINUTE, CountCharge, OccupancyWindow, Published, WindowCharges
from stream.release.account_stage import account_stage
from stream.release.count_guarantees import count_guarantees
from stream.release.prices import DayPrices
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT
from tests.support.day_policies import day_site

F = Fraction
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
TICK = 5 * MINUTE
START = 20_000 * DAY + 9 * HOUR
DAYS = PrivacyDays("04:00", "UTC")
TREE = """
mechanism = "filter"
levels = ["floor", "building"]
shares = { floor = "0.25", building = "0.75" }
epsilon = { fine = "4", coarse = "2" }
"""
BY_DAY = 'unit = "device_day"\nnoise = "gaussian"\n'


def policy(release: str, site: str = day_site(), capacity: int = 5) -> Policy:
    zones = "".join(
        f'[[site.dbh.zones]]\nid = "{zone}"\nfloor = "{zone[0]}"\ncapacity = {capacity}\n'
        f'access_points = ["02:00:00:00:00:{place:02x}"]\n'
        for place, zone in enumerate(("101", "102", "201"))
    )
    audiences = '[[audience]]\nname = "fine"\n[[audience]]\nname = "coarse"\n'
    head = f'[site.dbh]\nsources = ["10.0.0.1"]\n{site}\n{zones}{audiences}'
    return load_policy(f'{head}[[release]]\nname = "r"\nquery = "count"\n{release}')


def records(chosen: Policy, windows: int = 6) -> list[dict[str, Any]]:
    """What is published of as many windows; in bounded counts there is one person fewer everywhere."""
    items = [
        OccupancyWindow("dbh", end, (9, 4, 6), F(1), bounded=(8, 3, 5), privacy_day=DAYS.at(end))
        for end in (START + number * TICK for number in range(windows))
    ]
    _, outputs = scan(ReleaseStage(chosen, "dbh", KEYS), items)
    return [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic != AUDIT]


def test_record_of_a_gaussian_day_says_what_was_paid_for_and_how_good_it_is() -> None:
    made = records(policy(f'mechanism = "plain"\n{BY_DAY}epsilon = {{ fine = "2", coarse = "1" }}\n'))
    fine = [record for record in made if record["audience"] == "fine"]
    assert {(r["mechanism"], r["unit"], r["noise"], r["delta"]) for r in fine} == {
        ("laplace", "device_day", "gaussian", "0.000001")
    }
    assert [record["spend"] for record in fine] == ["2", *["0"] * 5]
    (scale,) = set(fine[0]["noise_scale"].values())
    assert scale == pytest.approx(21.86, rel=0.01)
    variance = F(round(scale**2))
    assert set(fine[0]["half_width_95"].values()) == {half_width_95(variance)}
    assert "levels_noise_scale" not in fine[0]


def test_record_of_a_window_has_no_field_of_a_day() -> None:
    made = records(policy('mechanism = "laplace"\nepsilon = { fine = "1" }\n', site=""))
    assert not {"unit", "noise", "delta", "levels_noise_scale"} & set(made[0])


def test_levels_without_zones_are_measured_filtered_and_add_up() -> None:
    for record in records(policy(TREE + BY_DAY)):
        assert record["values"] == record["half_width_95"] == record["noise_scale"] == {}
        levels, scales = record["levels"], record["levels_noise_scale"]
        assert list(levels) == list(scales) == list(record["levels_half_width_95"]) == ["floor", "building"]
        assert sum(levels["floor"].values()) == levels["building"]
        assert scales["floor"]["1"] == pytest.approx(3**0.5 * scales["building"], rel=1e-3)
        assert record["half_width_kind"] == "posterior"


def test_bounded_counts_are_what_a_day_release_adds_noise_to() -> None:
    """At an epsilon that leaves no noise: 8 + 3 of 13 on floor 1, and no unbounded count."""
    chosen = policy(
        'mechanism = "laplace"\nunit = "device_day"\nlevels = ["floor", "building"]\n'
        'shares = { floor = "0.5", building = "0.5" }\nepsilon = { fine = "100" }\n',
        day_site("5min"),
    )
    assert [record["levels"] for record in records(chosen, 3)] == [{"floor": {"1": 11, "2": 5}, "building": 16}] * 3


def test_filter_under_shares_takes_laplace_noise_window_by_window_too() -> None:
    made = records(policy(TREE.replace('"4"', '"100"').replace('"2" }', '"80" }'), site=""))
    assert [record["levels"] for record in made[-2:]] == [{"floor": {"1": 13, "2": 6}, "building": 19}] * 2
    assert made[0]["levels_noise_scale"]["building"] == pytest.approx(1 / 60), "three quarters of the smaller epsilon"
    assert "noise" not in made[0]


def test_noise_of_levels_is_not_that_of_zones_and_changes_with_the_day_and_the_bound() -> None:
    """Noise of the building, read off plain values of a release of the building alone."""
    building = f'mechanism = "plain"\n{BY_DAY}levels = ["building"]\nshares = {{ building = "1" }}\n'
    noises = [
        [record["levels"]["building"] for record in records(policy(building + 'epsilon = { fine = "2" }\n', site))]
        for site in (
            day_site(),
            day_site("485min"),
        )
    ]
    assert noises[0] != noises[1]
    assert np.std(noises[0]) > 3


def release_of(chosen: Policy) -> CountRelease:
    (release,) = chosen.release
    assert isinstance(release, CountRelease)
    return release


NEAR = f'mechanism = "filter"\n{BY_DAY}epsilon = {{ fine = "100", coarse = "50" }}\n'


def test_audiences_whose_noise_would_be_too_much_alike_are_refused_at_load() -> None:
    """At ε = 100 and 50 so little noise is left that the sum of two draws is no discrete Gaussian any more."""
    with pytest.raises(
        PolicyError, match=r"^policy: release 'r' at dbh: noise = 'gaussian': variances of two audiences"
    ):
        policy(NEAR)
    for fine in ("4", "2"):
        policy(NEAR.replace("100", fine).replace('"50"', '"2"'))


def test_an_epsilon_that_buys_no_noise_for_a_day_is_refused_at_load() -> None:
    with pytest.raises(PolicyError, match=r"release 'r' at dbh: noise = 'gaussian': epsilon must lie in"):
        policy(NEAR.replace('"50"', '"0.001"'))


def test_an_epsilon_that_asks_for_less_noise_than_is_supported_is_refused_at_load_by_rule_and_value() -> None:
    text = f'mechanism = "plain"\n{BY_DAY}epsilon = {{ fine = "60" }}\n'
    rule = (
        r"^policy: release 'r' at dbh: noise = 'gaussian': epsilon must be at most 50 for 1 ticks at delta 1e-06: .*60"
    )
    with pytest.raises(PolicyError, match=rule):
        policy(text, day_site("5min"))
    policy(text.replace('"60"', '"50"'), day_site("5min"))


@pytest.mark.parametrize(("contribution", "epsilon"), [("5min", "4"), ("5min", "38"), ("60min", "10"), ("8h", "2")])
def test_a_day_of_levels_costs_at_most_its_price_wherever_it_is_stated(contribution: str, epsilon: str) -> None:
    """In what policy show prints, in the running account, and in the exact one of its last window."""
    levels = 'levels = ["zone", "floor", "building"]\nshares = { zone = "0.5", floor = "0.3", building = "0.2" }\n'
    release = f'mechanism = "filter"\n{levels}{BY_DAY}epsilon = {{ fine = "{epsilon}" }}\n'
    chosen = policy(release, day_site(contribution))
    guarantee = next(iter(count_guarantees(chosen)))
    assert 0.96 * float(epsilon) < guarantee.tight["device_day"] <= float(epsilon)
    end = START + TICK
    terms = DayPrices.of(chosen, release_of(chosen), "dbh").prices["fine"].terms(DAYS.at(end))
    charge = CountCharge("r", "fine", "filter", F(epsilon), terms=terms)
    for exact_from in (None, end):
        stage = replace(account_stage(chosen, "dbh", laboratory=True), exact_from=exact_from)
        _, (made,) = scan(stage, [WindowCharges("dbh", end, (charge,))], stage.initial())
        tight = orjson.loads(made.value)["audiences"]["fine"]["tight"]
        assert 0.96 * float(epsilon) < tight["device_day"]["epsilon"] <= float(epsilon)


def test_a_building_that_may_hold_more_than_the_filter_considers_is_refused() -> None:
    """Three zones of 349,520 devices are 1,048,560; of ten more each, more than 1,048,576."""
    assert policy(TREE + BY_DAY, capacity=34_950).release
    with pytest.raises(PolicyError, match="all zones of dbh together must count at most 1048576 devices with filter"):
        policy(TREE + BY_DAY, capacity=34_951)


def test_plain_is_laplace_by_another_name() -> None:
    named, alias = (policy(f'mechanism = "{name}"\nepsilon = {{ fine = "1" }}\n', "") for name in ("laplace", "plain"))
    assert named.version == alias.version
    assert records(named) == records(alias)


DELTAS = (None, "1e-6", "1e-9")
"""What a release says of delta; the policy's own is 1e-6."""


def of_delta(delta: str | None) -> Policy:
    own = "" if delta is None else f'delta = "{delta}"\n'
    return policy(f'mechanism = "plain"\n{BY_DAY}{own}epsilon = {{ fine = "2" }}\n')


def test_a_releases_own_delta_decides_its_noise_and_not_the_policys() -> None:
    made = {delta: records(of_delta(delta), 2)[0] for delta in DELTAS}
    assert [record["delta"] for record in made.values()] == ["0.000001", "0.000001", "0.000000001"]
    default, same, own = (made[delta]["noise_scale"]["101"] for delta in DELTAS)
    assert default == same
    assert own > 1.2 * default


def test_what_a_policy_promises_of_a_release_holds_with_the_releases_own_delta() -> None:
    for delta in DELTAS:
        chosen = of_delta(delta)
        (guarantee,) = (each for each in count_guarantees(chosen) if each.reader == "fine")
        assert guarantee.delta == F(delta or "1e-6")
        assert guarantee.tight["device_day"] == pytest.approx(2, rel=0.01), "what was paid for, with the delta paid for"
