"""Sums of released zones are exact before they are rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stream.mechanisms.counts import Laplace, Pegasus, Values
from stream.mechanisms.levels import level_sum
from stream.mechanisms.smoothers import Ratio


def values(*fractions: Fraction) -> Values:
    exact = Ratio(
        np.array([f.numerator for f in fractions], dtype=np.int64),
        np.array([f.denominator for f in fractions], dtype=np.int64),
    )
    return Values(np.zeros(len(fractions), np.int64), np.zeros(len(fractions), np.int64), exact)


def test_a_sum_over_unlike_denominators_is_rounded_once_half_to_even() -> None:
    mechanism = Pegasus(4, Fraction(1))
    made = values(Fraction(1, 2), Fraction(2, 3), Fraction(5, 6), Fraction(1, 2))
    assert level_sum(mechanism, made, [0, 1, 2]) == 2  # exactly 2, where each rounded alone gives 0 + 1 + 1
    assert level_sum(mechanism, made, [0, 1, 2, 3]) == 2  # 5/2
    assert level_sum(mechanism, made, [1, 2]) == 2  # 3/2
    assert level_sum(mechanism, made, [0, 1]) == 1  # 7/6


def test_a_sum_equals_that_of_fractions_for_random_values() -> None:
    draw = np.random.default_rng(3)  # noqa: TID251
    fractions = [
        Fraction(int(n), int(d)) for n, d in zip(draw.integers(0, 500, 40), draw.integers(1, 30, 40), strict=True)
    ]
    assert level_sum(Laplace(40, Fraction(1)), values(*fractions), range(40)) == round(sum(fractions))


def test_a_sum_is_negative_only_where_noise_is_left_as_it_is() -> None:
    made = values(Fraction(-3), Fraction(1))
    assert level_sum(Laplace(2, Fraction(1)), made, [0, 1]) == -2
    assert level_sum(Pegasus(2, Fraction(1)), made, [0, 1]) == 0
