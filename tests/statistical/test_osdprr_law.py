"""The law of one-sided randomised response, over fixed keys (false alarm at most 1e-6 each)."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chi2

from stream.mechanisms.inversion import bernoulli
from stream.mechanisms.noise_labels import label
from stream.mechanisms.osdprr import released, show

F = Fraction
ALPHA = 1e-6
N = 1_000_000


def key(index: int) -> bytes:
    return index.to_bytes(32, "big")


@pytest.mark.parametrize("epsilon", [F("0.1"), F("0.5"), F(1), F(2)])
def test_other_records_are_shown_at_the_rate_one_minus_e_to_minus_epsilon(epsilon: Fraction) -> None:
    shown = int(bernoulli(key(2), label("rate", epsilon), show(epsilon), N).sum())
    rate = -np.expm1(-float(epsilon))
    assert two_sided(shown, N, rate) > ALPHA
    assert two_sided(shown, N, rate * 1.05) < ALPHA
    assert two_sided(shown, N, rate * 0.95) < ALPHA


def two_sided(successes: int, n: int, rate: float) -> float:
    return float(2 * min(binom.cdf(successes, n, rate), binom.sf(successes - 1, n, rate)))


def pairs(one: dict[str, str], other: dict[str, str], n: int) -> np.ndarray:
    both = [[released(key(i), **record, epsilon=F("0.7")) for record in (one, other)] for i in range(n)]
    return np.bincount(2 * np.array(both)[:, 0] + np.array(both)[:, 1], minlength=4)


ARRIVAL = {"site": "dbh", "zone": "2065", "attribute": "arrival", "day": "2024-03-04"}


@pytest.mark.parametrize(
    "other", [{"attribute": "occupancy_level"}, {"day": "2024-03-05"}], ids=["two attributes", "two days"]
)
def test_coins_of_two_records_are_independent(other: dict[str, str]) -> None:
    """Shared coins would put all of them in two cells and prove what was suppressed."""
    n, p = 20_000, -np.expm1(-0.7)
    expected = n * np.array([(1 - p) ** 2, (1 - p) * p, p * (1 - p), p * p])
    cells = pairs(ARRIVAL, ARRIVAL | other, n)
    assert chi2.sf(((cells - expected) ** 2 / expected).sum(), 3) > ALPHA
    same = pairs(ARRIVAL, ARRIVAL, n // 10)
    assert same[1] == same[2] == 0
