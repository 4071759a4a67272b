"""Experiments with threshold decisions: tables of the thesis' sizes, and numbers that follow from their runs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from connectors.lab.experiments.decisions import (  # fmt: skip
    BETA,
    DEAREST,
    EPSILON_MAX,
    LEVELS,
    Extent,
    Setting,
    by_predicate,
    day_of,
    day_results,
    distances,
    every,
    result_of,
    results,
    runs_of,
    settings,
    table_of,
)
from stream.decisions.compound import Join, truth_of
from stream.decisions.progressive import decide
from stream.lab.simulator.threshold_tables import QUERIES, Query, aggregates, rides

SMALL = Extent(2, 7, "safe", alphas=(1, 100), betas=(), steps=(), queries=("Q3",), days=(4,))


@pytest.mark.parametrize(("query", "cells"), [("Q1", 420), ("Q2", 420), ("Q3", 476), ("Q4", 544)])
def test_tables_have_the_sizes_of_the_thesis_and_follow_from_the_seed(query: Query, cells: int) -> None:
    drawn = aggregates(query, 3)
    assert len(drawn.cells) == len(set(drawn.cells)) == len(drawn.counts) == len(drawn.limits) == cells
    assert drawn.counts.min() >= 0
    assert np.array_equal(drawn.counts, aggregates(query, 3).counts)
    assert not np.array_equal(drawn.counts, aggregates(query, 4).counts)


def test_queries_of_one_place_share_its_thresholds_and_weekends_are_emptier() -> None:
    weekday, weekend, before, after = (aggregates(query, 3) for query in QUERIES)
    assert np.array_equal(weekday.limits, weekend.limits)
    assert np.median(weekend.counts / weekend.limits) < np.median(weekday.counts / weekday.limits) / 2
    assert np.array_equal(before.limits[::14], after.limits[::16])
    assert np.median(after.counts / after.limits) < np.median(before.counts / before.limits) / 2
    assert [len(each) for each in rides(20, 3).fares] == rides(20, 3).trips.tolist()


def test_a_building_is_for_some_thirteen_hundred_people() -> None:
    capacity = np.concatenate([aggregates("Q1", seed).limits for seed in range(5)])
    assert not (capacity % 10).any()
    assert np.median(capacity) == pytest.approx(1_340, rel=0.3)


def test_trips_grow_from_sunday_the_first_of_march_to_friday() -> None:
    """Sums over 34 regions, each with noise of 6 %."""
    trips = aggregates("Q3", 3).counts.reshape(34, 14).sum(axis=0)[:7]
    assert trips / trips.mean() == pytest.approx(np.array([0.82, 0.92, 0.98, 1.02, 1.05, 1.08, 1.04]) / 0.987, rel=0.05)


def test_a_level_is_a_share_of_the_threshold() -> None:
    limits = aggregates("Q1", 7).limits
    for level, share in LEVELS.items():
        thresholds = table_of("Q1", level, Fraction(1), 7).thresholds
        assert np.all(thresholds <= limits * float(share))
        assert np.all(thresholds + 1 > limits * float(share) - 1e-6)
    counts = aggregates("Q1", 7).counts
    assert distances("Q1", "high", 7) == sorted(abs(counts - limits).tolist())


def test_a_point_says_what_its_runs_came_to() -> None:
    setting = Setting("Q3", "low", "ppwlm")
    found = result_of(setting, SMALL)
    table = table_of("Q3", "low", Fraction(1), 7)
    runs = [decide(table, setting.terms("safe"), SMALL.key, attempt) for attempt in (1, 2)]
    truth = table.counts > table.thresholds
    assert found.fnr == pytest.approx(np.mean([(truth & ~run.above).sum() / truth.sum() for run in runs]))
    assert found.fpr == pytest.approx(np.mean([(~truth & run.above).sum() / (~truth).sum() for run in runs]))
    assert found.ex_post == pytest.approx(np.mean([float(max(run.epsilons)) for run in runs]))
    assert found.row("5.6")["denied"] is False
    assert found.runs == 2
    assert 0 < found.min_entropy <= 1


def test_what_would_be_denied_is_marked() -> None:
    extent = Extent(1, 7, "thesis", alphas=(), betas=(), steps=(8,), queries=())
    found = [result_of(each, extent) for each in settings(extent)["A.2 steps"]]
    assert [result.row("A.2 steps")["denied"] for result in found] == [True, True]
    assert all(result.epsilon > EPSILON_MAX for result in found)
    assert not result_of(Setting("Q3", "low", "ppwlm"), extent).row("5.6")["denied"]


def test_a_setting_that_several_figures_show_is_run_once() -> None:
    extent = Extent(1, 7, "safe", alphas=(1,), betas=(5,), steps=(), queries=())
    ticks: list[int] = []
    found = results(replace(extent), ticks.append)
    assert found["5.8"] == found["beta"]
    assert ticks == list(range(1, len(every(extent)) + 1))
    assert len(ticks) < sum(map(len, found.values()))


def test_every_setting_of_the_thesis_is_tried_once() -> None:
    whole = Extent(1, 1, "safe")
    tried = settings(whole)
    assert len(tried["5.6"]) == 4 * 3 * 4
    assert {each.alpha for each in tried["5.8"]} == {1, *range(10, 201, 10)}
    assert {each.beta for each in tried["beta"]} == {Fraction(b, 100) for b in range(1, 11)}
    assert {each.epsilon_first for each in tried["A.2 first"]} == {Fraction(1, 10**power) for power in range(1, 6)}
    assert {each.steps for each in tried["A.2 steps"]} == {2, 4, 6, 8, 10, 12}
    assert len(every(whole)) == len(set(every(whole)))


def test_progressive_mechanisms_decide_most_predicates_of_q3_for_less_than_one_step_does() -> None:
    found = by_predicate(SMALL)
    assert {round(each, 9) for each in found["tslm"]} == {1.386294362}
    assert all(np.median(found[each]) < found["tslm"][0] for each in ("ppwlm", "dppwlm"))
    assert len(found["dppwlm"]) == 476


def test_runs_have_noise_of_their_own() -> None:
    first, second = runs_of(Setting("Q3", "low", "tslm", alpha=Fraction(200)), SMALL, 2)
    assert not np.array_equal(first.above, second.above)


def test_of_the_thesis_form_dppwlm_leaves_most_unknown_of_every_query() -> None:
    """5.6, with its own epsilons: one step leaves a quarter to 0.3 of what there was; dppwlm more than 0.8."""
    extent = Extent(2, 1, "thesis")
    for setting in settings(extent)["5.6"]:
        if setting.mechanism in ("tslm", "dppwlm"):
            found = result_of(setting, extent).min_entropy
            assert 0.26 < found < 0.3 if setting.mechanism == "tslm" else found > 0.8, setting


# --- chapter 6 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("day", [4, 25])
def test_three_regions_in_ten_are_above_each_threshold_of_a_day(day: int) -> None:
    made = day_of(day, 7)
    fares = rides(day, 7).fares
    means = np.array([np.minimum(each, DEAREST).mean() for each in fares])
    assert made.tables["trips"].truth.sum() == 10
    assert abs(int(made.tables["fares"].truth.sum()) - 10) <= 1  # the threshold is a mean rounded to a cent
    assert sorted(np.flatnonzero(made.tables["fares"].truth)) == sorted(
        np.argsort(means)[-made.tables["fares"].truth.sum() :]
    )


def test_one_trip_changes_deviations_by_what_is_paid_for() -> None:
    made, drawn = day_of(4, 7), rides(4, 7)
    leaf = made.leaves[1]
    threshold = round(np.sort([round(np.minimum(each, DEAREST).mean()) for each in drawn.fares])[-11])
    assert leaf.sensitivity == max(threshold, DEAREST - threshold)
    assert made.leaves[0].sensitivity == 1


def test_the_better_split_costs_less_on_every_day_and_any_of_two_costs_least() -> None:
    found = day_results(SMALL)
    for figure in ("6.3", "6.4"):
        price = {result.split: result.epsilon for result in found[figure]}
        assert list(price) == ["naive", "thesis", "optimal"]
        assert price["optimal"] <= price["thesis"] < price["naive"]
    all_of, any_of = (found[figure][-1].epsilon for figure in ("6.3", "6.4"))
    assert any_of < all_of
    assert {result.runs for result in found["6.3"]} == {2}


def test_misses_of_both_kinds_of_question_stay_below_beta() -> None:
    """Each positive is missed with probability beta at most; more misses are seen once in 1e7 times (binomial)."""
    extent = replace(SMALL, runs=4, days=(3, 17, 29))
    found = day_results(extent)
    for results_of in found.values():
        asked = missed = 0
        for each in results_of:
            of = day_of(each.day, extent.seed)
            positives = int(truth_of(Join(each.kind, of.leaves), of.tables).sum()) * each.runs
            asked, missed = asked + positives, missed + round((each.fnr or 0) * positives)
        assert missed <= stats.binom.isf(1e-7, asked, float(BETA))
        assert asked > 100
    assert {each.kind for each in found["6.3"]} == {"and"}
    assert {each.kind for each in found["6.4"]} == {"or"}
