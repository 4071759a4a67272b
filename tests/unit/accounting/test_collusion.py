"""Coalitions, the pairwise product where it is right and where it is not, and kinds of release together."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import declared, factors, pairwise_factors

TRIPLE = declared(
    {"000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40}
)


def product(joint: NDArray[Any], epsilon: list[Any], queries: list[int], released: list[int]) -> NDArray[Any]:
    return pairwise_factors(joint, np.array(epsilon, float), np.array(queries), np.array(released))


def test_the_product_differs_from_the_truth_for_three_attributes() -> None:
    found = product(TRIPLE, [1, 0.5, 0.25], [1, 2, 1], [0, 0, 0])
    assert found == pytest.approx([4.493556, 4.400724, 3.298230], abs=5e-7)
    assert product(TRIPLE, [1, 0.5, 0.25], [1, 2, 1], [1, 0, 0])[2] == pytest.approx(0.693735, abs=5e-7)


def test_the_product_of_overwhelming_odds_and_an_impossibility_is_an_impossibility() -> None:
    """A release of r_0 proves that r_1 was not sensitive, however often r_1 itself was refused."""
    joint = declared({"00": 0.3, "01": 0.3, "11": 0.4})
    assert product(joint, [1, 1e30], [1, 1000], [1, 0]).tolist() == [0.0, 0.0]


def test_the_product_holds_where_a_release_is_all_but_impossible() -> None:
    joint = declared({"00": 0.5, "01": 0.5 - 3e-30, "10": 1e-30, "11": 2e-30})
    assert product(joint, [1, 0.5], [1, 1], [1, 0])[1] == pytest.approx(0.5 * math.exp(0.5), rel=1e-12)


def test_the_product_of_many_refusals_is_finite_where_they_outweigh_each_other() -> None:
    joint = declared({"01": 0.2, "10": 0.4, "11": 0.4})
    found = product(joint, [1, 1], [5000, 5000], [0, 0])[1]
    assert found == pytest.approx(
        factors(joint, np.ones(2), np.array([5000] * 2), np.zeros(2, dtype=np.int64))[1], rel=1e-9
    )


def test_the_product_is_too_small_for_about_half_of_random_models(seeded: Any) -> None:
    """48.5 % of three attributes at epsilon 1, by up to .37 in ln."""
    rng = seeded(42)
    joints = [rng.dirichlet(np.ones(8)).reshape(2, 2, 2) for _ in range(500)]
    once, never = np.ones(3, dtype=np.int64), np.zeros(3, dtype=np.int64)
    pairs = [(pairwise_factors(j, np.ones(3), once, never), factors(j, np.ones(3), once, never)) for j in joints]
    error = np.array([np.log(product / exact) for product, exact in pairs])
    assert (error < 0).mean() == pytest.approx(0.485, abs=0.04)
    assert np.abs(error).max() == pytest.approx(0.37, abs=0.1)


@pytest.mark.parametrize("released", [[0, 0, 0], [1, 1, 0]])
def test_the_product_sees_nothing_in_an_exclusive_or(released: list[int]) -> None:
    xor = declared({"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25})
    assert product(xor, [3, 3, 3], [1, 1, 0], released)[2] == pytest.approx(1.0, abs=1e-15)
    exact = factors(xor, np.full(3, 3.0), np.array([1, 1, 0]), np.array(released))[2]
    assert exact > 10


@pytest.mark.parametrize(("epsilon", "factor"), [(0.5, 1.807766), (1.0, 3.123301), (3.0, 11.405612)])
def test_the_product_counts_copies_twice(epsilon: float, factor: float) -> None:
    copies = declared({"000": 0.4, "110": 0.1, "001": 0.1, "111": 0.4})
    assert product(copies, [epsilon] * 3, [1, 1, 0], [0, 0, 0])[2] == pytest.approx(factor, abs=5e-7)


def naive_bayes(third: float, first: tuple[float, float], second: tuple[float, float]) -> NDArray[Any]:
    """Joint with X_1, X_2 independent given X_3; arguments Pr(X_3=0), Pr(X_1=0|X_3), Pr(X_2=0|X_3)."""
    joint = np.empty((2, 2, 2))
    for x in np.ndindex(2, 2, 2):
        p3 = third if x[2] == 0 else 1 - third
        p1 = first[x[2]] if x[0] == 0 else 1 - first[x[2]]
        p2 = second[x[2]] if x[1] == 0 else 1 - second[x[2]]
        joint[x] = p1 * p2 * p3
    return joint


@pytest.mark.parametrize("third", [0.2, 0.5, 0.9])
def test_the_product_is_exact_when_the_others_are_independent_given_the_target(third: float) -> None:
    joint = naive_bayes(third, (0.8, 0.3), (0.6, 0.1))
    arguments = [1, 0.7, 0.5], [1, 2, 1], [0, 0, 0]
    exact = factors(joint, np.array(arguments[0]), np.array(arguments[1]), np.array(arguments[2]))[2]
    assert exact == pytest.approx(5.606247763, abs=5e-10)
    assert product(joint, *arguments)[2] == pytest.approx(exact, rel=1e-12)


def test_the_product_is_exact_for_two_attributes_on_random_models(seeded: Any) -> None:
    rng = seeded(7)
    for _ in range(300):
        joint = rng.dirichlet(np.ones(4)).reshape(2, 2)
        epsilon, queries = rng.uniform(0.1, 3, 2), rng.integers(0, 4, 2)
        released = np.array([rng.integers(0, n + 1) for n in queries])
        exact = factors(joint, epsilon, queries, released)
        assert pairwise_factors(joint, epsilon, queries, released) == pytest.approx(exact, rel=1e-12)
