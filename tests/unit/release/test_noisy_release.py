"""Records of filters and groups include the noisy values that they are computed from."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from stream.keys import LaboratoryKeys
from stream.local_time import slot_of
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.mechanisms.noise_parameters import laplace_noise
from stream.operators import scan
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, HOUR, MINUTE, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from tests.support.day_policies import day_site

F = Fraction
KEYS = LaboratoryKeys(b"n" * 32, "ledger", b"a" * 32)
TICK = 5 * MINUTE
NINE = 20_000 * DAY + 9 * HOUR
LEVELS = 'levels = ["zone", "floor", "building"]\n'
SHARES = LEVELS + 'shares = { zone = "0.2", floor = "0.3", building = "0.5" }\n'
NOISY = {"noisy", "levels_noisy", "levels_draws"}
COUNTS = ((4, 1, 9), (5, 0, 9), (6, 2, 0), (6, 3, 1))
Body = dict[str, Any]


def policy(release: str, site: str = "") -> Policy:
    zones = "".join(
        f'[[site.dbh.zones]]\nid = "{zone}"\nfloor = "{zone[0]}"\ncapacity = 3\nmax_count = 12\n'
        f'access_points = ["02:00:00:00:00:{place:02x}"]\n'
        for place, zone in enumerate(("101", "102", "201"))
    )
    audiences = '[[audience]]\nname = "fine"\n[[audience]]\nname = "coarse"\n'
    head = f'[site.dbh]\nsources = ["10.0.0.1"]\n{site}\n{zones}{audiences}'
    return load_policy(f'{head}[[release]]\nname = "r"\nquery = "count"\n{release}')


def bodies(release: str, audience: str = "fine", site: str = "", windows: int = 4) -> list[Body]:
    """Return an audience's records of some windows of ``COUNTS``."""
    chosen, days = policy(release, site), PrivacyDays("04:00", "UTC") if site else None
    items = []
    for place in range(1, windows + 1):
        end, counts = NINE + place * TICK, COUNTS[place % len(COUNTS)]
        day, bounded = (None, None) if days is None else (days.at(end), counts)
        items.append(OccupancyWindow("dbh", end, counts, F(1), day, bounded))
    _, outputs = scan(ReleaseStage(chosen, "dbh", KEYS), iter(items))
    read = [orjson.loads(each.value) for each in outputs if isinstance(each, Published) and each.topic != AUDIT]
    return [body for body in read if body["audience"] == audience]


def plain(epsilon: str, more: str = "") -> list[dict[str, int]]:
    """Return what Laplace noise at an epsilon alone gives of these windows, under the same name and key."""
    return [body["values"] for body in bodies(f'mechanism = "laplace"\nepsilon = {{ fine = "{epsilon}" }}\n{more}')]


@pytest.mark.parametrize(("mechanism", "epsilon", "spent"), [("filter", "0.5", "0.5"), ("pegasus", "0.5", "0.4")])
def test_the_noisy_value_is_what_plain_noise_would_have_published(mechanism: str, epsilon: str, spent: str) -> None:
    made = bodies(f'mechanism = "{mechanism}"\nepsilon = {{ fine = "{epsilon}" }}')
    assert [body["noisy"] for body in made] == plain(spent)
    assert {scale for body in made for scale in body["noise_scale"].values()} == {1 / float(spent)}
    assert any(body["noisy"] != body["values"] for body in made), "they are post-processed"


@pytest.mark.parametrize("mechanism", ["filter", "pegasus"])
def test_each_audience_is_told_its_own_noisy_values_alone(mechanism: str) -> None:
    release = f'mechanism = "{mechanism}"\nepsilon = {{ fine = "1", coarse = "0.1" }}'
    fine, coarse = bodies(release), bodies(release, "coarse")
    alone = bodies(f'mechanism = "{mechanism}"\nepsilon = {{ fine = "1" }}')
    assert [body["noisy"] for body in fine] == [body["noisy"] for body in alone]
    assert all(one["noisy"] != other["noisy"] for one, other in zip(fine, coarse, strict=True))


def test_a_filters_values_follow_from_its_published_noisy_values_alone() -> None:
    """So telling them tells nothing more: whoever has them could have filtered them."""
    made = bodies('mechanism = "filter"\nepsilon = { fine = "0.5" }', windows=12)
    again = RegimeFilter((12, 12, 12), laplace_noise(F(1, 2)), calendar=True)
    state = again.initial()
    for body in made:
        slot = slot_of(parse_time(body["window_end"]), "UTC")
        state, [estimate] = again.step(state, FilterItem(np.array([*body["noisy"].values()]), slot))
        assert estimate.median.tolist() == [*body["values"].values()]
        assert estimate.half_width.tolist() == [*body["half_width_95"].values()]


