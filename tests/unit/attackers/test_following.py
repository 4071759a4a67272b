"""The attacker who follows one person: its beliefs against all paths by brute force, and under the temporal bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from stream.accounting.leakage.temporal import stationary
from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats, noisy_posterior
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.lab.attackers.tracking import (
    Mobility,
    bounds,
    collectively,
    filtered_beliefs,
    knowing_others,
    most_believed,
    unobserved,
)

FORWARD = np.array([[0.8, 0.15, 0.05], [0.1, 0.85, 0.05], [0.3, 0.1, 0.6]])
KNOWN = Mobility(np.array([0.7, 0.2, 0.1]), FORWARD)
STEADY = Mobility(stationary(FORWARD), FORWARD)
NOISE = NoiseDistribution("laplace", 2.0)
VALUES = np.array([[1, -2], [4, 0], [3, 1], [-1, 5]])
TICKS = len(VALUES)


def by_paths(known: Mobility, log_likelihood: Floats, tick: int) -> list[float]:
    """Return Pr(x_tick | counts up to it) by adding up all paths."""
    states, belief = len(known.initial), np.zeros(len(known.initial))
    for path in itertools.product(range(states), repeat=tick + 1):
        weight = known.initial[path[0]] * math.prod(known.forward[a, b] for a, b in itertools.pairwise(path))
        belief[path[-1]] += weight * math.exp(sum(log_likelihood[t, x] for t, x in enumerate(path)))
    return [float(each) for each in belief / belief.sum()]


@pytest.mark.parametrize("tick", range(TICKS))
def test_beliefs_are_those_of_all_paths_added_up(tick: int) -> None:
    others = np.array([[1, 0], [2, 0], [2, 1], [0, 3]])
    log_likelihood = knowing_others(NOISE, VALUES, others)
    found = filtered_beliefs(KNOWN, log_likelihood)[tick]
    assert found == pytest.approx(by_paths(KNOWN, log_likelihood, tick), abs=1e-12)


def test_who_takes_all_for_alike_begins_each_tick_with_what_it_last_believed() -> None:
    found = collectively(KNOWN, NOISE, VALUES, np.array([True, True, False, True]), 9)
    ahead = KNOWN.initial
    for tick in range(TICKS):
        if tick != 2:
            inside = [
                float(noisy_posterior(NOISE.log_likelihood(VALUES[tick, zone], 9), ahead[zone + 1]))
                for zone in range(2)
            ]
            ahead = np.array([1 - sum(inside), *inside])
        assert found[tick] == pytest.approx(ahead, abs=1e-12)
        ahead = ahead @ FORWARD


def test_without_noise_who_takes_all_for_alike_believes_the_counts() -> None:
    found = collectively(
        KNOWN, NoiseDistribution("laplace", 1e-3), np.array([[3, 1], [0, 4]]), np.array([True, True]), 10
    )
    assert found == pytest.approx(np.array([[0.6, 0.3, 0.1], [0.6, 0.0, 0.4]]), abs=1e-12)


def test_who_knows_all_others_weighs_places_by_the_noise_that_they_leave() -> None:
    """In zone 1 the count holds the victim, outside none does."""
    found = knowing_others(NOISE, np.array([[5, 2]]), np.array([[4, 2]]))[0]
    assert found[0] == 0.0
    assert found[1] == pytest.approx(1 / 2.0)
    assert found[2] == pytest.approx(-1 / 2.0)


def test_many_people_are_followed_at_once_as_one_by_one() -> None:
    others = np.array([[[1, 0]] * TICKS, [[4, 2]] * TICKS])
    both = filtered_beliefs(KNOWN, knowing_others(NOISE, VALUES, others))
    for person in range(2):
        alone = filtered_beliefs(KNOWN, knowing_others(NOISE, VALUES, others[person]))
        assert both[person] == pytest.approx(alone, abs=1e-14)


def test_without_counts_only_mobility_is_known() -> None:
    found = unobserved(KNOWN, 3)
    assert found[2] == pytest.approx(KNOWN.initial @ FORWARD @ FORWARD, abs=1e-15)


@pytest.mark.parametrize("known", [KNOWN, STEADY], ids=["any beginning", "steady"])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_no_outcome_lets_who_knows_all_others_pass_the_temporal_bound(known: Mobility, epsilon: float) -> None:
    """All outcomes of a small range at three ticks: odds of two places never differ by more than e^BPL from before."""
    noise, before, limit = NoiseDistribution("laplace", 1 / epsilon), unobserved(known, 3), bounds(known, epsilon, 3)
    largest = np.zeros(3)
    for values in itertools.product([-3, 0, 1, 4], repeat=6):
        seen = np.array(values).reshape(3, 2)
        gained = np.log(
            filtered_beliefs(known, knowing_others(noise, seen, np.zeros((3, 2), dtype=np.int64)))
        ) - np.log(before)
        largest = np.maximum(largest, gained.max(axis=1) - gained.min(axis=1))
    assert (largest <= limit + 1e-9).all()
    assert largest[0] == pytest.approx(limit[0])  # at the first tick nothing is lost: 2 epsilon, both counts


def test_the_bound_of_the_account_would_break_if_a_move_counted_once() -> None:
    """One epsilon a tick, as of one count: an exact attacker passes it."""
    noise = NoiseDistribution("laplace", 1.0)
    gained = knowing_others(noise, np.array([[3, -3]]), np.zeros((1, 2), dtype=np.int64))[0]
    assert gained.max() - gained.min() > 1.0


def test_odds_bound_a_belief() -> None:
    found = most_believed(np.array([[0.5, 0.0, 0.5], [1.0, 0.2, 0.0]]), np.array([math.log(3), 1000.0]))
    assert found == pytest.approx(np.array([[0.75, 0.0, 0.75], [1.0, 1.0, 0.0]]))


def test_models_of_other_places_are_refused() -> None:
    with pytest.raises(UsageError, match="states must be 3"):
        filtered_beliefs(KNOWN, np.zeros((2, 4)))
