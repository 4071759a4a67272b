"""The model of the regime-switching filter: how counts in a zone move within five minutes.

Sixteen regimes of movement, from frozen (0) to wild (15). In regime k a count z moves up by n with a weight
that falls by a factor u_k per step and down likewise by d_k, and the steps widen with the square root of
the count. Scales and transitions were learnt once, on public data; each zone's transitions are corrected by its own
released past (see below).

    symbol        here                meaning
    C             capacity            largest count of the grid 0 … C; a policy's number, never the data's
    K             REGIMES             16
    SU_k, SD_k    UP_SCALES, DOWN_SCALES
    A             transitions()       regime to regime, from a tick to the next
    π             stationary()        its stationary distribution
    g(z)          √(max(z, 4) / 20)
    u_k(z), d_k(z)   exp(-1 / (SU_k g(z))), exp(-1 / (SD_k g(z)))
    v_k(z)        1 / (1 + U_k(z) + D_k(z)), what makes the kernel's weights add up to 1

**Corrected transitions.** The model's transition matrix is corrected by each zone's own past.

The learnt part of A contains 76 transition probabilities between regimes. For each zone it is corrected by
counts: a row is proportional to 300 times the row of A plus the changes that were counted in the zone. One thousandth
of every row is distributed equally over all regimes, whatever was counted.

    symbol        here        meaning
    N(k, k')      counted     changes from regime k to k', over the days that the zone has been learnt on
    A(k, k')      rates       .999 (300 A0 + N) / (sum of the row), which .001/16 comes on top of

"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import Floats, Ints, exp, half_of_three_quarter_power, ordered_sum
from stream.mechanisms.noise_parameters import NoiseParameter

Cells = NDArray[np.float32]

REGIMES = 16
LEAST_CELL = 1e-26
LEAST_FACTOR = 1e-11
LEAST_SEEN = 1e-14
"""Thresholds in 32 bits, where numbers end at 1e-38: cells are raised to at least the first before they move; factors
of movement below the second, and of likelihood below the third, are 0. So hardly a product loses digits (or takes the
much longer time that a processor needs for subnormal numbers). The effect is far below the accuracy of a
posterior (``step``)."""
_UP = ".038 .033 .033 .153 .025 .580 .910 .941 1.753 4.521 2.944 1.355 5.024 10.333 .141 16.168"
_DOWN = ".029 .117 .280 .222 .641 .598 .970 2.281 1.671 .214 3.055 6.063 3.998 .784 20.074 13.533"
UP_SCALES = np.array([float(s) for s in _UP.split()])
DOWN_SCALES = np.array([float(s) for s in _DOWN.split()])

_MOVES = """
0 0:.999
1 1:.967 5:.001 6:.008 8:.003 10:.007 12:.004 13:.010
2 2:.990 8:.009 10:.001
3 2:.032 3:.842 7:.003 14:.120 15:.002
4 4:.992 6:.007
5 1:.001 5:.979 6:.007 8:.007 9:.006
6 2:.002 3:.001 5:.010 6:.966 8:.009 13:.013
7 2:.004 6:.033 7:.961 11:.001
8 2:.003 3:.004 6:.009 8:.963 9:.002 10:.006 12:.012 13:.001
9 2:.001 7:.016 8:.016 9:.938 10:.012 12:.016
10 3:.002 7:.001 8:.025 10:.971
11 7:.045 11:.950 12:.003 15:.003
12 10:.030 11:.012 12:.925 15:.033
13 4:.002 12:.109 13:.888
14 1:.841 2:.001 3:.001 5:.009 6:.087 7:.001 8:.012 10:.001 14:.045
15 9:.002 10:.008 11:.001 12:.241 15:.747
"""
"""A regime, then the regimes it moves to and their weights."""
ANYWHERE = Fraction(1, 1000)
"""Share of every row of A that is distributed equally over all regimes."""


@lru_cache(maxsize=1)
def moves() -> dict[tuple[int, int], Fraction]:
    """Return the learnt part of A, its rows adding up to 1: {(from, to): probability}."""
    table: dict[tuple[int, int], Fraction] = {}
    for line in _MOVES.split("\n")[1:-1]:
        origin, *cells = line.split()
        weights = {int(to): Fraction(weight) for to, weight in (cell.split(":") for cell in cells)}
        table |= {(int(origin), to): weight / sum(weights.values()) for to, weight in weights.items()}
    return table


@lru_cache(maxsize=1)
def transitions() -> list[list[Fraction]]:
    """Return A, exactly."""
    learnt, even = moves(), ANYWHERE / REGIMES
    return [[(1 - ANYWHERE) * learnt.get((k, to), Fraction(0)) + even for to in range(REGIMES)] for k in range(REGIMES)]


EVEN_SHARE = float(ANYWHERE / REGIMES)


@lru_cache(maxsize=1)
def stationary() -> Floats:
    """Return π with π A = π, solved in fractions."""
    a = transitions()
    rows = [[a[j][i] - (i == j) for j in range(REGIMES)] + [Fraction(0)] for i in range(REGIMES - 1)]
    rows.append([Fraction(1)] * (REGIMES + 1))
    return np.array([float(p) for p in _solved(rows)])


def _solved(rows: list[list[Fraction]]) -> list[Fraction]:
    """Return the solution of a regular system of equations, right side last in each row (Gauss-Jordan)."""
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i and (factor := rows[j][i]):
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


@dataclass(frozen=True)
class Kernels:
    """The movement of counts, for one capacity."""

    up: Floats
    """u_k(z), shape [16, C+1]."""
    down: Floats
    """d_k(z), likewise."""
    norm: Floats
    """v_k(z), likewise."""


def widening(capacity: int) -> Floats:
    """Return g(z) of every count of the grid 0 … capacity."""
    return np.asarray(np.sqrt(np.maximum(np.arange(capacity + 1), 4) / 20))


@lru_cache(maxsize=256)
def kernels(capacity: int) -> Kernels:
    """Return the kernels of the grid 0 … capacity."""
    spread = widening(capacity)
    up, down = exp(-1 / np.multiply.outer(UP_SCALES, spread)), exp(-1 / np.multiply.outer(DOWN_SCALES, spread))
    reach_up, reach_down = np.zeros_like(up), np.zeros_like(down)
    for z in range(capacity):
        low, high = z + 1, capacity - 1 - z
        reach_down[:, low] = down[:, low - 1] * (1 + reach_down[:, low - 1])
        reach_up[:, high] = up[:, high + 1] * (1 + reach_up[:, high + 1])
    return Kernels(up, down, 1 / (1 + reach_up + reach_down))


class BackKernels(NamedTuple):
    """Kernels that move weights of counts back to the previous counts, for one capacity."""

    factors: Cells
    """d(z-1) along the grid, u(z+1) against it, in blocks: shape [16, blocks, length, 2, 1, 1], 0 beyond the grid."""
    reach: Cells
    """Products of the factors from the start of each block on."""


@lru_cache(maxsize=256)
def onward_kernels(capacity: int) -> BackKernels:
    """Return the kernels of the grid 0 … capacity in the same form: u(z) along the grid, d(z) against it."""
    kernel = kernels(capacity)
    factors = _blocks(kernel.up, kernel.down)
    return BackKernels(as_factors(factors), as_factors(np.multiply.accumulate(factors, axis=2)))


@lru_cache(maxsize=256)
def back_kernels(capacity: int) -> BackKernels:
    """Return the reversed kernels of the grid 0 … capacity: from the next count to the previous one."""
    kernel = kernels(capacity)
    from_above, from_below = np.zeros_like(kernel.up), np.zeros_like(kernel.down)
    from_above[:, :-1], from_below[:, 1:] = kernel.up[:, 1:], kernel.down[:, :-1]
    factors = _blocks(from_below, from_above)
    return BackKernels(as_factors(factors), as_factors(np.multiply.accumulate(factors, axis=2)))


def _blocks(up: Floats, down: Floats) -> Floats:
    cells = up.shape[1]
    length = isqrt(cells - 1) + 1
    blocks = np.zeros((REGIMES, -(-cells // length), length, 2))
    flat = blocks.reshape(REGIMES, -1, 2)
    flat[:, :cells, 0], flat[:, :cells, 1] = up, down[:, ::-1]
    return blocks[..., None, None]


def as_factors(values: Floats) -> Cells:
    """Return values in 32 bits, those below 1e-11 as 0."""
    return np.where(values < LEAST_FACTOR, 0.0, values).astype(np.float32)


@lru_cache(maxsize=256)
def bin_edges(capacity: int) -> NDArray[np.int64]:
    """Return e_0 = 0 < e_1 < … < C+1: the calendar's bins, which widen with the count."""
    edges = [0]
    while (following := edges[-1] + max(1, half_of_three_quarter_power(max(edges[-1], 1)))) <= capacity:
        edges.append(following)
    return np.array([*edges, capacity + 1])


