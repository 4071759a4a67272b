"""Consistent counts of a tree, by least squares.

Every node v of a tree (or forest) has a measurement y_v of the sum over its leaves, with known variance. The
generalised least squares estimate is the best linear unbiased estimate that adds up; as post-processing it
costs nothing. Two passes compute it (the constrained inference of Hay, Rastogi, Miklau, Suciu, VLDB 2010,
with a variance for each node):

    symbol   here        meaning
    y, p     measured, precision    measurement and 1 / its variance; p = 0: not measured
    z, s     Gathered    estimate from the measurements at and below a node, and its variance

    upwards    z_v = (p_v y_v + Σz_c/Σs_c) / (p_v + 1/Σs_c),  s_v = 1 / (p_v + 1/Σs_c),  sums over children c
    downwards  x_root = z_root,  x_c = z_c + s_c/Σs (x_v - Σz),  sums over the children of v
    variance   v_c = s_c - s_c²/Σs (1 - v_v/Σs)

A node that has neither a measurement nor a measured descendant is absent: it has z = s = 0 and estimate 0.
All operations are + − × ÷ of doubles in a fixed order, so the bytes do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.mechanisms.exact import Floats, Ints, ordered_sum

LEVELS = ("zone", "floor", "building")


@dataclass(frozen=True)
class Tree:
    """Nodes by level, leaves first. A vector over all nodes has the leaves, then each level above."""

    names: tuple[tuple[str, ...], ...]
    """Names of each level's nodes."""
    parents: tuple[tuple[int, ...], ...]
    """For each level but the highest, the position of each node's parent within the level above."""

    def __post_init__(self) -> None:
        if len(self.names) != len(self.parents) + 1:
            raise UsageError(f"parents must be given for all levels but one, got {len(self.parents)}")
        for level, parents in enumerate(self.parents):
            above = len(self.names[level + 1])
            if len(parents) != len(self.names[level]) or set(parents) != set(range(above)):
                raise UsageError(f"parents[{level}] must give every node a parent and every parent a node")

    @property
    def height(self) -> int:
        """h, the number of levels."""
        return len(self.names)

    @cached_property
    def nodes(self) -> int:
        """The number of nodes on all levels."""
        return sum(len(names) for names in self.names)

    @cached_property
    def levels(self) -> tuple[slice, ...]:
        """The slice of each level in a vector over all nodes."""
        ends = np.cumsum([0] + [len(names) for names in self.names]).tolist()
        return tuple(slice(first, end) for first, end in pairwise(ends))

    @cached_property
    def above(self) -> tuple[Ints, ...]:
        """``parents`` as arrays."""
        return tuple(np.array(parents, dtype=np.int64) for parents in self.parents)

    @cached_property
    def children(self) -> tuple[tuple[Ints, ...], ...]:
        """For each level but the lowest, the children of each node, as positions within the level below."""
        return tuple(
            tuple(np.flatnonzero(above == place) for place in range(len(names)))
            for above, names in zip(self.above, self.names[1:], strict=True)
        )

    def sums(self, leaves: Ints) -> Ints:
        """Return the counts of all nodes, shape [nodes], from those of the leaves."""
        counts = [np.asarray(leaves, dtype=np.int64)]
        for above, names in zip(self.above, self.names[1:], strict=True):
            level = np.zeros(len(names), dtype=np.int64)
            np.add.at(level, above, counts[-1])
            counts.append(level)
        return np.concatenate(counts)


def site_tree(zones: Sequence[str], floors: Sequence[str], levels: Sequence[str] = LEVELS) -> Tree:
    """Return the tree of a site's zones (``floors[i]`` is the floor of ``zones[i]``); floors sorted by name.

    Its leaves are the nodes of the first level: zones, or where these are left out floors, or the building.

    Raises:
        UsageError: levels are none of zone, floor, building, or not in this order.
    """
    if not levels or list(levels) != [level for level in LEVELS if level in levels]:
        raise UsageError(f"levels must be zone, floor and building in this order, got {', '.join(levels)}")
    places = _places(floors)
    named = {"zone": tuple(zones), "floor": tuple(places), "building": ("building",)}
    above = {
        ("zone", "floor"): tuple(places[floor] for floor in floors),
        ("zone", "building"): (0,) * len(zones),
        ("floor", "building"): (0,) * len(places),
    }
    return Tree(tuple(named[level] for level in levels), tuple(above[pair] for pair in pairwise(levels)))


def leaf_of_zone(floors: Sequence[str], levels: Sequence[str]) -> Ints:
    """Return, for each zone, the position of its leaf in :func:`site_tree`."""
    if levels[0] == "zone":
        return np.arange(len(floors))
    places = _places(floors) if levels[0] == "floor" else dict.fromkeys(floors, 0)
    return np.array([places[floor] for floor in floors], dtype=np.int64)


