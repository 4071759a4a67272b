from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms.grouper import GRID
from stream.mechanisms.pegasus import Pegasus
from stream.mechanisms.registry import count_mechanism
from stream.mechanisms.target_states import States, multiplicity, states_matrix, target_states

F = Fraction
ZONES = ("2011", "2065", "lobby", "cafe")
TARGETS = {"teaching": ["2011"], "ground": ["lobby", "cafe"], "noisy": ("cafe", "2011"), "open": {"cafe"}}


def states() -> States:
    return target_states(ZONES, TARGETS)


def test_matrix_has_a_row_a_state_and_a_column_a_zone() -> None:
    matrix = states_matrix(ZONES, TARGETS)
    assert matrix.tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1]]
    assert states().names == ("teaching", "ground", "noisy", "open")


def test_counts_and_largest_counts_are_sums_over_the_states_zones() -> None:
    assert states().counts(np.array([5, 7, 2, 3])).tolist() == [5, 5, 8, 3]
    assert states().largest([20, 1, 30, 40]) == (20, 70, 60, 40)


def test_one_device_changes_at_most_m_counts_by_one_each_and_some_device_changes_m() -> None:
    before = np.array([5, 7, 2, 3])
    changes = []
    for zone, sign in product(range(4), (1, -1)):
        after = before.copy()
        after[zone] += sign
        change = np.abs(states().counts(after) - states().counts(before))
        assert change.max(initial=0) <= 1
        changes.append(int(change.sum()))
    assert max(changes) == states().multiplicity == multiplicity(states().matrix) == 3


def test_states_at_their_share_cost_epsilon_together() -> None:
    share = states().share(F("0.9"))
    assert share == F("0.3")
    assert states().cost([share] * 4) == F("0.9")


def test_states_at_full_epsilon_cost_m_times_as_much() -> None:
    assert states().cost([F(1)] * 4) == 3


def test_cost_is_that_of_the_dearest_zone() -> None:
    assert states().cost([F(1), F(2), F(4), F(8)]) == 14
    assert states().cost([F(9), F(1), F(1), F(1)]) == 10


def test_disjoint_states_cost_no_more_than_one() -> None:
    disjoint = target_states(ZONES, {"a": ["2011", "2065"], "b": ["cafe"]})
    assert disjoint.multiplicity == 1
    assert disjoint.share(F(1)) == 1


def test_share_gives_pegasus_the_parameters_for_m_states() -> None:
    """Noise DLap(m/ε_p), θ = 5m/ε_g."""
    m, epsilon = states().multiplicity, F("0.96")
    pegasus = count_mechanism("pegasus", epsilon=states().share(epsilon), max_counts=states().largest([20, 1, 30, 40]))
    assert isinstance(pegasus, Pegasus)
    assert 1 / pegasus.noise.epsilon == m / (epsilon * F("0.8"))
    assert pegasus.grouper.threshold == GRID * 5 * m / (epsilon * F("0.2"))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({}, "states must not be empty"),
        ({"a": []}, r"states\.a must have at least one zone"),
        ({"a": ["9999"]}, r"states\.a must consist of zones of the release, got '9999'"),
    ],
)
def test_states_that_are_no_sets_of_zones_are_refused(targets: dict[str, list[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        states_matrix(ZONES, targets)


def test_cost_wants_one_epsilon_a_state() -> None:
    with pytest.raises(UsageError, match="epsilons must be 4, one a state, got 2"):
        states().cost([F(1), F(1)])
