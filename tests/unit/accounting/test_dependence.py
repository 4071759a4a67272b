"""Exact factors over dependent attributes against enumeration in rational arithmetic, and the theorems."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import declared, deltas, factors, implications, prior_odds
from stream.accounting.leakage.entries import posterior_odds
from stream.errors import UsageError
from tests.unit.accounting.closed_forms import (
    dependent_release_factor,
    dependent_suppression_factor,
    suppression_factor,
)

PAIR = declared({"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4})
TRIPLE = declared(
    {"000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40}
)
XOR = declared({"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25})


def ask(joint: NDArray[Any], epsilon: list[float], queries: list[int], released: list[int]) -> NDArray[Any]:
    return factors(joint, np.array(epsilon, float), np.array(queries), np.array(released))


def enumerated(
    joint: NDArray[Any], epsilon: NDArray[Any], queries: list[int], released: list[int], target: int
) -> float:
    """Return the factor by summing P(x) times every coin, in rationals with e^-epsilon as a rational."""
    keep = [Fraction(math.exp(-e)) for e in epsilon]
    sums, prior = [Fraction(0), Fraction(0)], [Fraction(0), Fraction(0)]
    for x in itertools.product((0, 1), repeat=joint.ndim):
        weight = Fraction(float(joint[x]))
        prior[x[target]] += weight
        for a, bit in enumerate(x):
            u, refused = released[a], queries[a] - released[a]
            weight *= (1 - keep[a]) ** u * keep[a] ** refused if bit else Fraction(int(u == 0))
        sums[x[target]] += weight
    if sums[1] == 0:
        return math.inf
    return float(sums[0] / sums[1] / (prior[0] / prior[1]))


def random_models(rng: np.random.Generator, number: int, largest: int) -> Iterator[tuple[NDArray[Any], ...]]:
    for _ in range(number):
        k = int(rng.integers(1, largest + 1))
        joint = rng.dirichlet(np.full(2**k, rng.choice([0.2, 1.0, 5.0]))).reshape((2,) * k)
        queries = rng.integers(0, 4, k)
        yield joint, rng.uniform(0.01, 3.0, k), queries, np.array([rng.integers(0, n + 1) for n in queries])


def test_factors_equal_enumeration_on_2000_random_models(seeded: Any) -> None:
    for joint, epsilon, queries, released in random_models(seeded(1), 2000, 4):
        found = factors(joint, epsilon, queries, released)
        for j in range(joint.ndim):
            expected = enumerated(joint, epsilon, queries.tolist(), released.tolist(), j)
            assert found[j] == pytest.approx(expected, rel=1e-12)


def test_theorems_1_to_4_and_corollary_1_are_the_case_of_two_attributes_on_2000_random_models(seeded: Any) -> None:
    rng = seeded(2)
    for _ in range(2000):
        joint = rng.dirichlet(np.ones(4)).reshape(2, 2)
        e_i, e_j = rng.uniform(0.01, 4.0, 2)
        n = int(rng.integers(1, 6))
        d1, d2 = deltas(joint, 0, 1)
        theorem_1 = suppression_factor(e_j, n)
        corollary_1 = dependent_suppression_factor(d1, d2, e_i, n)
        assert ask(joint, [e_i, e_j], [0, n], [0, 0])[1] == pytest.approx(theorem_1, rel=1e-12)
        assert ask(joint, [e_i, e_j], [n, 0], [0, 0])[1] == pytest.approx(corollary_1, rel=1e-12)
        assert ask(joint, [e_i, e_j], [1, 0], [1, 0])[1] == pytest.approx(dependent_release_factor(d1, d2), rel=1e-12)
        for released in (False, True):
            other = dependent_release_factor(d1, d2) if released else dependent_suppression_factor(d1, d2, e_i)
            theorem_4 = other * suppression_factor(e_j)
            found = ask(joint, [e_i, e_j], [1, 1], [int(released), 0])[1]
            assert found == pytest.approx(theorem_4, rel=1e-12)


@pytest.mark.parametrize(
    ("queries", "released", "factor"),
    [
        ([1, 0], [0, 0], 1.455219159),
        ([3, 0], [0, 0], 2.080205622),
        ([1, 0], [1, 0], 0.375),
        ([1, 1], [0, 0], 2.399250781),
        ([1, 1], [1, 0], 0.618270477),
        ([5, 0], [2, 0], 0.375),
    ],
)
def test_worked_example_of_two_attributes(queries: list[int], released: list[int], factor: float) -> None:
    assert prior_odds(PAIR)[1] == pytest.approx(2 / 3)
    assert ask(PAIR, [1, 0.5], queries, released)[1] == pytest.approx(factor, abs=5e-10)


def two(delta_1: float, delta_2: float) -> NDArray[Any]:
    """Return a joint in which X_0 is sensitive with delta_1 where X_1 is, and with delta_2 where X_1 is not."""
    return np.array([[delta_1, delta_2], [1 - delta_1, 1 - delta_2]]) / 2


def test_withheld_queries_without_end_leave_the_ratio_of_the_conditionals() -> None:
    assert ask(two(0.8, 0.2), [math.inf, 1], [1, 0], [0, 0])[1] == pytest.approx(4.0)
    assert ask(two(0.8, 0.2), [2.0, 1], [100_000, 0], [0, 0])[1] == pytest.approx(4.0)
    assert ask(two(0.8, 0.0), [math.inf, 1], [1, 0], [0, 0])[1] == math.inf


@pytest.mark.parametrize("delta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 800.0, math.inf])
def test_an_independent_attribute_says_nothing(delta: float, epsilon: float) -> None:
    withheld = 0 if delta == 0.0 and epsilon == math.inf else 1  # never sensitive and always released: none is withheld
    assert ask(two(delta, delta), [epsilon, 1], [withheld, 0], [0, 0])[1] == pytest.approx(1.0)


def test_withholding_lowers_the_odds_where_delta_1_is_the_smaller() -> None:
    lowered, raised = (ask(two(0.2, 0.6), [1.0, 1], [1, 0], [released, 0])[1] for released in (0, 1))
    assert lowered < 1.0 < raised


def test_certain_odds_stay_certain() -> None:
    assert posterior_odds(0.0, math.inf) == 0.0
    assert posterior_odds(math.inf, 0.0) == math.inf


def test_worked_example_of_three_attributes() -> None:
    found = ask(TRIPLE, [1, 0.5, 0.25], [1, 2, 1], [0, 0, 0])
    assert found == pytest.approx([4.470115722, 4.371384810, 3.182283054], abs=5e-10)
    assert ask(TRIPLE, [1, 0.5, 0.25], [1, 2, 1], [1, 0, 0])[2] == pytest.approx(0.663888485, abs=5e-10)


@pytest.mark.parametrize(("epsilon", "factor"), [(0.5, 1.127626), (1.0, 1.543081), (3.0, 10.067662)])
def test_two_refusals_tell_of_their_exclusive_or(epsilon: float, factor: float) -> None:
    assert ask(XOR, [epsilon] * 3, [1, 1, 0], [0, 0, 0])[2] == pytest.approx(factor, abs=5e-7)


def test_two_releases_prove_their_exclusive_or_sensitive() -> None:
    assert ask(XOR, [1, 1, 1], [1, 1, 0], [1, 1, 0])[2] == math.inf


@pytest.mark.parametrize(("epsilon", "factor"), [(0.5, 1.767286), (1.0, 2.682946), (3.0, 3.963184)])
def test_two_copies_count_as_one_attribute_asked_twice(epsilon: float, factor: float) -> None:
    copies = declared({"000": 0.4, "110": 0.1, "001": 0.1, "111": 0.4})
    assert ask(copies, [epsilon] * 3, [1, 1, 0], [0, 0, 0])[2] == pytest.approx(factor, abs=5e-7)


def test_a_released_record_was_not_sensitive() -> None:
    assert ask(PAIR, [1, 0.5], [2, 1], [1, 0])[0] == 0.0


def test_a_record_that_is_always_released_when_it_may_be_can_be_released() -> None:
    assert ask(PAIR, [math.inf, 0.5], [2, 1], [2, 0])[1] == pytest.approx(0.375 * math.exp(0.5))
    with pytest.raises(UsageError, match="released"):
        ask(PAIR, [math.inf, 0.5], [2, 1], [1, 0])


def test_ten_years_of_refusals_stay_finite_where_they_should() -> None:
    found = ask(PAIR, [1.0, 0.5], [3650, 0], [0, 0])
    assert found[0] == math.inf
    assert found[1] == pytest.approx(0.75 / (1 / 3), rel=1e-12)


def test_a_certain_attribute_has_nothing_to_lose() -> None:
    certain = declared({"00": 0.5, "01": 0.5})
    found = ask(certain, [1, 1], [2, 1], [0, 0])
    assert found == pytest.approx([1.0, math.e])
    assert prior_odds(certain)[0] == math.inf


@pytest.mark.parametrize(
    ("joint", "epsilon", "queries", "released"),
    [(PAIR, [1, 1], [1, 1], [2, 0]), (PAIR, [0, 1], [1, 1], [1, 0]), (declared({"00": 1.0}), [1, 1], [1, 1], [1, 0])],
)
def test_outcomes_that_cannot_happen_are_refused(
    joint: NDArray[Any], epsilon: list[float], queries: list[int], released: list[int]
) -> None:
    with pytest.raises(UsageError, match="released"):
        ask(joint, epsilon, queries, released)


# --- the released value ---

ARRIVAL_SENSITIVE = np.array([False, False, True])  # early, usual, late
LEVEL_SENSITIVE = np.array([True, False])


def test_values_that_prove_another_sensitive_are_found() -> None:
    joint = np.array([[0.2, 0.0], [0.3, 0.2], [0.3, 0.0]])
    masks = [ARRIVAL_SENSITIVE, LEVEL_SENSITIVE]
    assert implications(joint, masks) == [(0, 0, 1)]
    assert implications(joint.T, masks[::-1]) == [(1, 0, 0)]
    assert implications(np.full((3, 2), 1 / 6), masks) == []
