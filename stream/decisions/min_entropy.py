"""Min-entropy of a predicate-wise private answer: the least uncertainty about which predicate holds.

γ(Θ) = min of -Σ p ln p over the beliefs that the answer allows (Ghayyur 2022, 5.8). With few groups of equal
predicates it is computed exactly; otherwise it lies in a certified bracket, whose lower end is reported, so that
the entropy is never overstated. The thesis plots it divided by ln k.

``minimum_entropy`` first bounds the minimum by straight lines (``entropy_bounds``). It then closes the gap by a search
of the vertices of the beliefs (``entropy_search``), as far as that is efficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from stream.accounting.leakage.entries import vector
from stream.decisions.beliefs import Beliefs, beliefs
from stream.decisions.entropy_bounds import TOLERANCE, Bracket, straight_lines
from stream.decisions.entropy_search import least_by_halves, least_entropy

EXACT_UP_TO = 25
"""Number of predicates up to which the minimum is always found."""
NODES = 1500
"""Number of nodes of the search; more would not improve the result enough."""


class MinEntropy(NamedTuple):
    """Bounds of γ(Θ), in nats."""

    lower: float
    """The reported value."""
    upper: float
    predicates: int

    @property
    def exact(self) -> bool:
        """Whether both ends are equal."""
        return self.upper - self.lower <= TOLERANCE

    @property
    def normalised(self) -> float:
        """The lower end divided by ln k: 1 without any knowledge, 0 for a single predicate."""
        return self.lower / log(self.predicates) if self.predicates > 1 else 0.0


def minimum_entropy(
    epsilons: Sequence[float], priors: Sequence[float] | None = None, *, most_nodes: int | None = None
) -> MinEntropy:
    """Return bounds on γ(Θ), the min-entropy of the costs Θ.

    Args:
        epsilons: ε_i >= 0 of each predicate, finite, at least one.
        priors: prior probability of each, up to a factor; by default equal.
        most_nodes: number of nodes after which a bracket is returned; by default the search continues as long as
            it is efficient, and up to ``EXACT_UP_TO`` predicates to the end.

    Raises:
        UsageError: there is no predicate, or no prior is positive.
    """
    allowed = beliefs(epsilons, priors)
    found = straight_lines(allowed)
    if len(allowed.intervals) <= EXACT_UP_TO:
        searched = least_entropy(allowed, NODES if most_nodes is None else most_nodes)
        found = Bracket(max(found.lower, searched.lower), min(found.upper, searched.upper))
        if most_nodes is None and found.upper - found.lower > TOLERANCE and _number(allowed) <= EXACT_UP_TO:
            least = least_by_halves(allowed, found.upper)
            found = Bracket(least, least)
    return MinEntropy(min(found), found.upper, len(epsilons))


def _number(allowed: Beliefs) -> int:
    return sum(each.predicates for each in allowed.intervals)


# The interface of ``tacet leakage min-entropy``.


def min_entropy(*, epsilons: object, priors: object = None) -> dict[str, float | bool]:
    """Return the least uncertainty about which predicate holds, after a predicate-wise private answer.

    Args:
        epsilons: cost of the answer for a record of each predicate, >= 0, at least one.
        priors: prior probability of each, >= 0, up to a factor; by default equal.

    Returns:
        ``min_entropy`` in nats (the ``lower`` end where it is not ``exact``), ``normalised`` by the logarithm of
        the number of predicates, and the bracket ``lower``, ``upper``.

    Raises:
        UsageError: an entry is malformed, there is none, or no prior is positive.
    """
    each = vector(epsilons, "epsilons", low=0.0)
    before = None if priors is None else vector(priors, "priors", len(each), low=0.0).tolist()
    found = minimum_entropy(each.tolist(), before)
    return {
        "min_entropy": found.lower,
        "normalised": found.normalised,
        "lower": found.lower,
        "upper": found.upper,
        "exact": found.exact,
    }
