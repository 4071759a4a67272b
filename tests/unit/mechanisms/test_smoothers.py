from fractions import Fraction
from random import Random

import numpy as np
import pytest

from stream.mechanisms.base import Groups, Ratio
from stream.mechanisms.grouper import SMOOTHERS, Grouper, GroupItem, average, james_stein, median, publishable

F = Fraction


def groups_of(*rows: list[int]) -> Groups:
    longest = max(map(len, rows))
    padded = np.array([row + [0] * (longest - len(row)) for row in rows])
    return Groups(np.array([len(row) for row in rows]), padded)


def fractions(ratio: Ratio) -> list[Fraction]:
    return [F(int(n), int(d)) for n, d in zip(ratio.numerator, ratio.denominator, strict=True)]


@pytest.mark.parametrize(
    ("smoother", "expected"),
    [
        ("average", [5, 5, F(16, 3), 9, 10, 10, 10]),
        ("median", [5, 5, 5, 9, 10, 10, 10]),
        ("james-stein", [5, 5, F(50, 9), 9, 10, 10, 10]),
    ],
)
def test_worked_example_without_noise(smoother: str, expected: list[Fraction]) -> None:
    grouper, zero = Grouper(1, F(25, 2)), np.zeros(1, np.int64)
    state, smoothed = grouper.initial(), []
    for count in [5, 5, 6, 9, 10, 10, 10]:
        state, [groups] = grouper.step(state, GroupItem(np.array([count]), np.array([count]), zero, zero))
        smoothed += fractions(SMOOTHERS[smoother](groups))
    assert smoothed == expected


def test_smoothers_equal_their_definitions_on_ragged_groups() -> None:
    rng = Random(4)
    rows = [[rng.randrange(-30, 60) for _ in range(rng.randrange(1, 9))] for _ in range(60)]
    groups = groups_of(*rows)
    means = [F(sum(row), len(row)) for row in rows]
    middles = [F(sorted(row)[(len(row) - 1) // 2] + sorted(row)[len(row) // 2], 2) for row in rows]
    shrunk = [(row[-1] - mean) / len(row) + mean for row, mean in zip(rows, means, strict=True)]
    assert fractions(average(groups)) == means
    assert fractions(median(groups)) == middles
    assert fractions(james_stein(groups)) == shrunk


def test_values_round_half_to_even_and_are_then_never_negative() -> None:
    values = [
        F(5, 2),
        F(7, 2),
        F(1, 2),
        F(3, 2),
        F(8, 3),
        F(7, 3),
        F(-1, 3),
        F(-5, 2),
        F(49, 100),
        F(51, 100),
        F(4),
    ]
    ratio = Ratio(np.array([v.numerator for v in values]), np.array([v.denominator for v in values]))
    assert publishable(ratio).tolist() == [2, 4, 0, 2, 3, 2, 0, 0, 0, 1, 4]


def test_negative_noisy_values_are_smoothed_before_the_clamp() -> None:
    assert publishable(average(groups_of([-4, 6]))).tolist() == [1]
    assert publishable(average(groups_of([-6, 4]))).tolist() == [0]
