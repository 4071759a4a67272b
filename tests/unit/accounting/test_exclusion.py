"""The exclusion attack in closed form: Theorems 1 to 3 and Corollary 1 of Lee and Smith."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from stream.accounting.leakage.exclusion import (
    dependent_release_factor,
    dependent_suppression_factor,
    posterior_odds,
    suppression_factor,
)
from stream.errors import UsageError

DELTA_1, DELTA_2 = 0.75, 1 / 3


def test_n_refusals_raise_the_odds_by_e_to_the_n_epsilon() -> None:
    assert suppression_factor(0.5) == pytest.approx(math.exp(0.5), rel=1e-15)
    assert suppression_factor(0.5, 3) == pytest.approx(math.exp(1.5), rel=1e-15)
    assert suppression_factor(math.inf, 0) == 1.0


def test_theorem_2_and_corollary_1_reproduce_the_worked_example() -> None:
    assert dependent_suppression_factor(DELTA_1, DELTA_2, 1.0) == pytest.approx(1.455219159, abs=5e-10)
    assert dependent_suppression_factor(DELTA_1, DELTA_2, 1.0, 3) == pytest.approx(2.080205622, abs=5e-10)
    odds = posterior_odds(2 / 3, dependent_suppression_factor(DELTA_1, DELTA_2, 1.0))
    assert odds == pytest.approx(0.970146106, abs=5e-10)


def test_theorem_3_does_not_depend_on_epsilon_and_reproduces_the_worked_example() -> None:
    assert dependent_release_factor(DELTA_1, DELTA_2) == pytest.approx(0.375, rel=1e-14)


def test_refusals_without_end_leave_the_ratio_of_the_conditionals() -> None:
    assert dependent_suppression_factor(0.8, 0.2, math.inf) == pytest.approx(4.0)
    assert dependent_suppression_factor(0.8, 0.2, 2.0, 100_000) == pytest.approx(4.0)
    assert dependent_suppression_factor(0.8, 0.0, math.inf) == math.inf


@pytest.mark.parametrize("delta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 800.0, math.inf])
def test_an_independent_attribute_says_nothing(delta: float, epsilon: float) -> None:
    assert dependent_suppression_factor(delta, delta, epsilon) == 1.0


def test_refusals_lower_the_odds_when_delta_1_is_the_smaller() -> None:
    assert dependent_suppression_factor(0.2, 0.6, 1.0) < 1.0 < dependent_release_factor(0.2, 0.6)


def test_certain_odds_stay_certain() -> None:
    assert posterior_odds(0.0, math.inf) == 0.0
    assert posterior_odds(math.inf, 0.0) == math.inf


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: suppression_factor(-0.1), "epsilon"),
        (lambda: suppression_factor(1.0, -1), "queries"),
        (lambda: suppression_factor(1.0, 1.5), "queries"),  # type: ignore[arg-type]
        (lambda: dependent_suppression_factor(1.2, 0.5, 1.0), "delta_1"),
        (lambda: dependent_release_factor(0.5, math.nan), "delta_2"),
        (lambda: dependent_release_factor(1.0, 1.0), "delta_1 and delta_2"),
    ],
)
def test_an_argument_out_of_range_is_named(call: Callable[..., Any], field: str) -> None:
    with pytest.raises(UsageError, match=field):
        call()
