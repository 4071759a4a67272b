"""The price of a day: how much noise a window gets, and what all of that noise costs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream.accounting.composition import Gaussian
from stream.accounting.day_charges import KEPT, DaySpend, changed_loss, cost_of, days_touched
from stream.records import DAY, HOUR, PURE, CountCharge, DayTerms, PrivacyDay
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
    assert of_both.noises == {Gaussian(F(50)): 96, Gaussian(F(20)): 96}


def test_a_level_of_gaussian_noise_that_pays_less_has_more_of_it() -> None:
    (whole,), (small, large) = gaussian().parameters, gaussian(*SHARES).parameters
    assert small > large > whole
    assert float(small / large) == pytest.approx(3, rel=0.1)
    assert gaussian(F(1, 2), F(1, 2)).parameters[0] == pytest.approx(float(2 * whole), rel=0.1)


def test_more_windows_of_a_day_or_a_smaller_delta_take_more_gaussian_noise() -> None:
    (few,), (many,) = gaussian(ticks=12).parameters, gaussian(ticks=96).parameters
    (strict,) = DayPrice("gaussian", F(2), F(1, 10**9), 96).parameters
    assert few < many < strict


def test_a_span_touches_a_day_more_than_it_fills_of_the_shortest_days() -> None:
    """A day in which the clocks are set forward has 23 hours."""
    spans = (1, 23 * HOUR, 23 * HOUR + 1, 46 * HOUR, 46 * HOUR + 1)
    assert [days_touched(span) for span in spans] == [2, 2, 3, 3, 4]


@pytest.mark.parametrize("noise", ["laplace", PURE])
def test_the_loss_of_a_changed_part_of_a_pure_day_is_certain_and_finite(noise: str) -> None:
    for probability in (None, F(1, 10**6)):
        assert changed_loss(noise, (F(1, 4), F(1, 2)), 3, probability, devices=2) == 2 * 3 * F(3, 4)


PURE_DAY = DayTerms(DAY_0, PURE, (F(1, 2),), 3)
RUN = CountCharge("many", "public", "sparse", F(3, 2), terms=PURE_DAY)


def test_runs_of_a_pure_day_add_up_and_another_audience_has_none_of_them() -> None:
    lines, readers = DaySpend(), {"public": frozenset({"public"})}
    assert lines.so_far(RUN) is None
    for runs in (1, 2):
        lines.pay([RUN], DAY // 2, readers)
        assert lines.so_far(RUN) == PURE_DAY._replace(ticks=3 * runs)
        assert lines.totals["public"].pure == F(3, 2) * runs
    assert lines.so_far(CountCharge("many", "board", "sparse", F(3, 2), terms=PURE_DAY)) is None


def test_a_paid_day_counts_as_long_as_a_window_of_it_lies_in_the_span_and_is_dropped_in_time() -> None:
    lines, public = DaySpend(), frozenset({"public"})
    lines.pay([RUN], DAY // 2, {"public": public})
    assert lines.since(DAY // 2 - 1, public) == [PURE_DAY]
    assert lines.since(DAY // 2, public) == []
    for span, kept in ((0, KEPT), (5 * DAY, 5 * DAY)):
        lines.forget(DAY // 2 + kept - 1, span)
        assert lines.since(0, public) == [PURE_DAY]
    lines.forget(DAY // 2 + KEPT, 0)
    assert lines.since(0, public) == []
