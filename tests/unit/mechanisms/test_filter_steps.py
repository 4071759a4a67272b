"""The fast steps of the filter equal the plain ones to the byte."""

from fractions import Fraction

import numpy as np
import pytest

from stream.mechanisms import filter as filter_
from stream.mechanisms.exact import ordered_sum
from stream.mechanisms.filter import FilterItem, RegimeFilter
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.filter_model import Cells
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.parameter import NoiseParameter, gaussian_noise, laplace_noise
from tests import plain_filter

NOISES = [laplace_noise(Fraction(1)), laplace_noise(Fraction("0.1")), gaussian_noise(Fraction(21))]
SIZES = [(1, 1), (2, 3), (3, 1), (8, 2), (15, 40), (63, 1), (63, 30), (150, 2), (440, 1), (440, 25)]
"""Largest count and zones: grids that blocks fill exactly and do not, zones few and many."""


def cells(capacity: int, copies: int, zones: int) -> Cells:
    """Return a posterior with zeros, large and tiny cells in it."""
    rng = np.random.default_rng(capacity * 100 + zones)
    made = rng.random((16, capacity + 1, copies, zones)) * 10.0 ** -rng.integers(0, 25, (16, capacity + 1, 1, 1))
    return np.where(rng.random(made.shape) < 0.3, 0, made).astype(np.float32)


@pytest.mark.parametrize(("capacity", "zones"), SIZES)
@pytest.mark.parametrize("copies", [1, 2])
def test_each_step_equals_the_plain_one(capacity: int, zones: int, copies: int) -> None:
    p = cells(capacity, copies, zones)
    before, noise = p.copy(), laplace_noise(Fraction("0.3"))
    noisy = np.arange(zones) * 7 % (capacity + 9) - 4
    weight = np.random.default_rng(zones).random((capacity + 1, zones)).astype(np.float32)
    moved = filter_.predict(p)
    assert moved.tobytes() == plain_filter.predict(p).tobytes()
    assert filter_.observe(moved, noisy, noise).tobytes() == plain_filter.observe(moved, noisy, noise).tobytes()
    if copies == 2:
        assert filter_.lean(moved, weight).tobytes() == plain_filter.lean(moved, weight).tobytes()
    assert p.tobytes() == before.tobytes(), "a state stays as it is"


@pytest.mark.parametrize(
    "noise", [laplace_noise(Fraction("0.1")), laplace_noise(Fraction("1")), gaussian_noise(Fraction(21))], ids=str
)
@pytest.mark.parametrize("calendar", [True, False])
def test_states_and_estimates_of_a_day_equal_those_of_the_plain_steps(noise: NoiseParameter, calendar: bool) -> None:
    capacities = (5, 400, 30, 30, 121, 5, 30, 900)
    stage = RegimeFilter(capacities, noise, calendar)
    fast, plain = stage.initial(), stage.initial()
    for tick in range(60):
        truth = np.array(capacities) * (tick % 30) // 40
        drawn = np.array(discrete_laplace(b"k" * 32, b"day %d" % tick, Fraction("0.1"), len(capacities)))
        item = FilterItem(truth + drawn, Slot(tick // 2 % 48, tick // 4 % 24, False))
        fast, [estimate] = stage.step(fast, item)
        with plain_filter.plainly():
            plain, [expected] = stage.step(plain, item)
        assert estimate.median.tolist() == expected.median.tolist()
        assert estimate.half_width.tolist() == expected.half_width.tolist()
        assert stage.encode(fast) == stage.encode(plain)
        fast = stage.decode(stage.encode(fast)) if tick % 7 == 0 else fast


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 31, 64])
def test_sums_add_halves_until_one_is_left(length: int) -> None:
    values = np.random.default_rng(length).random((length, 3)).astype(np.float32)
    left = list(values)
    while len(left) > 1:
        half = (len(left) + 1) // 2
        left = [left[i] + left[half + i] if half + i < len(left) else left[i] for i in range(half)]
    before = values.copy()
    assert ordered_sum(values).tobytes() == left[0].tobytes()
    assert values.tobytes() == before.tobytes()
