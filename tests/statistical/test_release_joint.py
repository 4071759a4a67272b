"""The joint law of what several readers get, taken from records of the real release stage.

Each test names the chance of a false alarm; the keys are fixed, so a test that passes once passes always.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest
from scipy.stats import binomtest, chi2

from stream.pipeline import Pipeline
from stream.records import DAY, DayAttribute, DayClosed, OccupancyWindow, Published
from stream.release.stage import ReleaseStage
from stream.release.validation import Policy, load_policy
from tests.support.small_building import SITE, laboratory

ALARM = 1e-7
EPSILONS = {"fine": 1.0, "middle": 0.6, "coarse": 0.3}
ZONES, WINDOWS, COUNT = 250, 240, 7


def policy(releases: str, zones: int, audiences: Any = EPSILONS) -> Policy:
    parts = [f'[site.{SITE}]\ntimezone = "UTC"\nsources = ["127.0.0.1"]\n']
    zone = '[[site.{}.zones]]\nid = "z{}"\ncapacity = 6\naccess_points = ["02:00:00:00:{:02x}:{:02x}"]\n'
    parts += [zone.format(SITE, n, *divmod(n, 256)) for n in range(zones)]
    parts += [f'[[audience]]\nname = "{name}"\n' for name in audiences]
    return load_policy("".join(parts) + releases)


def stage_of(made: Policy, seed: int = 1) -> ReleaseStage:
    return Pipeline(made, SITE, laboratory(seed)).stages.release


def private(outputs: list[Any]) -> Iterator[dict[str, Any]]:
    return (orjson.loads(o.value) for o in outputs if isinstance(o, Published) and ".private." in o.topic)


# --- three audiences of one count -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    """Released minus true, shape [draws, audience], audiences from fine to coarse."""
    epsilon = ", ".join(f'{name} = "{e}"' for name, e in EPSILONS.items())
    made = policy(
        f'[[release]]\nname = "r"\nquery = "count"\nmechanism = "laplace"\nepsilon = {{ {epsilon} }}\n', ZONES
    )
    stage, rows = stage_of(made), []
    state = stage.initial()
    for n in range(WINDOWS):
        window = OccupancyWindow(SITE, 20_000 * DAY + n * made.site[SITE].tick, (COUNT,) * ZONES, Fraction(1))
        state, outputs = stage.step(state, window)
        values = {body["audience"]: list(body["values"].values()) for body in private(outputs)}
        rows.append([values[name] for name in EPSILONS])
    return np.array(rows).transpose(0, 2, 1).reshape(-1, 3) - COUNT


def law(epsilon: float, k: np.ndarray) -> np.ndarray:
    a = math.exp(-epsilon)
    mass: np.ndarray = (1 - a) / (1 + a) * a ** np.abs(k)
    return mass


def step(finer: float, coarser: float, k: np.ndarray) -> np.ndarray:
    """Law of what is added to the finer value to make the coarser one."""
    a1, a2 = math.exp(-coarser), math.exp(-finer)
    keep = ((1 - a1) / (1 - a2)) ** 2 * (a2 / a1)
    added: np.ndarray = (k == 0) * keep + (1 - keep) * law(coarser, k)
    return added


REACH = 80


def enumerated() -> np.ndarray:
    """Joint law of (fine, middle, coarse) noise by enumeration, cut to cells -4 … 4 with tails in the ends."""
    k = np.arange(-REACH, REACH + 1)
    first, second, third = (EPSILONS[name] for name in EPSILONS)
    cells = np.zeros((9, 9, 9))
    place = np.clip(k, -4, 4) + 4
    wide = np.arange(-2 * REACH, 2 * REACH + 1)
    to_middle, to_coarse = step(first, second, wide), step(second, third, wide)
    fine_to = np.zeros((9, len(k)))
    for x, mass in zip(k, law(first, k), strict=True):
        fine_to[place[x + REACH]] += mass * to_middle[k - x + 2 * REACH]
    middle_to = np.zeros((len(k), 9))
    for x in k:
        np.add.at(middle_to[x + REACH], place, to_coarse[k - x + 2 * REACH])
    for fine in range(9):
        for x in k:
            cells[fine, place[x + REACH]] += fine_to[fine, x + REACH] * middle_to[x + REACH]
    return cells


def statistic(noise: np.ndarray, wanted: np.ndarray) -> tuple[float, int]:
    found = np.zeros((9, 9, 9))
    np.add.at(found, tuple((np.clip(noise, -4, 4) + 4).T), 1)
    expected = wanted * len(noise)
    large = expected >= 20
    parts = (found[large] - expected[large]) ** 2 / expected[large]
    rest = (found[~large].sum() - expected[~large].sum()) ** 2 / expected[~large].sum()
    return float(parts.sum() + rest), int(large.sum())


def test_three_audiences_have_the_joint_law_of_the_chain(noise: Any) -> None:
    wanted = enumerated()
    assert abs(wanted.sum() - 1) < 1e-6
    value, freedom = statistic(noise, wanted)
    assert freedom > 200
    assert chi2.sf(value, freedom) > ALARM


def test_the_same_test_rejects_independent_noise_and_a_star(noise: Any) -> None:
    """What the joint law must not be: three draws of their own, or each coarser value from the finest."""
    wanted, rng = enumerated(), np.random.default_rng(5)
    n = len(noise)

    def draw(epsilon: float) -> np.ndarray:
        return rng.geometric(1 - math.exp(-epsilon), n) - rng.geometric(1 - math.exp(-epsilon), n)

    def add(finer: float, coarser: float) -> np.ndarray:
        a1, a2 = math.exp(-coarser), math.exp(-finer)
        return np.where(rng.random(n) < ((1 - a1) / (1 - a2)) ** 2 * (a2 / a1), 0, draw(coarser))

    fine = draw(1.0)
    star = np.stack([fine, fine + add(1.0, 0.6), fine + add(1.0, 0.3)], 1)
    alone = np.stack([draw(e) for e in EPSILONS.values()], 1)
    middle = fine + add(1.0, 0.6)
    chain = np.stack([fine, middle, middle + add(0.6, 0.3)], 1)
    for wrong in (star, alone, noise + (rng.random(noise.shape) < 0.02)):
        value, freedom = statistic(wrong, wanted)
        assert chi2.sf(value, freedom) < 1e-12
    value, freedom = statistic(chain, wanted)
    assert chi2.sf(value, freedom) > ALARM


@pytest.mark.parametrize("place", range(3))
def test_each_audience_alone_has_discrete_laplace_noise_of_its_epsilon(noise: Any, place: Any) -> None:
    """Too little noise and too much are both found: 5 % of epsilon either way is rejected."""
    name = list(EPSILONS)[place]
    k = np.arange(-40, 41)
    found = Counter(np.clip(noise[:, place], -40, 40).tolist())

    def chance(epsilon: float) -> float:
        expected = law(epsilon, k) * len(noise)
        large = expected >= 20
        seen = np.array([found[int(x)] for x in k])
        value = ((seen[large] - expected[large]) ** 2 / expected[large]).sum()
        return float(chi2.sf(value, large.sum()))

    assert chance(EPSILONS[name]) > ALARM
    assert chance(EPSILONS[name] * 1.05) < 1e-12
    assert chance(EPSILONS[name] * 0.95) < 1e-12


def test_a_coarser_value_given_the_next_finer_one_tells_nothing_of_the_finest(noise: Any) -> None:
    """Post-processing: given the middle value, fine and coarse do not depend on each other."""
    fine, middle, coarse = noise.T
    for value in (-1, 0, 1):
        here = middle == value
        below = fine[here] < value
        moved = coarse[here] - value
        for size in (0, 1, 2):
            one, other = np.abs(moved[below]) > size, np.abs(moved[~below]) > size
            p = (one.sum() + other.sum()) / (len(one) + len(other))
            spread = math.sqrt(p * (1 - p) * (1 / len(one) + 1 / len(other)))
            assert abs(one.mean() - other.mean()) < 5.5 * spread, "false alarm below 4e-8"


def test_zones_and_windows_are_independent(noise: Any) -> None:
    fine = noise[:, 0].reshape(WINDOWS, ZONES).astype(float)
    for one, other in ((fine[:, 1:], fine[:, :-1]), (fine[1:], fine[:-1])):
        r = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(r) < 5.5 / math.sqrt(one.size)


# --- attributes -----------------------------------------------------------------------------------------------

OFFICES, DAYS = 40, 125
ATTRIBUTES = """
[[release]]
name = "d"
query = "attributes"
[release.attributes.arrival]
epsilon = { fine = "1", middle = "0.6", coarse = "0.1" }
sensitive = { after = "10:00" }
[release.attributes.departure]
epsilon = { fine = "1" }
sensitive = { before = "16:00" }
"""


def day_name(n: int) -> str:
    return str(np.datetime64("2026-01-01") + n)


@pytest.fixture(scope="module")
def shown() -> dict[tuple[str, str], np.ndarray]:
    """(audience, attribute) -> whether shown, shape [days, offices], of values that are not sensitive."""
    stage = stage_of(policy(ATTRIBUTES, OFFICES), seed=3)
    names = [f"z{n}" for n in range(OFFICES)]
    table = {(a, "arrival"): np.zeros((DAYS, OFFICES), bool) for a in EPSILONS} | {
        ("fine", "departure"): np.zeros((DAYS, OFFICES), bool)
    }
    for n in range(DAYS):
        day = day_name(n)
        records = tuple(
            DayAttribute(SITE, zone, day, attribute, value, 0)
            for zone in names
            for attribute, value in (("arrival", "09:00"), ("departure", "17:00"))
        )
        _, outputs = stage.step(stage.initial(), DayClosed(SITE, day, 0, records))
        for body in private(outputs):
            table[body["audience"], body["attribute"]][n, int(body["zone"][1:])] = body["released"]
    return table


def test_values_that_are_not_sensitive_are_shown_at_the_rate_of_their_epsilon(shown: Any) -> None:
    for (audience, attribute), table in shown.items():
        epsilon = 0.1 if audience == "coarse" else EPSILONS[audience]
        rate = 1 - math.exp(-epsilon)
        assert binomtest(int(table.sum()), table.size, rate).pvalue > ALARM, (audience, attribute)
        assert binomtest(int(table.sum()), table.size, 1 - math.exp(-1.4 * epsilon)).pvalue < 1e-6
        assert binomtest(int(table.sum()), table.size, 1 - math.exp(-0.6 * epsilon)).pvalue < 1e-6


def test_what_a_coarser_audience_is_shown_a_finer_one_is_shown_too(shown: Any) -> None:
    fine, middle, coarse = (shown[name, "arrival"] for name in EPSILONS)
    assert (coarse <= middle).all()
    assert (middle <= fine).all()
    assert coarse.sum() < middle.sum() < fine.sum()


def independent(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two tables of coins have no correlation; false alarm below 4e-8."""
    return bool(abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5.5 / math.sqrt(one.size))


