"""The largest |C'd|² of one device's day, and of a day replaced: bounds that hold, and patterns that come near them.

Shipped numbers are in ``stream.mechanisms.changes.sensitivity`` and, for a day replaced, in
``stream.accounting.day_charges``; tests derive them again from here.

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

**A day replaced.** Let x and x' be two days of at most V visits each, y = x - x' at each node, and

    symbol   here          meaning
    M        -             |C'd|² = xᵀMx: M(i, j) = -H(i, j) <= 0 for i != j; M is positive semidefinite
    m(v)     -             the sum over the ticks of a visit v = [s, e) of M 1: G(0, s) - G(0, e) >= 0
    W(k)     ``switched``  the largest yᵀMy of a y that is 0 before some tick and from some tick on, and +1 or -1 in
                           between, with at most k changes of sign

*One node* (``replaced_at_one_node``). y is -1, 0 or 1, and changes by 2 c = 4 V at most, its return to 0 at the day's
end not counted. Fill each run of zeros that lies between two other values with +1 or with -1, and in a second copy with
the opposite. y is the mean of both, and yᵀMy is convex: it is at most the mean of theirs. A change of sign without
zeros between, and a run of zeros, each change y by 2 and give the copies 2 changes of sign together. The first value
changes it by 1, so the copies have 2 (c - 1) at most. A run between opposite signs gives each copy one, a run between
equal signs gives both to one copy. Dealt out alternately they leave c - 1 for each copy, or c for one and c - 2 for the
other:

    yᵀMy <= R(c) = max(W(c - 1), (W(c) + W(c - 2))/2)

*W(k).* With the first tick s, the end e, the head a = [0, s) and the tail u = [e, T), y is 2 x̃ - (1 - a - u) for a x̃ of
visits within [s, e). So yᵀMy = 4 x̃ᵀMx̃ - 4 m(x̃) + 4 x̃ᵀM(a + u) + |C'e_0|² + f(a) - 2 m(a) + f(u) - 2 m(u) + 2 aᵀMu.
Head and tail are further visits of a chain; terms of those that are no neighbours are not positive, and left out. The
sign of y is free, so for odd k x̃ begins with s and has (k + 1)/2 visits, for even k it begins later and has k/2. S and
p bound the terms of visits that are no neighbours, as above.

*Several nodes* (``replaced_at_several_nodes``). A visit v of x gains at most f(v) - m(v) from all visits of x' at its
node: they are disjoint, and a term with a tick that both have is not positive, since M v >= M 1 >= 0 within v. Visits
of x at one node lower the sum. The same holds for x'. So the sum over nodes is at most that of 2 f(v) - m(v) over the
visits of both days, and for each day dynamic programming finds the largest exactly. Again S may be added to M first:
yᵀMy <= yᵀ(M + S)y, and M + S still has no positive entry off its diagonal. For one and two visits it is better to bound
each node by R: nodes share the 2 V visits of both days, and the sum is at most that of R(c) over the parts c.

All entries of G are integers below 2**53, so they are exact floats; the rest of the arithmetic is in floats, and
``SLACK`` covers its errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.changes.factor import rounded_weights
from stream.mechanisms.exact import Floats, Ints

SLACK = 1e-9
"""Relative addition to each bound, for rounding: sums of less than 10⁵ terms, each rounded to 1e-16."""
_NONE = -1e30


SMOOTH: dict[tuple[int, int], tuple[float, float, float]] = {
    (50, 2): (1.22, 1.74, 0.17),
    (50, 3): (1.22, 1.74, 0.17),
    (50, 4): (2.47, 3.53, 0.63),
    (50, 5): (2.47, 3.53, 0.63),
    (50, 6): (0.6, 5.03, 20.0),
    (50, 7): (0.6, 7.16, 16.7),
    (50, 8): (0.6, 7.16, 16.7),
    (100, 2): (1.22, 1.74, 0.17),
    (100, 3): (1.74, 2.47, 0.13),
    (100, 4): (2.47, 3.53, 0.63),
    (100, 5): (2.47, 3.53, 0.63),
    (100, 6): (2.47, 3.53, 5.4),
    (100, 7): (0.6, 7.16, 16.7),
    (100, 8): (0.6, 7.16, 16.7),
    (150, 2): (1.22, 1.74, 0.17),
    (150, 3): (1.74, 2.47, 0.13),
    (150, 4): (2.47, 3.53, 0.63),
    (150, 5): (2.47, 3.53, 0.63),
    (150, 6): (0.6, 7.16, 16.7),
    (150, 7): (0.6, 7.16, 16.7),
    (150, 8): (0.6, 7.16, 16.7),
    (300, 2): (1.5, 130.0, 0.02),
    (300, 3): (1.74, 2.47, 0.13),
    (300, 4): (2.5, 4.5, 0.03),
    (300, 5): (0.6, 5.03, 20.0),
    (300, 6): (0.6, 5.03, 20.0),
    (300, 7): (0.6, 5.03, 20.0),
    (300, 8): (0.6, 5.03, 20.0),
}
"""Ticks, visits -> rates of the two exponentials of S, in 1 / day, and the weight of the second; found by trial."""


def usual_density(ticks: int, visits: int) -> Floats:
    """Return p: visits are long at the day's start."""
    time = np.arange(ticks) / ticks
    middle = 0.636 if visits < 5 else 0.6
    return np.asarray(middle + 0.4 * np.exp(-time / 0.12) + 0.07 * np.exp(-(1 - time) / 0.12))


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
    return np.array([int(each) for each in _disjoint(_single(g, np.zeros(ticks)), visits)], np.int64)


