"""Declared and learnt joint distributions, and when dependencies count as changed."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

from stream.accounting.leakage.dependence import change_p_value, count_patterns, declared, learn, revise
from stream.errors import UsageError


def test_a_declared_joint_puts_each_pattern_at_its_digits() -> None:
    joint = declared({"001": 0.25, "110": 0.75})
    assert joint.shape == (2, 2, 2)
    assert (joint[0, 0, 1], joint[1, 1, 0], joint.sum()) == (0.25, 0.75, 1.0)


@pytest.mark.parametrize(
    ("patterns", "entry"),
    [
        ({"00": 0.5, "0": 0.5}, r'joint\["0"\]'),
        ({"00": 0.5, "02": 0.5}, r'joint\["02"\]'),
        ({"00": 1.2, "11": -0.2}, r'joint\["00"\]'),
        ({"00": 0.5, "11": "half"}, r'joint\["11"\]'),
        ({"00": 0.5, "11": True}, r'joint\["11"\]'),
        ({"00": 0.5, "11": float("nan")}, r'joint\["11"\]'),
        ({"00": 0.5, "11": 10**400}, r'joint\["11"\]'),
        ({"00": 0.5, "11": 0.4}, "joint must sum to 1"),
        ({"0" * 17: 1.0}, "16 attributes"),
        ({}, "joint"),
        ([0.5, 0.5], "joint"),
    ],
)
def test_a_malformed_joint_names_its_entry(patterns: dict[str, Any] | list[float], entry: str) -> None:
    with pytest.raises(UsageError, match=entry):
        declared(patterns)


def test_pseudo_counts_leave_no_pattern_impossible() -> None:
    counts = count_patterns([(0, 1), (0, 1), (1, 1)], 2)
    assert counts.tolist() == [[0, 2], [0, 1]]
    assert learn(counts).tolist() == [[0.1, 0.5], [0.1, 0.3]]
    with pytest.raises(UsageError, match="pseudo"):
        learn(counts, 0.0)


def test_for_one_attribute_the_change_test_is_fishers_at_least(seeded: Any) -> None:
    rng = seeded(11)
    for _ in range(200):
        before, after = rng.integers(0, 30, 2), rng.integers(0, 30, 2)
        one_sided = [fisher_exact(np.array([before, after]), alternative=side).pvalue for side in ("less", "greater")]
        assert change_p_value(before, after) == pytest.approx(min(1.0, 2 * min(one_sided)), rel=1e-9)


def test_every_parity_is_compared(seeded: Any) -> None:
    """A change in one parity alone, single, pair or triple, is found."""
    rng = seeded(12)
    for size in (1, 2, 3):
        for attributes in itertools.combinations(range(3), size):
            even = np.zeros((2, 2, 2))
            for x in np.ndindex(2, 2, 2):
                even[x] = 0.25 if sum(x[a] for a in attributes) % 2 == 0 else 0.0
            before = rng.multinomial(120, np.full(8, 1 / 8)).reshape(2, 2, 2)
            after = rng.multinomial(60, even.ravel()).reshape(2, 2, 2)
            assert change_p_value(before, after) < 1e-6


def test_false_alarms_are_no_more_frequent_than_stated(seeded: Any) -> None:
    """600 pairs of histories without change; more than 60 alarms at 5 % have probability below 1e-6."""
    rng = seeded(13)
    alarms = 0
    for _ in range(600):
        joint = rng.dirichlet(np.ones(8))
        before, after = (rng.multinomial(n, joint).reshape(2, 2, 2) for n in (80, 40))
        alarms += change_p_value(before, after) <= 0.05
    assert alarms <= 60


def test_without_a_change_histories_are_pooled_and_after_one_the_old_is_dropped() -> None:
    old, same, new = np.array([[40, 10], [10, 40]]), np.array([[20, 6], [5, 19]]), np.array([[5, 20], [20, 5]])
    kept, dropped = revise(old, same), revise(old, new)
    assert (kept.changed, kept.counts.tolist()) == (False, (old + same).tolist())
    assert (dropped.changed, dropped.counts.tolist()) == (True, new.tolist())


def test_histories_of_other_attributes_are_refused() -> None:
    with pytest.raises(UsageError, match="recent"):
        revise(np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2, 2), dtype=np.int64))
