"""Sums of released zones are exact before they are rounded once."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from stream.mechanisms.base import CountMechanism, Ratio, Values
from stream.mechanisms.laplace import Laplace
from stream.mechanisms.level_sums import LevelSums, level_half_width, level_sums, shared_out
from stream.mechanisms.noise_parameters import laplace_noise
from stream.mechanisms.pegasus import Pegasus
from stream.mechanisms.wevent import Uniform

ONE = Fraction(1)


def values(*fractions: Fraction) -> Values:
    exact = Ratio(
        np.array([f.numerator for f in fractions], dtype=np.int64),
        np.array([f.denominator for f in fractions], dtype=np.int64),
    )
    return Values(np.zeros(len(fractions), np.int64), np.zeros(len(fractions), np.int64), exact)


def sums_over(mechanism: CountMechanism, made: Values, floors: list[list[int]]) -> LevelSums:
    return level_sums(mechanism, made, floors, clamped=not isinstance(mechanism, Laplace))


def building(mechanism: CountMechanism, made: Values) -> int:
    return sums_over(mechanism, made, [list(range(len(made.values)))]).building


def test_a_sum_over_unlike_denominators_is_rounded_once_half_to_even() -> None:
    half, thirds, sixths = Fraction(1, 2), Fraction(2, 3), Fraction(5, 6)
    assert building(Pegasus(3, ONE), values(half, thirds, sixths)) == 2  # where each rounded alone gives 0 + 1 + 1
    assert building(Pegasus(4, ONE), values(half, thirds, sixths, half)) == 2  # 5/2
    assert building(Pegasus(2, ONE), values(thirds, sixths)) == 2  # 3/2
    assert building(Pegasus(2, ONE), values(half, thirds)) == 1  # 7/6


def test_a_sum_equals_that_of_fractions_for_random_values() -> None:
    rng = random.Random(3)
    fractions = [Fraction(rng.randrange(500), rng.randrange(1, 30)) for _ in range(40)]
    assert building(Laplace(40, laplace_noise(ONE)), values(*fractions)) == round(sum(fractions))


def test_a_sum_is_negative_only_where_noise_is_left_as_it_is() -> None:
    made = values(Fraction(-3), Fraction(1))
    assert building(Laplace(2, laplace_noise(ONE)), made) == -2
    assert building(Pegasus(2, ONE), made) == 0


def test_floors_always_make_the_building() -> None:
    """Noise about empty zones, in which floors and building once were clamped apart: 0 beside 376."""
    rng = random.Random(5)
    for _ in range(300):
        exact = [Fraction(rng.randrange(-60, 40), rng.choice((1, 2, 9))) for _ in range(12)]
        made, floors = values(*exact), [[0, 1, 2], [3], [4, 5, 6, 7, 8], [9, 10, 11]]
        sums = sums_over(Pegasus(12, ONE), made, floors)
        assert sum(sums.floors) == sums.building == max(0, round(sum(exact)))
        assert min(sums.floors) >= 0


def test_a_building_that_is_empty_has_empty_floors() -> None:
    sums = sums_over(Pegasus(2, ONE), values(Fraction(-400), Fraction(376)), [[0], [1]])
    assert (sums.building, sums.floors) == (0, (0, 0))


def test_floors_that_need_no_clamping_stay_as_they_are() -> None:
    sums = sums_over(Pegasus(3, ONE), values(Fraction(4), Fraction(7), Fraction(0)), [[0], [1], [2]])
    assert sums.floors == (4, 7, 0)
    assert len(set(sums.floor_widths)) == 1


def test_the_largest_remainders_are_rounded_up_and_of_equal_ones_the_first() -> None:
    thirds = [Fraction(1, 3)] * 3
    assert shared_out(1, thirds) == (1, 0, 0)
    assert shared_out(2, [Fraction(1, 3), Fraction(2, 3), Fraction(2, 3)]) == (0, 1, 1)
    assert shared_out(5, [Fraction(10), Fraction(0), Fraction(5)]) == (3, 0, 2)
    assert shared_out(11, [Fraction(21, 2), Fraction(2, 5), Fraction(1, 10)]) == (11, 0, 0)


def test_with_laplace_floors_and_building_are_the_plain_sums() -> None:
    sums = sums_over(Laplace(3, laplace_noise(ONE)), values(Fraction(-5), Fraction(9), Fraction(-1)), [[0, 2], [1]])
    assert (sums.floors, sums.building) == ((-6, 9), 3)


@pytest.mark.parametrize(
    "truth", [(0, 0, 0, 0, 0, 0), (90, 0, 0, 0, 0, 0), (40, 30, 20, 3, 1, 0)], ids=["empty", "one floor", "mixed"]
)
def test_half_widths_of_floors_hold_the_truth_in_95_of_100_windows_and_are_not_much_wider(
    truth: tuple[int, ...],
) -> None:
    """Over 4,000 windows of a fixed seed, so that it fails always or never."""
    rng = np.random.default_rng(9)
    zones, mechanism = 4, Uniform(24, ONE, 1)
    floors = [list(range(zones * i, zones * i + zones)) for i in range(len(truth))]
    p = 1 - math.exp(-mechanism.noise.epsilon)
    hits, wide, plain = np.zeros(len(truth)), 0.0, 0
    for _ in range(4000):
        noise = rng.geometric(p, 24) - rng.geometric(p, 24)
        exact = [int(noise[i]) + (truth[i // zones] if i % zones == 0 else 0) for i in range(24)]
        made = values(*map(Fraction, exact))
        sums = sums_over(mechanism, made, floors)
        near = zip(sums.floors, truth, sums.floor_widths, strict=True)
        hits += [abs(floor - true) <= width for floor, true, width in near]
        plain, wide = (
            level_half_width(mechanism, values(*map(Fraction, exact)), floors[0]),
            wide + sum(sums.floor_widths),
        )
    assert (hits / 4000 >= 0.95).all(), hits / 4000
    assert wide / 4000 / len(truth) < 1.5 * plain
