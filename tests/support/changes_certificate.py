"""The largest |C'd|² of one device's day: bounds that hold, and patterns that come near them.

Shipped numbers are in ``stream.mechanisms.changes.sensitivity``; tests derive them again from here.

    symbol   here          meaning
    x                      presence of the device at a level's nodes; d its differences. Intervals [s, e): visits
    G        gram          C'ᵀ C': G(s, t) = Σ_r C'(r - s) C'(r - t), over the ticks r of the day
    H(i, j)  attraction    minus the mixed second difference of G, for i != j:
                           |C'd|² = Σ_i M_ii x_i - 2 Σ_{i<j} H(i, j) x_i x_j
    f(s, e)                G(s, s) + G(e, e) - 2 G(s, e): a single visit; G(s, s) where it lasts to the day's end

**H >= 0** (``attraction`` refuses a factor for which that is not true; it is true for 16 binary digits and false for
10). So two visits at one node lower each other's part: what is left out of such terms can only raise the sum.

**Several nodes.** Visits at different nodes do not interact, and a device is at one node at a time: the sum is at most
the largest Σ f over disjoint intervals, which dynamic programming finds exactly (``several_nodes``). It is attained
where a level has at least as many nodes as visits.

**One node** (``one_node``). Terms of neighbouring visits are kept, those of others are replaced by a bound. Let S be
a positive semidefinite matrix with S <= H off its diagonal, here a sum of two exponentials of the distance. For any p,

    -xᵀSx <= -2 pᵀSx + pᵀSp

So |C'd|² = [|C'd|² + xᵀSx] - xᵀSx is at most a sum over visits and neighbouring pairs of visits, for G + (S summed up)
instead of G: terms of visits that are no neighbours are still not positive, and left out. Dynamic programming over
visits (s, e) finds its largest value exactly. With p near the usual density of visits, and S smooth enough not to see
single visits, little is lost. S and p decide how tight the bound is, never whether it holds.

All entries of G are integers below 2**53, so they are exact floats; the rest of the arithmetic is in floats, and
``SLACK`` covers its errors.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.changes.factor import rounded_weights
from stream.mechanisms.exact import Floats
from stream.mechanisms.noise import Ints

SLACK = 1e-9
"""Relative addition to each bound, for rounding: sums of less than 10⁵ terms, each rounded to 1e-16."""
_NONE = -1e30


class Smooth(NamedTuple):
    """S and p of ``one_node``, for days of any number of ticks."""

    near: float
    """Rate of the first exponential, in 1 / day."""
    far: float
    """Rate of the second."""
    mix: float
    """Weight of the second."""
    density: float
    early: float
    """Additional density at the day's start, which fades within ``edge``."""
    late: float
    """Likewise at its end."""
    edge: float
    """As a part of the day."""


SMOOTH = {
    1: Smooth(2.5, 8.0, 0.37, 0.6, 0.4, 0.0, 0.1),
    2: Smooth(1.5, 130.0, 0.02, 0.64, 0.46, 0.04, 0.15),
    3: Smooth(1.5, 130.0, 0.02, 0.64, 0.46, 0.04, 0.15),
    4: Smooth(2.5, 4.5, 0.03, 0.636, 0.39, 0.08, 0.12),
    5: Smooth(2.5, 5.0, 1.0, 0.59, 0.4, 0.05, 0.12),
    6: Smooth(2.5, 5.0, 1.0, 0.59, 0.4, 0.05, 0.12),
    7: Smooth(3.2, 7.0, 1.0, 0.59, 0.4, 0.05, 0.12),
    8: Smooth(4.0, 8.0, 1.0, 0.59, 0.4, 0.05, 0.12),
}
"""By visits: found by trial."""


def gram(order: Fraction, ticks: int) -> Floats:
    """Return G, exact."""
    weights = rounded_weights(order, ticks)
    found = np.zeros((ticks, ticks), np.int64)
    for lag in range(ticks):
        sums = np.cumsum(weights[lag:] * weights[: ticks - lag])[::-1]  # over r >= t, for t = lag, lag + 1, …
        here = np.arange(lag, ticks)
        found[here - lag, here] = found[here, here - lag] = sums
    return found.astype(np.float64)


