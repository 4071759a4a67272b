"""Chi-square tests of integers that have a symmetric law, the tails joined to the outermost cells."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from stream.mechanisms.exact import Ints
from stream.mechanisms.noise import pmf


def one_sample(observed: Ints, expected: NDArray[np.float64]) -> float:
    """Return the p-value of Pearson's test against the numbers expected from -reach to reach, tails in both ends."""
    reach = len(expected) // 2
    return float(chi2.sf(((_cells(observed, reach) - expected) ** 2 / expected).sum(), 2 * reach))


def two_sample(one: Ints, other: Ints) -> float:
    """Return the p-value of the test of homogeneity, cells with under 25 draws joined at the ends."""
    both = np.concatenate([one, other])
    reach = int(np.sort(np.abs(both))[-50])
    joined = np.array([_cells(one, reach), _cells(other, reach)], dtype=float)
    expected = joined.sum(axis=0) * joined.sum(axis=1, keepdims=True) / joined.sum()
    return float(chi2.sf(((joined - expected) ** 2 / expected).sum(), 2 * reach))


def of_laplace(observed: Ints, epsilon: float) -> float:
    """Return the p-value of Pearson's test against DLap(1/ε), tails joined so that cells expect 25 or more."""
    law = Fraction(epsilon)
    reach = int(np.log(25 / (len(observed) * pmf(law, np.array([0]))[0])) / -epsilon)
    inner = pmf(law, np.arange(-reach, reach + 1))
    inner[[0, -1]] += (1 - inner.sum()) / 2
    return one_sample(observed, len(observed) * inner)


def _cells(observed: Ints, reach: int) -> NDArray[np.int64]:
    """Return how often each number from -reach to reach was drawn, whatever lies beyond at the ends."""
    return np.bincount(np.clip(observed, -reach, reach) + reach, minlength=2 * reach + 1)
