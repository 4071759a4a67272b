"""Errors of values that are smoothed over groups: their law, the half-widths and the moments that sums use."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate

from stream.mechanisms.base import ErrorMoments, Groups, Values, whole
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.group_errors import BAND, GroupErrors, group_errors
from stream.mechanisms.level_sums import ALIKE_GROUPED, ALIKE_REVISED, level_half_width
from stream.mechanisms.pegasus import Pegasus

B = 4.0
ONE = Fraction(1)


def law(*groups: list[int], value: float = 0.0, scale: float = B) -> GroupErrors:
    longest = max(map(len, groups))
    noisy: Ints = np.array([each + [0] * (longest - len(each)) for each in groups])
    size = np.array([len(each) for each in groups])
    return group_errors(Groups(size, noisy), np.full(len(groups), value), np.full(len(groups), scale))


def widths(errors: GroupErrors) -> list[int]:
    return [int(width) for width in errors.half_width(np.zeros(errors.weight.shape[1]))]


def density(far: float, one: float, other: float) -> float:
    """Density of the sum of two Laplace draws, by integration."""
    found, _ = integrate.quad(
        lambda d: np.exp(-abs(d) / one - abs(far - d) / other) / (4 * one * other),
        -200,
        far + 200,
        points=[0, far],
        limit=200,
    )
    return float(found)


def expected(group: list[int], grid: Floats, value: float) -> Floats:
    """The law of the module docstring, in plain loops."""
    weight: NDArray[np.float64] = np.zeros(len(grid))
    apart_by = [y - value for y in group]
    for j in range(9):
        t = B * 2**j / np.sqrt(len(group))
        apart = 1.02 * B if abs(t / B - 1) < 0.02 else t
        seen = np.prod([density(abs(y), apart, B) for y in apart_by[-12:]])
        weight += seen * np.exp(-np.abs(grid) / t) / t * np.exp(-np.abs(apart_by[-1] - grid) / B)
    weight[value + grid < -0.5] = 0
    return np.asarray(weight / weight.sum())


@pytest.mark.parametrize("value", [0.0, 2.5, 400.0])
@pytest.mark.parametrize("group", [[0], [3, -2, 5], [1, -9, 4, 0, 2, 14], [2, -1] * 8, [2, 1, 3000]])
def test_the_law_is_that_of_the_formulas(group: list[int], value: float) -> None:
    moved = [round(value) + each for each in group]
    errors = law(moved, value=value)
    assert errors.distance[:, 0] == pytest.approx(moved[-1] - value - np.linspace(-8, 8, 129) * B)
    assert errors.weight[:, 0] == pytest.approx(expected(moved, errors.distance[:, 0], value), abs=1e-6)


def test_the_law_gives_no_weight_to_negative_counts() -> None:
    """Of a value of 2 the count is at most 2 below; above the value nothing changes but the total."""
    near, far = law([2, 1, 3, 2], value=2.0), law([302, 301, 303, 302], value=302.0)
    below = near.distance[:, 0] < -2.5
    assert not near.weight[below].any()
    assert near.weight[~below, 0] == pytest.approx(far.weight[~below, 0] / far.weight[~below, 0].sum())
    assert widths(near) <= widths(far)


def test_a_zone_whose_noisy_values_allow_no_count_keeps_the_law_of_its_noise() -> None:
    errors = law([-900, -900, -900], value=-900.0)
    assert errors.weight.sum() == pytest.approx(1)
    assert errors.mean == pytest.approx([0], abs=1e-9)


def test_a_zone_does_not_depend_on_the_zones_beside_it() -> None:
    together, alone = law([3, -2, 5], [0], [1] * 20), law([0])
    assert together.weight[:, 1].tolist() == alone.weight[:, 0].tolist()


def test_a_large_group_that_agrees_is_surer_than_its_noise_and_one_window_is_not() -> None:
    one, few, many = widths(law([0], [1, -2, 0, 3], [1, -2, 0, 3] * 12))
    assert one > few > many
    assert many < 0.5 * B * np.log(20)


def test_the_band_reaches_a_noisy_value_that_is_far_away() -> None:
    """After eleven windows that agree the count jumps by a hundred scales: the value is off by about as much."""
    (found,) = widths(law([0] * 11 + [400]))
    assert found >= 400


def test_values_beyond_all_scales_give_a_finite_law() -> None:
    errors = law([10**9, -(10**9), 10**9], [0, 0, 10**9])
    assert np.isfinite(errors.weight).all()
    assert errors.weight.sum(axis=0) == pytest.approx([1, 1])


def test_half_width_is_around_what_was_published() -> None:
    errors = law([2, -1, 0, 1])
    for moved in (0.0, 6.0, -9.5):
        (found,) = errors.half_width(np.array([moved])).tolist()
        far = np.abs(errors.distance[:, 0] - moved)
        assert errors.weight[far <= found + 0.5, 0].sum() >= BAND
        assert found == 0 or errors.weight[far <= found - 0.5, 0].sum() < BAND


def test_moments_are_those_of_the_law() -> None:
    errors = law([1, 6, 4])
    mean = float((errors.weight * errors.distance).sum())
    assert errors.mean == pytest.approx([mean])
    assert errors.deviation**2 == pytest.approx([float((errors.weight * (errors.distance - mean) ** 2).sum())])


# Sums over zones


def summed(width: int, mean: float, deviation: float, zones: int) -> int:
    none = np.zeros(zones, np.int64)
    errors = ErrorMoments(np.full(zones, mean), np.full(zones, deviation))
    return level_half_width(Pegasus(zones, ONE), Values(none, none + width, whole(none), errors=errors), range(zones))


def test_deviations_of_groups_are_summed_as_nearly_independent() -> None:
    of_sum = np.sqrt((1 - ALIKE_GROUPED) * 50 * 9 + ALIKE_GROUPED * 150**2)
    assert summed(99, 0, 3, 50) == np.ceil(2.17 * of_sum - 0.5)
    assert summed(99, 4, 3, 50) == np.ceil(200 + 1.88 * of_sum - 0.5)
    assert summed(99, -4, 3, 50) == summed(99, 4, 3, 50)


def test_half_widths_of_revised_values_are_summed_as_nearly_independent() -> None:
    """Far less than their sum, 200, and more than that of independent errors, 28."""
    none = np.zeros(50, np.int64)
    found = level_half_width(Pegasus(50, ONE), Values(none, none + 4, whole(none)), range(50))
    assert found == np.ceil(np.sqrt((1 - ALIKE_REVISED) * 50 * 16 + ALIKE_REVISED * 200**2)) == 45