def likelihood(noise: NoiseParameter, capacity: int, noisy: Ints) -> Cells:
    """Return the likelihood of each count given each noisy value, 1 for the likeliest count; shape [C+1, zones]."""
    return likelihood_at(noise, np.broadcast_to(capacity, noisy.shape), noisy, np.arange(capacity + 1)[:, None])


def likelihood_at(noise: NoiseParameter, capacities: Ints, noisy: Ints, counts: Ints) -> Cells:
    """Return the same for some counts of zones with their own grids.

    Args:
        noise: the added noise.
        capacities: the last count of each zone's grid, shape [zones].
        noisy: same shape.
        counts: shape [..., zones], or a shape that broadcasts; values for counts beyond the grid are meaningless.
    """
    if noise.kind == "laplace":
        factors = _laplace_factors(noise.exact, int(capacities.max()))
        return np.asarray(factors[np.minimum(np.abs(np.clip(noisy, 0, capacities) - counts), len(factors) - 1)])
    return _gaussian_factors(noise.exact, np.clip(noisy, -_FARTHEST, _FARTHEST), capacities, counts)


@lru_cache(maxsize=512)
def _laplace_factors(epsilon: Fraction, capacity: int) -> Cells:
    """Return e**(-ε n) for n = 0 … capacity: a value beyond the grid has the weight of the nearest end of the grid."""
    return _seen(exp(-float(epsilon) * np.arange(capacity + 1, dtype=np.float64)))


