"""The release guard: static and adaptive, and what a blocked round may say (nothing)."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import declared, factors
from stream.accounting.leakage.guard import (
    log_outcome_factors,
    log_worst_outcomes,
    may_query,
    no_evidence,
    permitted,
    releasable,
    value_rows,
    worst_factors,
)
from stream.errors import UsageError

XOR = declared({"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25})
PAIR = declared({"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4})
REVEALING = declared({"00": 0.05, "01": 0.45, "10": 0.4, "11": 0.1})  # a release of 0 says 1 is sensitive


def test_the_static_rule_cuts_exactly_at_the_factor_of_a_release() -> None:
    factor = (0.4 / 0.45) / (0.1 / 0.55)  # Pr(X_0=1 | X_1=0) / Pr(X_0=1 | X_1=1)
    assert 0 not in releasable(REVEALING, cap=math.log(factor) - 1e-6)
    assert 0 in releasable(REVEALING, cap=math.log(factor) + 1e-6)


def test_the_static_rule_sees_releases_together() -> None:
    assert releasable(XOR, cap=5.0) == (0,)
    assert releasable(XOR, cap=5.0, order=[2, 0, 1]) == (2,)


def test_outside_the_static_set_the_smallest_epsilon_breaks_the_cap(seeded: Any) -> None:
    rng = seeded(8)
    for _ in range(100):
        joint, cap = rng.dirichlet(np.full(8, 0.6)).reshape(2, 2, 2), float(rng.uniform(0.1, 1.5))
        inside = releasable(joint, cap)
        for left_out in set(range(3)) - set(inside):
            queries = np.array([int(a in (*inside, left_out)) for a in range(3)])
            assert worst_factors(joint, np.full(3, 1e-9), queries).max() > math.exp(cap)
        queries = np.array([int(a in inside) for a in range(3)])
        assert worst_factors(joint, np.full(3, 1e-9), queries).max() <= math.exp(cap) * (1 + 1e-6)


def test_permitted_attributes_keep_the_cap_and_no_other_can_join(seeded: Any) -> None:
    rng = seeded(9)
    for _ in range(100):
        joint, cap = rng.dirichlet(np.full(8, 0.6)).reshape(2, 2, 2), float(rng.uniform(0.3, 2.0))
        epsilon = rng.uniform(0.05, 1.0, 3)
        inside = permitted(joint, epsilon, np.ones(3, dtype=np.int64), cap)
        for extra in (None, *sorted(set(range(3)) - set(inside))):
            queries = np.array([int(a in inside or a == extra) for a in range(3)])
            worst = worst_factors(joint, epsilon, queries).max()
            assert (worst <= math.exp(cap) * (1 + 1e-9)) == (extra is None)


def walk(
    joint: NDArray[Any],
    epsilon: NDArray[Any],
    cap: float,
    schedule: list[int],
    likelihood: NDArray[Any],
    path: tuple[Any, ...] = (),
    queries: NDArray[Any] | None = None,
    released: NDArray[Any] | None = None,
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield every run of the adaptive guard over a schedule: its likelihood per x, and its public counts."""
    k = joint.ndim
    queries = np.zeros(k, dtype=np.int64) if queries is None else queries
    released = np.zeros(k, dtype=np.int64) if released is None else released
    yield likelihood, queries, released
    if len(path) == len(schedule):
        return
    attribute = schedule[len(path)]
    if not may_query(joint, epsilon, queries, released, attribute=attribute, cap=cap):
        yield from walk(joint, epsilon, cap, schedule, likelihood, (*path, "blocked"), queries, released)
        return
    step = np.eye(k, dtype=np.int64)[attribute]
    keep = math.exp(-epsilon[attribute])
    for outcome, chance in ((0, (1.0, keep)), (1, (0.0, 1.0 - keep))):
        shape = [1] * k
        shape[attribute] = 2
        new = likelihood * np.array(chance).reshape(shape)
        if (joint * new).sum() > 0:
            yield from walk(
                joint, epsilon, cap, schedule, new, (*path, outcome), queries + step, released + outcome * step
            )


