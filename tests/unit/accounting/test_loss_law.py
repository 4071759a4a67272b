"""The law of a loss: masses on a lattice, tails counted on the safe side, the price read off it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from stream.accounting import privacy_loss
from stream.accounting.privacy_loss import (
    TAIL,
    PrivacyLossDistribution,
    _trimmed,
    added,
    convolved,
    delta_at,
    epsilon_at,
    exp_minus,
    gaussian_loss,
    laplace_loss,
)


def law(masses: list[float], infinite: float = 0.0) -> PrivacyLossDistribution:
    return PrivacyLossDistribution(1.0, 0.5, np.array(masses), infinite)


def test_what_is_cut_above_counts_as_infinite_loss_and_what_is_cut_below_as_the_least_that_is_kept() -> None:
    cut = _trimmed(law([TAIL / 4, TAIL / 4, 0.25, 0.75, TAIL / 2], infinite=TAIL))
    assert (cut.top, cut.step) == (0.0, 0.5)
    assert cut.infinite == 1.5 * TAIL
    assert cut.masses.tolist() == [0.25, 0.75 + TAIL / 2]


def test_a_cut_below_is_not_lost() -> None:
    cut = _trimmed(law([1e-20, TAIL / 2]))
    assert cut.masses.tolist() == [1e-20 + TAIL / 2]


def test_infinite_losses_of_two_laws_add_up_and_no_epsilon_is_free_of_them() -> None:
    both = added(law([0.5, 0.5], infinite=1e-3), law([1.0], infinite=2e-3))
    assert both.infinite == pytest.approx(3e-3)
    assert both.top == 2.0
    assert delta_at(both, 100.0) == both.infinite
    assert epsilon_at(both, 2.9e-3) == math.inf
    assert epsilon_at(both, 3.1e-3) < 2.0


def test_losses_that_a_delta_allows_altogether_cost_nothing() -> None:
    assert epsilon_at(PrivacyLossDistribution(2.0, 1.0, np.array([0.005, 0.0, 0.995])), 0.01) == 0.0
    assert epsilon_at(law([0.03, 0.0, 0.5, 0.47]), 0.01) > 0.0


@pytest.mark.parametrize("lengths", [(1, 1), (3, 5), (200, 1000)])
def test_a_sum_by_fourier_transform_is_the_sum_point_by_point(lengths: tuple[int, int]) -> None:
    one, other = (law([(k + 1) / n / (n + 1) * 2 for k in range(n)], infinite=n * TAIL) for n in lengths)
    direct, fast = added(one, other), convolved(one, other)
    assert (fast.top, fast.step) == (2.0, 0.5)
    assert fast.infinite == one.infinite + other.infinite
    assert fast.masses.min() >= 0
    first = round((fast.top - direct.top) / fast.step)
    assert fast.masses[first : first + len(direct.masses)] == pytest.approx(direct.masses, abs=1e-15)


def test_a_widely_laid_gaussian_counts_what_it_leaves_out() -> None:
    assert gaussian_loss(Fraction(100), 1, 96).infinite == TAIL
    assert gaussian_loss(Fraction(1), 1, 4).infinite >= 4 * TAIL


@pytest.mark.parametrize("shift", [1, 2, 5])
def test_a_law_and_its_mirror_have_the_ratio_that_their_losses_say(shift: int) -> None:
    """By symmetry Q(loss) = P(-loss), and a loss is ln(P/Q): so P(loss) = e^loss P(-loss)."""
    for each in (laplace_loss(Decimal("0.3"), shift, 7), gaussian_loss(Fraction(3, 2), shift, 5)):
        losses = each.top - each.step * np.arange(len(each.masses))
        mirrored = np.round((each.top + losses) / each.step).astype(int)
        inside = (mirrored >= 0) & (mirrored < len(losses)) & (np.abs(losses) < 20)
        assert losses[mirrored[inside]] == pytest.approx(-losses[inside], abs=1e-9)
        assert each.masses[inside] == pytest.approx(np.exp(losses[inside]) * each.masses[mirrored[inside]], rel=1e-9)


def test_the_price_read_off_a_law_gives_back_its_delta() -> None:
    each = laplace_loss(Decimal("0.1"), 1, 292)
    for delta in (1e-9, 1e-6, 1e-3, 0.05):
        assert delta_at(each, epsilon_at(each, delta)) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("guess", [0, 5, 10**6])
def test_no_bit_of_a_price_depends_on_the_guess_of_where_it_is(guess: int, monkeypatch: pytest.MonkeyPatch) -> None:
    laws = [laplace_loss(Decimal("0.1"), 1, 292), gaussian_loss(Fraction(250), 2, 48), law([0.5, 0.25, 0.25])]
    prices = [epsilon_at(each, delta) for each in laws for delta in (1e-9, 1e-6, 0.01)]
    monkeypatch.setattr(privacy_loss, "_about_last_loss", lambda *_: guess)
    assert [epsilon_at(each, delta) for each in laws for delta in (1e-9, 1e-6, 0.01)] == prices


def test_a_delta_that_hides_all_costs_nothing() -> None:
    assert epsilon_at(laplace_loss(Decimal("0.001"), 1, 1), 0.01) == 0.0


def test_exp_minus_is_the_exponential_up_to_sixty_and_never_zero() -> None:
    values = np.linspace(0.0, 60.0, 4001)
    assert exp_minus(values) == pytest.approx(np.exp(-values), rel=1e-12)
    assert exp_minus(np.array([61.0, 700.0, 1e9])).tolist() == [pytest.approx(math.exp(-61), rel=1e-11)] * 3
