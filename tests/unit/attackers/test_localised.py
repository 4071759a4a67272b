"""Priors, guesses and their classes: who counts as found, and how sure a share of right guesses is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stream.errors import UsageError
from stream.lab.attackers.beliefs import OPEN_KINDS, by_span, closed_prior, opened, opened_for, prior
from stream.lab.attackers.localised import class_of, found_by_confidence, found_by_guess, guesses, success, wilson

CLOSED = np.zeros(3, dtype=bool)


class TestPriors:
    def test_days_of_training_are_added_up_by_time_of_day(self) -> None:
        counts = np.array([[1, 0, 2], [3, 1, 0], [5, 0, 0], [0, 0, 7]])
        assert by_span(counts, np.array([0, 1, 0, 1]), 3).tolist() == [[6, 0, 2], [3, 1, 7], [0, 0, 0]]

    def test_a_prior_is_the_share_of_people_recorded(self) -> None:
        found = prior(np.array([[6, 0, 2], [0, 0, 0]]))
        assert found[0].tolist() == [0.75, 0.0, 0.25]
        assert found[1] == pytest.approx([1 / 3] * 3)

    @pytest.mark.parametrize("recorded", [[[6, -1]], [6, 2], [[], []]])
    def test_numbers_that_are_no_record_are_refused(self, recorded: list[Any]) -> None:
        with pytest.raises(UsageError, match="at least 0, shape \\[spans, at least one zone\\]"):
            prior(np.array(recorded))

    def test_open_zones_leave_the_others_scaled(self) -> None:
        is_open = np.array([False, True, False])
        found = closed_prior(np.array([[0.2, 0.6, 0.2], [0.0, 1.0, 0.0]]), is_open)
        assert found[0] == pytest.approx([0.5, 0.0, 0.5])
        assert found[1] == pytest.approx([0.5, 0.0, 0.5])

    def test_who_sees_everything_looks_for_nobody(self) -> None:
        with pytest.raises(UsageError, match="at least one zone must be closed"):
            closed_prior(np.array([[0.5, 0.5]]), np.array([True, True]))

    def test_attackers_see_zones_by_their_kinds(self) -> None:
        kinds = ["classroom", "open", "corridor", "office"]
        seen = {name: opened(kinds, of).tolist() for name, of in OPEN_KINDS.items()}
        assert seen == {
            "external": [False] * 4,
            "student": [True, True, False, False],
            "admin": [False, True, True, False],
        }


class TestOpenedAtRandom:
    PEOPLE, ORDER = np.array([10, 40, 0, 50]), np.array([3, 0, 2, 1])

    @pytest.mark.parametrize(
        ("share", "expected"), [(0.0, []), (0.3, [3]), (0.5, [3]), (0.51, [0, 3]), (0.61, [0, 2, 3]), (1.0, [0, 2, 3])]
    )
    def test_zones_are_opened_in_order_until_enough_are_known(self, share: float, expected: list[int]) -> None:
        assert np.flatnonzero(opened_for(self.PEOPLE, self.ORDER, share)).tolist() == expected


class TestClasses:
    @pytest.mark.parametrize(
        ("belief", "expected"),
        [(0.0, -1), (1e-9, 0), (0.1, 0), (0.11, 1), (0.25, 1), (0.5, 2), (0.75, 3), (0.9, 4), (0.91, 5), (1.0, 5)],
    )  # fmt: skip
    def test_each_class_holds_its_upper_end(self, belief: float, expected: int) -> None:
        assert int(class_of(np.array(belief))) == expected

    def test_rounding_above_an_end_makes_no_class(self) -> None:
        assert int(class_of(np.array(0.1 + 0.2 - 0.2 + 1e-16))) == 0
        assert int(class_of(np.array(1 + 1e-15))) == 5


class TestGuesses:
    def test_the_likeliest_closed_zone_is_guessed_and_of_equals_the_first(self) -> None:
        made = guesses(np.array([[0.9, 0.3, 0.3]]), np.array([True, False, False]))
        assert (made.zone.tolist(), made.confidence.tolist()) == ([1], [0.3])

    def test_where_nothing_is_believed_nothing_is_guessed(self) -> None:
        made = guesses(np.zeros((1, 3)), CLOSED)
        assert (made.zone.tolist(), made.confidence.tolist()) == ([-1], [0.0])

    def test_wrong_guesses_find_nobody(self) -> None:
        beliefs, before = np.array([[0.8, 0.1, 0.1]]), np.array([[0.2, 0.3, 0.5]])
        assert found_by_guess(beliefs, before, np.array([[0, 5, 9]]), CLOSED).sum() == 0

    def test_right_guesses_find_all_who_are_there_in_their_class(self) -> None:
        beliefs, before = np.array([[0.8, 0.1, 0.1]]), np.array([[0.2, 0.3, 0.5]])
        assert found_by_guess(beliefs, before, np.array([[4, 5, 9]]), CLOSED).tolist() == [[0, 0, 0, 0, 4, 0]]

    def test_whom_the_prior_finds_as_surely_is_left_out(self) -> None:
        before = np.array([[0.55, 0.3, 0.15]])
        as_sure, surer = np.array([[0.75, 0.2, 0.05]]), np.array([[0.76, 0.2, 0.04]])
        counts = np.array([[4, 5, 9]])
        assert found_by_guess(as_sure, before, counts, CLOSED).sum() == 0
        assert found_by_guess(surer, before, counts, CLOSED).tolist() == [[0, 0, 0, 0, 4, 0]]

    def test_confidence_is_told_of_everybody_where_it_has_grown(self) -> None:
        beliefs, before = np.array([[0.6, 0.3, 0.05]]), np.array([[0.2, 0.3, 0.5]])
        counts = np.array([[4, 5, 9]])
        assert found_by_confidence(beliefs, before, counts, CLOSED).tolist() == [[0, 0, 0, 4, 0, 0]]
        assert found_by_confidence(beliefs, None, counts, CLOSED).tolist() == [[9, 0, 5, 4, 0, 0]]

    def test_all_people_of_a_zone_that_is_guessed_are_right(self) -> None:
        beliefs, counts = np.array([[0.8, 0.1, 0.1], [0.2, 0.3, 0.5]]), np.array([[4, 5, 9], [1, 2, 3]])
        assert success(beliefs, counts, CLOSED)[:2] == (4 + 3, 18 + 6)

    def test_nobody_in_an_open_zone_counts(self) -> None:
        is_open = np.array([True, False, False])
        beliefs, counts = np.array([[0.0, 0.6, 0.4]]), np.array([[40, 5, 9]])
        assert found_by_confidence(beliefs, None, counts, is_open).sum() == 14
        assert success(beliefs, counts, is_open)[:2] == (5, 14)


class TestWilson:
    def test_the_interval_holds_the_rates_that_a_score_test_accepts(self) -> None:
        found = wilson(30, 200)
        for end in (found.low, found.high):
            assert abs(0.15 - end) / math.sqrt(end * (1 - end) / 200) == pytest.approx(1.959964, abs=1e-6)

    def test_without_a_success_something_remains_possible(self) -> None:
        none, every = wilson(0, 50), wilson(50, 50)
        assert none.low == 0.0
        assert 0.05 < none.high < 0.1
        assert every.high == 1.0
        assert every.low == pytest.approx(1 - none.high)

    def test_nothing_tried_says_nothing(self) -> None:
        assert wilson(0, 0)[2:] == (0.0, 1.0)
        assert wilson(0, 0).share == 0.0

    def test_more_right_than_tried_is_refused(self) -> None:
        with pytest.raises(UsageError, match="0 to the 3 tried"):
            wilson(4, 3)