def _places(floors: Sequence[str]) -> dict[str, int]:
    """Return floor name -> position."""
    return {floor: place for place, floor in enumerate(sorted(set(floors)))}


class Gathered(NamedTuple):
    """Result of the upward pass for every node; shape [nodes]."""

    z: Floats
    s: Floats


class Consistent(NamedTuple):
    """Estimates that add up; shape [nodes]."""

    value: Floats
    variance: Floats
    """Correct if the precisions were."""


def gather(tree: Tree, measured: Floats, precision: Floats) -> Gathered:
    """Return the upward pass."""
    z, s = np.zeros(tree.nodes), np.zeros(tree.nodes)
    for level, here in enumerate(tree.levels):
        y, p = measured[here], precision[here]
        total_z, total_s = _child_sums(tree, level, z), _child_sums(tree, level, s)
        below = np.where(total_s > 0, 1 / np.where(total_s > 0, total_s, 1), 0)
        weight = p + below
        known = weight > 0
        s[here] = np.where(known, 1 / np.where(known, weight, 1), 0)
        z[here] = np.where(known, (p * y + below * total_z) * s[here], 0)
    return Gathered(z, s)


def _child_sums(tree: Tree, level: int, values: Floats) -> Floats:
    """Return the sums of ``values`` over the children of each node of a level, in the order of the nodes."""
    size = len(tree.names[level])
    if level == 0:
        return np.zeros(size)
    return np.asarray(np.bincount(tree.above[level - 1], weights=values[tree.levels[level - 1]], minlength=size))


def downward_pass(tree: Tree, gathered: Gathered) -> Consistent:
    """Return the downward pass: the estimates and their variances."""
    x, v = gathered.z.copy(), gathered.s.copy()
    for level in range(tree.height - 1, 0, -1):
        above, below = tree.levels[level], tree.levels[level - 1]
        parent = tree.above[level - 1]
        total_z, total_s = _child_sums(tree, level, gathered.z), _child_sums(tree, level, gathered.s)
        total = np.where(total_s > 0, total_s, 1)
        share = gathered.s[below] / total[parent]
        x[below] = gathered.z[below] + share * (x[above] - total_z)[parent]
        v[below] = gathered.s[below] - gathered.s[below] * share * (1 - v[above] / total)[parent]
    return Consistent(np.where(gathered.s > 0, x, 0), np.where(gathered.s > 0, v, 0))


def integer_estimates(tree: Tree, gathered: Gathered, *, negative: bool) -> Ints:
    """Return integers that add up, each near its estimate.

    The downward pass in integers: a root is rounded half to even; the children of a node share its integer,
    each rounded down or up so that they make it exactly, the largest remainders up. Where ``negative`` is
    false a root is at least 0, and children below 0 are set to 0 and their siblings take their part, which
    is least squares under that condition. Absent nodes get 0; a node all of whose children are absent keeps
    its own.
    """
    number = np.zeros(tree.nodes, dtype=np.int64)
    top = tree.levels[-1]
    number[top] = np.rint(gathered.z[top])
    if not negative:
        number[top] = np.maximum(number[top], 0)
    for level in range(tree.height - 1, 0, -1):
        above, below = tree.levels[level].start, tree.levels[level - 1].start
        for place, members in enumerate(tree.children[level - 1]):
            nodes = below + members
            number[nodes] = _apportion(int(number[above + place]), gathered.z[nodes], gathered.s[nodes], negative)
    return number


def _apportion(total: int, z: Floats, s: Floats, negative: bool) -> Ints:
    shared = np.zeros(len(z), dtype=np.int64)
    free = np.flatnonzero(s > 0)
    if not len(free):
        return shared
    x = _spread(total, z[free], s[free])
    while not negative and (x < 0).any() and (x >= 0).any():
        free = free[x >= 0]
        x = _spread(total, z[free], s[free])
    shared[free] = _with_sum(total, x)
    return shared


def _spread(total: int, z: Floats, s: Floats) -> Floats:
    return np.asarray(z + s / ordered_sum(s) * (total - ordered_sum(z)))


def _with_sum(total: int, x: Floats) -> Ints:
    """Return each x rounded down or up, the largest remainders up (the first of equal ones), with this sum."""
    floor = np.floor(x)
    up: NDArray[np.int64] = np.argsort(floor - x, kind="stable")[: total - int(ordered_sum(floor))]
    rounded = floor.astype(np.int64)
    rounded[up] += 1
    return rounded
