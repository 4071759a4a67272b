"""How often a zone's movement changes its regime: the matrix of the filter's model, corrected by the zone's own past.

The learnt part of A says of 76 pairs of regimes how often the one becomes the other. Of each zone it is corrected by
counts: a row is in proportion to 300 times what A says of it, and the changes that were counted there. One thousandth
of every row goes to all regimes alike, whatever was counted.

    symbol        here        meaning
    N(k, k')      counted     changes from regime k to k', over the days that the zone has been learnt on
    A(k, k')      rates       .999 (300 A0 + N) / (sum of the row), which .001/16 comes on top of
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import ordered_sum
from stream.mechanisms.filter_model import ANYWHERE, EVEN_SHARE, REGIMES, Cells, moves

_PRIOR = 300.0
"""Changes out of each regime that A counts for, about those of a day. Of streams that nothing was tuned on, 30 gave
the same errors within 1 %, and bands that held the truth less often: what is learnt is learnt of noisy values."""


@lru_cache(maxsize=1)
def pairs() -> tuple[tuple[int, int], ...]:
    """Return the pairs of regimes (from, to) that A was learnt of, ascending: 76."""
    return tuple(sorted(moves()))


@lru_cache(maxsize=1)
def arrivals() -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return, for each regime, the pairs that lead to it: (from, place in ``pairs``), ascending."""
    return tuple(tuple((k, i) for i, (k, to) in enumerate(pairs()) if to == end) for end in range(REGIMES))


@lru_cache(maxsize=1)
def departures() -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return, for each regime, the pairs that lead away from it: (to, place in ``pairs``), ascending."""
    return tuple(tuple((to, i) for i, (k, to) in enumerate(pairs()) if k == start) for start in range(REGIMES))


def none_counted(zones: int) -> Cells:
    """Return N of zones of which nothing has been learnt: 0, shape [76, zones]."""
    return np.zeros((len(pairs()), zones), np.float32)


def rates(counted: Cells) -> Cells:
    """Return A without what goes to all regimes alike, from the changes counted; each of shape [76, zones]."""
    learnt = np.array([float(moves()[pair]) for pair in pairs()])
    weights = _PRIOR * learnt[:, None] + counted
    for ends in departures():
        row = [place for _, place in ends]
        weights[row] /= ordered_sum(weights[row])
    return np.asarray(float(1 - ANYWHERE) * weights, np.float32)


def switched(p: Cells, rate: Cells) -> Cells:
    """Return Q(k', ·, zone) = Σ_k P(k, ·, zone) A(k, k').

    Args:
        p: by regime, whatever else, and zone.
        rate: shape [76, zones].
    """
    return _mixed(p, rate, arrivals())


def handed_back(weights: Cells, rate: Cells) -> Cells:
    """Return Σ_k' A(k, k') weights(k', ·, zone): what is said of regimes after a change, said of those before it."""
    return _mixed(weights, rate, departures())


_Others = tuple[tuple[tuple[int, int], ...], ...]
"""For each regime: others, each with the place of the pair in ``pairs``."""
_FEW = 2048
"""So many cells of a regime are few: it is the number of operations that takes the time, not their size."""


def _mixed(p: Cells, rate: Cells, others: _Others) -> Cells:
    """Return, for each regime, a share of all of them, and on top the shares of its own others, in their order."""
    even = ordered_sum(p)
    even *= EVEN_SHARE
    if even.size < _FEW:
        return _mixed_at_once(p, rate, others, even)
    mixed, share = np.empty_like(p), np.empty_like(even)
    for total, own in zip(mixed, others, strict=True):
        before = even
        for other, place in own:
            before = np.add(before, np.multiply(p[other], rate[place], out=share), out=total)
    return mixed


def _mixed_at_once(p: Cells, rate: Cells, others: _Others, even: Cells) -> Cells:
    """Return the same to the byte: all regimes' first others are added, then all second ones; what is missing is 0."""
    mixed = np.broadcast_to(even, p.shape).copy()
    rate_or_none = np.concatenate([rate, np.zeros_like(rate[:1])])
    for other, place in _by_rank(others):
        shares = rate_or_none[place].reshape(REGIMES, *(1,) * (p.ndim - 2), -1)
        mixed += p[other] * shares
    return mixed


@lru_cache(maxsize=2)
def _by_rank(others: _Others) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return, rank by rank, which other each regime has at it, and the place of the pair; of none, the last place."""
    most = max(len(own) for own in others)
    table = np.array([[*own, *[(0, len(pairs()))] * (most - len(own))] for own in others])
    return [(table[:, rank, 0], table[:, rank, 1]) for rank in range(most)]
