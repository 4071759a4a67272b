"""The search: strides, halves and neighbours, on utilities made by hand, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from stream.errors import UsageError
from stream.lab.tuning.search import Rules, SearchResult, search

CERTAIN = Rules(0.9, Fraction(1, 100), stride=4, below=3)
"""As all runs are alike, each candidate takes as few as any verdict needs."""


def of(utilities: Sequence[float], rules: Rules = CERTAIN) -> SearchResult:
    """Search candidates whose runs are all alike."""
    return search(len(utilities), lambda place, _: utilities[place], rules)


def rising(first: int, count: int = 40) -> list[float]:
    return [0.9 if place >= first else 0.8 for place in range(count)]


@pytest.mark.parametrize("first", range(1, 40))
def test_where_utility_rises_the_first_that_reaches_it_is_found(first: int) -> None:
    found = of(rising(first))
    assert (found.status, found.place, found.next_below) == ("found", first, first - 1)


def test_the_most_private_of_all_is_at_the_boundary() -> None:
    found = of(rising(0))
    assert (found.status, found.place, found.next_below, list(found.tried)) == ("boundary", 0, None, [0])


def test_what_no_candidate_reaches_is_unreachable_and_the_last_one_was_tried() -> None:
    found = of(rising(99))
    assert (found.status, found.place) == ("unreachable", None)
    assert max(found.tried) == 39
    assert found.next_below == 39


def test_a_utility_that_falls_again_is_found_where_it_first_reached() -> None:
    """Groups flatten: 10 to 14 reach it, all above 20 do, those between do not."""
    flattening = [0.95 if 10 <= place < 15 or place >= 20 else 0.5 for place in range(40)]
    assert of(flattening).place == 10


def test_a_lone_candidate_just_below_the_answer_is_found() -> None:
    """Halving 16 … 20 goes to 20, as 18 and 19 miss; 17 reaches it all the same, and is tried as a neighbour."""
    lone = rising(20)
    lone[17] = 0.95
    assert of(lone).place == 17


def test_candidates_just_below_the_answer_were_all_tried_and_miss() -> None:
    found = of(rising(23))
    assert [found.tried[place].verdict for place in (20, 21, 22)] == ["missed"] * 3


def test_without_chance_one_run_tells() -> None:
    found = of(rising(9), CERTAIN._replace(chance=False, stride=1, most_runs=1))
    assert found.place == 9
    assert [len(each.utilities) for each in found.tried.values()] == [1] * 10


def test_a_single_run_tells_where_a_verdict_may_be_wrong_two_times_in_three() -> None:
    found = search(1, lambda *_: 0.95, CERTAIN._replace(error=Fraction(2, 3), most_runs=1))
    assert (found.status, len(found.tried[0].utilities)) == ("boundary", 1)


def test_a_candidate_of_which_runs_do_not_tell_is_neither_reached_nor_missed() -> None:
    def run(place: int, number: int) -> float:
        return 0.5 if place < 10 else (0.95 if place > 10 or number % 2 else 0.85)

    found = search(16, run, CERTAIN._replace(most_runs=60))
    assert (found.place, found.next_below, found.open_below()) == (11, 9, [10])
    assert len(found.tried[10].utilities) == 60


def test_where_no_candidate_is_shown_to_reach_it_and_one_not_to_miss_it_the_answer_is_open() -> None:
    found = search(5, lambda place, number: 0.95 if place == 4 and number % 2 else 0.5, CERTAIN)
    assert (found.status, found.place, found.open_below()) == ("open", None, [4])
    assert len(found.tried[4].utilities) == 200, "as many runs as a candidate has unless more are asked for"


def test_a_utility_that_is_just_reached_is_reached() -> None:
    assert of([0.9] * 3).place == 0


@pytest.mark.parametrize(
    ("candidates", "rules"),
    [(0, CERTAIN), (5, CERTAIN._replace(stride=0)), (5, CERTAIN._replace(error=Fraction(1)))],
)
def test_rules_out_of_range_are_refused(candidates: int, rules: Rules) -> None:
    with pytest.raises(UsageError, match="search"):
        search(candidates, lambda *_: 1.0, rules)


def test_too_few_runs_for_any_verdict_are_refused_with_the_number_that_is_needed() -> None:
    with pytest.raises(UsageError, match="runs must be at least 18 of 169 candidates"):
        search(169, lambda *_: 1.0, CERTAIN._replace(most_runs=17))


# --- stated confidence -----------------------------------------------------------------------------------------------


def _wrong(found: SearchResult, share: Callable[[int], float]) -> bool:
    """Return whether a verdict contradicts how often a candidate's runs reach the utility."""
    verdicts = {place: each.verdict for place, each in found.tried.items()}
    return any((v == "reached" and share(p) < 0.5) or (v == "missed" and share(p) >= 0.5) for p, v in verdicts.items())


def test_verdicts_are_wrong_no_more_often_than_was_said() -> None:
    """Candidates close to one half, 400 searches: more than the limit are wrong with probability 1e-6 at most."""
    rules, searches = Rules(0.5, Fraction(1, 5), most_runs=120, stride=2), 400

    def share(place: int) -> float:
        return 0.41 + 0.02 * place

    wrong = 0
    for seed in range(searches):
        drawn = np.random.default_rng(seed).random((10, 120))
        found = search(10, lambda place, run, drawn=drawn: float(drawn[place, run] < share(place)), rules)  # type: ignore[misc]
        wrong += _wrong(found, share)
    assert wrong <= binom.isf(1e-6, searches, 0.2)
