"""The ten colours of a heat map: how far a count lies from what is usual there at that time.

    symbol   here         meaning
    y        values       a count, true or released
    μ        mean         the usual count of the place at that time
    σ        deviation    how far counts of earlier days lie from it
    c_1…c_10 1 … 10       colours, from far below usual to far above

    1 below μ - 2σ, 10 above μ + 2σ; between them, both ends included, eight parts of σ/2 each, which hold their
    lower end: 2 + min(7, ⌊(y - μ + 2σ) / (σ/2)⌋). Where σ is 0: 5 at μ, else 1 or 10.

(Ghayyur, thesis, 4.2.1, whose words leave the edges open.) Each step is one of IEEE 754's, which every machine rounds
alike, so that released colours depend on none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
COLOURS = 10
"""How many there are; the first is 1."""
USUAL = 5
"""Of a place that never varies and has its usual count."""
_INNER = range(-3, 4)
"""Lower ends of the third to ninth colour, in halves of a deviation from usual."""


class Usual(NamedTuple):
    """What is usual, a place an entry."""

    mean: Floats
    """In devices."""
    deviation: Floats
    """In devices, at least 0: the root of the mean square around the mean."""


def usual_of(n: int, total: Ints, squares: Ints) -> Usual:
    """Return what is usual, of exact sums.

    Args:
        n: how many counts there are of each place, at least 1.
        total: their sum.
        squares: the sum of their squares; n times it fits 63 bits.

    Raises:
        UsageError: there is no count.
    """
    if n < 1:
        raise UsageError(f"usual counts must be made of at least 1, got {n}")
    return Usual(total / n, np.sqrt((n * squares - total * total).astype(np.float64)) / n)


def colours(values: ArrayLike, usual: Usual) -> Ints:
    """Return the colour of each count, in 1 … 10.

    Args:
        values: counts, in devices; of a shape that broadcasts with that of ``usual``.
        usual: what is usual there and then.

    Raises:
        UsageError: a number is not finite, or a deviation is below 0.
    """
    counts, mean, deviation = (np.asarray(each, np.float64) for each in (values, usual.mean, usual.deviation))
    if not (all(np.isfinite(each).all() for each in (counts, mean, deviation)) and (deviation >= 0).all()):
        raise UsageError("colours: counts and what is usual must be finite, and deviations at least 0")
    with np.errstate(over="ignore"):  # what is infinitely far away has the colour of its side
        away, half = counts - mean, deviation / 2
        between = 2 + sum((away >= edge * half).astype(np.int64) for edge in _INNER)
        found = np.select([away < -4 * half, away > 4 * half], [1, COLOURS], between)
    return np.where((deviation == 0) & (away == 0), USUAL, found).astype(np.int64)