@pytest.mark.parametrize("mechanism", ["filter", "pegasus"])
def test_levels_that_are_sums_tell_the_sums_and_how_many_draws_are_in_them(mechanism: str) -> None:
    for body in bodies(f'mechanism = "{mechanism}"\nepsilon = {{ fine = "0.5" }}\n{LEVELS}'):
        noisy = body["noisy"]
        floors = {"1": noisy["101"] + noisy["102"], "2": noisy["201"]}
        assert body["levels_noisy"] == {"floor": floors, "building": sum(noisy.values())}
        assert body["levels_draws"] == {"floor": {"1": 2, "2": 1}, "building": 3}
        assert "levels_noise_scale" not in body


@pytest.mark.parametrize(("mechanism", "part"), [("filter", 1.0), ("pegasus", 0.8)])
def test_levels_of_their_own_tell_their_own_noisy_values_and_scales(mechanism: str, part: float) -> None:
    """With an epsilon so large that no noise is left: the key is fixed, and all of its draws here are 0."""
    release = f'mechanism = "{mechanism}"\nepsilon = {{ fine = "100" }}\n{SHARES}'
    for body, counts in zip(bodies(release), COUNTS[1:] + COUNTS[:1], strict=True):
        assert body["noisy"] == dict(zip(("101", "102", "201"), counts, strict=True))
        assert body["levels_noisy"] == {"floor": {"1": counts[0] + counts[1], "2": counts[2]}, "building": sum(counts)}
        assert "levels_draws" not in body, "one draw each"
        scales = {"zone": 20 * part, "floor": 30 * part, "building": 50 * part}
        assert body["noise_scale"]["101"] == pytest.approx(1 / scales["zone"])
        assert body["levels_noise_scale"]["floor"]["1"] == pytest.approx(1 / scales["floor"])
        assert body["levels_noise_scale"]["building"] == pytest.approx(1 / scales["building"])


def test_levels_without_zones_tell_no_noisy_zones() -> None:
    release = 'mechanism = "filter"\nlevels = ["floor", "building"]\nshares = { floor = "0.5", building = "0.5" }\n'
    for body in bodies(f'{release}epsilon = {{ fine = "1" }}'):
        assert body["noisy"] == {}
        assert body["levels_noisy"].keys() == {"floor", "building"}


def test_a_day_release_tells_them_too() -> None:
    release = (
        'mechanism = "filter"\nunit = "device_day"\nnoise = "gaussian"\nepsilon = { fine = "4" }\ndelta = "0.000001"\n'
    )
    site = day_site()
    values = bodies(release.replace('"filter"', '"plain"'), site=site)
    assert [body["noisy"] for body in bodies(release, site=site)] == [body["values"] for body in values]


def test_a_denied_window_has_the_same_fields_without_values() -> None:
    release = f'mechanism = "filter"\nepsilon = {{ fine = "1" }}\ndaily_budget = {{ fine = "2" }}\n{LEVELS}'
    first, _, denied, _ = bodies(release)
    assert denied["reason"] == "budget"
    assert first.keys() == denied.keys() >= NOISY
    assert (denied["noisy"], denied["levels_noisy"]) == (None, None)
    assert denied["levels_draws"] == first["levels_draws"], "it follows from the policy"


def test_revised_values_do_not_repeat_them() -> None:
    made = bodies('mechanism = "filter"\nepsilon = { fine = "1" }\nrevise = "1h"\n' + LEVELS, windows=30)
    revised = [body for body in made if "revises" in body]
    assert revised
    assert not any(NOISY & body.keys() for body in revised)


@pytest.mark.parametrize(
    "release",
    [
        'mechanism = "laplace"\nepsilon = { fine = "1" }\n' + LEVELS,
        'mechanism = "laplace"\nepsilon = { fine = "1" }\n' + SHARES,
        'mechanism = "ba"\nw = 4\nepsilon = { fine = "1" }\n',
        'mechanism = "pegasus"\nepsilon = { fine = "1" }\nprune = { share = "0.2", below = 3 }\n' + SHARES,
    ],
    ids=["plain noise", "plain noise of levels", "publications that are repeated", "nodes that may be skipped"],
)
def test_others_do_not_have_the_fields(release: str) -> None:
    """Plain values are the noisy ones; of the others there is not one for each window and node."""
    for body in bodies(release):
        assert not NOISY & body.keys()


def test_a_question_does_not_repeat_them() -> None:
    query = '[[release.queries]]\nname = "q"\nkind = "window-sum"\nwindows = 2\n'
    release = 'mechanism = "pegasus"\nepsilon = { fine = "1" }\n' + query
    questions = [body for body in bodies(release) if body["release"] == "q"]
    assert len(questions) == 4
    assert not any(NOISY & body.keys() for body in questions)
