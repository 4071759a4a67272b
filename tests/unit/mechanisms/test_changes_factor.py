"""The factor of noise on changes: integers in, counts out, the same bytes everywhere."""

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest

from stream.errors import UsageError
from stream.mechanisms.changes.factor import MatrixFactor, factor_of, imputed_measurement, reconstructed, weighted_sum
from stream.records import MINUTE

DAY = factor_of(4, 5 * MINUTE)


@pytest.mark.parametrize("visits", [2, 4])
def test_weights_are_the_rounded_coefficients_of_a_power_series(visits: int) -> None:
    factor, order = factor_of(visits, 5 * MINUTE), {2: 0.6, 4: 0.7}[visits]
    exact = [math.exp(math.lgamma(j + order) - math.lgamma(order) - math.lgamma(j + 1)) for j in range(300)]
    assert np.abs(factor.weights - 2**16 * np.array(exact)).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("visits", [1, 3, 8])
def test_what_is_measured_of_a_day_gives_its_counts_back(visits: int) -> None:
    """Up to a hundredth of a device, also where all of 200,000 devices come and go eight times within the day."""
    factor = factor_of(visits, 5 * MINUTE)
    counts = np.where(np.arange(300)[:, None] % 2 == 0, [200_000, 1], [0, 0])
    changes = np.diff(counts, axis=0, prepend=np.zeros((1, 2), np.int64))
    places = np.arange(300)
    measured = np.array([weighted_sum(factor, t, places[: t + 1], changes[: t + 1]) for t in range(300)], np.float64)
    found = np.array([reconstructed(factor, measured[: t + 1]) for t in places])
    assert np.abs(found - counts).max() < 0.01


def test_sums_are_exact_integers() -> None:
    rng = np.random.default_rng(1)
    changes, places = rng.integers(-(10**6), 10**6, (300, 1)), np.arange(300)
    exact = sum(int(DAY.weights[299 - t]) * int(changes[t, 0]) for t in places)
    assert int(weighted_sum(DAY, 299, places, changes)[0]) == exact


def test_tables_have_the_same_bytes_on_every_machine() -> None:
    parts = b"".join(
        each.astype("<f8").tobytes()
        for visits in (2, 4)
        for each in (factor_of(visits, 5 * MINUTE).inverse, factor_of(visits, 5 * MINUTE).gains)
    )
    assert hashlib.sha256(parts).hexdigest()[:16] == "704065d632d931c9"


def test_noisy_count_stays_where_a_tick_was_not_released() -> None:
    measured = np.array([[5.0 * 2**16], [7.0 * 2**16], [3.5e6]])
    stored = imputed_measurement(DAY, measured)
    after = np.vstack([measured, stored])
    assert reconstructed(DAY, after)[0] == pytest.approx(reconstructed(DAY, measured)[0], abs=1e-9)
    assert imputed_measurement(DAY, np.zeros((0, 2))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("tick", "ticks"), [(5, 300), (6, 250), (8, 188), (10, 150), (30, 50)])
def test_day_of_25_hours_fits_every_tick_length(tick: int, ticks: int) -> None:
    assert factor_of(4, tick * MINUTE) == MatrixFactor(4, ticks)


def test_rules_are_named() -> None:
    with pytest.raises(UsageError, match="tick must be at least 5min where changes are counted, got 2min"):
        factor_of(4, 2 * MINUTE)
    for visits in (0, 9):
        with pytest.raises(UsageError, match=f"visits must be 1 to 8, got {visits}"):
            factor_of(visits, 5 * MINUTE)


def test_order_depends_on_visits() -> None:
    assert [factor_of(visits, 5 * MINUTE).order for visits in (1, 2, 3, 8)] == [
        Fraction(6, 10), Fraction(6, 10), Fraction(7, 10), Fraction(7, 10),
    ]  # fmt: skip
