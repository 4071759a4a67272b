"""``stream.mechanisms.noise_parameters``: figures of a noise, its tails, and the shift that follows from them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms.exact import Floats
from stream.mechanisms.noise import pmf
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.noise_parameters import (
    NoiseParameter,
    gaussian_noise,
    laplace_noise,
    least_shift,
    noise_chain,
    tail,
)
from stream.records import MINUTE

HALF = laplace_noise(Fraction(1, 2))
NINE = gaussian_noise(Fraction(9))
SUPPORT = np.arange(-200, 201)


def law(noise: NoiseParameter) -> Floats:
    """Return Pr[Z = z] for each z of the support."""
    if noise.kind == "laplace":
        return np.asarray(pmf(noise.exact, SUPPORT))
    weights = np.exp(-(SUPPORT**2) / (2 * float(noise.exact)))
    return np.asarray(weights / weights.sum())


def beyond(noise: NoiseParameter, draws: int, distance: int) -> float:
    """Return Pr[S >= distance] of the sum of some draws, by convolution."""
    total = law(noise)
    for _ in range(draws - 1):
        total = np.convolve(total, law(noise))
    return float(total[np.arange(len(total)) - len(total) // 2 >= distance].sum())


def test_figures_of_laplace_noise_follow_from_epsilon() -> None:
    assert (HALF.epsilon, HALF.scale, HALF.inverse_scale) == (Fraction(1, 2), 2.0, 0.5)
    assert HALF.deviation == pytest.approx(math.sqrt(2 * math.exp(-0.5)) / (1 - math.exp(-0.5)))


def test_figures_of_gaussian_noise_follow_from_the_variance() -> None:
    assert (NINE.scale, NINE.deviation) == (3.0, 3.0)
    assert NINE.inverse_scale == pytest.approx(1 / 3)
    with pytest.raises(UsageError, match="must be laplace where a pure epsilon is needed, got gaussian"):
        _ = NINE.epsilon


@pytest.mark.parametrize("exact", [Fraction(0), Fraction(-1), Fraction(1, 10**12)])
def test_noise_that_no_sampler_draws_is_refused(exact: Fraction) -> None:
    for noise in (laplace_noise, gaussian_noise):
        with pytest.raises(UsageError):
            noise(exact)


@pytest.mark.parametrize("noise", [HALF, NINE], ids=["laplace", "gaussian"])
def test_half_widths_are_exceeded_with_five_percent_at_most(noise: NoiseParameter) -> None:
    assert 2 * beyond(noise, 1, noise.half_width_95 + 1) <= 0.05 < 2 * beyond(noise, 1, noise.half_width_95)
    assert 2 * beyond(noise, 4, noise.sum_half_width_95(4) + 1) <= 0.05


@pytest.mark.parametrize("noise", [HALF, NINE], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("distance", [1, 2, 5, 20])
def test_the_tail_of_one_draw_is_exact(noise: NoiseParameter, distance: int) -> None:
    assert tail(noise, 1, distance) == pytest.approx(beyond(noise, 1, distance), rel=1e-9)


@pytest.mark.parametrize("noise", [HALF, NINE], ids=["laplace", "gaussian"])
def test_the_tail_of_one_draw_is_never_too_low(noise: NoiseParameter) -> None:
    """Behind the sampler's table a draw is as unlikely as its last digit."""
    assert tail(noise, 1, 10**6) == 2.0**-64
    assert tail(noise, 1, 0) == tail(noise, 1, -3) == tail(noise, 5, 0) == 1.0


@pytest.mark.parametrize("noise", [HALF, NINE], ids=["laplace", "gaussian"])
@pytest.mark.parametrize(("draws", "distance"), [(2, 5), (3, 12), (8, 20), (8, 40)])
def test_the_tail_of_a_sum_is_an_upper_bound_and_no_far_one(noise: NoiseParameter, draws: int, distance: int) -> None:
    exact, bound = beyond(noise, draws, distance), tail(noise, draws, distance)
    assert exact <= bound <= min(1.0, 30 * exact)


@pytest.mark.parametrize("noise", [HALF, NINE], ids=["laplace", "gaussian"])
@pytest.mark.parametrize(("draws", "windows"), [(1, 1), (1, 3), (4, 1), (4, 2)])
def test_the_least_shift_misses_rarely_enough_and_the_next_smaller_one_does_not(
    noise: NoiseParameter, draws: int, windows: int
) -> None:
    miss = Fraction(1, 20)
    shift = least_shift(noise, draws, miss, windows)
    assert tail(noise, draws, shift + 1) ** windows <= miss < tail(noise, draws, shift) ** windows


def test_a_count_that_may_be_missed_needs_no_shift() -> None:
    assert least_shift(HALF, 1, Fraction(9, 10), 1) == 0


def test_a_shift_that_would_be_larger_than_any_count_is_refused() -> None:
    with pytest.raises(UsageError, match="miss must be one that noise of scale 2 can keep"):
        least_shift(HALF, 1, Fraction(1, 2**80), 1)


def test_a_chain_is_of_one_kind_of_noise() -> None:
    context = Context("house", "r", 5 * MINUTE, 1, ("a", "b"))
    for parameters, kinds in (([], "none"), ([HALF, NINE], "gaussian, laplace")):
        with pytest.raises(UsageError, match=f"parameters must be of one kind, got {kinds}"):
            noise_chain(b"k" * 32, context, b"d", parameters, 2)
    one = laplace_noise(Fraction(1))
    drawn = noise_chain(b"k" * 32, context, b"d", [HALF, one, HALF], 2)
    assert set(drawn) == {HALF, one}
    assert all(len(each) == 2 for each in drawn.values())
