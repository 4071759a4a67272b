"""What a day says when it is over: against the whole model written out, state by state."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.filter.model import (
    EVEN_SHARE,
    Cells,
    arrivals,
    departures,
    kernels,
    moves,
    none_counted,
    pairs,
    rates,
    stationary,
    transitions,
)
from stream.mechanisms.filter.smoothing import learn, lessons
from stream.mechanisms.filter.updates import handed_back, switched
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise, laplace_noise

F = Fraction
HALF = laplace_noise(F(1, 2))

# The matrix


def dense(rate: Cells | Floats) -> Floats:
    """A of one zone, shape [16, 16]."""
    matrix = np.full((16, 16), EVEN_SHARE)
    for (k, to), share in zip(pairs(), rate, strict=True):
        matrix[k, to] += share
    return matrix


def test_a_zone_of_which_nothing_was_learnt_goes_by_the_published_matrix() -> None:
    assert dense(rates(none_counted(1))[:, 0]) == pytest.approx(np.array(transitions(), dtype=float), abs=1e-7)


def test_the_published_matrix_weighs_as_much_as_three_hundred_changes_that_were_counted() -> None:
    """From regime 1 to 5, of which .001 of 1.003 are expected: 300 counted make it a half and half of that."""
    counted = none_counted(2)
    counted[pairs().index((1, 5)), 1] = 300
    found = rates(counted)
    share = float(moves()[1, 5])
    assert found[pairs().index((1, 5))] == pytest.approx([0.999 * share, 0.999 * (share + 1) / 2], rel=1e-6)
    assert found[pairs().index((2, 8)), 0] == found[pairs().index((2, 8)), 1]
    for zone in (0, 1):
        assert dense(found[:, zone]).sum(axis=1) == pytest.approx(np.ones(16), abs=1e-6)


@pytest.mark.parametrize("cells", [3, 5000], ids=["few", "many"])
def test_regimes_are_mixed_as_the_matrix_says_forward_and_back(cells: int) -> None:
    rng = np.random.default_rng(cells)
    rate = rates((rng.random((76, 2)) * 40).astype(np.float32))
    p = rng.random((16, cells, 2)).astype(np.float32)
    for zone in (0, 1):
        matrix = dense(rate[:, zone])
        np.testing.assert_allclose(switched(p, rate)[:, :, zone], matrix.T @ p[:, :, zone], rtol=1e-5)
        np.testing.assert_allclose(handed_back(p, rate)[:, :, zone], matrix @ p[:, :, zone], rtol=1e-5)


def test_mixing_at_once_gives_the_bytes_of_mixing_one_by_one() -> None:
    """The same cells, alone and among so many that they are not few."""
    rng = np.random.default_rng(1)
    rate, p = rates(none_counted(3)), rng.random((16, 3000, 3)).astype(np.float32)
    for mix in (switched, handed_back):
        assert mix(p[:, :40].copy(), rate).tobytes() == mix(p, rate)[:, :40].tobytes()


def test_every_pair_is_one_arrival_and_one_departure() -> None:
    assert sorted(i for own in arrivals() for _, i in own) == list(range(76))
    assert sorted(i for own in departures() for _, i in own) == list(range(76))


# Against the whole model


def model(noise: NoiseParameter, grid: int, noisy: Ints, rate: Floats) -> tuple[Floats, Floats]:
    """(weights of each count at each window, changes expected of each pair), by a matrix over regimes and counts."""
    cells, kernel = grid + 1, kernels(grid)
    moved = np.zeros((16, cells, cells))
    for k in range(16):
        for origin in range(cells):
            weights = np.ones(cells)
            for to in range(origin + 1, cells):
                weights[to] = weights[to - 1] * kernel.up[k, to]
            for to in range(origin - 1, -1, -1):
                weights[to] = weights[to + 1] * kernel.down[k, to]
            moved[k, origin] = weights / weights.sum()
    seen = [np.array([_likelihood(noise, int(y), z) for z in range(cells)]) for y in noisy]
    ahead = [stationary()[:, None] / cells * seen[0]]
    for weights in seen[1:]:
        mixed = np.einsum("kl,kz->lz", dense(rate), ahead[-1])
        ahead.append(np.einsum("lz,lzy->ly", mixed, moved) * weights)
        ahead[-1] /= ahead[-1].sum()
    behind, found, changes = np.ones((16, cells)), [ahead[-1].sum(axis=0)], np.zeros(76)
    for before, weights in zip(ahead[-2::-1], seen[:0:-1], strict=True):
        back = np.einsum("lzy,ly->lz", moved, behind * weights)
        expected = np.array([share * before[k] @ back[to] for (k, to), share in zip(pairs(), rate, strict=True)])
        changes += expected / expected.sum()
        behind = dense(rate) @ back
        found.append((before * behind).sum(axis=0))
    return np.array([each / each.sum() for each in found[::-1]]), changes


def _likelihood(noise: NoiseParameter, noisy: int, count: int) -> float:
    if noise.kind == "laplace":
        return float(np.exp(-float(noise.exact) * abs(noisy - count)))
    return float(np.exp(-((noisy - count) ** 2) / (2 * float(noise.exact))))


@pytest.mark.parametrize("noise", [HALF, gaussian_noise(F(2))], ids=["laplace", "gaussian"])
def test_a_day_is_seen_in_the_light_of_all_its_windows_and_those_before(noise: NoiseParameter) -> None:
    """Two zones, twelve windows of which the last eight are the day's, changes counted before."""
    rng = np.random.default_rng(3)
    noisy = rng.integers(-2, 8, (12, 2))
    counted = (rng.random((76, 2)) * 20).astype(np.float32)
    known = learn(noise, 5, noisy, counted, 8)
    assert len(known.history) == 8
    for zone in (0, 1):
        weights, changes = model(noise, 5, noisy[:, zone], rates(counted)[:, zone].astype(float))
        made = np.array([each[:, zone] / each[:, zone].sum() for each in known.history])
        assert made == pytest.approx(weights[4:], abs=2e-6)
        assert known.counted[:, zone] == pytest.approx(changes * 8 / 12, rel=2e-3, abs=2e-6)
        assert known.counted[:, zone].sum() == pytest.approx(11 * 8 / 12, rel=1e-6)


