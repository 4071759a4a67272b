"""Mutual information against its definition, and what a total of T guarantees."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import declared
from stream.accounting.leakage.information import (
    Channel,
    _divergence,
    attribute_curve,
    attribute_information,
    bits,
    channel,
    information_of,
    information_slopes,
    mutual_information,
)
from tests.unit.accounting.closed_forms import limit_information

PAIR = declared({"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4})
TRIPLE = declared(
    {"000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40}
)
ONES = np.array([1, 1, 1])


def entropy(weights: NDArray[Any]) -> float:
    return -math.fsum(w * math.log(w) for w in weights if w > 0)


def mutual(table: NDArray[Any]) -> float:
    return entropy(table.sum(axis=0)) + entropy(table.sum(axis=1)) - entropy(table.ravel())


def enumerated(joint: NDArray[Any], epsilon: NDArray[Any], queries: NDArray[Any], i: int, j: int) -> float:
    """I(X_j; number of releases of r_i in n_i queries), over the whole joint distribution."""
    n = int(queries[i])
    table = np.zeros((2, n + 1))
    for x in itertools.product((0, 1), repeat=joint.ndim):
        p = 1 - math.exp(-epsilon[i]) if x[i] else 0.0
        for u in range(n + 1):
            table[x[j], u] += joint[x] * math.comb(n, u) * p**u * (1 - p) ** (n - u)
    return mutual(table)


def test_information_equals_enumeration_on_2000_random_entries(seeded: Any) -> None:
    rng = seeded(16)
    for _ in range(500):
        k = int(rng.integers(1, 4))
        joint = rng.dirichlet(np.ones(2**k)).reshape((2,) * k)
        epsilon, queries = rng.uniform(0.05, 3, k), rng.integers(1, 4, k)
        found = mutual_information(joint, epsilon, queries)
        for i, j in itertools.islice(itertools.product(range(k), repeat=2), 4):
            assert found[i, j] == pytest.approx(enumerated(joint, epsilon, queries, i, j), rel=1e-9, abs=1e-12)


def test_worked_values() -> None:
    found = attribute_information(TRIPLE, np.ones(3), ONES)
    assert found == pytest.approx([0.3567127650, 0.3388647666, 0.3618392862], abs=5e-11)
    assert limit_information(TRIPLE) == pytest.approx([0.8825530068, 0.8401724352, 0.9034796248], abs=5e-11)
    pair = attribute_information(PAIR, np.array([1, 0.5]), np.array([1, 1]))
    assert pair == pytest.approx([0.335817322444, 0.161786685061], abs=5e-13)
    assert limit_information(PAIR) == pytest.approx([0.779451802, 0.759316289], abs=5e-10)


def test_an_information_can_be_convex_in_epsilon_near_zero() -> None:
    """pi = .9 and six attributes with Pr(X_i = 1 given X_j) = .95 or .85, each half of the time."""
    model = Channel(
        release=np.array([0.9] + [0.5] * 6),
        shift=np.array([[[-0.9, 0.1]] + [[0.05, -0.05]] * 6] * 7),
        weight=np.array([[0.1, 0.9]] + [[0.5, 0.5]] * 6),
    )
    values = [float(attribute_curve(model, 0, np.array(1 - math.exp(-e)))) for e in (0.5, 1, 3, math.inf)]
    assert values == pytest.approx([0.0517927, 0.1038128, 0.2910616, 0.4119078], abs=5e-8)
    assert values[1] > 2 * values[0]
    bend = [
        float(np.diff(attribute_curve(model, 0, -np.expm1(-(e + np.array([-1e-3, 0.0, 1e-3])))), 2)[0])
        for e in (0.755, 0.757)
    ]
    assert bend[0] > 0 > bend[1]  # convex up to about .756


def test_n_queries_count_as_one_of_n_epsilon() -> None:
    many = attribute_information(TRIPLE, np.array([0.3, 0.5, 0.1]), np.array([3, 2, 5]))
    assert many == pytest.approx(attribute_information(TRIPLE, np.array([0.9, 1.0, 0.5]), ONES), rel=1e-13)


def test_a_nat_is_one_over_ln_2_bits() -> None:
    fair = declared({"0": 0.5, "1": 0.5})
    assert bits(float(limit_information(fair)[0])) == pytest.approx(1.0)


def test_slopes_are_the_derivatives_of_the_information(seeded: Any) -> None:
    rng = seeded(17)
    for _ in range(50):
        joint = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)
        model, p, h = channel(joint), rng.uniform(0.05, 0.95, 3), 1e-6
        for i, slope in enumerate(information_slopes(model, p)):
            up, down = (information_of(model, i, np.array(p[i] + s)).sum() for s in (h, -h))
            assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-8)
    assert np.isinf(information_slopes(channel(TRIPLE), np.ones(3))).all()


def test_certain_attributes_carry_no_information() -> None:
    joint = declared({"01": 0.5, "11": 0.5})
    assert mutual_information(joint, np.array([1.0, 1.0]), np.array([1, 1]))[:, 1] == pytest.approx([0, 0])
    assert information_slopes(channel(joint), np.array([0.5, 0.5]))[1] == 0.0


def test_the_total_bounds_what_colluders_learn_of_any_attribute(seeded: Any) -> None:
    rng = seeded(18)
    for _ in range(200):
        joint, epsilon = rng.dirichlet(np.full(8, 0.5)).reshape(2, 2, 2), rng.uniform(0.1, 3, 3)
        total = attribute_information(joint, epsilon, ONES).sum()
        p = 1 - np.exp(-epsilon)
        for j in range(3):
            table = np.zeros((2, 8))
            for x in itertools.product((0, 1), repeat=3):
                for m in itertools.product((0, 1), repeat=3):
                    chance = math.prod((p[a] if m[a] else 1 - p[a]) if x[a] else float(m[a] == 0) for a in range(3))
                    table[x[j], int("".join(map(str, m)), 2)] += joint[x] * chance
            assert mutual(table) <= total + 1e-12


@pytest.mark.parametrize("excess", [1e-9, -1e-7, 5e-5])
def test_a_divergence_near_0_keeps_its_digits(excess: float) -> None:
    """base u^2 (1/2 - u/6 + u^2/12), u = excess / base: its two terms are nearly equal, and their difference tiny."""
    base = 0.5
    u = excess / base
    found = float(_divergence(np.array(excess), np.array(base)))
    assert found == pytest.approx(base * u**2 * (1 / 2 - u / 6 + u**2 / 12), rel=1e-10, abs=0)
