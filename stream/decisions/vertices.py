"""Least entropy over all beliefs that an answer allows, by branch and bound over groups of equal predicates.

Entropy is concave, so its least value stands at a vertex: every predicate but one at an end of its interval. A vertex
is the group of the one that lies between (``between``), and of every group how many are at their upper end.

A node holds a range for each of these numbers and one for their sum. Beneath it, the amount t that is left for the one
between lies in [t0, t1], and its concave term is at least σ t + c for every slope σ, with c fixed by the two ends;
what remains is linear and is solved by sorting. The best σ (the dual is concave and piecewise linear) gives the bound.
Of all but equal groups t hardly varies once the sum is fixed, so the bound is all but exact where subsets are all but
equal: a bound on whole intervals would have to walk through all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from stream.decisions.posteriors import Beliefs, Interval, term

TOLERANCE = 1e-12
"""Vertices that differ by less, in nats, count as equal."""
_SLOPES = 12
"""Slopes tried for a node at most."""


class Bracket(NamedTuple):
    """What is known of a minimum: it lies in [lower, upper], and upper is attained."""

    lower: float
    upper: float


class _Node(NamedTuple):
    between: int
    least: tuple[int, ...]
    most: tuple[int, ...]
    few: int
    many: int
    """The least and the largest number of predicates at their upper ends."""


class _Choice(NamedTuple):
    """Numbers at upper ends that are best for one slope."""

    numbers: tuple[int, ...]
    spent: float
    """Their widths, added up."""
    cost: float
    """Their rises, added up."""


def least_entropy(beliefs: Beliefs, most_nodes: int) -> Bracket:
    """Return the least entropy in nats, both ends equal when the search came to its end.

    Args:
        beliefs: at most some dozens of groups.
        most_nodes: after how many nodes to stop.
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
        """Return a lower bound on the rise beneath a node, inf where nothing is; improve ``best`` on the way."""
        amounts = self.amounts(node)
        if amounts is None:
            return inf
        group = self.groups[node.between]
        ends = [(t, term(group.low + t) - term(group.low)) for t in amounts]
        (t0, rise0), (t1, rise1) = ends
        slope = (rise1 - rise0) / (t1 - t0) if t1 > t0 else 0.0
        return self.dual(node, ends, slope)

    def amounts(self, node: _Node) -> tuple[float, float] | None:
        """Return the least and the largest amount that is left for the one between; None where none is possible."""
        fixed = sum(node.least)
        few, many = max(0, node.few - fixed), min(node.many, sum(node.most)) - fixed
        if few > many:
            return None
        spent = sum(n * group.width for n, group in zip(node.least, self.groups, strict=True))
        free = [(g.width, hi - lo) for g, lo, hi in zip(self.groups, node.least, node.most, strict=True) if hi > lo]
        free.sort()
        t1 = min(self.slack - spent - _taken(free, few), self.groups[node.between].width)
        t0 = max(self.slack - spent - _taken(free[::-1], many), 0.0)
        if t0 > t1:  # rounding of what is a single point must not lose it
            return (t1, t1) if t0 - t1 < TOLERANCE and t1 >= 0 else (t0, t0) if t0 - t1 < TOLERANCE else None
        return t0, t1

    def dual(self, node: _Node, ends: list[tuple[float, float]], slope: float) -> float:
        """Return the best bound of some slopes: Newton's way between one that is too small and one too large."""
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
        """Return the numbers that make Σ (rise - slope · width) least, within the node."""
        numbers = list(node.least)
        fixed = sum(numbers)
        few, many = node.few - fixed, node.many - fixed
        keys = sorted(
            (group.rise - slope * group.width, i) for i, group in enumerate(self.groups) if node.most[i] > node.least[i]
        )
        for key, i in keys:
            room = node.most[i] - node.least[i]
            taken = min(room, many if key < 0 else max(0, few))
            numbers[i] += taken
            few, many = few - taken, many - taken
        spent = sum(n * group.width for n, group in zip(numbers, self.groups, strict=True))
        cost = sum(n * group.rise for n, group in zip(numbers, self.groups, strict=True))
        return _Choice(tuple(numbers), spent, cost)

    def improve(self, node: _Node, choice: _Choice, left: float) -> None:
        """Take the vertex of a choice where it is one."""
        group = self.groups[node.between]
        if -TOLERANCE <= left <= group.width + TOLERANCE:
            within = min(max(left, 0.0), group.width)
            self.best = min(self.best, choice.cost + term(group.low + within) - term(group.low))

    def split(self, node: _Node) -> Iterator[_Node]:
        """Halve a node: by the sum while that is open, then by the group that moves the amount most."""
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
        """Return how much a group's open number can move the amount that is left, against the others' mean."""
        mean = sum(self.groups[j].width for j in among) / len(among)
        return (node.most[i] - node.least[i]) * abs(self.groups[i].width - mean)


def _crossing(small: tuple[float, float, float], large: tuple[float, float, float]) -> float:
    """Return the slope at which two tangents of the dual meet."""
    (at, value, rate), (at2, value2, rate2) = small, large
    return at + (value2 - value + rate2 * (at - at2)) / (rate - rate2) if rate > rate2 else at


def _taken(ordered: list[tuple[float, int]], n: int) -> float:
    """Return the sum of the first ``n`` widths."""
    total = 0.0
    for width, number in ordered:
        taken = min(n, number)
        total, n = total + taken * width, n - taken
    return total


def _with(numbers: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    return (*numbers[:i], value, *numbers[i + 1 :])


def chords(groups: tuple[Interval, ...]) -> list[Interval]:
    """Return groups by how little entropy each unit of belief brings, from the least on."""
    return sorted(groups, key=lambda group: group.rise / group.width)
