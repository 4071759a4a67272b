"""What a gaussian day of several levels costs, by all outcomes of all levels: its price, and hardly less."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream.errors import UsageError
from stream.release.prices import DayPrice
from tests.unit.accounting.exact_delta import levels_delta, levels_tail

F = Fraction
DELTA = F(1, 10**6)
SHARES = [
    (F(1, 3), F(1, 3), F(1, 3)),
    (F("0.5"), F("0.3"), F("0.2")),
    (F("0.8"), F("0.15"), F("0.05")),
    (F("0.6"), F("0.4")),
    (F("0.97"), F("0.03")),
]
#: Ticks, epsilon, and the part of epsilon that is not kept any more: the grid of sigma squared has steps of one percent
#: and the law of a single value has steps of its own.
PRICES = [(12, 10, 0.98), (12, 4, 0.98), (4, 8, 0.98), (1, 4, 0.95), (1, 38, 0.95)]


def price(ticks: int, epsilon: int, shares: tuple[Fraction, ...], factor_delta: Fraction | None = None) -> DayPrice:
    return DayPrice("gaussian", F(epsilon), DELTA, ticks, shares, factor_delta)


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize(("ticks", "epsilon", "nearly"), PRICES)
def test_all_levels_together_cost_the_day_s_price_and_hardly_less(
    ticks: int, epsilon: int, nearly: float, shares: tuple[Fraction, ...]
) -> None:
    variances = price(ticks, epsilon, shares).parameters
    assert levels_delta(variances, ticks, epsilon) <= DELTA
    assert levels_delta(variances, ticks, nearly * epsilon) > DELTA


@pytest.mark.parametrize("shares", SHARES)
def test_levels_have_their_shares_of_the_noise(shares: tuple[Fraction, ...]) -> None:
    variances = price(12, 10, shares).parameters
    assert len({variance * share for variance, share in zip(variances, shares, strict=True)}) == 1


@pytest.mark.parametrize("shares", SHARES[1:4])
@pytest.mark.parametrize("probability", [F(1, 10**6), F(1, 1000)])
@pytest.mark.parametrize(("ticks", "epsilon"), [(12, 10), (1, 4), (1, 38)])
def test_a_changed_day_s_loss_is_exceeded_as_rarely_as_is_said(
    ticks: int, epsilon: int, probability: Fraction, shares: tuple[Fraction, ...]
) -> None:
    day = price(ticks, epsilon, shares, probability)
    assert levels_tail(day.parameters, 2 * ticks, 1, float(day.changed)) <= probability
    assert levels_tail(day.parameters, 2 * ticks, 1, 0.99 * float(day.changed)) > probability


def test_devices_of_one_person_change_the_same_values() -> None:
    day = DayPrice("gaussian", F(4), DELTA, 2, SHARES[1], F(1, 1000), devices=3)
    assert levels_tail(day.parameters, 4, 3, float(3 * day.changed)) <= F(1, 1000)
    assert levels_tail(day.parameters, 4, 3, 0.99 * float(3 * day.changed)) > F(1, 1000)


@pytest.mark.parametrize("shares", [(F(1),), *SHARES[:2]])
def test_a_price_for_less_noise_than_there_is_is_refused_by_rule_and_value(shares: tuple[Fraction, ...]) -> None:
    with pytest.raises(UsageError, match=r"epsilon must be at most [0-9.]+ for 1 ticks at delta 1e-06.*got 99"):
        _ = price(1, 99, shares).parameters


def test_the_largest_price_that_is_named_buys_the_least_noise() -> None:
    with pytest.raises(UsageError, match="must be at most 50 for") as refused:
        _ = price(1, 51, (F(1),)).parameters
    assert "0.1" in str(refused.value)
    assert price(1, 50, (F(1),)).parameters == (F(1, 100),)
