"""delta(E) of noisy releases from its definition: all outcomes, with the change and without it.

Nothing here knows of losses. For each run of equal releases there is a number that decides (the sum of the outcomes of
Gaussian noise; the sum of the outcomes cut to [0, k] of Laplace noise, below and above which nothing more is told), and
its law is convolved without the change and with it. Several runs are laid out against each other, outcome by outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from stream.accounting.composition import Gaussian, Laplace

Floats = NDArray[np.float64]
Both = tuple[Floats, Floats]


def gaussian_outcomes(variance: Fraction, times: int, shift: int) -> Both:
    """Return the law of the sum of ``times`` outcomes about 0, and about ``times * shift``, on one range."""
    reach = math.ceil(10.5 * math.sqrt(variance)) + 2
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
    total = reduce(np.convolve, [weights / weights.sum()] * times)
    apart = np.zeros(times * shift)
    return np.concatenate([total, apart]), np.concatenate([apart, total])


def laplace_outcomes(epsilon: float, times: int, shift: int) -> Both:
    """Return the law of the sum of ``times`` outcomes cut to [0, shift], about 0 and about ``shift``."""
    outcomes = np.arange(-int(60 / epsilon) - 3, int(60 / epsilon) + shift + 4)
    weights = np.exp(-epsilon * np.abs(outcomes))
    cut = np.bincount(np.clip(outcomes, 0, shift), weights=weights / weights.sum())
    total: Floats = np.asarray(reduce(np.convolve, [cut] * times), np.float64)
    return total, total[::-1]


def outcomes(release: Laplace | Gaussian, shift: int) -> Both:
    if isinstance(release, Gaussian):
        return gaussian_outcomes(release.variance, release.times, shift)
    return laplace_outcomes(float(release.epsilon), release.times, shift)


def size(runs: Sequence[Both]) -> int:
    return math.prod(len(without) for without, _ in runs)


def exact_delta(runs: Sequence[Both], epsilon: float) -> float:
    """Return sum of max(0, P - e^epsilon Q) over all outcomes of all runs."""
    p, q = (reduce(lambda a, b: np.outer(a, b).ravel(), [run[side] for run in runs]) for side in (0, 1))
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


def levels_delta(variances: Sequence[Fraction], times: int, epsilon: float) -> float:
    """Return delta(epsilon) of Gaussian noise on ``times`` values of each of up to three levels, from all outcomes."""
    return sum(
        float(np.maximum(0.0, p - math.exp(epsilon) * q).sum()) for p, q in _by_outcome_of_the_last(variances, times, 1)
    )


def levels_tail(variances: Sequence[Fraction], times: int, shift: int, loss: float) -> float:
    """Return how likely ln(P/Q) of Gaussian noise on up to three levels is above ``loss``."""
    return sum(float(p[p > math.exp(loss) * q].sum()) for p, q in _by_outcome_of_the_last(variances, times, shift))


def _by_outcome_of_the_last(variances: Sequence[Fraction], times: int, shift: int) -> Iterator[Both]:
    """Yield P and Q of all outcomes of the other levels, for each outcome of the last level in turn."""
    *others, last = (_likely_outcomes(variance, times, shift) for variance in variances)
    p, q = (reduce(lambda a, b: np.outer(a, b).ravel(), [run[side] for run in others], np.ones(1)) for side in (0, 1))
    for with_it, without in zip(*last, strict=True):
        yield p * with_it, q * without


def _likely_outcomes(variance: Fraction, times: int, shift: int) -> Both:
    """Return the law of a sum where it is above 1e-17; beyond, nothing is lost that is as likely as 1e-14."""
    without, with_it = gaussian_outcomes(variance, times, shift)
    kept = with_it > 1e-17
    return with_it[kept], np.maximum(without[kept], 1e-300)
