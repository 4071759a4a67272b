"""The chain rule: exact for two binary tuples, a heuristic beyond, and below the truth at times."""

import math
from typing import Any

import numpy as np
import pytest

from stream.accounting.leakage.prior import Adversary, exact_leakage, exact_leakages, fast_search, full_search, tuples
from stream.errors import UsageError
from tests.unit.accounting.closed_forms import edge_value, increment_ratio

BINARY = [0, 1]


def values(found: list[Adversary]) -> dict[tuple[int, tuple[int, ...]], float]:
    return {(a.target, a.knows): a.leakage for a in found}


def test_the_chain_is_exact_for_two_binary_tuples(seeded: Any) -> None:
    rng = seeded(24)
    for _ in range(300):
        model = tuples([BINARY] * 2, rng.dirichlet(np.ones(4)).reshape(2, 2), 1)
        assert values(full_search(model)) == {
            key: pytest.approx(value, rel=1e-9) for key, value in values(exact_leakages(model)).items()
        }


def test_the_chain_falls_below_the_truth() -> None:
    weights = np.array([1, 1, 2, 14, 7, 1, 1, 1]).reshape(2, 2, 2) / 28
    model = tuples([BINARY] * 3, weights, 1)
    assert values(full_search(model))[0, ()] == pytest.approx(0.069891, abs=5e-7)
    assert exact_leakage(model, 0) == pytest.approx(0.538090, abs=5e-7)


@pytest.mark.parametrize(
    ("domains", "below", "above"),
    [
        ([BINARY] * 3, (0.10, 0.20), (0.80, 0.90)),  # 214 and 1286 of 1500
        ([BINARY, [0, 1, 2, 3]], (0.10, 0.22), (0.0, 0.0)),  # 209 of 1500
        ([[0, 1, 2]] * 2, (0.0, 0.02), (0.0, 0.0)),  # 2 of 1500
    ],
)
def test_how_often_the_chain_misses_the_truth_about_the_weakest_adversary(
    domains: list[list[int]], below: tuple[float, float], above: tuple[float, float], seeded: Any
) -> None:
    rng, shape = seeded(43), [len(d) for d in domains]
    models = [tuples(domains, rng.dirichlet(np.ones(math.prod(shape))).reshape(shape), 1) for _ in range(300)]
    error = np.array([values(full_search(m))[0, ()] - exact_leakage(m, 0) for m in models])
    assert below[0] <= (error < -1e-9).mean() <= below[1]
    assert above[0] <= (error > 1e-9).mean() <= above[1]


def test_an_edge_that_no_possible_pair_crosses_moves_nothing_and_so_misses_a_group_of_three() -> None:
    joint = np.zeros((2, 2, 2))
    joint[0, 0, 0] = joint[1, 1, 1] = 0.5
    model = tuples([BINARY] * 3, joint, 1)
    assert values(full_search(model))[0, ()] == pytest.approx(2.0)
    assert exact_leakage(model, 0) == pytest.approx(3.0)


def test_perfect_correlation_of_two_tuples_is_group_privacy() -> None:
    five = tuples([[0, 5], BINARY], [[0.5, 0], [0, 0.5]], 1)
    assert values(full_search(five)) == {(0, ()): 6.0, (0, (1,)): 5.0, (1, ()): 6.0, (1, (0,)): 1.0}


def test_independent_tuples_gain_nothing_along_the_chain() -> None:
    joint = np.einsum("a,b,c->abc", [0.3, 0.7], [0.6, 0.4], [0.5, 0.5])
    found = values(full_search(tuples([BINARY] * 3, joint, 2)))
    assert list(found.values()) == pytest.approx([0.5] * 12)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_full_search_visits_every_adversary_and_fast_search_a_few_per_layer(n: int, seeded: Any) -> None:
    joint = seeded(25).dirichlet(np.ones(2**n)).reshape((2,) * n)
    model = tuples([BINARY] * n, joint, 1)
    assert len(full_search(model)) == n * 2 ** (n - 1)
    assert len(fast_search(model, 2)) <= 2 * n
    assert values(fast_search(model, 10_000)) == values(full_search(model))


def test_fast_search_keeps_the_largest_of_a_layer(seeded: Any) -> None:
    joint = seeded(26).dirichlet(np.ones(8)).reshape(2, 2, 2)
    model = tuples([[0, 1], [0, 2], [0, 3]], joint, 1)
    first_layer = [a for a in fast_search(model, 1) if len(a.knows) == 2]
    assert [(a.target, a.leakage) for a in first_layer] == [(2, 3.0)]


def test_the_increment_ratio_has_the_sign_of_the_correlation_and_stays_within_one(seeded: Any) -> None:
    positive = tuples([BINARY] * 2, [[0.3, 0.2], [0.2, 0.3]], 1)
    assert increment_ratio(positive, 0, 1) == pytest.approx(0.185376, abs=5e-7)
    assert edge_value(positive, 0, 1) == pytest.approx(0.185375903, abs=5e-10)
    assert increment_ratio(tuples([BINARY] * 2, [[0.2, 0.3], [0.3, 0.2]], 1), 0, 1) < 0
    assert increment_ratio(tuples([BINARY] * 2, [[0.25] * 2] * 2, 1), 0, 1) == pytest.approx(0.0)
    rng = seeded(27)
    for _ in range(200):
        model = tuples([[0, 1, 3], [0, 2, 7]], rng.dirichlet(np.full(9, 0.4)).reshape(3, 3), 1.5)
        assert abs(increment_ratio(model, 0, 1)) <= 1 + 1e-12


def test_keep_must_be_at_least_one() -> None:
    with pytest.raises(UsageError, match="keep"):
        fast_search(tuples([BINARY], [0.5, 0.5], 1), 0)
