"""The steps of the filter, on windows and in 32 bits, beside the formulas, on whole grids and in 64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stream.mechanisms.exact import Floats, ordered_sum
from stream.mechanisms.filter import support
from stream.mechanisms.filter.calendar import Weights
from stream.mechanisms.filter.model import (
    Cells,
    kernels,
    likelihood,
    none_counted,
    plausible_counts,
    rates,
    transitions,
)
from stream.mechanisms.filter.support import Chunk, CountRanges, Grids, chunks
from stream.mechanisms.filter.updates import mix, move, running_sum, switched, weigh_by_calendar
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise, laplace_noise
from tests.support import reference_filter as plain_filter

F = Fraction


def whole(capacity: int, zones: int) -> tuple[Grids, Chunk]:
    """Return zones of one capacity, side by side with all their counts."""
    none = np.zeros(zones, np.int64)
    (chunk,) = chunks(CountRanges(none, none + capacity + 1))
    return Grids((capacity,) * zones), chunk


def cells(copies: int, capacity: int, zones: int) -> Cells:
    rng = np.random.default_rng(capacity * 100 + zones)
    return rng.random((16, copies, capacity + 1, zones)).astype(np.float32)


@pytest.mark.parametrize("copies", [1, 2])
def test_copies_and_regimes_mix_as_the_formulas_say(copies: int) -> None:
    p = cells(copies, 9, 3)
    expected = plain_filter.mixed(p.astype(np.float64))
    mix(p)
    assert p == pytest.approx(expected, rel=1e-6)
    matrix = np.array(transitions(), dtype=float)
    assert switched(p, rates(none_counted(3))) == pytest.approx(np.einsum("kjzn,kl->ljzn", expected, matrix), rel=1e-6)


@pytest.mark.parametrize(("capacity", "zones"), [(1, 1), (2, 3), (15, 40), (63, 1), (440, 2)])
def test_counts_move_by_their_kernels_and_keep_the_mass(capacity: int, zones: int) -> None:
    q = cells(2, capacity, zones)
    expected = plain_filter.moved(q.astype(np.float64), capacity)
    assert expected.sum(axis=2) == pytest.approx(q.sum(axis=2, dtype=np.float64), rel=1e-12)
    grids, chunk = whole(capacity, zones)
    norm, up, down = grids.kernels(chunk)
    x = q * norm
    move(x, up, down)
    assert x == pytest.approx(expected, rel=1e-5)


def test_the_calendars_copy_leans_and_every_moving_regime_keeps_its_mass() -> None:
    p, weight = cells(2, 30, 4), np.random.default_rng(1).random((31, 4)).astype(np.float32)
    expected = plain_filter.leaning(p.astype(np.float64), weight)
    weigh_by_calendar(p[1:, 1], weight, p[1:, 1].sum(axis=1), np.zeros((15, 4), np.float32))
    assert p == pytest.approx(expected, rel=1e-5)


def test_counts_beyond_a_window_are_no_counts() -> None:
    """Two windows side by side, one of 3 counts at 2 … 4 and one of 7: nothing comes from beyond the first."""
    (chunk,) = chunks(CountRanges(np.array([2, 1]), np.array([3, 7])))
    assert chunk.counts.T.tolist() == [[2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7]]
    assert chunk.is_inside.T.tolist() == [[True] * 3 + [False] * 4, [True] * 7]
    norm, _, _ = Grids((9, 9)).kernels(chunk)
    assert not norm[:, :, 3:, 0].any()
    assert norm[:, :, :, 1].all()


# What lies beyond a window


def tails(weight: Floats, low: int, high: int) -> tuple[Floats, Floats]:
    """Return the sums below and above a window of one zone, count by count."""
    kernel = kernels(len(weight) - 1)
    below, above = np.zeros(15), np.zeros(15)
    for k in range(1, 16):
        product = np.cumprod(kernel.up[k, high:])
        above[k - 1] = (product * weight[high:]).sum()
        product = np.cumprod(kernel.down[k, :low][::-1])
        below[k - 1] = (product * weight[:low][::-1]).sum()
    return below, above


def leaning(capacity: int, low: int, high: int, level: float, pull: float) -> Weights:
    """Return weights that fall with the distance from a level, 1 at the nearest to it of the counts beyond a window."""
    counts = np.arange(capacity + 1)
    away = np.abs(counts - level)
    beyond = away[(counts < low) | (counts >= high)]
    return np.asarray(np.exp(np.maximum(-pull * (away - beyond.min()), -39)).astype(np.float32)[:, None])


def assert_summed(found: Floats, expected: Floats) -> None:
    """Assert that sums are right; those of regimes with little there, to a fiftieth of the largest."""
    is_large = expected > 0.1 * expected.max()
    assert found[is_large] == pytest.approx(expected[is_large], rel=1e-5)
    assert found == pytest.approx(expected, abs=2e-2 * expected.max())


@pytest.mark.parametrize(("low", "high"), [(0, 9), (3, 41), (32, 64), (31, 65), (200, 231), (60, 301)])
@pytest.mark.parametrize(("level", "pull"), [(20.5, 0.4), (250, 0.4), (150, 0.02), (0, 0)])
def test_a_kernels_ends_beyond_a_window_are_summed_with_their_weights(
    low: int, high: int, level: float, pull: float
) -> None:
    weight = leaning(300, low, high, level, pull)
    below, above = tails(weight[:, 0].astype(np.float64), low, high)
    assert ((below.max() > 0), (above.max() > 0)) == (low > 0, high < 301)
    assert_summed(support.below(weight, np.array([low]))[:, 0], below)
    assert_summed(support.above(weight, np.array([high]))[:, 0], above)


@pytest.mark.parametrize(("capacity", "zones"), [(20, 4), (300, 1), (90, 40)])
def test_sums_beyond_windows_are_the_same_bytes_for_few_numbers_and_for_many(
    monkeypatch: pytest.MonkeyPatch, capacity: int, zones: int
) -> None:
    rng, found = np.random.default_rng(6), []
    weight, end = rng.random((capacity + 1, zones)).astype(np.float32), rng.integers(1, capacity // 2, zones)
    for few in (0, 1 << 40):
        monkeypatch.setattr(support, "_FEW", few)
        found.append(np.array([support.below(weight, end), support.above(weight, end)]).tobytes())
    assert found[0] == found[1]


def test_where_no_table_reaches_a_kernels_end_is_as_next_to_the_window() -> None:
    """At 15,000, where regimes move by up to 450 counts: those that move by a few are off by a twentieth at most."""
    low, high = 14_900, 15_300
    weight = leaning(20_000, low, high, 15_100, 0.001)
    below, above = tails(weight[:, 0].astype(np.float64), low, high)
    assert support.below(weight, np.array([low]))[:, 0] == pytest.approx(below, rel=0.06, abs=1e-3)
    assert support.above(weight, np.array([high]))[:, 0] == pytest.approx(above, rel=0.06, abs=1e-3)


# Which counts a noisy value leaves plausible


@pytest.mark.parametrize(
    "noise", [laplace_noise(F(1)), laplace_noise(F("0.1")), gaussian_noise(F("21.854") ** 2)], ids=str
)
def test_no_count_out_of_sight_is_likelier_than_e_to_minus_32(noise: NoiseParameter) -> None:
    for noisy in (-700, -1, 0, 250, 499, 500, 501, 5_000, 1 << 40):
        value = np.array([noisy])
        low, high = (int(each[0]) for each in plausible_counts(noise, np.array([500]), value))
        seen = likelihood(noise, 500, value)[:, 0]
        outside = np.delete(seen, np.arange(low, high))
        assert 0 <= low < high <= 501
        assert seen[low:high].max() == 1
        assert outside.size == 0 or outside.max() <= np.exp(-32) * 1.001


# Sums


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


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40, 131])
def test_sums_over_counts_are_the_same_however_many_zeros_follow(length: int) -> None:
    values = np.random.default_rng(length).random((length, 3)).astype(np.float32)
    total = running_sum(values)
    assert total == pytest.approx(values.sum(axis=0, dtype=np.float64), rel=1e-6)
    for zeros in (1, 7, 16, 90):
        assert running_sum(np.pad(values, ((0, zeros), (0, 0)))).tobytes() == total.tobytes()