def _disjoint(gain: Floats, visits: int) -> list[float]:
    """Return for 1 … ``visits`` the largest sum of gains over up to so many disjoint visits."""
    rest, found = np.zeros(gain.shape[1]), list[float]()
    for _ in range(visits):
        best = (gain + rest).max(axis=1)  # of visits that begin at s
        rest = np.append(np.maximum.accumulate(best[::-1])[::-1], 0.0)
        found.append(float(rest[0]))
    return found


def one_node(order: Fraction, ticks: int, visits: int) -> int:
    """Return an upper bound on |C'd|² for up to ``visits`` visits at one node, at least two."""
    g = gram(order, ticks)
    s = _smooth_below(attraction(g), *SMOOTH[ticks, visits])
    p = usual_density(ticks, visits)
    *_, longest = _chains(g + _summed(s), 2 * s @ p, np.zeros((ticks, ticks + 1)), visits)
    return int(np.ceil((longest.max() + p @ s @ p) * (1 + SLACK)))


def _smooth_below(h: Floats, near: float, far: float, mix: float) -> Floats:
    """Return S: two exponentials of the distance, at most H off the diagonal."""
    time = np.arange(len(h)) / len(h)
    apart = np.abs(time[:, None] - time)
    s = np.exp(-near * apart) + mix * np.exp(-far * apart)
    others = ~np.eye(len(h), dtype=bool)
    return np.asarray(s * (h[others] / s[others]).min() * (1 - SLACK))


def _summed(s: Floats) -> Floats:
    """Return what S adds to G: its sums over all later ticks."""
    return np.asarray(np.cumsum(np.cumsum(s[::-1], axis=0)[::-1][:, ::-1], axis=1)[:, ::-1])


def _single(g: Floats, price: Floats) -> Floats:
    """Return f(s, e) minus the price of the visit's ticks; e from 0 to T, which is the day's end."""
    ticks = len(g)
    own, paid = np.diag(g), np.append(0.0, np.cumsum(price))
    found = np.full((ticks, ticks + 1), _NONE)
    found[:, :ticks] = own[:, None] + own - 2 * g
    found[:, ticks] = own
    found -= paid - paid[:ticks, None]
    return np.where(np.arange(ticks + 1) > np.arange(ticks)[:, None], found, _NONE)


def _chains(g: Floats, price: Floats, tail: Floats, visits: int) -> list[Floats]:
    """Return for 1 … ``visits`` the largest sum over up to so many visits at one node, by the first of them.

    Terms of neighbouring visits are kept. ``tail`` is what may follow a visit instead of another one.
    """
    ticks = len(g)
    single, wide = _single(g, price), np.pad(g, ((0, 0), (0, 1)))
    best = single + tail
    found = [best]
    for _ in range(visits - 1):
        longer = single + tail
        for end in range(1, ticks - 1):
            later = best[end + 1 :, end + 1 :]
            for start in range(end):
                both = 2 * (wide[start, end + 1 :] - wide[end, end + 1 :])
                through = single[start, end] + float((later + both[:-1, None] - both).max())
                longer[start, end] = max(longer[start, end], through)
        best = longer
        found.append(best)
    return found


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


# A day replaced.

SPREAD = 0.5, 0.2
"""Of p for x̃ of W(k): in the middle of the day, and how much more at its start."""
SHARED = {3: 1.2, 4: 2.0, 5: 3.0, 6: 4.0, 7: 4.0, 8: 5.0}
"""Visits -> rate of the exponential of S at several nodes, in 1 / day; found by trial."""


