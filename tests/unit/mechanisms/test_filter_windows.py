"""Ranges leave nothing out that counts: the filter equals the formulas on whole grids within two in a million."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.posterior import Posterior, joined, nothing, trimmed
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.mechanisms.filter.support import MARGIN, SIDE_BY_SIDE, CountRanges, chunks, count_ranges
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise, laplace_noise
from tests.support.reference_filter import PlainFilter, by_tick

F = Fraction
TOLERANCE = 2e-6
"""In total variation: half of the sum over all cells of the differences. Most of it is the rounding of 32 bits."""
LONG = pytest.mark.long
TABLE = Path(__file__).parents[4] / "shared/data/lbnl-wifi-counts/campus1_building_device_count.csv"


def assert_equal(noise: NoiseParameter, capacity: int, stream: Iterable[Ints], *, calendar: bool = True) -> None:
    """Assert that every posterior, median and half-width of some zones is that of the formulas."""
    rows = list(stream)
    stage = RegimeFilter((capacity,) * len(rows[0]), noise, calendar)
    plain = PlainFilter(capacity, len(rows[0]), noise, calendar)
    items = [
        FilterItem(noisy, WeekSlot(tick // 6 % 48, tick // 12 % 24, tick // 288 % 7 >= 5))
        for tick, noisy in enumerate(rows)
    ]
    for tick, (item, (state, estimate)) in enumerate(zip(items, by_tick(stage, items), strict=True)):
        median, half_width = plain.step(item)
        (found,) = stage.dense(state)
        assert np.abs(found - plain.dense()).sum(axis=(0, 1, 2)).max() / 2 <= TOLERANCE, tick
        assert estimate.median.tolist() == median.tolist()
        assert estimate.half_width.tolist() == half_width.tolist()


def drawn(truth: Ints, epsilon: str) -> list[Ints]:
    noise = np.array(discrete_laplace(b"k" * 32, b"windows" + epsilon.encode(), F(epsilon), truth.size))
    return list(truth + noise.reshape(truth.shape))


@pytest.mark.parametrize(("epsilon", "calendar"), [("0.1", True), ("1", False)])
def test_jumps_over_all_of_2220_counts_are_followed_as_on_the_whole_grid(epsilon: str, calendar: bool) -> None:
    truth = np.repeat([0, 2220, 3, 850, 0, 1500, 40, 2220, 2000, 700, 720, 0], 4)
    assert_equal(laplace_noise(F(epsilon)), 2220, drawn(truth[:, None], epsilon), calendar=calendar)


@pytest.mark.parametrize("epsilon", ["0.05", pytest.param("0.5", marks=LONG), "2"])
def test_zones_that_wander_and_jump_are_followed_as_on_the_whole_grid(epsilon: str) -> None:
    steps = np.random.default_rng(3).choice([-150, -30, -3, 0, 0, 0, 0, 0, 0, 3, 30, 150], (60, 4))
    assert_equal(laplace_noise(F(epsilon)), 500, drawn(np.abs(np.cumsum(steps, axis=0)) % 500, epsilon))


def test_gaussian_noise_is_followed_as_on_the_whole_grid() -> None:
    steps = np.random.default_rng(4).choice([-150, -30, -3, 0, 0, 0, 0, 0, 0, 3, 30, 150], (60, 4))
    noise = np.rint(np.random.default_rng(5).normal(0, 21.854, (60, 4))).astype(np.int64)
    assert_equal(gaussian_noise(F("21.854") ** 2), 500, list(np.abs(np.cumsum(steps, axis=0)) % 500 + noise))


@pytest.mark.shared_data
@pytest.mark.skipif(not TABLE.exists(), reason=f"no ../shared/data/{TABLE.parent.name} beside the project")
@pytest.mark.parametrize(
    ("epsilon", "ticks"), [("0.1", 96), *(pytest.param(e, 288, marks=LONG) for e in ("0.05", "0.1", "0.5", "1"))]
)
def test_a_day_of_a_building_is_filtered_as_on_the_whole_grid(epsilon: str, ticks: int) -> None:
    """The long form is a whole day, the short one its first eight hours with people."""
    counts = [int(row[1]) for row in list(csv.reader(TABLE.read_text().splitlines()))[1:]]
    begin = next(place for place, count in enumerate(counts) if count > 100)
    assert_equal(laplace_noise(F(epsilon)), 1200, drawn(np.array(counts[begin : begin + ticks])[:, None], epsilon))


# Which ranges


def held(low: int, *weights: float) -> Posterior:
    return trimmed(np.array([low]), [np.array([weights] * 32, np.float32)])


def asked(posterior: Posterior, noisy: int, epsilon: str = "1", capacity: int = 900) -> tuple[int, int]:
    low, width = count_ranges(posterior, np.array([capacity]), np.array([noisy]), laplace_noise(F(epsilon)))
    return int(low[0]), int(low[0] + width[0])


def test_a_window_is_a_little_wider_than_what_is_held() -> None:
    assert asked(held(100, 1, 2, 1), 101) == (100 - MARGIN, 103 + MARGIN)
    assert asked(held(0, 2, 1), -3) == (0, 2 + MARGIN), "a noisy value below 0 says the same as 0"


def test_a_window_reaches_twice_as_far_as_the_noisy_value_is_off() -> None:
    assert asked(held(100, 1, 2, 1), 106) == (100 - MARGIN, 103 + MARGIN + 10)
    assert asked(held(100, 1, 2, 1), 91) == (100 - MARGIN - 20, 103 + MARGIN)


def test_a_window_reaches_to_a_jump_and_no_farther_than_can_be_seen_from_there() -> None:
    assert asked(held(100, 1, 2, 1), 400) == (100, 400 + 32 + 1)
    assert asked(held(500, 1, 2, 1), 0) == (0, 503)
    assert asked(held(100, 1, 2, 1), 5_000) == (100, 901)


def test_before_the_first_tick_a_window_is_what_can_be_seen() -> None:
    assert asked(nothing(1, 2), 101) == (101 - 32, 101 + 33)
    assert asked(nothing(1, 2), -7, "0.1", 50) == (0, 51)


def test_the_likeliest_count_is_the_least_of_several() -> None:
    low = np.array([10, 0, 500])
    cells = [np.array([row] * 32, np.float32) for row in ([1, 3, 3], [2], [1, 1, 5, 1])]
    assert trimmed(low, cells).likeliest.tolist() == [11, 0, 502]
    assert nothing(3, 2).likeliest.tolist() == [0, 0, 0]


# Posteriors


def test_counts_at_both_ends_without_any_cell_are_not_held() -> None:
    posterior = held(5, 0, 0, 3, 0, 1, 0)
    assert (posterior.low.tolist(), posterior.width.tolist()) == ([7], [3])
    assert posterior.dense(np.array([0]), 12)[4, :, 1, 0].tolist() == [0] * 7 + [3, 0, 1] + [0] * 3


def test_parts_of_a_posterior_are_put_together_again_wherever_they_lie() -> None:
    rng = np.random.default_rng(1)
    whole = trimmed(np.arange(6) * 3, [rng.random((32, width)).astype(np.float32) + 1 for width in (4, 1, 7, 2, 3, 5)])
    first, second = np.array([4, 0, 5]), np.array([2, 3, 1])
    again = joined([(second, whole.of(second)), (first, whole.of(first))])
    assert again.order.tolist() == [2, 3, 1, 4, 0, 5]
    assert again.dense(np.arange(6), 30).tobytes() == whole.dense(np.arange(6), 30).tobytes()
    assert again.likeliest.tolist() == whole.likeliest.tolist()
    assert again.of(np.arange(6)).values.tobytes() == whole.values.tobytes()


def test_every_zone_is_in_one_chunk_beside_zones_of_like_width_and_apart_from_those_that_begin_at_0() -> None:
    rng = np.random.default_rng(2)
    low, width = 7 * rng.integers(0, 2, 3_000), rng.integers(1, 2_000, 3_000)
    made = list(chunks(CountRanges(low, width)))
    assert sorted(np.concatenate([each.zones for each in made]).tolist()) == list(range(3_000))
    assert all(each.counts.size <= SIDE_BY_SIDE or len(each.zones) == 1 for each in made)
    begins = np.concatenate([each.low for each in made])
    assert (np.diff(begins) >= 0).all(), "those that begin at 0 first"
    for begin in (0, 7):
        some = [each for each in made if (each.low == begin).all()]
        widest = [int(each.width.max()) for each in some]
        assert widest == sorted(widest)
        assert sum(len(each.zones) for each in some) == np.count_nonzero(low == begin)
