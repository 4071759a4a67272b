"""Bands of sums over filtered zones: formulas, state, and what a common error does."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from stream.errors import DataError
from stream.mechanisms.base import TickInput, WeekSlot
from stream.mechanisms.exact import Ints, deviation_of_sum
from stream.mechanisms.filter.learning import LearningFilter
from stream.mechanisms.filter.mechanism import Filtered
from stream.mechanisms.filter.residuals import ALIKE, FilteredSums, Residuals, no_residuals
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.mechanisms.level_sums import level_half_width
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.noise_parameters import laplace_noise

NOISE = laplace_noise(Fraction(1, 4))


class Differences(NamedTuple):
    """Noisy and published values of windows, shape [windows, zones] each."""

    noisy: Ints
    published: Ints


def differences(windows: int, zones: int, late: int) -> Differences:
    rng = np.random.default_rng(windows)
    published = rng.integers(0, 20, (windows, zones))
    return Differences(published + rng.integers(-9, 10, (windows, zones)) + late, published)


def residuals_of(seen: Differences) -> Residuals:
    found = no_residuals(seen.noisy.shape[1])
    for noisy, published in zip(*seen, strict=True):
        found = found.after(noisy, published)
    return found


def expected(seen: Differences, widths: Ints, zones: list[int]) -> int:
    """The formulas of the module docstring, in plain loops."""
    shares = [0.8**i for i in range(len(seen.noisy))][::-1]
    total = sum(shares)
    sums = [int((noisy - published)[zones].sum()) for noisy, published in zip(*seen, strict=True)]
    mean = sum(share * each for share, each in zip(shares, sums, strict=True)) / total
    variance = len(zones) * NOISE.deviation**2 * sum(share**2 for share in shares) / total**2
    squares, together = sum(int(widths[z]) ** 2 for z in zones), sum(int(widths[z]) for z in zones)
    own = (1 - ALIKE) * squares + ALIKE * together**2
    return round(float((own + 4 * max(0.0, mean**2 - variance / 2)) ** 0.5))


@pytest.mark.parametrize("windows", [1, 2, 7, 60])
@pytest.mark.parametrize("late", [0, 6, -25])
@pytest.mark.parametrize("zones", [[0, 1], [3, 0, 2], [0, 1, 2, 3, 4]])
def test_bands_of_sums_are_those_of_the_formulas(windows: int, late: int, zones: list[int]) -> None:
    seen, widths = differences(windows, 5, late), np.array([3, 8, 2, 5, 4])
    band = FilteredSums(widths, residuals_of(seen), NOISE)
    assert band.half_width(zones) == expected(seen, widths, zones)


def test_a_residual_is_what_the_noisy_value_is_above_the_published_one() -> None:
    assert no_residuals(2).after(np.array([5, 1]), np.array([2, 4])).total.tolist() == [3, -3]


def test_a_sum_over_one_zone_has_the_band_of_the_zone() -> None:
    band = FilteredSums(np.array([3, 8]), residuals_of(differences(20, 2, 40)), NOISE)
    assert band.half_width([1]) == 8


def test_noise_that_differs_from_zone_to_zone_makes_no_sum_wider_and_a_common_error_does() -> None:
    """Ten zones whose noisy values lie 20 above and below the published ones, or all above."""
    none, widths = np.zeros((40, 10), np.int64), np.full(10, 4)
    apart = FilteredSums(widths, residuals_of(Differences(none + np.array([20, -20] * 5), none)), NOISE)
    late = FilteredSums(widths, residuals_of(Differences(none + 20, none)), NOISE)
    own = deviation_of_sum(widths.astype(np.float64), ALIKE)
    assert apart.half_width(range(10)) == round(own) == 14
    assert 380 < late.half_width(range(10)) <= 400


# The filter's state


STAGE = Filtered(LearningFilter(RegimeFilter((40,) * 3, NOISE)))


def item(window: int, counts: Ints, noise: Ints) -> TickInput:
    context = Context("dbh", "r", window, 1, ("a", "b", "c"))
    return TickInput(counts, noise, b"k" * 32, context, WeekSlot(window // 6 % 48, window // 12 % 24, False, 0))


def test_residuals_are_part_of_the_state_and_follow_from_released_values() -> None:
    rng, state, released = np.random.default_rng(2), STAGE.initial(), []
    for window in range(30):
        noise = rng.integers(-8, 9, 3)
        counts = np.full(3, 25 if window >= 20 else 2)
        state, [values] = STAGE.step(STAGE.decode(STAGE.encode(state)), item(window, counts, noise))
        released.append((values.noisy, values.values))
        seen = Differences(*(np.array([each[part] for each in released]) for part in (0, 1)))
        assert level_half_width(STAGE, values, range(3)) == expected(seen, values.half_width, [0, 1, 2])
    assert STAGE.encode(STAGE.decode(STAGE.encode(state))) == STAGE.encode(state)


def test_bands_of_sums_get_wider_when_all_zones_fill_at_once() -> None:
    """All counts rise from 2 to 25; the first windows after it are the widest."""
    state, widths = STAGE.initial(), []
    for window in range(40):
        counts = np.full(3, 25 if window >= 30 else 2)
        state, [values] = STAGE.step(state, item(window, counts, np.zeros(3, np.int64)))
        widths.append(level_half_width(STAGE, values, range(3)))
    assert max(widths[30:34]) > 2 * widths[29]
    assert widths[39] < max(widths[30:34])


@pytest.mark.parametrize(
    "residuals",
    [
        Residuals(np.array([0.0, np.nan, 0.0]), 1.0, 1.0),
        Residuals(np.array([0.0, np.inf, 0.0]), 1.0, 1.0),
        Residuals(np.zeros(3), 7.0, 1.0),
        Residuals(np.zeros(3), 1.0, 2.0),
        Residuals(np.zeros(3), 1.0, -1.0),
        Residuals(np.zeros(3), float("nan"), 0.0),
    ],
)
def test_residuals_that_no_stream_has_are_refused(residuals: Residuals) -> None:
    stage = STAGE.filter
    after, _ = stage.step(stage.initial(), FilterItem(np.array([1, 2, 3]), WeekSlot(0, 0, False)))
    data = stage.encode(type(after)(after.filter, after.log, after.part, after.coming, residuals))
    with pytest.raises(DataError, match="residuals must be finite, and their weights within range"):
        stage.decode(data)


def test_state_that_ends_within_its_residuals_is_refused() -> None:
    stage = STAGE.filter
    data = stage.encode(stage.initial())
    for end in range(1, 24):
        with pytest.raises(DataError):
            stage.decode(data[:-end])