def switched(order: Fraction, ticks: int, visits: int) -> Floats:
    """Return upper bounds on W(0) … W(2 ``visits``)."""
    g = gram(order, ticks)
    h = attraction(g)
    wide, own = np.pad(g, ((0, 0), (0, 1))), np.diag(g)
    s = _smooth_below(h, *SMOOTH[ticks, visits]) if visits > 1 else np.zeros((ticks, ticks))
    middle, more = SPREAD
    p = middle + more * np.exp(-np.arange(ticks) / ticks / 0.12)
    tail = np.zeros((ticks, ticks + 1))
    for end in range(1, ticks):
        after = (own - 2 * g[0])[end:] / 4 + wide[:end, end:ticks] - g[end, end:]
        tail[:end, end] = np.maximum(0.0, after.max(axis=1))
    found = [float(_single(g, np.zeros(ticks)).max())]
    for chain in _chains(g + _summed(s), 2 * s @ p + wide[0, :ticks] - wide[0, 1:], tail, visits):
        at_once, later = _NONE, _NONE
        for start in range(ticks):
            # the head [0, s) for s = 0 … start, and its term with the first visit [start, e)
            near = wide[0, start] - wide[0] - wide[: start + 1, start, None] + wide[: start + 1]
            value = chain[start] + near + (own[: start + 1] - own[0])[:, None] / 4
            at_once = max(at_once, float(value[start].max()))
            later = max(later, float(value[:start].max(initial=_NONE)))
        found += [4 * (each + p @ s @ p) + own[0] for each in (at_once, later)]
    return np.maximum.accumulate(found) * (1 + SLACK)


def replaced_by_parts(switches: Floats) -> Floats:
    """Return R(1), R(2), … of W(0), W(1), …"""
    mixed = (switches[2:] + switches[:-2]) / 2
    return np.append(switches[0], np.maximum(switches[1:-1], mixed))


def replaced_at_one_node(order: Fraction, ticks: int, visits: int) -> float:
    """Return an upper bound on |C'(d - d')|² of two days of up to ``visits`` visits at one node."""
    return float(replaced_by_parts(switched(order, ticks, visits))[2 * visits - 1])


def replaced_at_several_nodes(order: Fraction, ticks: int, visits: int) -> float:
    """Return an upper bound on |C'(d - d')|² of two days of up to ``visits`` visits at any number of nodes."""
    if visits <= 2:
        by_parts = replaced_by_parts(switched(order, ticks, visits))
        return max(sum(float(by_parts[part - 1]) for part in parts) for parts in _partitions(2 * visits))
    g = gram(order, ticks)
    s = _smooth_below(attraction(g), SHARED[visits], 0.0, 0.0)
    paid = np.append(0.0, np.cumsum(s.sum(axis=0)))
    place, last = np.arange(ticks)[:, None], np.arange(ticks + 1)
    fixed = np.append(g[0], 0.0)
    gain = 2 * _single(g + _summed(s), np.zeros(ticks)) - (fixed[place] - fixed[last]) - (paid[last] - paid[place])
    return 2 * _disjoint(gain, visits)[-1] * (1 + SLACK)


def _partitions(total: int, most: int | None = None) -> Iterator[list[int]]:
    if not total:
        yield []
    for part in range(min(total, most or total), 0, -1):
        yield from ([part, *rest] for rest in _partitions(total - part, part))


def best_replaced(order: Fraction, ticks: int, visits: int) -> tuple[int, list[list[int]]]:
    """Return a large |C'(d - d')|² of two days at one node, found by search, and the ticks of their changes.

    The days begin by taking turns; each change is moved to where it is best while the others stay.
    """
    g, w = np.pad(gram(order, ticks), (0, 1)), 2 * visits
    signs = np.concatenate([(-1.0) ** np.arange(w), -((-1.0) ** np.arange(w))])
    turns = np.linspace(0, ticks, w + 1).astype(int)
    times = np.concatenate([turns[:-1], turns[1:]])
    moved = True
    while moved:
        moved = False
        for i in range(2 * w):
            low = times[i - 1] + 1 if i % w else 0
            high = times[i + 1] if (i + 1) % w else ticks + 1
            rest = np.arange(2 * w) != i
            values = np.diag(g)[low:high] + 2 * signs[i] * (g[low:high][:, times[rest]] @ signs[rest])
            to = low + int(np.argmax(values))
            if values[to - low] > values[times[i] - low]:
                times[i], moved = to, True
    return int(signs @ g[np.ix_(times, times)] @ signs), [times[:w].tolist(), times[w:].tolist()]
