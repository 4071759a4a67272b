"""Lower bounds on the least entropy of the beliefs that an answer allows.

Entropy is concave, so its minimum is at a vertex: every predicate but one is at an end of its interval. A vertex is
given by the group of the predicate in between (``between``), and for every group by how many are at their upper end.

**Straight lines** (``straight_lines``). Each predicate's concave term lies above the line through its two ends. The
sum of lines is minimised by filling intervals in order of their slope.

**A set of vertices** (``Node``, ``Relaxation``) has a range for each of these numbers, and one for their sum. Within it
the amount t that is left for the predicate in between lies in [t0, t1], and its concave term is at least σ t + c for
every slope σ, with c fixed by the two ends; the rest is linear and is solved by sorting. The best σ (the dual is
concave and piecewise linear) gives the bound. For almost equal groups t hardly varies once the sum is fixed, so the
bound is almost exact where subsets are almost equal; a bound on whole intervals would have to visit all of them.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from stream.decisions.beliefs import Beliefs, term

TOLERANCE = 1e-12
"""Vertices that differ by less, in nats, count as equal."""
_SLOPES = 12
"""Largest number of slopes tried for a node."""


class Bracket(NamedTuple):
    """Bounds of a minimum: it lies in [lower, upper], and upper is attained."""

    lower: float
    upper: float


def straight_lines(allowed: Beliefs) -> Bracket:
    """Return both ends by straight lines: fill the intervals with the least entropy per unit, until Σ p = 1.

    The last one is filled in part; its straight line gives the lower end, its own term the upper.
    """
    rise, left = allowed.at_low, allowed.slack
    for group in sorted(allowed.intervals, key=lambda group: group.rise / group.width):
        full = min(group.predicates, int(left / group.width))
        rise, left = rise + full * group.rise, max(0.0, left - full * group.width)
        if full < group.predicates:
            between = min(left, group.width)
            lower = rise + between * (group.rise / group.width)
            return Bracket(max(0.0, lower), rise + term(group.low + between) - term(group.low))
    return Bracket(max(0.0, rise), rise)


class Node(NamedTuple):
    """A set of vertices."""

    between: int
    """The group of the predicate in between."""
    least: tuple[int, ...]
    most: tuple[int, ...]
    """For each group the smallest and the largest number of predicates at their upper ends."""
    few: int
    many: int
    """The smallest and the largest number of them in all groups together."""


class _Choice(NamedTuple):
    """The best numbers at upper ends for one slope."""

    numbers: tuple[int, ...]
    spent: float
    """Sum of their widths."""
    cost: float
    """Sum of their rises."""


class Relaxation:
    """Bounds on the rise of entropy over ``at_low`` within sets of vertices."""

    def __init__(self, beliefs: Beliefs) -> None:
        self.groups, self.slack = beliefs.intervals, beliefs.slack

    def bound(self, node: Node, best: float) -> Bracket:
        """Return a lower bound on the rise within a node, inf where it is empty; and the least rise found so far.

        Args:
            node: the set of vertices.
            best: the least rise found before.
        """
        amounts = self.amounts(node)
        if amounts is None:
            return Bracket(inf, best)
        group = self.groups[node.between]
        ends = [(t, term(group.low + t) - term(group.low)) for t in amounts]
        (t0, rise0), (t1, rise1) = ends
        slope = (rise1 - rise0) / (t1 - t0) if t1 > t0 else 0.0
        return self.dual(node, ends, slope, best)

    def amounts(self, node: Node) -> tuple[float, float] | None:
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

    def dual(self, node: Node, ends: list[tuple[float, float]], slope: float, best: float) -> Bracket:
        """Return the best bound over some slopes: Newton's method between one that is too small and one too large.

        A choice that is a vertex may lower the least rise found so far, which ``bound`` returns too.
        """
        lower, step = -inf, 1.0
        small: tuple[float, float, float] | None = None
        large: tuple[float, float, float] | None = None
        for _ in range(_SLOPES):
            choice = self.choose(node, slope)
            left = self.slack - choice.spent
            best = min(best, self.rise(node, choice, left))
            t, least = min(((t, rise - slope * t) for t, rise in ends), key=lambda end: end[1])
            value = choice.cost + slope * left + least
            lower = max(lower, value)
            if lower >= best - TOLERANCE or ends[0][0] <= left <= ends[1][0]:
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
        return Bracket(lower, best)

    def choose(self, node: Node, slope: float) -> _Choice:
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

    def rise(self, node: Node, choice: _Choice, left: float) -> float:
        """Return the rise of a choice, inf where it is not a vertex."""
        group = self.groups[node.between]
        if not -TOLERANCE <= left <= group.width + TOLERANCE:
            return inf
        within = min(max(left, 0.0), group.width)
        return choice.cost + term(group.low + within) - term(group.low)


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
