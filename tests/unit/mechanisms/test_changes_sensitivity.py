"""The shipped bounds on one device's day, and on a day replaced: no pattern exceeds them, and some come near.

The nightly test derives every bound again; the fast ones derive those of short days, and search for patterns in all.
"""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from stream.accounting.day_charges import REPLACED, UNPROVEN
from stream.errors import UsageError
from stream.mechanisms.changes.factor import ORDERS, factor_of, rounded_weights
from stream.mechanisms.changes.sensitivity import ONE_NODE, SEVERAL_NODES, squared_sensitivity
from stream.mechanisms.exact import Floats, Ints
from stream.records import MINUTE
from tests.support import changes_certificate
from tests.support.changes_certificate import (
    attraction,
    best_pattern,
    best_replaced,
    gram,
    one_node,
    replaced_at_one_node,
    replaced_at_several_nodes,
    several_nodes,
)

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


def test_a_single_visit_has_one_bound_however_many_nodes_there_are() -> None:
    assert [one[0] for one in ONE_NODE.values()] == [several[0] for several in SEVERAL_NODES.values()]


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


# ---- a day replaced ----------------------------------------------------------------------------------------


def check_replaced(ticks: int, visits: int, parts: Fraction) -> None:
    """Raise AssertionError unless a bound on days replaced, in parts of that on a day, holds at all levels."""
    order = ORDERS[visits]
    assert replaced_at_one_node(order, ticks, visits) <= parts * ONE_NODE[ticks][visits - 1]
    assert replaced_at_several_nodes(order, ticks, visits) <= parts * SEVERAL_NODES[ticks][visits - 1]


@pytest.mark.parametrize("visits", VISITS)
def test_bounds_of_short_days_replaced_are_certified(visits: int) -> None:
    check_replaced(50, visits, REPLACED[2 * visits])


@pytest.mark.long
@pytest.mark.parametrize("ticks", [100, 150, 300])
@pytest.mark.parametrize("visits", VISITS)
def test_every_bound_of_a_day_replaced_is_certified(ticks: int, visits: int) -> None:
    check_replaced(ticks, visits, REPLACED[2 * visits])


@pytest.mark.parametrize("visits", [1, 4, 8])
def test_bound_of_a_day_replaced_that_is_too_small_is_found(visits: int) -> None:
    with pytest.raises(AssertionError):
        check_replaced(50, visits, Fraction(9, 10) * REPLACED[2 * visits])


@pytest.mark.parametrize("visits", VISITS)
def test_two_days_come_near_the_bound_of_a_day_replaced(visits: int) -> None:
    """At one node, by search; a shift is a root."""
    order = ORDERS[visits]
    found, days = best_replaced(order, 300, visits)
    row = sum(_row(order, 300, day) * (-1) ** number for number, day in enumerate(days))
    assert found == sum(int(each) ** 2 for each in row)
    most = REPLACED[2 * visits] * ONE_NODE[300][visits - 1]
    assert 1 <= math.sqrt(most / found) < (1.04 if visits == 3 else 1.025)
    assert REPLACED[2 * visits] < UNPROVEN


def _row(order: Fraction, ticks: int, changes: list[int]) -> Ints:
    row, weights = np.zeros(ticks, np.int64), rounded_weights(order, ticks)
    for number, tick in enumerate(each for each in changes if each < ticks):
        row[tick:] += (-1) ** number * weights[: ticks - tick]
    return row


@pytest.mark.parametrize(
    ("ticks", "visits", "nodes"),
    [(8, 1, 1), (9, 2, 1), (9, 3, 1), (6, 1, 2), (7, 2, 2), (7, 3, 2), (5, 2, 3), (5, 3, 3)],
)
def test_no_two_of_all_days_of_a_few_ticks_exceed_the_bound_of_a_day_replaced(
    ticks: int, visits: int, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one node, the worst pair of all comes within 1 % of it."""
    order, where = ORDERS[visits], np.array(list(product(range(nodes + 1), repeat=ticks)))
    before = np.pad(where, ((0, 0), (1, 0)))[:, :-1]
    days = where[((where > 0) & (where != before)).sum(axis=1) <= visits]
    effects = np.array([_row(order, ticks, [tick]) for tick in range(ticks)])
    rows = np.concatenate(
        [np.diff(days == node, axis=1, prepend=0).astype(float) @ effects for node in range(1, nodes + 1)], axis=1
    )
    own = (rows**2).sum(axis=1)
    worst = float((own[:, None] + own - 2 * rows @ rows.T).max())
    monkeypatch.setitem(changes_certificate.SMOOTH, (ticks, visits), (1.22, 1.74, 0.17))
    bound = replaced_at_several_nodes(order, ticks, visits)
    if nodes == 1:
        bound = replaced_at_one_node(order, ticks, visits)
        assert worst > 0.99 * bound
    assert worst <= max(bound, replaced_at_one_node(order, ticks, visits))
