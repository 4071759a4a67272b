"""Planned epsilons of several answers, predicate by predicate: no record pays more or less than its own."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from stream.decisions.ledger import Cells, Theta, composed, epsilon_of
from stream.errors import UsageError

HALL, LOFT = (frozenset(product((zone,), (9, 10, 11))) for zone in ("hall", "loft"))
NINE, TEN = (frozenset(product(("hall", "loft", "roof"), (hour,))) for hour in (9, 10))
BY_ZONE: Theta = {HALL: Fraction(1), LOFT: Fraction(2)}
BY_HOUR: Theta = {NINE: Fraction(10), TEN: Fraction(20)}


def paid(theta: Theta, cell: tuple[str, int]) -> Fraction:
    return sum((epsilon for cells, epsilon in theta.items() if cell in cells), Fraction(0))


def test_every_record_pays_what_both_answers_charge_it() -> None:
    both = composed(BY_ZONE, BY_HOUR)
    for cell in product(("hall", "loft", "roof", "yard"), (9, 10, 11)):
        assert paid(both, cell) == paid(BY_ZONE, cell) + paid(BY_HOUR, cell), cell
    assert sum(len(cells) for cells in both) == len(frozenset().union(*both))
    assert both[frozenset({("loft", 10)})] == 22
    assert epsilon_of(both) == 22


def test_it_costs_less_than_the_sum_where_the_dearest_do_not_meet() -> None:
    apart: Theta = {HALL: Fraction(1), LOFT: Fraction(0)}
    dear_elsewhere: Theta = {HALL: Fraction(0), LOFT: Fraction(1)}
    assert epsilon_of(composed(apart, dear_elsewhere)) == 1
    assert epsilon_of(composed(apart, apart)) == 2
    assert epsilon_of(composed({}, {})) == 0


@pytest.mark.parametrize("theta", [{HALL: Fraction(1), NINE: Fraction(1)}, {frozenset(): Fraction(1)}])
def test_predicates_that_overlap_or_hold_for_nothing_are_refused(theta: dict[Cells, Fraction]) -> None:
    with pytest.raises(UsageError, match=r"exclude each other|at least one cell"):
        composed(theta, BY_ZONE)
