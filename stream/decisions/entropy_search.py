"""The least entropy of the beliefs that an answer allows: two searches over the vertices (``entropy_bounds``).

**Branch and bound** (``least_entropy``) over groups of equal predicates. The node with the smallest lower bound is
split next, until no bound lies below the best vertex found.

**Enumeration in two halves** (``least_by_halves``) for few predicates, where branch and bound meets too many near ties:
when all ε are small every vertex has nearly the same entropy, and the minimum is a question of subset sums. Besides the
one predicate in between, the others are split into two halves. All subsets of each half are listed by the width they
spend. For a subset of one half, the subsets of the other that leave an amount within the interval are adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

import numpy as np

from stream.decisions.beliefs import Beliefs, Interval
from stream.decisions.entropy_bounds import TOLERANCE, Bracket, Node, Relaxation
from stream.mechanisms.exact import Floats, ln

# Branch and bound.


def least_entropy(beliefs: Beliefs, most_nodes: int) -> Bracket:
    """Return the least entropy in nats; both ends are equal when the search was complete.

    Args:
        beliefs: at most some dozens of groups.
        most_nodes: number of nodes after which the search stops.
    """
    if not beliefs.intervals:
        return Bracket(beliefs.at_low, beliefs.at_low)
    lower, upper = _Search(beliefs).run(most_nodes)
    return Bracket(max(0.0, beliefs.at_low + lower), max(0.0, beliefs.at_low + upper))


class _Search:
    def __init__(self, beliefs: Beliefs) -> None:
        self.groups, self.relaxation = beliefs.intervals, Relaxation(beliefs)
        self.best = inf
        """Least rise found so far."""
        self.open: list[tuple[float, int, Node]] = []
        """Heap of nodes that may contain a smaller one, by lower bound and age."""
        self.seen = 0

    def run(self, most_nodes: int) -> Bracket:
        """Return the bracket of the least rise."""
        for node in self.roots():
            self.put(node)
        visited = 0
        while self.may_improve() and visited < most_nodes:
            _, _, node = heappop(self.open)
            visited += 1
            for child in self.split(node):
                self.put(child)
        return Bracket(min(self.open[0][0], self.best) if self.may_improve() else self.best, self.best)

    def may_improve(self) -> bool:
        """Whether an open node may contain a smaller rise."""
        return bool(self.open) and self.open[0][0] < self.best - TOLERANCE

    def put(self, node: Node) -> None:
        """Bound a node, and keep it open where it may contain a smaller rise."""
        lower, self.best = self.relaxation.bound(node, self.best)
        if lower < self.best - TOLERANCE:
            heappush(self.open, (lower, self.seen, node))
        self.seen += 1

    def roots(self) -> Iterator[Node]:
        """Yield all vertices, by the group of the predicate in between."""
        none = (0,) * len(self.groups)
        for between in range(len(self.groups)):
            most = tuple(group.predicates - (i == between) for i, group in enumerate(self.groups))
            yield Node(between, none, most, 0, sum(most))

    def split(self, node: Node) -> Iterator[Node]:
        """Split a node: by the sum while its range is open, then by the group that changes the amount most."""
        if node.few < node.many:
            middle = (node.few + node.many) // 2
            yield node._replace(many=middle)
            yield node._replace(few=middle + 1)
            return
        open_groups = [i for i, (lo, hi) in enumerate(zip(node.least, node.most, strict=True)) if hi > lo]
        if not open_groups:
            return
        i = max(open_groups, key=lambda i: self.sway(node, i, open_groups))
        middle = (node.least[i] + node.most[i]) // 2
        yield node._replace(most=_with(node.most, i, middle))
        yield node._replace(least=_with(node.least, i, middle + 1))

    def sway(self, node: Node, i: int, among: list[int]) -> float:
        """Return how much a group's open number can change the remaining amount, relative to the others' mean."""
        mean = sum(self.groups[j].width for j in among) / len(among)
        return (node.most[i] - node.least[i]) * abs(self.groups[i].width - mean)


def _with(numbers: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    return (*numbers[:i], value, *numbers[i + 1 :])


# Enumeration in two halves.


def least_by_halves(allowed: Beliefs, best: float) -> float:
    """Return the least entropy in nats, at most ``best``.

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
    """Return the least rise for one predicate in between, or ``best``."""
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
        near = np.flatnonzero(rest + slope * amount < best)  # the predicate's own term lies above the straight line
        if len(near):
            rise = _terms(between.low + amount[near]) - _terms(np.array([between.low]))
            best = min(best, float((rest[near] + rise).min()))
    return best


def _subsets(intervals: list[Interval]) -> tuple[Floats, Floats]:
    """Return the sums of widths and of rises of every subset."""
    widths, rises = np.zeros(1), np.zeros(1)
    for each in intervals:
        widths = np.concatenate([widths, widths + each.width])
        rises = np.concatenate([rises, rises + each.rise])
    return widths, rises


def _terms(p: Floats) -> Floats:
    return np.where(p > 1e-300, -p * ln(np.maximum(p, 1e-300)), 0.0)
