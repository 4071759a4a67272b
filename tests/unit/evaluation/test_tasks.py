"""The analyst's four questions, on truth made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream.errors import UsageError
from stream.lab.evaluation import by_occupancy, event_start, places_off, score, stuck_from, windows_above


def ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


# --- points ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("off", "points"), [(0, 100), (1, 75), (2, 50), (3, 25), (4, 0), (400, 0)])
def test_points_fall_in_proportion_and_end_at_none(off: int, points: int) -> None:
    assert score(off, 4) == (off, points)


def test_only_the_truth_has_all_points() -> None:
    assert score(1, 1000).points == 99


@pytest.mark.parametrize(("off", "worthless"), [(-1, 4), (0, 0), (0, -2)])
def test_distances_out_of_range_are_refused(off: int, worthless: int) -> None:
    with pytest.raises(UsageError, match="distances"):
        score(off, worthless)


# --- how often a room is fuller than it may be -----------------------------------------------------------------------


def test_windows_above_a_limit_do_not_hold_the_limit_itself() -> None:
    assert windows_above(ints([59, 60, 61, 62, 60, -3]), 60) == 2


def test_a_day_without_windows_has_none_above() -> None:
    assert windows_above(ints([]), 0) == 0


# --- the most occupied region ----------------------------------------------------------------------------------------


def test_regions_are_ordered_by_their_mean() -> None:
    regions = {"informatics": ints([1, 2, 3]), "labs": ints([9, 0, 0]), "cafe": ints([0, -4, 0])}
    assert by_occupancy(regions) == ["labs", "informatics", "cafe"]


def test_of_equal_regions_the_first_by_name_leads() -> None:
    assert by_occupancy({"b": ints([2, 2]), "a": ints([4, 0])}) == ["a", "b"]


def test_a_choice_is_off_by_the_regions_before_it() -> None:
    order = ["labs", "informatics", "cafe"]
    assert [places_off(order, name) for name in order] == [0, 1, 2]


def test_a_choice_that_is_none_of_them_is_refused() -> None:
    with pytest.raises(UsageError, match="region must be one of labs, got 'roof'"):
        places_off(["labs"], "roof")


@pytest.mark.parametrize("lengths", [[], [0, 0], [3, 2]])
def test_regions_of_unlike_windows_are_refused(lengths: list[int]) -> None:
    with pytest.raises(UsageError, match="same windows"):
        by_occupancy({str(i): ints([1] * length) for i, length in enumerate(lengths)})


# --- the broken sensor -----------------------------------------------------------------------------------------------


def test_a_sensor_is_stuck_from_the_first_of_the_last_run_of_zeros() -> None:
    assert stuck_from(ints([3, 0, 0, 5, 0, 0, 0])) == 4


def test_a_sensor_that_counts_to_the_end_is_not_stuck() -> None:
    assert stuck_from(ints([0, 0, 1])) is None
    assert stuck_from(ints([])) is None


def test_a_sensor_that_never_counted_is_stuck_from_the_start() -> None:
    assert stuck_from(ints([0, 0])) == 0


def test_noisy_values_within_their_half_width_count_as_stuck() -> None:
    noisy = ints([30, 25, 4, -3, 2, -4])
    assert stuck_from(noisy) == 5
    assert stuck_from(noisy, at_most=4) == 2


# --- the weekly event ------------------------------------------------------------------------------------------------


def test_an_event_begins_where_most_come() -> None:
    day = [2] * 6 + [40] * 6 + [3] * 6
    assert event_start(ints([day]), 3) == 6


def test_weeks_together_outweigh_one_that_differs() -> None:
    usual, other = [0] * 6 + [20] * 6 + [0] * 6, [0] * 12 + [50] * 6
    assert event_start(ints([usual, usual, usual, other]), 3) == 6


def test_of_two_events_the_larger_is_meant_and_of_equals_the_first() -> None:
    assert event_start(ints([[0, 0, 5, 5, 0, 0, 9, 9, 0, 0]]), 2) == 6
    assert event_start(ints([[0, 0, 9, 9, 0, 0, 9, 9, 0, 0]]), 2) == 2


@pytest.mark.parametrize(("shape", "span"), [((0, 288), 6), ((2, 11), 6), ((288,), 6), ((2, 288), 0)])
def test_days_too_short_for_the_question_are_refused(shape: tuple[int, ...], span: int) -> None:
    with pytest.raises(UsageError, match="weeks must have the shape"):
        event_start(np.zeros(shape, dtype=np.int64), span)