def attraction(g: Floats) -> Floats:
    """Return H, with 0 on the diagonal; UsageError unless it is never negative."""
    wide = np.pad(g, (0, 1))
    found = -(wide[:-1, :-1] - wide[1:, :-1] - wide[:-1, 1:] + wide[1:, 1:])
    np.fill_diagonal(found, 0.0)
    if (found < 0).any():
        raise UsageError("factor must have differences G(s, t) - G(s, t + 1) that rise in s for s < t")
    return found


def several_nodes(order: Fraction, ticks: int, visits: int) -> Ints:
    """Return the largest |C'd|² for 1 … ``visits`` visits at any number of nodes."""
    g = gram(order, ticks)
    attraction(g)
    single = _single(g, np.zeros(ticks))
    rest, found = np.zeros(ticks + 1), []
    for _ in range(visits):
        best = (single + rest).max(axis=1)  # of visits that begin at s
        rest = np.append(np.maximum.accumulate(best[::-1])[::-1], 0.0)
        found.append(int(rest[0]))
    return np.array(found, np.int64)


def one_node(order: Fraction, ticks: int, visits: int, smooth: Smooth | None = None) -> int:
    """Return an upper bound on |C'd|² for up to ``visits`` visits at one node."""
    g = gram(order, ticks)
    h = attraction(g)
    chosen = smooth or SMOOTH[visits]
    time = np.arange(ticks) / ticks
    apart = np.abs(time[:, None] - time)
    s = np.exp(-chosen.near * apart) + chosen.mix * np.exp(-chosen.far * apart)
    others = ~np.eye(ticks, dtype=bool)
    s *= (h[others] / s[others]).min() * (1 - SLACK)
    fade = np.exp(-time / chosen.edge), np.exp(-(1 - time) / chosen.edge)
    p = chosen.density + chosen.early * fade[0] + chosen.late * fade[1]
    summed = np.cumsum(np.cumsum(s[::-1], axis=0)[::-1][:, ::-1], axis=1)[:, ::-1]
    largest = _longest_chain(g + summed, 2 * s @ p, visits)
    return int(np.ceil((largest + p @ s @ p) * (1 + SLACK)))


def _single(g: Floats, price: Floats) -> Floats:
    """Return f(s, e) minus the price of the visit's ticks; e from 0 to T, which is the day's end."""
    ticks = len(g)
    own, paid = np.diag(g), np.append(0.0, np.cumsum(price))
    found = np.full((ticks, ticks + 1), _NONE)
    found[:, :ticks] = own[:, None] + own - 2 * g
    found[:, ticks] = own
    found -= paid - paid[:ticks, None]
    return np.where(np.arange(ticks + 1) > np.arange(ticks)[:, None], found, _NONE)


def _longest_chain(g: Floats, price: Floats, visits: int) -> float:
    """Return the largest sum over up to ``visits`` visits at one node, with the terms of neighbouring visits."""
    ticks = len(g)
    single, wide = _single(g, price), np.pad(g, ((0, 0), (0, 1)))
    best = single
    for _ in range(visits - 1):
        longer = single.copy()
        for end in range(1, ticks - 1):
            later = best[end + 1 :, end + 1 :]
            for start in range(end):
                both = 2 * (wide[start, end + 1 :] - wide[end, end + 1 :])
                longer[start, end] += max(0.0, float((later + both[:-1, None] - both).max()))
        best = longer
    return float(best.max())


def best_pattern(order: Fraction, ticks: int, visits: int, starts: int = 8, seed: int = 0) -> tuple[int, list[int]]:
    """Return a large |C'd|² at one node, found by search, and the ticks of its changes.

    Each change is moved to where it is best while the others stay, from several starting points.
    """
    g, w = gram(order, ticks), 2 * visits
    random, signs = np.random.default_rng(seed), (-1.0) ** np.arange(w)
    best = (0, list[int]())
    for start in range(starts):
        spread = np.linspace(0, ticks - 1, w).astype(int)
        times = [int(t) for t in (np.sort(random.choice(ticks, w, replace=False)) if start else spread)]
        moved = True
        while moved:
            moved = False
            for i in range(w):
                low, high = (times[i - 1] + 1 if i else 0), (times[i + 1] if i + 1 < w else ticks)
                rest = [j for j in range(w) if j != i]
                values = np.diag(g)[low:high] + 2 * signs[i] * (g[low:high][:, [times[j] for j in rest]] @ signs[rest])
                to = low + int(np.argmax(values))
                if values[to - low] > values[times[i] - low]:
                    times[i], moved = to, True
        found = int(signs @ g[np.ix_(times, times)] @ signs)
        best = max(best, (found, times))
    return best