def test_every_run_of_the_adaptive_rule_keeps_the_cap_and_blocked_rounds_are_no_evidence(seeded: Any) -> None:
    rng = seeded(10)
    blocked_runs = 0
    for _ in range(25):
        joint = rng.dirichlet(np.full(8, 0.6)).reshape(2, 2, 2)
        epsilon, cap = rng.uniform(0.2, 0.8, 3), float(rng.uniform(0.7, 1.6))
        schedule = [0, 1, 2, 0, 1]
        for likelihood, queries, released in walk(joint, epsilon, cap, schedule, np.ones((2, 2, 2))):
            posterior = joint * likelihood
            counted = factors(joint, epsilon, queries, released)
            for j, axes in enumerate([(1, 2), (0, 2), (0, 1)]):
                after, before = posterior.sum(axis=axes), joint.sum(axis=axes)
                truth = math.inf if after[1] == 0 else (after[0] / after[1]) / (before[0] / before[1])
                assert truth <= math.exp(cap) * (1 + 1e-9)
                assert counted[j] == pytest.approx(truth, rel=1e-12)
            blocked_runs += queries.sum() < len(schedule)
    assert blocked_runs > 100


def test_a_question_is_blocked_for_the_answer_that_would_break_the_cap_whichever_comes() -> None:
    epsilon, none = np.array([0.1, 0.1]), np.zeros(2, dtype=np.int64)
    assert not may_query(REVEALING, epsilon, none, none, attribute=0, cap=1.0)
    assert may_query(PAIR, epsilon, none, none, attribute=0, cap=1.0)


def test_an_attribute_is_blocked_once_its_own_refusals_use_up_the_cap() -> None:
    epsilon, none = np.array([0.4, 0.4]), np.zeros(2, dtype=np.int64)
    query = [may_query(PAIR, epsilon, np.array([n, 0]), none, attribute=0, cap=1.0) for n in range(4)]
    assert query == [True, True, False, False]


@pytest.mark.parametrize("order", [[0], [0, 0, 1], [1, 2, 3]])
def test_an_order_must_name_every_attribute_once(order: list[int]) -> None:
    with pytest.raises(UsageError, match="order"):
        releasable(XOR, cap=1.0, order=order)


def test_a_negative_cap_is_refused() -> None:
    for call in (
        lambda: releasable(XOR, cap=-1),
        lambda: may_query(XOR, np.ones(3), np.zeros(3, int), np.zeros(3, int), attribute=0, cap=-1),
    ):
        with pytest.raises(UsageError, match="cap"):
            call()


LATE = np.array([True, False, False])


def test_a_query_that_costs_nothing_shows_no_value() -> None:
    assert value_rows(LATE, 0.0).tolist() == [[0.0, 0.0, 0.0]]
    assert value_rows(LATE, 0.5).shape == (3, 3)


@pytest.mark.parametrize("joint", [[0.0, 0.4, 0.6], [1.0, 0.0, 0.0]])
def test_an_attribute_that_is_certain_keeps_its_odds_whatever_is_shown(joint: list[float]) -> None:
    (factors_of_outcomes,) = log_outcome_factors(np.array(joint), [value_rows(LATE, 0.5)], [LATE])
    assert factors_of_outcomes[0] == 0.0
    assert not np.isinf(factors_of_outcomes).any()


def test_what_is_not_queried_changes_no_odds() -> None:
    joint = np.array([[0.2, 0.1], [0.3, 0.4]])
    sensitive = [np.array([True, False])] * 2
    asked = log_outcome_factors(joint, [value_rows(sensitive[0], 1.0), no_evidence(sensitive[1])], sensitive)
    assert asked[0, 0, 0] == pytest.approx(1.0), "withheld: e^epsilon on its own odds"
    assert asked[0, 1, 0] == -math.inf, "shown: certainly not sensitive"
    neither = log_outcome_factors(joint, [no_evidence(mask) for mask in sensitive], sensitive)
    assert neither.ravel().tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


def test_evidence_that_contradicts_a_model_has_no_bound() -> None:
    joint, never = np.array([0.4, 0.3, 0.3]), np.full((1, 3), -np.inf)
    assert log_worst_outcomes(joint, [never], [LATE]).tolist() == [math.inf]
    assert log_worst_outcomes(joint, [value_rows(LATE, 0.5)], [LATE]).tolist() == pytest.approx([0.5])
