"""What a day costs that pays for changes: in accounts, per unit, for several readers, and beside other releases."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream.accounting.composition import Gaussian, compose
from stream.accounting.day_charges import REPLACED, DaySpend, changed_loss, cost_of, day_units, finest
from stream.accounting.gaussian_shift import epsilon_of
from stream.accounting.state_json import decode_day_spend, encode_day_spend
from stream.accounting.units import GroupSizes
from stream.mechanisms.changes.factor import factor_of
from stream.records import CHANGES, DAY, HOUR, MINUTE, CountCharge, DayTerms, PrivacyDay
from stream.release.prices import DayPrice

DELTA = Fraction(1, 1_000_000)
TODAY = PrivacyDay(0, 0, DAY)
TOMORROW = PrivacyDay(1, DAY, 2 * DAY)


def price(epsilon: int = 2, shares: tuple[Fraction, ...] = (Fraction(1),)) -> DayPrice:
    return DayPrice(
        "gaussian", Fraction(epsilon), DELTA, 8, shares, Fraction(1, 1000), 1, factor_of(4, 5 * MINUTE)
    )  # fmt: skip


def terms(epsilon: int = 2, day: PrivacyDay = TODAY) -> DayTerms:
    return DayTerms(day, CHANGES, price(epsilon).parameters, 8)


@pytest.mark.parametrize("shares", [(Fraction(1),), (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))])
def test_a_day_costs_its_price_however_it_is_shared(shares: tuple[Fraction, ...]) -> None:
    units = day_units(DayTerms(TODAY, CHANGES, price(2, shares).parameters, 8), 12 * 5 * MINUTE, GroupSizes(3))
    assert units["device_day"].composed(DELTA) == pytest.approx(2, rel=2e-3)
    assert units["device_day"].composed(DELTA) <= 2.002


def test_any_part_of_a_day_that_is_another_costs_the_bound_of_a_day_replaced_and_no_less() -> None:
    squared = sum(price().parameters)
    units = day_units(terms(), 12 * 5 * MINUTE, GroupSizes(3))
    moved = units["device_day_moved"].composed(DELTA)
    least = epsilon_of(REPLACED[8] * squared, DELTA)
    assert least <= moved < 1.002 * least
    assert 3.8 < moved < 3.85
    assert units["presence_tuple"].composed(DELTA) == units["observation"].composed(DELTA) == moved


def test_a_number_of_changes_without_a_proof_costs_a_shift_twice_as_long() -> None:
    squared = sum(price().parameters)
    for changes in (7, 18):
        units = day_units(terms()._replace(ticks=changes), 12 * 5 * MINUTE, GroupSizes(3))
        moved = units["device_day_moved"].composed(DELTA)
        assert moved == pytest.approx(epsilon_of(4 * squared, DELTA), rel=2e-3)
        probability = Fraction(1, 1000)
        known = changed_loss(CHANGES, price().parameters, 8, probability, 1)
        assert changed_loss(CHANGES, price().parameters, changes, probability, 1) > known


def test_the_devices_of_a_person_shift_together() -> None:
    units = day_units(terms(), 12 * 5 * MINUTE, GroupSizes(3))
    assert units["person_day"].composed(DELTA) == pytest.approx(
        epsilon_of(9 * sum(price().parameters), DELTA), rel=2e-3
    )


def test_two_days_and_other_gaussian_releases_add_up_in_squares() -> None:
    both = cost_of(terms()).plus(cost_of(terms(day=TOMORROW)))
    noises = [Gaussian(noise.variance, times) for noise, times in both.noises.items() if isinstance(noise, Gaussian)]
    assert compose(noises, DELTA).approximate == pytest.approx(epsilon_of(2 * sum(price().parameters), DELTA), rel=2e-3)
    ticks = cost_of(DayTerms(TODAY, "gaussian", (Fraction(400),), 96))
    mixed = cost_of(terms()).plus(ticks)
    assert len(mixed.noises) == 2


def test_readers_of_one_release_know_what_the_one_with_the_least_noise_knows() -> None:
    assert finest([terms(1), terms(4), terms(2)]) == terms(4)


def test_an_account_pays_each_day_once_and_goes_through_its_byte_form() -> None:
    lines, readers = DaySpend(), {"public": frozenset(["public"])}
    for hour in (1, 2, 25):
        day = TODAY if hour < 24 else TOMORROW
        charge = CountCharge("moves", "public", "filter", Fraction(2), terms=terms(day=day))
        lines.pay([charge], hour * HOUR, readers)
    assert lines.totals["public"] == cost_of(terms()).times(2)
    assert decode_day_spend(encode_day_spend(lines)) == lines


def test_the_loss_of_changed_parts_is_bounded_with_the_probability_that_a_policy_names() -> None:
    assert 2.9 < price().changed < 3
