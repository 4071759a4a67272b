"""Experiments with threshold decisions: tables of the thesis' sizes, and numbers that follow from their runs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from connectors.experiments.decisions import (
    EPSILON_MAX,
    LEVELS,
    Extent,
    Setting,
    by_predicate,
    distances,
    every,
    results,
    runs_of,
    settings,
    table_of,
)  # fmt: skip
from stream.decisions.deciding import decide
from stream.simulator.threshold_tables import QUERIES, Query, aggregates, rides

SMALL = Extent(2, 7, "safe", alphas=(1, 100), betas=(), steps=(), queries=("Q3",))


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
    found = {result.setting: result for result in results(SMALL)["5.6"]}[setting]
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
    found = results(extent)
    assert {result.row("A.2 steps")["denied"] for result in found["A.2 steps"]} == {True}
    assert all(result.epsilon > EPSILON_MAX for result in found["A.2 steps"])


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
