"""What several predicate-wise private answers cost together, predicate by predicate (Theorem 5.2).

A predicate is the set of cells it holds for, such as pairs of zone and time; those of one answer exclude each other. A
record in cell x pays what each answer charges the predicate that x is in, so all that matters are the pieces that the
predicates cut each other into. Only planned epsilons may be composed for a public ledger: those at which a run ended
follow from counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from fractions import Fraction

from stream.errors import UsageError

Cells = frozenset[Hashable]
Theta = Mapping[Cells, Fraction]
"""Predicate -> ε that an answer costs a record of it; a cell of none costs nothing."""


def composed(first: Theta, second: Theta) -> dict[Cells, Fraction]:
    """Return the Θ of both answers together: pieces in both cost the sum, pieces in one what that one costs.

    Raises:
        UsageError: a Θ has predicates that overlap, or that hold for no cell.
    """
    of_first, of_second = _by_cell(first), _by_cell(second)
    pieces: dict[tuple[Cells, Cells], set[Hashable]] = defaultdict(set)
    for cell in of_first.keys() | of_second.keys():
        pieces[of_first.get(cell, _NONE), of_second.get(cell, _NONE)].add(cell)
    nothing = Fraction(0)
    return {frozenset(cells): first.get(a, nothing) + second.get(b, nothing) for (a, b), cells in pieces.items()}


_NONE: Cells = frozenset()


def _by_cell(theta: Theta) -> dict[Hashable, Cells]:
    found = {cell: predicate for predicate in theta for cell in predicate}
    if not all(theta):
        raise UsageError("a predicate must hold for at least one cell")
    if len(found) < sum(map(len, theta)):
        raise UsageError("predicates of one answer must exclude each other")
    return found


def epsilon_of(theta: Theta) -> Fraction:
    """Return ε of differential privacy for one record added or removed: that of the dearest predicate (Theorem 5.3)."""
    return max(theta.values(), default=Fraction(0))
