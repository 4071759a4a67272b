"""Noise as an attacker uses it: ln f(y|z), exact or learnt.

kind       f(d), d = y - z                                       scale
laplace    tanh(ε/2) e^(-ε|d|)                                   1/ε
gaussian   e^(-d²/2σ²) / Σ_k e^(-k²/2σ²)                         σ
several    of the sum of n draws: negative binomial minus negative binomial, or n σ² for σ² (a factor near 1)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats, Ints
from stream.records import NoiseKind


class NoiseDistribution(NamedTuple):
    """The distribution of the noise in one published count."""

    kind: NoiseKind
    scale: float
    """The records' ``noise_scale``: 1/ε of Laplace noise, σ of Gaussian noise; positive."""

    def log(self, difference: Ints) -> Floats:
        """Return ln f(d) for whole numbers d, any shape; always finite."""
        if self.kind == "gaussian":
            variance = self.scale**2
            return np.asarray(-(difference.astype(np.float64) ** 2) / (2 * variance) - _log_total(variance))
        epsilon = 1 / self.scale
        return np.asarray(math.log(math.tanh(epsilon / 2)) - epsilon * np.abs(difference))

    def log_likelihood(self, values: Ints, people: int, known: Ints | int = 0) -> Floats:
        """Return ln f(y | known + z) for z = 0 … people, a new last axis.

        Args:
            values: published counts y, any shape.
            people: m, who may be there in addition to the known ones.
            known: people that the attacker knows to be there, the shape of ``values`` or a number.
        """
        return self.log((values - known)[..., None] - np.arange(people + 1))


@lru_cache(maxsize=64)
def _log_total(variance: float) -> float:
    """Return ln Σ_k e^(-k²/2σ²)."""
    reach = math.ceil(40 * math.sqrt(variance)) + 1
    return math.log(2 * float(np.exp(-(np.arange(1, reach) ** 2) / (2 * variance)).sum()) + 1)


class LearntDistribution(NamedTuple):
    """A noise distribution learnt from pairs of true count and published value: Gaussian kernels for each count.

    Ghayyur (2022), section 4.5.2: one kernel density estimate for each true count, with a width relative to the
    standard deviation of the values published for it (equal to SciPy's ``gaussian_kde`` to the digit). Where all values
    were equal, or there was only one, the width is relative to the standard deviation of y - z over all counts, at
    least half a person's. An unseen count has the noise of the nearest seen one.
    """

    table: Floats
    """ln density by value and count, shape [values, counts 0 …]."""
    first: int
    """The value of the first row."""

    def log_likelihood(self, values: Ints, people: int, known: Ints | int = 0) -> Floats:
        """Return ln f(y | known + z) for z = 0 … people, a new last axis; beyond the table the values at its ends."""
        row = np.clip(values - self.first, 0, len(self.table) - 1)
        columns = (np.zeros_like(values) + known)[..., None] + np.arange(people + 1)
        return np.asarray(self.table[row[..., None], np.minimum(columns, self.table.shape[1] - 1)])


def scott(pairs: int) -> float:
    """Return SciPy's own width in one dimension, n^(-1/5)."""
    return float(pairs ** (-1 / 5))


def learn(
    counts: Ints, values: Ints, width: float | None, values_from: int, values_to: int, most: int
) -> LearntDistribution:
    """Learn the distribution from training pairs.

    Args:
        counts: true counts, at least one, shape [pairs].
        values: the values published for them, shape [pairs].
        width: of a kernel, in standard deviations; None: n^(-1/5) for n pairs of a count.
        values_from: smallest value of the table.
        values_to: largest value.
        most: largest count of the table.

    Raises:
        UsageError: there is no pair.
    """
    if len(counts) == 0:
        raise UsageError("pairs to learn from must be at least one")
    overall = max(0.5, float(np.std(values - counts)))
    seen = np.unique(counts)
    points = np.arange(values_from, values_to + 1)
    columns: list[Floats] = []
    for count in range(most + 1):
        nearest = int(seen[np.argmin(np.abs(seen - count))])
        columns.append(_density(points - (count - nearest), values[counts == nearest], width, overall))
    return LearntDistribution(np.stack(columns, axis=1), values_from)


def _density(at: Ints, values: Ints, width: float | None, overall: float) -> Floats:
    """Return ln of one count's density at the values ``at``."""
    pairs = len(values)
    spread = float(np.std(values, ddof=1)) if pairs > 1 else 0.0
    kernel = (scott(pairs) if width is None else width) * (spread or overall)
    points, times = np.unique(values, return_counts=True)
    exponents = -(((at[:, None] - points) / kernel) ** 2) / 2 + np.log(times / pairs)
    largest = exponents.max(axis=1)
    total = np.exp(exponents - largest[:, None]).sum(axis=1)
    return np.asarray(largest + np.log(total) - math.log(kernel * math.sqrt(2 * math.pi)))
