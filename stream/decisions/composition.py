"""What several predicate-wise private answers cost together, predicate by predicate (Theorem 5.2).

A predicate is the set of cells it holds for, such as pairs of zone and time; those of one answer exclude each other. A
record in cell x pays what each answer charges the predicate that x is in, so all that matters are the pieces that the
predicates cut each other into. Only planned epsilons may be composed for a public ledger: those at which a run ended
follow from counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from itertools import combinations

from stream.errors import UsageError

Cells = frozenset[Hashable]
Theta = Mapping[Cells, Fraction]
"""Predicate -> ε that an answer costs a record of it; a cell of none costs nothing."""


def composed(first: Theta, second: Theta) -> dict[Cells, Fraction]:
    """Return the Θ of both answers together: pieces in both cost the sum, pieces in one what that one costs.

    Raises:
        UsageError: a Θ has predicates that overlap, or that hold for no cell.
    """
    for theta in (first, second):
        _check(theta)
    pieces = {a & b: first[a] + second[b] for a in first for b in second if a & b}
    pieces |= _alone(first, second)
    return pieces | _alone(second, first)


def _alone(theta: Theta, other: Theta) -> dict[Cells, Fraction]:
    covered = frozenset().union(*other)
    return {cells - covered: epsilon for cells, epsilon in theta.items() if cells - covered}


def _check(theta: Theta) -> None:
    if not all(theta):
        raise UsageError("a predicate must hold for at least one cell")
    if any(a & b for a, b in combinations(theta, 2)):
        raise UsageError("predicates of one answer must exclude each other")


def epsilon_of(theta: Theta) -> Fraction:
    """Return ε of differential privacy for one record added or removed: that of the dearest predicate (Theorem 5.3)."""
    return max(theta.values(), default=Fraction(0))
