"""The price of a day: how much noise a window gets, and what all of that noise costs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream.accounting.composition import Gaussian
from stream.accounting.day_charges import cost_of
from stream.records import DAY, DayTerms, PrivacyDay
from stream.release.prices import DayPrice

F = Fraction
SHARES = F(1, 4), F(3, 4)

DAY_0 = PrivacyDay(0, 0, DAY)


def laplace(*shares: Fraction, ticks: int = 96) -> DayPrice:
    return DayPrice("laplace", F(2), F(0), ticks, shares or (F(1),))


def gaussian(*shares: Fraction, ticks: int = 96) -> DayPrice:
    return DayPrice("gaussian", F(2), F(1, 10**6), ticks, shares or (F(1),))


def terms(price: DayPrice) -> DayTerms:
    return DayTerms(DAY_0, price.noise, price.parameters, price.ticks)


@pytest.mark.parametrize("ticks", [1, 2, 96, 288])
@pytest.mark.parametrize("shares", [(), SHARES, (F(1, 2), F(1, 4), F(1, 4))])
def test_a_day_of_laplace_noise_costs_its_epsilon_exactly_however_it_is_shared(
    ticks: int, shares: tuple[Fraction, ...]
) -> None:
    price = laplace(*shares, ticks=ticks)
    assert price.parameters == tuple(share * 2 / ticks for share in shares or (F(1),))
    assert cost_of(terms(price)).pure == 2
    assert cost_of(terms(price), replaced=True).pure == 4


def test_every_level_of_a_day_is_paid_for() -> None:
    """Each of them alone costs its part, all of them together the day."""
    price = laplace(*SHARES)
    alone = [cost_of(DayTerms(DAY_0, "laplace", (each,), price.ticks)).pure for each in price.parameters]
    assert alone == [F(1, 2), F(3, 2)]
    of_both = cost_of(DayTerms(DAY_0, "gaussian", (F(50), F(20)), 96))
    assert of_both.tally == {Gaussian(F(50)): 96, Gaussian(F(20)): 96}


def test_a_level_of_gaussian_noise_that_pays_less_has_more_of_it() -> None:
    (whole,), (small, large) = gaussian().parameters, gaussian(*SHARES).parameters
    assert small > large > whole
    assert float(small / large) == pytest.approx(3, rel=0.1)
    assert gaussian(F(1, 2), F(1, 2)).parameters[0] == pytest.approx(float(2 * whole), rel=0.1)


def test_more_windows_of_a_day_or_a_smaller_delta_take_more_gaussian_noise() -> None:
    (few,), (many,) = gaussian(ticks=12).parameters, gaussian(ticks=96).parameters
    (strict,) = DayPrice("gaussian", F(2), F(1, 10**9), 96).parameters
    assert few < many < strict
