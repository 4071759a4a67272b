"""Numbers of a declared model: what is read, what is refused by name, and odds that are certain."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from stream.accounting.leakage import entries
from stream.accounting.leakage.entries import (
    LARGEST,
    MOST,
    SMALLEST,
    distribution,
    exp_or_inf,
    integer,
    integers,
    items,
    number,
    positive,
    posterior_odds,
    shown,
    spent,
    square,
    stochastic,
    tensor,
    vector,
)
from stream.errors import UsageError

REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("a text", lambda: number("1", "here"), "here must be a number"),
    ("a truth value", lambda: number(True, "here"), "here must be a number"),
    ("not a number", lambda: number(math.nan, "here"), "here must be a finite number"),
    ("infinity", lambda: number("inf", "here"), "here must be a finite number"),
    ("a whole number beyond doubles", lambda: number(10**400, "here"), "here must be at most 1e\\+50"),
    ("below the range", lambda: number(-0.5, "here", low=0.0), r"here must lie in \[0, inf\]"),
    ("above the range", lambda: number(1.5, "here", high=1.0), r"here must lie in \[-inf, 1\]"),
    ("too small", lambda: number(SMALLEST / 2, "here"), "here must be 0 or lie between"),
    ("too large", lambda: number(-2 * LARGEST, "here"), "here must be 0 or lie between"),
    ("zero where it is divided by", lambda: positive(0, "here"), "here must be positive"),
    ("below zero", lambda: positive(-1, "here"), "here must be positive"),
    ("half of a query", lambda: integer(0.5, "here"), "here must be a whole number"),
    ("a truth value of queries", lambda: integer(True, "here"), "here must be a whole number"),
    ("too many queries", lambda: integer(MOST + 1, "here"), f"here must be 0 to {MOST}"),
    ("fewer queries than none", lambda: integers([0, -1], "here", 2), r"here\[1\] must be 0 to"),
    ("a text as a list", lambda: items("ab", "here"), "here must be a list"),
    ("a table as a list", lambda: items({}, "here"), "here must be a list"),
    ("an array without a length", lambda: items(np.array(1.0), "here"), "here must be a list"),
    ("another length", lambda: vector([1, 2], "here", 3), "here must have 3 entries, got 2"),
    ("a list within that is too long", lambda: tensor([[1], [1, 2]], "here", (2, 1)), r"here\[1\] must have 1 entries"),
    ("no rows", lambda: square([], "here"), "here must not be empty"),
    ("a row that is no distribution", lambda: stochastic([[1, 0], [0.5, 0.6]], "here"), r"here\[1\] must sum to 1"),
    ("a negative probability", lambda: stochastic([[1.5, -0.5], [0, 1]], "here"), r"here\[0\]\[1\] must lie in"),
]


@pytest.mark.parametrize(("read", "problem"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_breaks_a_rule_is_refused_by_its_place(read: Callable[[], object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read()


def test_numbers_at_the_limits_are_read() -> None:
    assert [number(value, "here") for value in (0, SMALLEST, -LARGEST)] == [0.0, SMALLEST, -LARGEST]
    assert number("inf", "here", finite=False) == math.inf
    assert number(1e60, "here", any_size=True) == 1e60
    assert positive(SMALLEST, "here") == SMALLEST
    assert (integer(0, "here"), integer(MOST, "here"), MOST) == (0, 10**9, 1_000_000_000)
    assert integers([0, 3], "here", 2).tolist() == [0, 3]


def test_arrays_and_tuples_are_lists() -> None:
    assert items(np.array([1.0, 2.0]), "here") == [1.0, 2.0]
    assert items((1, 2), "here", 2) == [1, 2]
    assert vector([1, 2], "here", 2).tolist() == [1, 2]
    assert tensor(np.eye(2), "here", (2, 2)).tolist() == [[1, 0], [0, 1]]
    assert tensor(3, "here", ()).tolist() == 3


def test_probabilities_with_six_places_are_brought_to_one_and_others_are_refused() -> None:
    assert math.fsum(distribution(np.array([0.25, 0.25, 0.4999995]), "here")) == 1.0
    with pytest.raises(UsageError, match="here must sum to 1"):
        distribution(np.array([0.5, 0.5 + 2 * entries.SUM_TOLERANCE]), "here")


def test_a_value_in_an_error_is_short() -> None:
    assert shown([1, "two"]) == "[1, 'two']"
    assert len(shown("x" * 10_000)) <= 60
    assert shown(10**5000) == "a number of thousands of digits"


def test_odds_that_are_certain_stay_and_others_are_multiplied() -> None:
    assert posterior_odds(0.5, 3) == 1.5
    assert posterior_odds(0.0, math.inf) == 0.0
    assert posterior_odds(math.inf, 0.0) == math.inf


def test_no_query_spends_nothing_even_at_infinite_epsilon() -> None:
    assert (spent(0.5, 3), spent(math.inf, 0), spent(math.inf, 1)) == (1.5, 0.0, math.inf)
    assert (exp_or_inf(0.0), exp_or_inf(1000.0)) == (1.0, math.inf)
