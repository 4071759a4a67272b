"""Threshold decisions: misses are as rare as promised, and what is charged follows from the question alone."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from stream.decisions import plan as levels
from stream.decisions.plan import DecisionTerms, Mechanism, plan_of
from stream.decisions.progressive import Table, decide, price_of, rates, stays_undecided
from stream.errors import UsageError
from stream.mechanisms.noise import chain
from stream.mechanisms.noise_labels import Context
from tests.unit.decisions.misses import law, link, worst_miss

KEY = b"decisions" * 4
BETA = Fraction(5, 100)
PROGRESSIVE: tuple[Mechanism, ...] = ("ppwlm", "dppwlm")


def table_of(counts: list[int], threshold: int = 1000, alpha: Fraction = Fraction(1)) -> Table:
    names = tuple(f"p{i}" for i in range(len(counts)))
    return Table(names, np.array(counts), np.full(len(counts), threshold), (alpha,) * len(counts))


# --- misses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [Fraction(1, 200), BETA, Fraction(3, 10)], ids=float)
@pytest.mark.parametrize("alpha", [0, 1, 5, 30])
def test_epsilon_is_the_least_at_which_a_count_just_above_is_missed_no_more_often_than_beta(
    alpha: int, beta: Fraction
) -> None:
    epsilon = levels.epsilon_for(alpha, beta)

    def missed(at: Fraction) -> float:
        return math.exp(-at * (alpha + 1)) / (1 + math.exp(-at))

    assert missed(epsilon) <= beta
    assert missed(epsilon - Fraction(2, 10**9)) > beta
    assert levels.shift_for(epsilon, beta) == alpha


def test_on_integers_less_is_enough_than_the_thesis_spends() -> None:
    assert float(plan_of(DecisionTerms("tslm", BETA), Fraction(1)).price) == pytest.approx(math.log(4), abs=2e-9)
    printed = plan_of(DecisionTerms("tslm", BETA, form="thesis"), Fraction(1))
    assert float(printed.price) == pytest.approx(math.log(10), abs=2e-9)
    assert worst_miss(printed) == pytest.approx(0.0091, abs=5e-5)


@pytest.mark.parametrize("beta", [Fraction(1, 200), BETA, Fraction(3, 10)], ids=float)
@pytest.mark.parametrize("alpha", [1, 5])
@pytest.mark.parametrize(
    ("mechanism", "steps"), [("tslm", 1), ("ppwlm", 2), ("ppwlm", 4), ("dppwlm", 2), ("dppwlm", 3), ("dppwlm", 4)]
)
def test_a_count_just_above_is_missed_no_more_often_than_beta_whatever_step_is_chosen(
    mechanism: Mechanism, steps: int, alpha: int, beta: Fraction
) -> None:
    plan = plan_of(DecisionTerms(mechanism, beta, Fraction(1, 10), steps, 3), Fraction(alpha))
    assert worst_miss(plan) <= beta


def test_shares_that_are_handed_on_as_the_thesis_has_it_can_miss_more_often_than_beta() -> None:
    """Why the safe form gives every step that may come a share of its own."""
    terms = DecisionTerms("dppwlm", BETA, Fraction(3, 100), 3, 3, form="thesis")
    assert worst_miss(plan_of(terms, Fraction(5)), reach=1500) > 1.05 * BETA


@pytest.mark.parametrize("above", [2, 5, 40])
@pytest.mark.parametrize("mechanism", PROGRESSIVE)
def test_what_lies_further_above_is_missed_less_often(mechanism: Mechanism, above: int) -> None:
    plan = plan_of(DecisionTerms(mechanism, BETA, Fraction(1, 10)), Fraction(1))
    assert worst_miss(plan, above) < worst_miss(plan)


PLANTED = 40_000
MOST = stats.binom.isf(1e-7, PLANTED, 0.05)
"""More misses than this are seen with probability 1e-7 where each has probability β."""


def missed(mechanism: Mechanism, beta: Fraction = BETA) -> int:
    terms = DecisionTerms(mechanism, beta, Fraction(1, 100))
    return int((~decide(table_of([1001] * PLANTED), terms, KEY, 1).above).sum())


@pytest.mark.parametrize("mechanism", ["tslm", *PROGRESSIVE])
def test_planted_counts_just_above_are_missed_as_rarely_as_promised(mechanism: Mechanism) -> None:
    """False alarm 1e-6 for all together."""
    assert missed(mechanism) <= MOST


def test_that_would_show_a_fifth_more_misses_and_plain_noise_has_many_more() -> None:
    assert missed("tslm", BETA * Fraction(6, 5)) > MOST
    assert missed("laplace") > 3 * MOST


def test_a_count_that_lies_below_by_twice_alpha_is_taken_for_above_no_more_often_than_beta() -> None:
    """False alarm 1e-7."""
    terms = DecisionTerms("tslm", BETA)
    taken = decide(table_of([1000 - 10] * PLANTED, alpha=Fraction(5)), terms, KEY, 1).above.sum()
    assert taken <= MOST


# --- noise -------------------------------------------------------------------------------------------------------


def test_the_next_noisy_count_is_as_likely_undecided_as_the_chain_makes_it() -> None:
    coarser, finer, shift, reach = Fraction(1, 10), Fraction(4, 10), 7, 400
    above = np.array([-30, -8, 0, 8, 20])
    moves = link(coarser, finer, reach)
    z = np.arange(-reach, reach + 1)
    exact = [moves[(x - z > -shift) & (x - z <= shift)].sum() for x in above]
    assert stays_undecided(above, shift, coarser, finer) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(("above", "stays"), [(0, 0.627), (8, 0.501), (20, 0.134)])
def test_on_a_fine_grid_it_is_the_clean_form_of_the_thesis_5_9(above: int, stays: float) -> None:
    """ε .1, then .4, β .05 in four shares; both noises taken for independent it would be .578, .453, .152."""
    grid = 100
    shift = int(grid * math.log(40) / 0.4)
    found = stays_undecided(np.array([grid * above]), shift, Fraction(1, 10 * grid), Fraction(4, 10 * grid))
    assert found == pytest.approx(stays, abs=6e-4)


def test_noise_of_all_steps_is_one_chain() -> None:
    """Coarse noise equals the finer one as often as their link is 0; false alarm 1e-6 over all links."""
    epsilons = plan_of(DecisionTerms("dppwlm", BETA, Fraction(1, 100)), Fraction(1)).all_epsilons
    context = Context("", "decide/dppwlm", 0, 1, ("a",), "/decide")
    n = 20_000
    noise = chain(KEY, context, b"counts", epsilons, n)
    for coarser, finer in pairwise(epsilons):
        same = int((noise[coarser] == noise[finer]).sum())
        expected = link(coarser, finer, 1)[1]
        assert stats.binomtest(same, n, expected).pvalue > 1e-7
        assert noise[coarser].std() == pytest.approx(
            math.sqrt((law(coarser, 4000) * np.arange(-4000, 4001) ** 2).sum()), rel=0.1
        )


def test_each_run_has_noise_of_its_own_and_the_same_question_the_same() -> None:
    terms = DecisionTerms("tslm", BETA)
    table = table_of([1000] * 400)
    again = [decide(table, terms, KEY, attempt).above.tolist() for attempt in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
    assert decide(table, terms, KEY, 1, "left").above.tolist() != again[0]
    assert decide(table, DecisionTerms("tslm", BETA, sensitivity=2), KEY, 1).above.tolist() != again[0]


# --- prices ------------------------------------------------------------------------------------------------------


def test_the_price_is_that_of_the_last_step_of_the_dearest_predicate_times_what_one_person_changes() -> None:
    alphas = [Fraction(1), Fraction(5)]
    for mechanism, share in (("laplace", 1), ("tslm", 1), ("ppwlm", 4), ("dppwlm", 4)):
        single = levels.epsilon_for(1, BETA / share)
        assert price_of(alphas, DecisionTerms(mechanism, BETA)) == single  # type: ignore[arg-type]
        assert price_of(alphas, DecisionTerms(mechanism, BETA, sensitivity=3)) == 3 * single  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", ["laplace", "tslm", *PROGRESSIVE])
def test_what_was_spent_on_whom_is_never_more_than_the_price(mechanism: Mechanism) -> None:
    table = table_of([1000 + 200 * i for i in range(-5, 6)])
    table = Table(table.predicates, table.counts, table.thresholds, (Fraction(1), Fraction(5)) * 5 + (Fraction(1),))
    terms = DecisionTerms(mechanism, BETA, sensitivity=2)
    spent = decide(table, terms, KEY, 1).epsilons
    assert max(spent) <= price_of(table.alphas, terms)
    assert all(each >= 2 * Fraction(1, 10**5) for each in spent)


FAR = [1000 + 3000 * (-1) ** i for i in range(60)]


def test_far_from_the_thresholds_choosing_steps_gives_less_away_than_one_step() -> None:
    """Over ten runs each, of fixed keys."""
    runs = {m: [decide(table_of(FAR), DecisionTerms(m, BETA), KEY, i) for i in range(10)] for m in ("tslm", "dppwlm")}
    one, chosen = (rates(table_of(FAR).truth, runs[m]) for m in ("tslm", "dppwlm"))
    assert chosen.min_entropy > one.min_entropy
    assert chosen.ex_post < one.ex_post
    assert chosen.fnr is not None
    assert chosen.fnr <= float(BETA)


def test_one_count_just_below_its_threshold_makes_it_dearer_than_one_step() -> None:
    """By the ε that is achieved; what is least unknown of all predicates together it still leaves larger."""
    table = table_of([999, *FAR[1:]])
    runs = {m: [decide(table, DecisionTerms(m, BETA), KEY, i) for i in range(10)] for m in ("tslm", "dppwlm")}
    one, chosen = (rates(table.truth, runs[m]) for m in ("tslm", "dppwlm"))
    assert chosen.ex_post > one.ex_post == pytest.approx(float(price_of([Fraction(1)], DecisionTerms("tslm", BETA))))
    assert chosen.min_entropy > one.min_entropy


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"beta": Fraction(1, 2)}, "beta must be above 0 and below 0.5"),
        ({"beta": Fraction(0)}, "beta must be above 0 and below 0.5"),
        ({"steps": 0}, "steps must be 1 to 100"),
        ({"sensitivity": 0}, "sensitivity must be at least 1"),
        ({"epsilon_first": Fraction(9)}, "first epsilon must be below the last one"),
    ],
)
def test_terms_out_of_range_are_refused_by_name(terms: dict[str, Fraction | int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        decide(table_of([1]), DecisionTerms(**({"mechanism": "ppwlm", "beta": BETA} | terms)), KEY, 1)  # type: ignore[arg-type]
