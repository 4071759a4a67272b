"""The registry of mechanisms: every declaration is whole, and what is not declared is refused wherever it is read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest

from stream.accounting.charge_history import ChargeHistory, ChargeLine
from stream.accounting.costs import coalition_cost
from stream.accounting.count_exponent import count_exponent
from stream.accounting.state_json import decode_history, encode_history
from stream.errors import UsageError
from stream.mechanisms.base import CountMechanism, Parameters, TickInput, Values, WeekSlot
from stream.mechanisms.filter.mechanism import Revisable
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.noise_parameters import gaussian_noise, laplace_noise
from stream.mechanisms.registry import REGISTERED, count_mechanism, mechanism_of
from stream.mechanisms.wevent import Publication
from stream.policy.counts import CountRelease
from stream.policy.mechanisms import (
    MECHANISMS,
    ONE_CHAIN,
    Composition,
    Mechanism,
    SpendingRule,
    mechanism_named,
    names_where,
)
from stream.records import MINUTE, CountCharge, WindowCharges
from stream.release.account_stage import account_stage
from tests.support.small_building import building

ONE = Fraction(1)
each_mechanism = pytest.mark.parametrize("name", MECHANISMS)


@each_mechanism
def test_what_is_declared_can_be_made(name: str) -> None:
    made = count_mechanism(name, epsilon=ONE, max_counts=[5, 7], windows=4)
    assert made.encode(made.initial()) == made.encode(made.decode(made.encode(made.initial())))


def test_every_declared_mechanism_is_registered_and_no_other() -> None:
    assert list(REGISTERED) == list(MECHANISMS)
    made = {type(count_mechanism(name, epsilon=ONE, max_counts=[5, 7], windows=4)) for name in MECHANISMS}
    assert len(made) == len(MECHANISMS), "each name makes a mechanism of its own"


@each_mechanism
def test_a_registered_mechanism_is_made_with_the_noise_that_it_declares_and_no_other(name: str) -> None:
    laws = {"laplace": laplace_noise(ONE), "gaussian": gaussian_noise(Fraction(9))}
    for kind, law in laws.items():
        parameters = Parameters(law, (5, 7), windows=4)
        if kind in MECHANISMS[name].noises:
            made = mechanism_of(name, parameters)
            assert made.noise.kind == kind
        else:
            with pytest.raises(UsageError, match=rf"noise must be laplace with {name}, got gaussian"):
                mechanism_of(name, parameters)


@each_mechanism
def test_a_registered_mechanism_does_what_it_declares(name: str) -> None:
    """Noise of -50 shows whether values are clamped, and whether the noise of the chain is used at all."""
    declared, made = MECHANISMS[name], count_mechanism(name, epsilon=ONE, max_counts=[5, 7], windows=4)
    low, high = (_released(made, noise) for noise in (-50, 50))
    same = np.array_equal(low.values, high.values)
    assert same == declared.own_noise
    assert (low.values.min() < 0) == (not declared.clamped and not declared.own_noise)
    assert (low.groups is not None) == declared.grouped
    assert isinstance(made, Revisable) == declared.revisable
    assert (low.noisy is not None) == (declared.revisable or declared.grouped)
    assert np.array_equal(low.values, [3 - 50, 4 - 50]) == declared.plain
    state, _ = made.step(made.initial(), _input(0))
    assert isinstance(state, Publication) == declared.pays_for_w
    assert (state is None) == (declared.learnt is None and not declared.pays_for_w)


def _input(noise: int) -> TickInput:
    context = Context("site", "r", 5 * MINUTE, 1, ("a", "b"))
    return TickInput(np.array([3, 4]), np.full(2, noise), b"k" * 32, context, WeekSlot(0, 0, weekend=False))


def _released(made: CountMechanism, noise: int) -> Values:
    _, [values] = made.step(made.initial(), _input(noise))
    return values


@each_mechanism
def test_a_coalition_learns_no_less_than_its_finest_and_no_more_than_all_together(name: str) -> None:
    composition, epsilons = MECHANISMS[name].composition, {Fraction(1, 2), Fraction(1, 5)}
    assert max(epsilons) <= composition.joint_epsilon(epsilons) <= sum(epsilons)
    assert composition.joint_epsilon({ONE}) == 1


def test_a_policy_may_name_what_is_declared_and_nothing_else() -> None:
    assert get_args(CountRelease.model_fields["mechanism"].annotation) == tuple(MECHANISMS)


def test_questions_about_declarations_are_answered_in_the_order_of_the_registry() -> None:
    assert names_where("pays_for_w") == ("uniform", "sample", "ba")
    assert names_where("carries") == ("sample", "ba")
    assert names_where("levels") == ("laplace", "pegasus", "filter")
    assert names_where("shows_noisy") == ("laplace", "pegasus", "filter")
    assert names_where("pays_by_window") == ("laplace", "pegasus", "filter")


def test_whoever_reads_a_mechanism_that_is_not_declared_refuses() -> None:
    with pytest.raises(UsageError, match=r"mechanism must be one of .* got 'gauss'"):
        mechanism_named("gauss")
    with pytest.raises(UsageError, match="got 'gauss'"):
        coalition_cost("gauss", [ONE])
    charged = ChargeHistory()
    charged.note(MINUTE, "r/1/1", ChargeLine("gauss", 1, ("a",)), {"board": ONE})
    with pytest.raises(UsageError, match="got 'gauss'"):
        count_exponent(charged, "a", (0, 2 * MINUTE), 1)
    with pytest.raises(UsageError, match="got 'gauss'"):
        decode_history(encode_history(charged))


def test_the_account_refuses_a_charge_of_a_mechanism_that_is_not_declared() -> None:
    stage = account_stage(building(), "dbh", laboratory=True)
    charge = CountCharge("plain", "facilities", "gauss", ONE)
    with pytest.raises(UsageError, match="got 'gauss'"):
        stage.step(stage.initial(), WindowCharges("dbh", 5 * MINUTE, (charge,)))


def test_a_declaration_whose_parts_are_not_all_of_epsilon_is_refused() -> None:
    parts = Composition(Fraction(1, 2), Fraction(1, 4))
    with pytest.raises(UsageError, match="add up to 1"):
        Mechanism(composition=parts, spending=SpendingRule.WINDOW, clamped=True)


def test_noise_that_is_not_the_chains_is_shared_by_no_audiences() -> None:
    with pytest.raises(UsageError, match="must share nothing"):
        Mechanism(composition=ONE_CHAIN, spending=SpendingRule.WINDOW, own_noise=True, clamped=True)
    alone = Composition(Fraction(0), Fraction(1))
    Mechanism(composition=alone, spending=SpendingRule.WINDOW, own_noise=True, clamped=True)


def test_a_price_of_a_day_is_of_noise_that_all_audiences_share() -> None:
    """``policy show`` takes the finest price for that of all audiences together, who would pay the sum."""
    fields: dict[str, Any] = {"composition": Composition(Fraction(0), Fraction(1)), "own_noise": True, "clamped": True}
    with pytest.raises(UsageError, match="by_day: must have one audience"):
        Mechanism(spending=SpendingRule.WINDOW, by_day=True, **fields)
    Mechanism(spending=SpendingRule.WINDOW, by_day=True, audiences=1, **fields)


def test_an_epsilon_for_w_windows_pays_for_one_audience_only() -> None:
    with pytest.raises(UsageError, match="audiences: must be 1"):
        Mechanism(composition=ONE_CHAIN, spending=SpendingRule.EVEN, clamped=True)
