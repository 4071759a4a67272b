"""Bounds on a factor from pairwise conditionals."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import deltas, factors
from stream.accounting.leakage.joint import declared
from stream.accounting.leakage.partial import factor_bounds
from stream.errors import UsageError

NONE = np.array([0, 0, 0])


def all_pairs(joint: NDArray[Any]) -> dict[tuple[int, int], tuple[float, float]]:
    return {(a, b): deltas(joint, a, b) for a, b in itertools.permutations(range(joint.ndim), 2)}


def test_two_attributes_leave_nothing_open() -> None:
    joint = declared({"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4})
    found = factor_bounds(
        {(0, 1): deltas(joint, 0, 1)}, np.array([1, 0.5]), np.array([1, 1]), np.array([0, 0]), target=1
    )
    assert (found.lower, found.upper) == (pytest.approx(2.399250781, rel=1e-6),) * 2


def frechet(delta: float, w: float) -> tuple[float, float]:
    """Smallest and largest E[w^(X_1 + X_2)] with Pr(X_1 = 0) = Pr(X_2 = 0) = delta."""
    values = []
    for both in (max(0.0, 2 * delta - 1), delta):  # Pr(X_1 = X_2 = 0)
        one = 2 * (delta - both)
        values.append(both + one * w + (1 - both - one) * w * w)
    return min(values), max(values)


def test_two_attributes_given_the_target_range_between_the_frechet_couplings() -> None:
    w = math.exp(-1)
    found = factor_bounds({(0, 2): (0.8, 0.2), (1, 2): (0.8, 0.2)}, np.ones(3), np.array([1, 1, 0]), NONE, target=2)
    (low_0, high_0), (low_1, high_1) = frechet(0.8, w), frechet(0.2, w)
    assert found.lower == pytest.approx(low_0 / high_1, rel=1e-6)
    assert found.upper == pytest.approx(high_0 / low_1, rel=1e-6)


@pytest.mark.parametrize("shown", [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
def test_the_exact_factor_lies_within_bounds_that_more_knowledge_narrows(shown: list[int], seeded: Any) -> None:
    rng = seeded(14)
    released = np.array(shown)
    for _ in range(30):
        joint = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)
        epsilon, queries = rng.uniform(0.2, 2, 3), np.array([1, 2, 1])
        exact = factors(joint, epsilon, queries, released)[2]
        prior = float(joint[:, :, 0].sum())
        some = {pair: delta for pair, delta in all_pairs(joint).items() if pair[1] == 2}
        loose = factor_bounds(some, epsilon, queries, released, target=2)
        tight = factor_bounds(all_pairs(joint), epsilon, queries, released, target=2, prior=prior)
        slack = 1e-6 * max(1.0, exact)
        assert loose.lower - slack <= tight.lower <= exact + slack
        assert exact - slack <= tight.upper <= loose.upper * (1 + 1e-6)


def test_no_joint_that_fits_lies_outside_and_some_come_near(seeded: Any) -> None:
    """Among joints with the same pairs (one free direction), the extremes of a fine grid reach the bounds."""
    rng = seeded(15)
    parity = np.array([(-1) ** sum(x) for x in np.ndindex(2, 2, 2)]).reshape(2, 2, 2)
    for _ in range(10):
        joint = rng.dirichlet(np.full(8, 3.0)).reshape(2, 2, 2)
        low = -joint[parity > 0].min()
        high = joint[parity < 0].min()
        epsilon, queries = np.array([1.0, 1.5, 0.5]), np.array([1, 1, 1])
        grid = [factors(joint + s * parity, epsilon, queries, NONE)[2] for s in np.linspace(low, high, 41)]
        prior = float(joint[:, :, 0].sum())
        found = factor_bounds(all_pairs(joint), epsilon, queries, NONE, target=2, prior=prior)
        assert (found.lower, found.upper) == (
            pytest.approx(min(grid), rel=1e-5),
            pytest.approx(max(grid), rel=1e-5),
        )


def test_with_nothing_known_a_release_may_prove_the_target_sensitive() -> None:
    found = factor_bounds({}, np.ones(3), np.array([1, 0, 0]), np.array([1, 0, 0]), target=2)
    assert (found.lower, found.upper) == (0.0, math.inf)


def test_a_released_target_is_settled() -> None:
    found = factor_bounds({}, np.ones(2), np.array([1, 1]), np.array([0, 1]), target=1)
    assert (found.lower, found.upper) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("conditionals", "prior", "message"),
    [
        ({(0, 2): (1.2, 0.2)}, None, r"conditionals\[0, 2\]\[0\]"),
        ({(0, 3): (0.2, 0.2)}, None, r"conditionals\[0, 3\]"),
        ({(0, 1): (0.2, 0.2)}, None, "prior"),
        ({(0, 1): (0.2, 0.2)}, 1.0, "prior"),
        ({(0, 2): (1.0, 1.0), (2, 0): (0.9, 0.5)}, 0.3, "fit no joint"),
    ],
)
def test_knowledge_that_cannot_be_is_refused(
    conditionals: dict[tuple[int, int], tuple[float, float]], prior: float | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        factor_bounds(conditionals, np.ones(3), np.array([1, 1, 1]), NONE, target=2, prior=prior)


def test_a_likelihood_that_the_solver_would_drop_is_refused() -> None:
    with pytest.raises(UsageError, match="18"):
        factor_bounds({}, np.array([20.0, 1.0]), np.array([1, 1]), np.array([0, 0]), target=1)
