"""How sure means are: bands that cover what they say, and probabilities that are never yes or no."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from connectors.records.bands import (
    NoiseDistribution,
    likely_empty,
    lower_end,
    mean_half_width,
    sum_half_width,
    upper_end,
)
from stream.records import NoiseKind

Floats = NDArray[np.float64]


def laplace(scale: float) -> Floats:
    """Return the law of one draw, from -reach to reach, cut off where nothing is left."""
    reach = math.ceil(45 * scale)
    return np.asarray(np.tanh(1 / scale / 2) * np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale))


def gaussian(sigma: float) -> Floats:
    reach = math.ceil(10 * sigma)
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma * sigma))
    return np.asarray(weights / weights.sum())


def summed(laws: list[Floats]) -> Floats:
    total = np.ones(1)
    for law in laws:
        total = np.convolve(total, law)
    return total


def beyond(law: Floats, most: float) -> float:
    """Return the probability of more than ``most``, either way."""
    reach = len(law) // 2
    return float(law[np.abs(np.arange(-reach, reach + 1)) > most].sum())


@pytest.mark.parametrize(
    ("scale", "draws", "windows"), [(1.0, 1, 12), (0.3, 2, 3), (12.5, 1, 12), (2.0, 5, 6), (0.05, 1, 9)]
)
def test_the_half_width_of_a_sum_of_laplace_draws_is_the_least_that_covers(
    scale: float, draws: int, windows: int
) -> None:
    width = sum_half_width(NoiseDistribution("laplace", scale, draws), windows)
    law = summed([laplace(scale)] * (draws * windows))
    assert beyond(law, width) <= 0.05 + 1e-8
    assert width == 0 or beyond(law, width - 1) > 0.05 - 1e-7, "no smaller one does"
    assert mean_half_width(NoiseDistribution("laplace", scale, draws), windows) == width / windows


@pytest.mark.parametrize(("sigma", "windows"), [(0.2, 4), (0.7, 5), (3.0, 12), (21.854, 12)])
def test_the_half_width_of_a_sum_of_gaussian_draws_covers(sigma: float, windows: int) -> None:
    width = sum_half_width(NoiseDistribution("gaussian", sigma), windows)
    law = summed([gaussian(sigma)] * windows)
    assert beyond(law, width) <= 0.05
    assert sigma < 1.6 or beyond(law, width - 2) > 0.05, "by hardly more than it has to"


def test_sums_with_a_very_wide_law_have_a_conservative_band() -> None:
    exact = sum_half_width(NoiseDistribution("laplace", 1000.0), 12) / 12
    wide = sum_half_width(NoiseDistribution("laplace", 100_000.0), 12) / 12
    assert exact * 100 < wide < exact * 110


DRAWN = {"laplace": laplace, "gaussian": gaussian}
CASES = list(product([1.0, 3.0, 10.0], [1.0, 4.0, 30.0], [1, 3, 12], [1, 2, 12]))


@pytest.mark.parametrize("kinds", [("laplace", "laplace"), ("laplace", "gaussian"), ("gaussian", "gaussian")])
def test_squares_of_half_widths_add_up_to_one_that_covers(kinds: tuple[NoiseKind, NoiseKind]) -> None:
    """What stands for windows of several laws, worked out exactly for two of them in many proportions."""
    for first, second, n, m in CASES:
        laws = [NoiseDistribution(kinds[0], first)] * n + [NoiseDistribution(kinds[1], second)] * m
        bound = math.sqrt(sum((sum_half_width(law) + 1) ** 2 for law in laws))
        assert beyond(summed([DRAWN[law.noise](law.scale) for law in laws]), bound) <= 0.05


def test_no_end_of_a_band_is_below_zero() -> None:
    value, width = np.array([5.0, 2.0, -1.0, -9.0]), np.array([3.0, 3.0, 3.0, 3.0])
    assert lower_end(value, width).tolist() == [2, 0, 0, 0]
    assert upper_end(value, width).tolist() == [8, 5, 2, 0]


def exactly_empty(value: int, a: float) -> float:
    """The share of nobody, by counting: errors go down by a factor a person, all counts from 0 on alike."""
    weights = [a ** abs(value - count) for count in range(2000)]
    return weights[0] / sum(weights)


@pytest.mark.parametrize("half_width", [0, 1, 3, 29])
@pytest.mark.parametrize("value", [0, 1, 4, 30])
@pytest.mark.parametrize(("kind", "tail"), [("noise", 0.05), ("at most", 0.05), ("posterior", 0.04)])
def test_likely_empty_is_the_probability_of_zero_among_all_counts(
    value: int, half_width: int, kind: str, tail: float
) -> None:
    expected = exactly_empty(value, tail ** (1 / (half_width + 1)))
    found = likely_empty(value, half_width, kind)
    assert found == pytest.approx(min(0.999, max(0.001, expected)), abs=5.1e-4)


def test_likely_empty_is_never_certain() -> None:
    assert likely_empty(0, 0, "posterior") == 0.96, "a filter that is sure says 96 % of it"
    assert likely_empty(400, 1, "noise") == 0.001
    assert likely_empty(-50, 3, "noise") == likely_empty(0, 3, "noise")
    surer = [likely_empty(0, width, "noise") for width in (0, 1, 3, 10, 100)]
    assert surer == sorted(surer, reverse=True)
    assert surer[0] < 1
