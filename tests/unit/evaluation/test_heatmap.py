"""What is left of a heat map when released values take the place of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream.errors import UsageError
from stream.lab.evaluation import usual_in, utilities, utility
from stream.mechanisms.heatmap import Usual

HERE = Usual(np.array([100.0]), np.array([8.0]))
"""Colours begin at 84, 88 … 116."""


def ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def test_values_of_the_same_colour_lose_nothing() -> None:
    assert utility(ints([100, 83, 118]), ints([103, 0, 900]), HERE) == 1


def test_the_two_ends_lose_everything() -> None:
    assert utility(ints([83]), ints([117]), HERE) == 0


@pytest.mark.parametrize(("released", "left"), [(100, 1), (104, 8 / 9), (96, 8 / 9), (108, 7 / 9), (117, 5 / 9)])
def test_each_colour_apart_costs_a_ninth(released: int, left: float) -> None:
    assert utility(ints([100]), ints([released]), HERE) == left


def test_utilities_are_averaged_over_time_and_space() -> None:
    truth, released = ints([[100, 100], [83, 100]]), ints([[100, 104], [117, 100]])
    assert utilities(truth, released, HERE).tolist() == [[1, 8 / 9], [0, 1]]
    assert utility(truth, released, HERE) == 1 - 10 / 36


def test_one_usual_colours_truth_and_release() -> None:
    """A release that is off by the same everywhere would lose nothing by a mean of its own."""
    past = ints([[10, 20], [14, 24]])
    usual = usual_in(past)
    assert usual.mean.tolist() == [12, 22]
    assert usual.deviation.tolist() == [2, 2]
    assert utility(past, past + 100, usual) < 1


def test_noisy_pasts_may_be_below_zero() -> None:
    assert usual_in(ints([[-3], [3]])) == (ints([0]), ints([3]))


def test_the_largest_past_is_summed_exactly() -> None:
    past = np.full((3000, 1), 1_000_000, np.int64)
    past[0] -= 1
    mean, deviation = usual_in(past)
    assert mean.tolist() == [(3000 * 10**6 - 1) / 3000]
    assert deviation.tolist() == [np.sqrt(2999.0) / 3000]  # of 2,999 at 1 and one at 0


@pytest.mark.parametrize(
    "past", [np.zeros((0, 2), np.int64), np.zeros((3001, 1), np.int64), ints([[1_000_001]]), ints([[-1_000_001]])]
)
def test_pasts_out_of_bounds_are_refused(past: Any) -> None:
    with pytest.raises(UsageError, match="must be of 1 to 3000 times, of at most 1000000 each"):
        usual_in(past)


def test_truth_and_release_of_unlike_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"one shape, got \(2,\) and \(1,\)"):
        utility(ints([1, 2]), ints([1]), HERE)


def test_a_heat_map_of_nothing_has_no_utility() -> None:
    with pytest.raises(UsageError, match="at least one place and time"):
        utility(ints([]), ints([]), HERE)
