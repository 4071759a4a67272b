"""Least entropy over all vertices of few predicates, in two halves: where branch and bound meets too many near ties.

When all ε are small every vertex has nearly the same entropy, and which is least is a question of subset sums. Beside
the one predicate that lies between, the others are split in two; of each half all subsets are listed by the width they
spend. For a subset of one half, those of the other that leave an amount within the interval stand side by side.
"""

from __future__ import annotations

import numpy as np

from stream.decisions.posteriors import Beliefs, Interval
from stream.mechanisms.exact import Floats, ln


def least_by_halves(allowed: Beliefs, best: float) -> float:
    """Return the least entropy in nats, which may be ``best`` itself.

    Args:
        allowed: of at most 25 predicates.
        best: the entropy of some vertex, in nats.
    """
    each = [group for group in allowed.intervals for _ in range(group.predicates)]
    found = best - allowed.at_low
    for place, between in enumerate(each):
        if place and between == each[place - 1]:
            continue
        others = each[:place] + each[place + 1 :]
        found = _least(between, others[::2], others[1::2], allowed.slack, found)
    return allowed.at_low + found


def _least(between: Interval, first: list[Interval], second: list[Interval], slack: float, best: float) -> float:
    """Return the least rise with one predicate between, or ``best``."""
    spent, cost = _subsets(first)
    widths, rises = _subsets(second)
    order = np.argsort(widths, kind="stable")
    widths, rises = widths[order], rises[order]
    left = slack - spent
    start = np.searchsorted(widths, left - between.width, side="left")
    stop = np.searchsorted(widths, left, side="right")
    slope = between.rise / between.width
    for i in np.flatnonzero(stop > start):
        here = slice(start[i], stop[i])
        amount = left[i] - widths[here]
        rest = cost[i] + rises[here]
        near = np.flatnonzero(rest + slope * amount < best)  # its own term is above the straight line
        if len(near):
            rise = _terms(between.low + amount[near]) - _terms(np.array([between.low]))
            best = min(best, float((rest[near] + rise).min()))
    return best


def _subsets(intervals: list[Interval]) -> tuple[Floats, Floats]:
    """Return of every subset its widths and its rises, added up."""
    widths, rises = np.zeros(1), np.zeros(1)
    for each in intervals:
        widths = np.concatenate([widths, widths + each.width])
        rises = np.concatenate([rises, rises + each.rise])
    return widths, rises


def _terms(p: Floats) -> Floats:
    return np.where(p > 1e-300, -p * ln(np.maximum(p, 1e-300)), 0.0)