def test_of_a_day_of_one_window_no_change_is_learnt() -> None:
    known = learn(HALF, 16, np.array([[3]]), none_counted(1), 1)
    assert not known.counted.any()
    assert len(known.history) == 1


def test_a_zone_that_never_moves_becomes_one_that_hardly_moves() -> None:
    """A day at 7, at ε = 1: nearly all that is counted is frozen regimes (0 and 2) remaining what they are."""
    known = learn(laplace_noise(F(1)), 16, np.full((288, 1), 7), none_counted(1), 288)
    still = sum(float(known.counted[pairs().index((k, k)), 0]) for k in (0, 2))
    assert still > 0.95 * 287


# The grid


def grids(noisy: list[int], capacities: list[int], noise: NoiseParameter = HALF, room: int = 1 << 30) -> dict[int, int]:
    found: dict[int, int] = {}
    for zones, grid in lessons(np.array([noisy, [-5] * len(noisy)]), np.array(capacities), noise, room=room):
        found |= dict.fromkeys(zones.tolist(), grid)
    return found


def test_the_grid_ends_a_deviation_above_the_largest_noisy_value_and_no_later_than_the_capacity() -> None:
    """At ε = ½ a deviation is 2.8: 3 are spared."""
    noisy = [-9, 13, 14, 21, 22, 29, 30, 45, 46, 500]
    expected = [16, 16, 24, 24, 32, 32, 48, 48, 64, 512]
    assert list(grids(noisy, [1000] * 10).values()) == expected
    assert grids([500, 3], [60, 9]) == {1: 9, 0: 60}


def test_no_group_holds_more_windows_at_once_than_there_is_room_for() -> None:
    """Two windows of 17 counts in 16 regimes take 2,176 bytes a zone."""
    sizes = [len(zones) for zones, _ in lessons(np.zeros((2, 7), np.int64), np.full(7, 100), HALF, room=3 * 2176)]
    assert sizes == [3, 3, 1]
    assert len(grids([0] * 3, [100] * 3, room=1)) == 3
