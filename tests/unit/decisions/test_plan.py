"""Epsilons and shifts of threshold decisions, checked with longer arithmetic, and the tables that they decide on."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from stream.decisions.plan import GRID, epsilon_for, geometric, printed_epsilon, printed_shift, shift_for
from stream.decisions.progressive import Table
from stream.errors import UsageError

BETAS = (Fraction(1, 200), Fraction(1, 10), Fraction(49, 100))
EPSILONS = (Fraction(1, 50), Fraction(1, 3), Fraction(2), Fraction(12))


def missed(epsilon: Fraction, shift: int) -> Decimal:
    """Return a**(s+1) / (1+a), a = exp(-epsilon)."""
    with localcontext(prec=60):
        a = (-Decimal(epsilon.numerator) / epsilon.denominator).exp()
        return a ** (shift + 1) / (1 + a)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_shift_is_the_least_with_so_few_misses(epsilon: Fraction, beta: Fraction) -> None:
    shift, allowed = shift_for(epsilon, beta), Decimal(beta.numerator) / beta.denominator
    assert shift >= 0
    assert missed(epsilon, shift) <= allowed
    assert shift == 0 or missed(epsilon, shift - 1) > allowed


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("shift", [0, 1, 7, 100])
def test_an_epsilon_is_the_least_of_the_grid_with_so_few_misses(shift: int, beta: Fraction) -> None:
    epsilon, allowed = epsilon_for(shift, beta), Decimal(beta.numerator) / beta.denominator
    assert missed(epsilon, shift) <= allowed < missed(epsilon - Fraction(1, GRID), shift)


def test_the_shift_in_print_is_the_whole_part_of_its_alpha() -> None:
    assert [printed_shift(epsilon, Fraction(1, 200)) for epsilon in EPSILONS] == [230, 13, 2, 0]


def test_the_epsilon_in_print_is_rounded_up() -> None:
    found = printed_epsilon(Fraction(10), Fraction(1, 200))
    assert 0 < float(found) - math.log(100) / 10 < 1e-9
    assert GRID % found.denominator == 0


def test_one_step_has_the_last_epsilon_alone() -> None:
    assert geometric(Fraction(1, 10), Fraction(1), 1) == (Fraction(1),)


def test_steps_have_a_constant_ratio_and_are_rounded_up() -> None:
    first, *between, last = geometric(Fraction(1, 8), Fraction(1), 4)
    assert (first, last) == (Fraction(1, 8), Fraction(1))
    for found, exact in zip(between, (0.25, 0.5), strict=True):
        assert 0 <= found - Fraction(exact) <= Fraction(1, GRID)


def test_epsilons_that_the_grid_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="by enough for 3 steps"):
        geometric(Fraction(1), 1 + Fraction(1, GRID), 3)


def test_a_predicate_that_is_named_twice_is_refused() -> None:
    numbers, alphas = np.array([1, 2]), (Fraction(1), Fraction(1))
    assert Table(("a", "b"), numbers, numbers, alphas).predicates == ("a", "b")
    with pytest.raises(UsageError, match="predicates must be named once each"):
        Table(("a", "a"), numbers, numbers, alphas)
