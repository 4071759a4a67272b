"""Min-entropy of a predicate-wise private answer: the least that remains unknown of which predicate holds.

γ(Θ) = min of -Σ p ln p over the beliefs that the answer allows (Ghayyur 2022, 5.8). With few groups of equal
predicates it is found exactly; otherwise it lies in a certified bracket, whose lower end is what is reported: entropy
is never said to be more than it is. The thesis plots it divided by ln k.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from stream.decisions.halves import least_by_halves
from stream.decisions.posteriors import Beliefs, beliefs, term
from stream.decisions.vertices import TOLERANCE, Bracket, chords, least_entropy

EXACT_UP_TO = 25
"""Predicates up to which the minimum is always found."""
NODES = 1500
"""Nodes of the search: more would not pay."""


class MinEntropy(NamedTuple):
    """What is known of γ(Θ), in nats."""

    lower: float
    """What is reported."""
    upper: float
    predicates: int

    @property
    def exact(self) -> bool:
        """Whether both ends are the same."""
        return self.upper - self.lower <= TOLERANCE

    @property
    def normalised(self) -> float:
        """The lower end divided by ln k: 1 where nothing is known, 0 of a single predicate."""
        return self.lower / log(self.predicates) if self.predicates > 1 else 0.0


def min_entropy(
    epsilons: Sequence[float], priors: Sequence[float] | None = None, *, most_nodes: int | None = None
) -> MinEntropy:
    """Return γ(Θ).

    Args:
        epsilons: ε_i >= 0 of each predicate, finite, at least one.
        priors: how likely each was beforehand, up to a factor; by default equal.
        most_nodes: after how many nodes to be content with a bracket; by default the search goes on as far as it
            pays, and up to ``EXACT_UP_TO`` predicates to the end.

    Raises:
        UsageError: there is no predicate, or no prior is positive.
    """
    allowed = beliefs(epsilons, priors)
    found = _bracket(allowed)
    if len(allowed.intervals) <= EXACT_UP_TO:
        searched = least_entropy(allowed, NODES if most_nodes is None else most_nodes)
        found = Bracket(max(found.lower, searched.lower), min(found.upper, searched.upper))
        if most_nodes is None and found.upper - found.lower > TOLERANCE and _number(allowed) <= EXACT_UP_TO:
            least = least_by_halves(allowed, found.upper)
            found = Bracket(least, least)
    return MinEntropy(min(found), found.upper, len(epsilons))


def _number(allowed: Beliefs) -> int:
    return sum(each.predicates for each in allowed.intervals)


def _bracket(allowed: Beliefs) -> Bracket:
    """Return both ends by straight lines: fill the intervals that bring least entropy a unit, until Σ p = 1.

    The last one is filled in part; on its straight line that gives the lower end, on its own term the upper.
    """
    rise, left = allowed.at_low, allowed.slack
    for group in chords(allowed.intervals):
        full = min(group.predicates, int(left / group.width))
        rise, left = rise + full * group.rise, max(0.0, left - full * group.width)
        if full < group.predicates:
            between = min(left, group.width)
            lower = rise + between * (group.rise / group.width)
            return Bracket(max(0.0, lower), rise + term(group.low + between) - term(group.low))
    return Bracket(max(0.0, rise), rise)