_FARTHEST = 1 << 30
"""Noisy values are limited to this magnitude, so that their squares stay integers of 64 bits."""


def _gaussian_factors(variance: Fraction, noisy: Ints, capacities: Ints, counts: Ints) -> Cells:
    """Return e**(-((y-z)² - d²)/(2σ²)), d the distance from y to the grid 0 … C; y beyond it still has information."""
    beyond = noisy - np.clip(noisy, 0, capacities)
    squares = (noisy - counts) ** 2 - beyond**2
    exponents: Floats = squares.astype(np.float64) * -float(1 / (2 * variance))
    return _seen(exp(exponents))


_IMPLAUSIBLE = 32
"""Counts that a noisy value makes less likely than its own count by more than a factor of e to this are skipped."""


def _seen(values: Floats) -> Cells:
    return np.where(values < LEAST_SEEN, 0.0, values).astype(np.float32)


def plausible_counts(noise: NoiseParameter, capacities: Ints, noisy: Ints) -> tuple[Ints, Ints]:
    """Return, for each zone, the first count that is not skipped given a noisy value, and the one after the last."""
    value = np.clip(noisy, -_FARTHEST, _FARTHEST)
    if noise.kind == "laplace":
        value = np.clip(noisy, 0, capacities)
        far = np.full_like(value, min(ceil(_IMPLAUSIBLE / noise.exact), _FARTHEST))
    else:
        beyond = (value - np.clip(value, 0, capacities)).astype(np.float64)
        far = np.sqrt(beyond * beyond + float(2 * _IMPLAUSIBLE * noise.exact)).astype(np.int64) + 1
    return np.maximum(value - far, 0), np.minimum(value + far, capacities) + 1


# Transitions, corrected by a zone's own past.
_PRIOR = 300.0
"""Weight of A's row, in changes out of each regime; about the number of changes per day. On streams that were not used
for tuning, 30 gave the same errors within 1 %, but bands contained the truth less often, since
learning uses noisy values."""


@lru_cache(maxsize=1)
def pairs() -> tuple[tuple[int, int], ...]:
    """Return the 76 pairs of regimes (from, to) for which A was learnt, ascending."""
    return tuple(sorted(moves()))


@lru_cache(maxsize=1)
def arrivals() -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return, for each regime, the pairs that lead to it: (from, index in ``pairs``), ascending."""
    return tuple(tuple((k, i) for i, (k, to) in enumerate(pairs()) if to == end) for end in range(REGIMES))


@lru_cache(maxsize=1)
def departures() -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return, for each regime, the pairs that lead away from it: (to, index in ``pairs``), ascending."""
    return tuple(tuple((to, i) for i, (k, to) in enumerate(pairs()) if k == start) for start in range(REGIMES))


@lru_cache(maxsize=1)
def _learnt_moves() -> Floats:
    """Return A of the pairs, shape [76]."""
    return np.array([float(moves()[pair]) for pair in pairs()])


def none_counted(zones: int) -> Cells:
    """Return N of zones without data: 0, shape [76, zones]."""
    return np.zeros((len(pairs()), zones), np.float32)


def rates(counted: Cells) -> Cells:
    """Return A without the share for all regimes, from the counted changes; each of shape [76, zones]."""
    weights = _PRIOR * _learnt_moves()[:, None] + counted
    for ends in departures():
        row = [place for _, place in ends]
        weights[row] /= ordered_sum(weights[row])
    return np.asarray(float(1 - ANYWHERE) * weights, np.float32)
