"""The ten colours: each edge, places that never vary, and what is no count."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import UsageError
from stream.mechanisms.heatmap import COLOURS, Usual, colours, usual_of


def usual(mean: Any, deviation: Any) -> Usual:
    return Usual(np.asarray(mean, np.float64), np.asarray(deviation, np.float64))


JUST = 2.0**-40

# --- edges, at a mean of 100 and a deviation of 8 --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edge", "below", "from_it_on"),
    [(84, 1, 2), (88, 2, 3), (92, 3, 4), (96, 4, 5), (100, 5, 6), (104, 6, 7), (108, 7, 8), (112, 8, 9), (116, 9, 9)],
)
def test_a_colour_holds_its_lower_edge(edge: int, below: int, from_it_on: int) -> None:
    here = usual(100, 8)
    assert colours(np.array([edge - JUST, edge]), here).tolist() == [below, from_it_on]


def test_the_last_colour_begins_behind_two_deviations() -> None:
    assert colours(np.array([116, 116 + JUST, 117, 10**9]), usual(100, 8)).tolist() == [9, 10, 10, 10]


def test_the_first_colour_ends_before_two_deviations() -> None:
    assert colours(np.array([-(10**9), 83, 84 - JUST, 84]), usual(100, 8)).tolist() == [1, 1, 1, 2]


def test_a_usual_count_has_the_colour_above_the_middle() -> None:
    assert colours(7, usual(7, 0.25)).tolist() == 6


# --- places that never vary ------------------------------------------------------------------------------------------


def test_a_place_that_never_varies_has_the_middle_or_an_end() -> None:
    assert colours(np.array([-1, 2, 3, 4, 900]), usual(3, 0)).tolist() == [1, 1, 5, 10, 10]


def test_places_that_never_vary_stand_beside_others() -> None:
    assert colours(np.array([3, 3]), usual([3, 3], [0, 1])).tolist() == [5, 6]


@pytest.mark.parametrize("deviation", [1e-300, 1e308])
def test_no_deviation_is_too_small_or_too_large(deviation: float) -> None:
    ends = colours(np.array([-1.7e308, 0.0, 1.7e308]), usual(0, deviation)).tolist()
    assert ends == ([2, 6, 9] if deviation > 1 else [1, 6, 10])


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_each_place_is_coloured_by_its_own_usual() -> None:
    of_two = usual([10, 100], [2, 20])
    assert colours(np.array([[10, 10], [14, 100]]), of_two).tolist() == [[6, 1], [9, 6]]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "mean", "deviation"),
    [
        (float("nan"), 0, 1),
        (float("inf"), 0, 1),
        (0, float("nan"), 1),
        (0, 0, -1),
        (0, 0, float("nan")),
        (0, 0, float("inf")),
    ],
)
def test_what_is_no_number_is_refused(value: float, mean: float, deviation: float) -> None:
    with pytest.raises(UsageError, match="must be finite, and deviations at least 0"):
        colours(np.array([value]), usual([mean], [deviation]))


# --- against the formula, in exact numbers ---------------------------------------------------------------------------


@given(
    value=st.integers(-50, 300), mean=st.integers(0, 100), eighths=st.integers(0, 200)
)  # numbers that doubles hold exactly
def test_colours_are_those_of_the_formula(value: int, mean: int, eighths: int) -> None:
    sigma = Fraction(eighths, 8)
    if sigma == 0:
        expected = 5 if value == mean else 1 if value < mean else 10
    elif value < mean - 2 * sigma:
        expected = 1
    elif value > mean + 2 * sigma:
        expected = 10
    else:
        expected = 2 + min(7, floor((value - mean + 2 * sigma) / (sigma / 2)))
    assert colours(value, usual(mean, float(sigma))) == expected


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=40))
def test_more_people_never_have_a_lower_colour(mean: float, deviation: float, counts: list[int]) -> None:
    found = colours(np.array(sorted(counts)), usual(mean, deviation))
    assert (np.diff(found) >= 0).all()
    assert ((found >= 1) & (found <= COLOURS)).all()


# --- what is usual ---------------------------------------------------------------------------------------------------


def test_usual_counts_follow_from_sums() -> None:
    mean, deviation = usual_of(3, np.array([12, 9]), np.array([56, 27]))  # 2, 4, 6 and 3, 3, 3
    assert mean.tolist() == [4, 3]
    assert deviation.tolist() == [np.sqrt(24) / 3, 0]


def test_usual_counts_of_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="must be made of at least 1, got 0"):
        usual_of(0, np.array([0]), np.array([0]))
