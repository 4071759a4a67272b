"""Temporal leakage against brute force over subsets and against the published code's values."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.temporal import (
    NONE,
    backward_leakage,
    constant_allocation,
    forward_leakage,
    learn_transitions,
    loss,
    quantified_allocation,
    reversed_in_time,
    stationary,
    supremum,
    total_leakage,
    total_supremum,
)
from stream.errors import UsageError

M3 = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.3, 0.2]])
ABSORBING = np.array([[1.0, 0.0], [0.1, 0.9]])


def sticky(stay: float) -> NDArray[Any]:
    return np.array([[stay, 1 - stay], [1 - stay, stay]])


def brute(matrix: NDArray[Any], alpha: float) -> float:
    """Maximise over all ordered pairs of rows and all subsets of columns."""
    worst, factor = 0.0, math.expm1(alpha)
    for q, d in itertools.permutations(matrix, 2):
        for size in range(1, len(matrix) + 1):
            for chosen in itertools.combinations(range(len(matrix)), size):
                q_j, d_j = math.fsum(q[list(chosen)]), math.fsum(d[list(chosen)])
                worst = max(worst, math.log((q_j * factor + 1) / (d_j * factor + 1)))
    return worst


def test_one_step_equals_all_subsets_to_1e_12_on_2000_random_cases(seeded: Any) -> None:
    rng = seeded(28)
    for _ in range(400):
        n = int(rng.integers(2, 5))
        matrix = rng.dirichlet(np.full(n, rng.choice([0.3, 1.0])), n)
        if rng.uniform() < 0.3:
            matrix = np.where(matrix < 0.2, 0.0, matrix)
            matrix /= matrix.sum(axis=1, keepdims=True)
        carry = loss(matrix)
        for alpha in rng.uniform(0.01, 6, 5):
            assert carry(alpha) == pytest.approx(brute(matrix, alpha), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    ("alpha", "value"),
    [
        (0.1, 0.050220), (0.5, 0.252399), (1, 0.494334), (2, 0.939752), (5, 1.557279), (10, 1.609075),
        (math.inf, 1.609438),
    ],
)  # fmt: skip
def test_one_step_values(alpha: float, value: float) -> None:
    assert loss(M3)(alpha) == pytest.approx(value, abs=5e-7)


def test_a_step_carries_at_most_what_there_was(seeded: Any) -> None:
    rng = seeded(29)
    for _ in range(100):
        carry = loss(rng.dirichlet(np.full(3, 0.3), 3))
        for alpha in (0.0, 1e-9, 0.3, 5.0, 800.0):
            assert 0.0 <= carry(alpha) <= alpha
    assert loss(np.full((3, 3), 1 / 3))(2.0) == pytest.approx(0.0, abs=1e-15)
    assert loss(np.eye(3))(2.0) == pytest.approx(2.0)


@pytest.mark.parametrize(("epsilon", "value"), [(0.01, 0.020020), (0.1, 0.201532), (0.5, 0.989510), (1, 1.892917)])
def test_supremum_is_the_limit_of_the_recursion(epsilon: float, value: float) -> None:
    carry = loss(M3)
    assert supremum(carry, epsilon) == pytest.approx(value, abs=5e-7)
    assert backward_leakage(carry, [epsilon] * 2000)[-1] == pytest.approx(supremum(carry, epsilon), rel=1e-12)


def test_recursion_values() -> None:
    assert backward_leakage(loss(M3), [0.5] * 4) == pytest.approx([0.5, 0.752399, 0.877211, 0.937062], abs=5e-7)
    carry = loss(sticky(0.9))
    assert backward_leakage(carry, [0.1] * 5) == pytest.approx([0.1, 0.179976, 0.243841, 0.294725, 0.335166], abs=5e-7)
    assert total_leakage(carry, carry, [0.1] * 5) == pytest.approx(
        [0.335166, 0.374701, 0.387682, 0.374701, 0.335166], abs=5e-7
    )


def test_later_releases_raise_the_leakage_of_earlier_ones() -> None:
    carry = loss(sticky(0.9))
    assert forward_leakage(carry, [0.1, 0.2, 0.3])[0] > forward_leakage(carry, [0.1, 0.2])[0] > 0.1
    assert forward_leakage(carry, [0.1, 0.2, 0.3]) == backward_leakage(carry, [0.3, 0.2, 0.1])[::-1]


def test_some_chains_have_no_supremum() -> None:
    carry = loss(ABSORBING)
    assert supremum(carry, 0.05) == pytest.approx(0.668856, abs=5e-7)
    for epsilon in (math.log(1 / 0.9) + 1e-12, 0.2, 5.0, 500.0):
        assert supremum(carry, epsilon) == math.inf
    assert math.isfinite(supremum(carry, math.log(1 / 0.9) - 1e-6))
    assert (math.isfinite(supremum(carry, 0.105360)), supremum(carry, 0.105361)) == (True, math.inf)
    assert supremum(loss(np.eye(2)), 0.1) == math.inf
    assert backward_leakage(loss(np.eye(2)), [0.1] * 50)[-1] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("stay", "tenth", "one"),
    [
        (0.5, 0.1, 1.0), (0.8, 0.3975, 2.9615), (0.9, 0.8724, 4.4995), (0.95, 1.6917, 5.9766),
        (0.98, 3.2578, 7.8671), (0.99, 4.6060, 9.2731),
    ],
)  # fmt: skip
def test_sticky_presence_leaks_many_times_epsilon(stay: float, tenth: float, one: float) -> None:
    carry = loss(sticky(stay))
    assert total_supremum(carry, carry, 0.1) == pytest.approx(tenth, abs=5e-5)
    assert total_supremum(carry, carry, 1.0) == pytest.approx(one, abs=5e-5)


@pytest.mark.parametrize(("epsilon", "value"), [(0.1, 4.853), (0.5, 8.979), (1.0, 10.52)])
def test_a_days_presence(epsilon: float, value: float) -> None:
    forward = np.array([[0.95, 0.05], [0.005, 0.995]])
    backward = reversed_in_time(forward, stationary(forward))
    worst = max(total_leakage(loss(backward), loss(forward), [epsilon] * 288))
    assert worst == pytest.approx(value, rel=2e-4)


@pytest.mark.parametrize(("every", "value"), [(1, 1.6917), (3, 0.6279), (6, 0.3255), (12, 0.1786), (24, 0.1173)])
def test_thinning_is_a_cheap_defence(every: int, value: float) -> None:
    carry = loss(np.linalg.matrix_power(sticky(0.95), every))
    assert total_supremum(carry, carry, 0.1) == pytest.approx(value, abs=5e-5)


def test_small_epsilons_have_a_supremum_of_epsilon_over_twice_the_chance_to_leave() -> None:
    assert supremum(loss(sticky(0.9)), 1e-6) == pytest.approx(1e-6 / (2 * 0.1), rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-9, 1e-15, 1e-50])
def test_small_epsilons_keep_their_digits(epsilon: float) -> None:
    """As epsilon falls, L(alpha) / alpha nears max (q_J - d_J) and the supremum epsilon / (1 - max (q_J - d_J))."""
    carry = loss(sticky(0.9))
    assert carry(epsilon) == pytest.approx(0.8 * epsilon, rel=max(1e-12, epsilon))
    assert supremum(carry, epsilon) == pytest.approx(5 * epsilon, rel=max(1e-12, 20 * epsilon))


def test_without_knowledge_nothing_is_carried() -> None:
    assert loss(None)(1.0) == 0.0


def test_epsilons_beyond_the_doubles_of_e_to_the_epsilon_are_told_apart() -> None:
    """A column that only one row has, with probability q, carries alpha + ln q however large alpha is."""
    carry = loss(ABSORBING)
    for alpha in (200.0, 400.0, 1e6):
        assert carry(alpha) == pytest.approx(alpha + math.log(0.9), rel=1e-15)
    assert loss(np.eye(2))(1e49) == 1e49
    assert loss(M3)(1e49) == pytest.approx(math.log(5))


def test_allocations_reach_the_target_and_no_more() -> None:
    carry = loss(sticky(0.95))
    constant = constant_allocation(carry, carry, 1.0, 4)
    assert constant == pytest.approx([0.054845] * 4, abs=5e-7)
    assert total_supremum(carry, carry, constant[0]) == pytest.approx(1.0, rel=1e-9)
    quantified = quantified_allocation(carry, carry, 1.0, 5)
    assert quantified == pytest.approx([0.527423, *[0.054845] * 3, 0.527423], abs=5e-7)


@pytest.mark.parametrize("horizon", [1, 2, 3, 10])
def test_the_quantified_allocation_leaks_exactly_the_target_at_every_time(horizon: int, seeded: Any) -> None:
    rng = seeded(30)
    for _ in range(50):
        forward = loss(rng.dirichlet(np.ones(3), 3))
        backward = NONE if rng.uniform() < 0.2 else loss(rng.dirichlet(np.ones(3), 3))
        target = float(rng.uniform(0.1, 3))
        epsilon = quantified_allocation(backward, forward, target, horizon)
        assert min(epsilon) >= 0
        assert total_leakage(backward, forward, epsilon) == pytest.approx([target] * horizon, rel=1e-9)
        constant = constant_allocation(backward, forward, target, horizon)
        assert max(total_leakage(backward, forward, constant)) <= target * (1 + 1e-9)


def test_a_deterministic_chain_leaves_no_constant_epsilon() -> None:
    frozen = loss(np.eye(2))
    assert constant_allocation(frozen, frozen, 1.0, 3) == pytest.approx([0.0] * 3, abs=1e-12)


def test_without_knowledge_of_movement_a_release_costs_its_epsilon() -> None:
    assert total_leakage(NONE, NONE, [0.1, 0.3]) == pytest.approx([0.1, 0.3])
    assert supremum(NONE, 0.3) == 0.3


def test_turning_a_stationary_chain_twice_gives_it_back(seeded: Any) -> None:
    rng = seeded(31)
    forward = rng.dirichlet(np.ones(4), 4)
    pi = stationary(forward)
    assert pi @ forward == pytest.approx(pi)
    backward = reversed_in_time(forward, pi)
    assert backward.sum(axis=1) == pytest.approx(np.ones(4))
    assert reversed_in_time(backward, pi) == pytest.approx(forward)


def test_a_chain_without_one_stationary_distribution_is_refused() -> None:
    with pytest.raises(UsageError, match="stationary"):
        stationary(np.eye(2))
    with pytest.raises(UsageError, match="state 1"):
        reversed_in_time(ABSORBING, stationary(ABSORBING))


CHAINS: dict[str, tuple[str, set[int] | None]] = {
    "one round": ("01 12 20", {0, 1, 2}),
    "a round behind two states": ("01 12 23 34 42", {2, 3, 4}),
    "two rounds, one of which leads to the other": ("01 10 12 23 32", {2, 3}),
    "two rounds behind one state": ("01 02 11 22", None),
    "two rounds side by side": ("01 10 23 32", None),
    "a way through many states to one that stays": ("76 65 54 43 32 21 10 00", {0}),
}
"""Moves (from, to), and the states that are met again and again; None where it depends on where one begins."""


@pytest.mark.parametrize(("moves", "again"), CHAINS.values(), ids=CHAINS.keys())
def test_only_states_that_are_met_again_and_again_have_a_share(moves: str, again: set[int] | None) -> None:
    forward = np.zeros((1 + max(map(int, moves.replace(" ", ""))),) * 2)
    for move in moves.split():
        forward[int(move[0]), int(move[1])] = 1
    forward /= forward.sum(axis=1, keepdims=True)
    if again is None:
        with pytest.raises(UsageError, match="several closed sets"):
            stationary(forward)
    else:
        assert set(np.flatnonzero(stationary(forward)).tolist()) == again
        assert stationary(forward).sum() == pytest.approx(1)


def test_learnt_transitions_have_no_zeros() -> None:
    assert learn_transitions(np.array([[3, 0], [1, 1]])).tolist() == [[0.875, 0.125], [0.5, 0.5]]
