"""Whether a room was empty or in use over some windows, with probabilities that released counts can carry.

    symbol   here              meaning
    n        windows           number of windows that are looked at
    T, S     , total           sum of the true and of the noisy counts of these windows: S = T + N
    f        _Densities        law of N, the noise of n windows: that of a sum of independent draws, each of a known law
    s        empty_devices     an empty room holds at most s devices on average: T <= s n
    m        used_devices      a room in use holds at least m devices on average: T >= m n
    e, u     empty_share, …    at least this share of bookings stays empty; of unbooked hours is in use

The two statements are weighed at the two least favourable counts:

    P_empty(S) = e f(S - s n) / (e f(S - s n) + (1 - e) f(S - m n))
    P_used(S)  = u f(S - m n) / (u f(S - m n) + (1 - u) f(S - s n))

**Among rooms of which it is said that they are empty with probability p or more, a share p or more is empty**, whatever
their counts are, if the assumptions hold; likewise for rooms in use. Laplace and Gaussian laws are log-concave, and so
are sums of them. Hence f(x - s n) / f(x - m n) falls in x, and "P_empty >= p" says S <= t for some t, with a ratio r at
t. With F the distribution of N, a room with T <= s n is called with probability F(t - T) >= F(t - s n), one with
T >= m n with F(t - T) <= F(t - m n); and F(t - s n) / F(t - m n) >= r, since each x <= t has that ratio or more. So
called rooms are empty with odds of e r / (1 - e) or more, from which p was computed. This holds for each n and law, so
also for all of them together. Nothing is assumed about how counts of neighbouring windows depend on each other: only
their sum enters.

Counts are of devices. A telephone left behind, or one behind a wall, is what s is for; people without a device are in
no count, so a room with nobody but them is called empty. A room that is used for a part of the time counts by its mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from connectors.records.bands import NoiseDistribution
from stream.mechanisms.exact import Floats

CALLED = 0.8
"""The probability from which a statement is made."""
MOST_SURE = 0.99
"""No probability is said to be higher: the assumptions are not that certain."""
_FLOOR = 1e-12
"""What a computed density may be off by; it counts against a statement."""
_LARGEST_GRID = 1 << 20
_REACH = 30.0
"""Standard deviations of noise that a grid holds."""


class Assumptions(NamedTuple):
    """What is not in the counts, and an operator states."""

    empty_devices: int = 1
    """s, at least 0."""
    used_devices: int = 3
    """m, above s."""
    empty_share: float = 0.1
    """e, in (0, 1)."""
    used_share: float = 0.05
    """u, in (0, 1)."""


class Use(NamedTuple):
    """Probabilities of the two statements; each has an assumption of its own, so they need not add up to 1."""

    empty: float
    used: float


def room_use(total: int, laws: Sequence[NoiseDistribution], assumed: Assumptions) -> Use:
    """Return how probably a room was empty, and in use.

    Args:
        total: sum of the noisy counts of the windows.
        laws: law of the noise of each window, at least one; independent of each other.
        assumed: see the module.

    Returns:
        Probabilities in [0, ``MOST_SURE``]; both 0 if the noise is far larger than the counts.
    """
    densities = _densities(tuple(sorted(Counter(laws).items())), len(laws), assumed)
    if densities is None:
        return Use(0.0, 0.0)
    least, most = assumed.empty_devices * len(laws), assumed.used_devices * len(laws)
    at = min(max(total, 0), least + most)
    # Each ratio grows towards its end; where a density is too small to be computed, the one at s n or m n is a bound.
    return Use(
        max(_probability(assumed.empty_share, densities, x - least, x - most) for x in (at, max(at, least))),
        max(_probability(assumed.used_share, densities, x - most, x - least) for x in (at, min(at, most))),
    )


def least_windows(law: NoiseDistribution, assumed: Assumptions, most: int) -> int | None:
    """Return from how many windows on both statements can be made; None if not even from ``most``.

    Then a room without any device, and one with s + m devices, are each called in half of the cases or more: their
    sum S is distributed evenly around 0 and (s + m) n, where the probability is ``CALLED`` or more.
    """

    def carries(windows: int) -> bool:
        ends = (0, (assumed.empty_devices + assumed.used_devices) * windows)
        low, high = (room_use(total, [law] * windows, assumed) for total in ends)
        return min(low.empty, high.used) >= CALLED

    if not carries(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if carries(middle) else (middle, high)
    return high


class _Densities(NamedTuple):
    """f on a circle of whole numbers that is so large that nothing of it overlaps."""

    values: Floats

    def at(self, distance: int) -> float:
        return float(self.values[distance % len(self.values)])


def _probability(share: float, densities: _Densities, distance: int, other: int) -> float:
    likely = share * max(0.0, densities.at(distance) - _FLOOR)
    return min(MOST_SURE, likely / (likely + (1 - share) * (densities.at(other) + _FLOOR)))


@lru_cache(maxsize=512)
def _densities(
    laws: tuple[tuple[NoiseDistribution, int], ...], windows: int, assumed: Assumptions
) -> _Densities | None:
    """Return the law of the sum, as the product of Fourier transforms; None if a grid would be too large."""
    variance = sum(2 * law.scale**2 * law.draws * number for law, number in laws)  # at least
    reach = (assumed.empty_devices + assumed.used_devices) * windows + _REACH * math.sqrt(variance)
    size = 1 << math.ceil(math.log2(2 * reach + 2))
    if size > _LARGEST_GRID:
        return None
    away = np.minimum(np.arange(size), size - np.arange(size)).astype(np.float64)
    transform = np.ones(size // 2 + 1)
    for law, number in laws:
        exponent = away / law.scale if law.noise == "laplace" else away**2 / (2 * law.scale**2)
        one = np.exp(-exponent)
        transform = transform * np.fft.rfft(one / one.sum()).real ** (law.draws * number)
    return _Densities(np.maximum(np.fft.irfft(transform, size), 0.0))
