"""The least entropy of the beliefs that an answer allows: two searches over the vertices.

Entropy is concave, so its minimum is at a vertex: every predicate but one is at an end of its interval. A vertex is
given by the group of the predicate in between (``between``), and for every group by how many are at their upper end.

**Branch and bound** (``least_entropy``) over groups of equal predicates. A node has a range for each of these numbers
and one for their sum. Below it, the amount t that is left for the predicate in between lies in [t0, t1], and its
concave term is at least σ t + c for every slope σ, with c fixed by the two ends; the rest is linear and is solved by
sorting. The best σ (the dual is concave and piecewise linear) gives the bound. For almost equal groups t hardly varies
once the sum is fixed, so the bound is almost exact where subsets are almost equal; a bound on whole intervals would
have to visit all of them.

**Enumeration in two halves** (``least_by_halves``) for few predicates, where branch and bound meets too many near ties:
when all ε are small every vertex has nearly the same entropy, and the minimum is a question of subset sums. Besides the
one predicate in between, the others are split into two halves. All subsets of each half are listed by the width they
spend. For a subset of one half, the subsets of the other that leave an amount within the interval are adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from stream.decisions.beliefs import Beliefs, Interval, term
from stream.mechanisms.exact import Floats, ln


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


TOLERANCE = 1e-12
"""Vertices that differ by less, in nats, count as equal."""


_SLOPES = 12
"""Largest number of slopes tried for a node."""


class Bracket(NamedTuple):
    """Bounds of a minimum: it lies in [lower, upper], and upper is attained."""

    lower: float
    upper: float


class _Node(NamedTuple):
    between: int
    least: tuple[int, ...]
    most: tuple[int, ...]
    few: int
    many: int
    """The smallest and the largest number of predicates at their upper ends."""


class _Choice(NamedTuple):
    """The best numbers at upper ends for one slope."""

    numbers: tuple[int, ...]
    spent: float
    """Sum of their widths."""
    cost: float
    """Sum of their rises."""


def least_entropy(beliefs: Beliefs, most_nodes: int) -> Bracket:
    """Return the least entropy in nats; both ends are equal when the search was complete.

    Args:
        beliefs: at most some dozens of groups.
        most_nodes: number of nodes after which the search stops.
    """
    return _Search(beliefs).run(most_nodes)


class _Search:
    def __init__(self, beliefs: Beliefs) -> None:
        self.groups, self.slack, self.at_low = beliefs.intervals, beliefs.slack, beliefs.at_low
        self.best = inf
        """Least rise over ``at_low`` found so far."""

    def run(self, most_nodes: int) -> Bracket:
        if not self.groups:
            return Bracket(self.at_low, self.at_low)
        heap: list[tuple[float, int, _Node]] = []
        seen = 0
        for node in self.roots():
            seen = self.put(heap, node, seen)
        visited = 0
        while heap and heap[0][0] < self.best - TOLERANCE and visited < most_nodes:
            _, _, node = heappop(heap)
            visited += 1
            for child in self.split(node):
                seen = self.put(heap, child, seen)
        lower = min(heap[0][0], self.best) if heap and heap[0][0] < self.best - TOLERANCE else self.best
        return Bracket(max(0.0, self.at_low + lower), max(0.0, self.at_low + self.best))

    def put(self, heap: list[tuple[float, int, _Node]], node: _Node, seen: int) -> int:
        bound = self.bound(node)
        if bound < self.best - TOLERANCE:
            heappush(heap, (bound, seen, node))
        return seen + 1

    def roots(self) -> Iterator[_Node]:
        none = (0,) * len(self.groups)
        for between in range(len(self.groups)):
            most = tuple(group.predicates - (i == between) for i, group in enumerate(self.groups))
            yield _Node(between, none, most, 0, sum(most))

    def bound(self, node: _Node) -> float:
        """Return a lower bound on the rise below a node, inf where it is empty; may improve ``best``."""
        amounts = self.amounts(node)
        if amounts is None:
            return inf
        group = self.groups[node.between]
        ends = [(t, term(group.low + t) - term(group.low)) for t in amounts]
        (t0, rise0), (t1, rise1) = ends
        slope = (rise1 - rise0) / (t1 - t0) if t1 > t0 else 0.0
        return self.dual(node, ends, slope)

    def amounts(self, node: _Node) -> tuple[float, float] | None:
        """Return the smallest and the largest amount left for the predicate in between; None where none is possible."""
        fixed = sum(node.least)
        few, many = max(0, node.few - fixed), min(node.many, sum(node.most)) - fixed
        if few > many:
            return None
        spent = sum(n * group.width for n, group in zip(node.least, self.groups, strict=True))
        free = [(g.width, hi - lo) for g, lo, hi in zip(self.groups, node.least, node.most, strict=True) if hi > lo]
        free.sort()
        t1 = min(self.slack - spent - _width_sum(free, few), self.groups[node.between].width)
        t0 = max(self.slack - spent - _width_sum(free[::-1], many), 0.0)
        if t0 > t1:  # an interval of a single point must not be lost to rounding
            return (t1, t1) if t0 - t1 < TOLERANCE and t1 >= 0 else (t0, t0) if t0 - t1 < TOLERANCE else None
        return t0, t1

    def dual(self, node: _Node, ends: list[tuple[float, float]], slope: float) -> float:
        """Return the best bound over some slopes: Newton's method between one that is too small and one too large."""
        best, step = -inf, 1.0
        small: tuple[float, float, float] | None = None
        large: tuple[float, float, float] | None = None
        for _ in range(_SLOPES):
            choice = self.choose(node, slope)
            left = self.slack - choice.spent
            self.improve(node, choice, left)
            t, least = min(((t, rise - slope * t) for t, rise in ends), key=lambda end: end[1])
            value = choice.cost + slope * left + least
            best = max(best, value)
            if best >= self.best - TOLERANCE or ends[0][0] <= left <= ends[1][0]:
                break
            t = ends[0][0] if left < ends[0][0] else ends[1][0] if left > ends[1][0] else t
            if left > t:
                small = (slope, value, left - t)
            else:
                large = (slope, value, left - t)
            if small is None or large is None:
                slope, step = slope + (step if large is None else -step), 2 * step
                continue
            following = _crossing(small, large)
            if not small[0] < following < large[0]:
                break
            slope = following
        return best

    def choose(self, node: _Node, slope: float) -> _Choice:
        """Return the numbers that minimise Σ (rise - slope · width) within the node."""
        numbers = list(node.least)
        fixed = sum(numbers)
        few, many = node.few - fixed, node.many - fixed
        keys = sorted(
            (group.rise - slope * group.width, i) for i, group in enumerate(self.groups) if node.most[i] > node.least[i]
        )
        for key, i in keys:
            room = node.most[i] - node.least[i]
            raised = min(room, many if key < 0 else max(0, few))
            numbers[i] += raised
            few, many = few - raised, many - raised
        spent = sum(n * group.width for n, group in zip(numbers, self.groups, strict=True))
        cost = sum(n * group.rise for n, group in zip(numbers, self.groups, strict=True))
        return _Choice(tuple(numbers), spent, cost)

    def improve(self, node: _Node, choice: _Choice, left: float) -> None:
        """Update ``best`` where the choice is a vertex."""
        group = self.groups[node.between]
        if -TOLERANCE <= left <= group.width + TOLERANCE:
            within = min(max(left, 0.0), group.width)
            self.best = min(self.best, choice.cost + term(group.low + within) - term(group.low))

    def split(self, node: _Node) -> Iterator[_Node]:
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

    def sway(self, node: _Node, i: int, among: list[int]) -> float:
        """Return how much a group's open number can change the remaining amount, relative to the others' mean."""
        mean = sum(self.groups[j].width for j in among) / len(among)
        return (node.most[i] - node.least[i]) * abs(self.groups[i].width - mean)


def _crossing(small: tuple[float, float, float], large: tuple[float, float, float]) -> float:
    """Return the slope at which two tangents of the dual meet."""
    (at, value, rate), (at2, value2, rate2) = small, large
    return at + (value2 - value + rate2 * (at - at2)) / (rate - rate2) if rate > rate2 else at


def _width_sum(ordered: list[tuple[float, int]], n: int) -> float:
    """Return the sum of the first ``n`` widths."""
    total = 0.0
    for width, number in ordered:
        used = min(n, number)
        total, n = total + used * width, n - used
    return total


def _with(numbers: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    return (*numbers[:i], value, *numbers[i + 1 :])
