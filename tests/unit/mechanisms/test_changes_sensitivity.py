"""The shipped bounds on one device's day: no pattern exceeds them, and some come near.

The nightly test derives every bound again; the fast ones derive those of short days, and search for patterns in all.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms.changes.factor import ORDERS, factor_of, rounded_weights
from stream.mechanisms.changes.sensitivity import ONE_NODE, SEVERAL_NODES, squared_sensitivity
from stream.mechanisms.exact import Floats
from stream.mechanisms.noise import Ints
from stream.records import MINUTE
from tests.support.changes_certificate import attraction, best_pattern, gram, one_node, several_nodes

VISITS = range(1, 9)


def squared_norm(order: Fraction, ticks: int, days: dict[int, list[int]]) -> int:
    """Return |C'd|² of a day, by its definition: node -> the ticks at which its changes alternate."""
    total, weights = 0, rounded_weights(order, ticks)
    for changes in days.values():
        row = np.zeros(ticks, np.int64)
        for number, tick in enumerate(changes):
            row[tick:] += (-1) ** number * weights[: ticks - tick]
        total += sum(int(each) ** 2 for each in row)
    return total


def check(ticks: int, visits: int, one: int, several: int) -> None:
    """Raise AssertionError unless both bounds of a day hold and are attained to 1.5 % (several nodes: exactly)."""
    order = ORDERS[visits]
    assert int(several_nodes(order, ticks, visits)[-1]) == several
    certified = one_node(order, ticks, visits) if visits > 1 else several
    assert certified <= one
    assert math.sqrt(one / best_pattern(order, ticks, visits)[0]) < 1.016


@pytest.mark.parametrize("visits", VISITS)
def test_bounds_of_short_days_are_certified(visits: int) -> None:
    check(50, visits, ONE_NODE[50][visits - 1], SEVERAL_NODES[50][visits - 1])


@pytest.mark.long
@pytest.mark.parametrize("ticks", sorted(ONE_NODE))
@pytest.mark.parametrize("visits", VISITS)
def test_every_bound_is_certified(ticks: int, visits: int) -> None:
    check(ticks, visits, ONE_NODE[ticks][visits - 1], SEVERAL_NODES[ticks][visits - 1])


@pytest.mark.parametrize("visits", [1, 4])
def test_bound_that_is_too_small_is_found(visits: int) -> None:
    one, several = ONE_NODE[50][visits - 1], SEVERAL_NODES[50][visits - 1]
    for low in ((int(0.98 * one), several), (one, several - 1)):
        with pytest.raises(AssertionError):
            check(50, visits, *low)


@pytest.mark.parametrize("ticks", sorted(ONE_NODE))
@pytest.mark.parametrize("visits", VISITS)
def test_no_pattern_that_is_found_exceeds_its_bound(ticks: int, visits: int) -> None:
    """At one node by search; at several, and in part at one, by random days."""
    order, rng = ORDERS[visits], np.random.default_rng(visits)
    found, times = best_pattern(order, ticks, visits, starts=2)
    assert squared_norm(order, ticks, {0: times}) == found
    assert 0.95 * ONE_NODE[ticks][visits - 1] < found <= ONE_NODE[ticks][visits - 1]
    for _ in range(20):
        changes = np.sort(rng.choice(ticks, 2 * visits, replace=False))
        days: dict[int, list[int]] = {}
        for start, end in changes.reshape(-1, 2).tolist():
            days.setdefault(int(rng.integers(3)), []).extend((start, end))
        assert squared_norm(order, ticks, days) <= SEVERAL_NODES[ticks][visits - 1]


def test_four_visits_in_four_zones_attain_their_bound() -> None:
    """The largest day at several nodes: found by dynamic programming on f, and measured by its definition."""
    order, ticks = ORDERS[4], 300
    g = gram(order, ticks)
    own = np.diag(g)
    single = np.where(
        np.triu(np.ones((ticks, ticks)), 1) > 0, own[:, None] + own - 2 * g, -1.0
    )  # f(s, e); the day's end is no better here
    best: list[tuple[float, list[tuple[int, int]]]] = [(0.0, [])] * (ticks + 1)
    for _ in range(4):
        longer = list(best)
        for start in range(ticks - 1, -1, -1):
            values = [single[start, end] + best[end][0] for end in range(start + 1, ticks)] or [0.0]
            end = start + 1 + int(np.argmax(values))
            alone = (float(own[start]), [(start, ticks)])
            through = (max(values), [(start, end), *best[end][1]]) if end < ticks else alone
            longer[start] = max(longer[start + 1], alone, through)
        best = longer
    visits = best[0][1]
    days = {zone: [t for t in visit if t < ticks] for zone, visit in enumerate(visits)}
    assert len(visits) == 4
    assert squared_norm(order, ticks, days) == SEVERAL_NODES[300][3]


def test_level_of_several_nodes_needs_more_noise() -> None:
    factor = factor_of(4, 5 * MINUTE)
    one, several = squared_sensitivity(factor, 1), squared_sensitivity(factor, 12)
    assert math.sqrt(one) / 2**16 == pytest.approx(5.273, rel=0.011)
    assert math.sqrt(several) / 2**16 == pytest.approx(6.211, rel=0.001)


def test_other_ticks_use_the_bound_of_the_next_longer_day() -> None:
    assert squared_sensitivity(factor_of(4, 8 * MINUTE), 1) == ONE_NODE[300][3]
    assert squared_sensitivity(factor_of(4, 15 * MINUTE), 1) == ONE_NODE[100][3]
    for table in (ONE_NODE, SEVERAL_NODES):
        for visits in VISITS:
            rising = [table[ticks][visits - 1] for ticks in sorted(table)]
            assert rising == sorted(rising)


def test_rounding_to_16_digits_keeps_the_attraction() -> None:
    """And to 10 digits does not: such a factor is refused."""
    assert (attraction(gram(Fraction(6, 10), 300)) >= 0).all()
    few = _rounded_gram(rounded_weights(Fraction(6, 10), 300) // 64)
    with pytest.raises(UsageError, match="rise in s"):
        attraction(few)


def _rounded_gram(weights: Ints) -> Floats:
    matrix = np.array([np.append(np.zeros(s, np.int64), weights[: len(weights) - s]) for s in range(len(weights))])
    return np.asarray((matrix @ matrix.T).astype(np.float64))