def test_two_attributes_two_days_and_two_zones_have_coins_of_their_own(shown: Any) -> None:
    arrival, departure = shown["fine", "arrival"], shown["fine", "departure"]
    assert independent(arrival, departure)
    assert independent(arrival[1:], arrival[:-1])
    assert independent(arrival[:, 1:], arrival[:, :-1])
    assert not independent(arrival, shown["middle", "arrival"]), "audiences share theirs"


@pytest.mark.parametrize("days", [20, pytest.param(500, marks=pytest.mark.long)], ids=["sample", "million"])
def test_no_sensitive_value_in_a_million_is_shown(days: int) -> None:
    """Days of 1000 offices, each record for every audience that asks, through the release stage's own plan.

    No draw decides here, so nothing can alarm falsely. Were one in 5,000 shown, 40,000 of them would not show it with a
    probability of 0.9998**40,000, 0.04 %; a million, were it one in 130,000.
    """
    stage = stage_of(policy(ATTRIBUTES, 1000), seed=4)
    [plan] = stage._attributes._plans
    seen = 0
    for n in range(days):
        day = day_name(n)
        values = [("arrival", "10:01"), ("arrival", None), ("departure", "15:59"), ("departure", None)]
        records = tuple(DayAttribute(SITE, f"z{z}", day, *values[(z + n) % 4], 0) for z in range(1000))
        for _, outcome in plan.outcomes(DayClosed(SITE, day, 0, records), 20_000 * DAY, {}):
            seen += 1
            assert not outcome.shown
    assert seen == 2_000 * days
