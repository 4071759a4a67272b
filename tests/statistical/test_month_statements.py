"""The statements of a month hold together with their stated probability, on simulated months with known truth.

Each test counts the months in which some statement of a family is wrong. By design that happens in a share q of months
at most; the test fails if it happens in more than ``bound`` of them, which a right program exceeds with a probability
below 1e-4. The other way round the bands must not be wider than needed: some month has to be wrong, or a true
statement has to be made.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom

from connectors.documents.month import DAYS, ROOMS, Room, Values, band_of, distance, extreme, rooms
from connectors.records.bands import NoiseDistribution
from stream.mechanisms.noise_parameters import tail
from stream.records import MINUTE
from tests.support.released_months import Ints, noise

LAW = NoiseDistribution("laplace", 2.0)
MONTHS = 400


def bound(q: float) -> int:
    """Return a number of wrong months that a share q exceeds with probability below 1e-4."""
    return int(binom.ppf(1 - 1e-4, MONTHS, q))


def released(noisy: Ints, law: NoiseDistribution = LAW) -> Values:
    column = array("q", noisy.tolist())
    return Values("occupancy", array("q", range(len(column))), column, column, [law] * len(column))


@pytest.mark.parametrize("law", [LAW, NoiseDistribution("gaussian", 7.0), NoiseDistribution("laplace", 3.0, 5)])
@pytest.mark.parametrize("miss", [0.05, 1e-3, 1e-7])
def test_a_distance_is_the_least_that_keeps_its_probability(law: NoiseDistribution, miss: float) -> None:
    for windows in (1, 48):
        d = distance(law, windows, miss)
        assert 2 * tail(law.parameter, law.draws * windows, d + 1) <= miss
        assert 2 * tail(law.parameter, law.draws * windows, d) > miss


def test_what_is_said_of_rooms_is_right_for_all_of_them_together() -> None:
    """The hardest truth: half of the rooms are always just full, the others always just not."""
    random = np.random.default_rng(5)
    names, windows = [f"r{number}" for number in range(12)], 96
    truth = np.repeat([[54], [53]] * 6, windows, axis=1)
    wrong = 0
    for _ in range(MONTHS):
        right = True
        for at, room in enumerate(_rooms(names, truth + noise(random, LAW.scale, truth.shape))):
            full = (truth[at] >= 54).sum() / 12
            assert room.most is not None
            assert room.full_at_most is not None
            right &= truth[at].max() <= room.most and room.full_at_least <= full <= room.full_at_most
        wrong += not right
    assert 1 <= wrong <= bound(ROOMS)


def test_most_of_what_is_true_of_rooms_is_said() -> None:
    random = np.random.default_rng(8)
    names = [f"r{number}" for number in range(12)]
    truth = random.integers(0, 120, (len(names), 96))
    found = _rooms(names, truth + noise(random, LAW.scale, truth.shape))
    assert sum(room.full_at_least for room in found) > 0.5 * (truth >= 54).sum() / 12


def _rooms(names: Sequence[str], noisy: Ints) -> list[Room]:
    values = {f"zone:{name}": released(noisy[at]) for at, name in enumerate(names)}
    return rooms(values, dict.fromkeys(names, 60), 5 * MINUTE)


@pytest.mark.parametrize("highest", [True, False])
def test_the_extreme_day_is_among_those_that_are_named(highest: bool) -> None:
    random = np.random.default_rng(6)
    days, windows, wrong, alone = 30, 48, 0, 0
    for _ in range(MONTHS):
        level = random.integers(20, 30, days)
        level[random.integers(days)] = 40 if highest else 5
        truth = np.repeat(level[:, None], windows, axis=1)
        noisy = truth + noise(random, LAW.scale, truth.shape)
        values = released(noisy.ravel())
        bands = {}
        for day in range(days):
            band = band_of(values, range(day * windows, (day + 1) * windows), DAYS / days)
            assert band is not None
            bands[day] = band
        named = extreme(bands, highest=highest)
        best = int(level.argmax() if highest else level.argmin())
        held = all(band.low <= level[day] <= band.high for day, band in bands.items())
        wrong += best not in named or not held
        alone += named == [best]
    assert wrong <= bound(DAYS)
    assert alone >= 0.9 * MONTHS


def test_bands_of_single_values_would_not_hold_together() -> None:
    random = np.random.default_rng(7)
    size = (12, 96)
    wrong = sum(bool((abs(noise(random, LAW.scale, size)) > distance(LAW, 1, ROOMS)).any()) for _ in range(100))
    assert wrong == 100


def _mean_of(values: Values, at: Sequence[int]) -> float:
    band = band_of(values, at, 0.01)
    assert band is not None
    return band.mean


def test_a_mean_is_that_of_noisy_values_and_may_be_below_zero() -> None:
    values = released(np.array([-3, 1, -1]))
    assert _mean_of(values, range(3)) == -1.0
    band = band_of(values, range(3), 0.01)
    assert band is not None
    assert band.low == 0.0
