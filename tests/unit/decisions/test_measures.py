"""Sums and means of values within declared bounds: what one row changes, what that costs, what is decided."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.tables.decisions import Aggregate, Measure
from stream.decisions.compound import Join, Leaf, betas_of, price_of_tree
from stream.decisions.plan import GRID, DecisionTerms, plan_of
from stream.decisions.progressive import price_of
from stream.errors import DataError, UsageError
from tests.acceptance.command_line import Done, run

HALF = Fraction(1, 2)
BETA = Fraction(1, 20)


def compared(folder: Path, measure: Measure, rows: list[tuple[str, str]], thresholds: dict[str, Fraction]) -> Any:
    path = folder / "values.csv"
    path.write_text("predicate,value\n" + "".join(f"{name},{value}\n" for name, value in rows))
    return measure.read(path, thresholds)


VALUES = st.tuples(st.sampled_from(["hall", "loft"]), st.decimals(-1000, 1000, places=3).map(str))


@settings(max_examples=200)
@given(
    st.lists(VALUES, max_size=6), VALUES, st.sampled_from(["sum", "mean"]), st.integers(-20, 20), st.integers(1, 40),
    st.integers(-30, 30),
)  # fmt: skip
def test_one_row_changes_one_predicate_by_what_is_declared_at_most(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], more: tuple[str, str], aggregate: Aggregate,
    low: int, width: int, threshold: int,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("rows")
    measure = Measure(aggregate, (low * HALF, (low + width) * HALF), HALF)
    thresholds = {"hall": threshold * HALF, "loft": Fraction(0)}
    without = compared(folder, measure, rows, thresholds)
    with_it = compared(folder, measure, [*rows, more], thresholds)
    changed = {name: with_it[name] - without[name] for name in thresholds if with_it[name] != without[name]}
    assert set(changed) <= {more[0]}
    assert sum(map(abs, changed.values())) <= measure.sensitivity(thresholds.values())


@pytest.mark.parametrize(
    ("aggregate", "low", "high", "threshold", "steps", "reached_by"),
    [("sum", -5, 50, 0, 100, "50"), ("sum", -60, 50, 0, 120, "-1e9"), ("mean", 0, 50, 12, 76, "999"),
     ("mean", 0, 50, 40, 80, "-3"), ("mean", 0, 50, 70, 140, "0")],
)  # fmt: skip
def test_some_row_changes_it_by_as_much(
    tmp_path: Path, aggregate: Aggregate, low: int, high: int, threshold: int, steps: int, reached_by: str
) -> None:
    measure = Measure(aggregate, (Fraction(low), Fraction(high)), HALF)
    thresholds = {"hall": Fraction(threshold)}
    assert measure.sensitivity(thresholds.values()) == steps
    assert abs(compared(tmp_path, measure, [("hall", reached_by)], thresholds)["hall"]) == steps


def test_a_mean_is_above_where_its_deviations_add_up_to_more_than_nothing(tmp_path: Path) -> None:
    measure = Measure("mean", (Fraction(0), Fraction(20)), HALF)
    rows = [("hall", "8"), ("hall", "99"), ("hall", "8.3"), ("loft", "8"), ("loft", "15.5")]
    found = compared(tmp_path, measure, rows, dict.fromkeys(("hall", "loft", "roof"), Fraction(12)))
    assert found == {"hall": 2 * (8 + 20 + Fraction(17, 2) - 36), "loft": -1, "roof": 0}


@pytest.mark.parametrize("steps", [1, 7, 3800])
@pytest.mark.parametrize("alpha", [0, 30, 5000])
def test_outcomes_of_neighbours_differ_by_the_price_at_most_and_somewhere_by_no_less(steps: int, alpha: int) -> None:
    """By the exact law of the one noisy comparison."""
    terms = Leaf("", (Fraction(alpha),), steps).terms(DecisionTerms("tslm", BETA), BETA)
    plan = plan_of(terms, Fraction(alpha))
    e, price = float(plan.last.epsilon), float(plan.price)
    assert price == pytest.approx(steps * e)

    def logs(distance: int) -> tuple[float, float]:
        """ln Pr[distance + DLap(ε) > -shift], and of the opposite."""
        k = -plan.last.shift - distance
        rare = -e * (k + 1 if k >= 0 else -k) - math.log1p(math.exp(-e))
        rest = math.log1p(-math.exp(rare))
        return (rare, rest) if k >= 0 else (rest, rare)

    far = 3 * steps + 2 * alpha
    losses = [
        abs(one - other)
        for d in range(-far, far, max(1, far // 50))
        for one, other in zip(logs(d), logs(d + steps), strict=True)
    ]
    assert price * 0.999 <= max(losses) <= price * (1 + 1e-9)


def test_prices_grow_with_what_one_row_changes() -> None:
    unit = price_of((Fraction(99),), DecisionTerms("tslm", BETA))
    leaf = Leaf("", (Fraction(99),), 40)
    assert price_of_tree(leaf, DecisionTerms("tslm", BETA, sensitivity=3), {"": BETA}) == 120 * unit


@pytest.mark.parametrize("disjoint", [False, True])
def test_beta_is_split_where_the_whole_costs_least_also_of_sums_and_counts(disjoint: bool) -> None:
    parts = (Leaf("1", (Fraction(40),)), Leaf("2", (Fraction(900),), 100))
    tree, terms = Join("and", parts, disjoint), DecisionTerms("tslm", BETA)
    best = price_of_tree(tree, terms, betas_of(tree, terms))
    tried = [
        price_of_tree(tree, terms, {"1": share, "2": BETA - share})
        for share in (BETA * part / 50 for part in range(1, 50))
    ]
    slack = 101 * Fraction(2, GRID) if disjoint else min(tried) / 2000  # ε's grid; W has 1/u for 1/(u + a few)
    assert best <= min(tried) + slack
    assert sum(betas_of(tree, terms).values()) <= BETA
    assert best < price_of_tree(tree, terms, {"1": BETA / 2, "2": BETA / 2})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (("count", (0, 1), None), "go with sums and means"),
        (("sum", None, 1), "must have bounds and a resolution"),
        (("mean", (0, 1), None), "must have bounds and a resolution"),
        (("sum", (1, 1), 1), "the lower one first"),
        (("sum", (0, 1), 0), "resolution must be above 0"),
        (("sum", (0, 1), Fraction(2, 3)), "multiples of the resolution"),
        (("sum", (0, 10**9), HALF), "at most 1000000000 times the resolution"),
    ],
)
def test_what_makes_no_sense_is_refused(how: tuple[Any, Any, Any], said: str) -> None:
    aggregate, bounds, resolution = how
    made = None if bounds is None else (Fraction(bounds[0]), Fraction(bounds[1]))
    with pytest.raises(UsageError, match=said):
        Measure(aggregate, made, None if resolution is None else Fraction(resolution))


def test_the_threshold_of_a_mean_is_a_multiple_of_the_resolution_that_of_a_sum_need_not_be() -> None:
    bounds = (Fraction(0), Fraction(9))
    with pytest.raises(DataError, match="multiples of the resolution"):
        Measure("mean", bounds, HALF).limits({"hall": Fraction(1, 3)})
    assert Measure("sum", bounds, HALF).limits({"hall": Fraction(1, 3)}) == {"hall": Fraction(2, 3)}


# --- the command ---------------------------------------------------------------------------------------------------


def ask(folder: Path, thresholds: dict[str, str], *more: str) -> Done:
    if not (folder / "key").exists():
        assert run("key", "create", folder / "key", "--laboratory").code == 0
        rows = [f"hall,{20 + i % 5}\n" for i in range(500)] + [f"loft,{8 + i % 5}\n" for i in range(500)]
        (folder / "values.csv").write_text("predicate,value\n" + "".join(rows))
    path = folder / "thresholds.csv"
    path.write_text("predicate,threshold\n" + "".join(f"{name},{at}\n" for name, at in thresholds.items()))
    words = ["--mechanism", "tslm", "--alpha", "400", "--beta", "0.05", "--epsilon-max", "4"]
    return run("decide", folder / "values.csv", path, *words, "--key-file", folder / "key", "--json", *more)


def test_means_and_sums_are_decided(tmp_path: Path) -> None:
    """Deviations are ten shifts from nothing: another answer has probability e**-27."""
    both = {"hall": True, "loft": False}
    mean = ask(
        tmp_path, {"hall": "15", "loft": "15"}, "--aggregate", "mean", "--bounds", "0", "40", "--resolution", "1"
    )
    assert {each["predicate"]: each["above"] for each in mean.answer["decisions"]} == both
    unit = float(price_of((Fraction(400),), DecisionTerms("tslm", BETA)))
    assert mean.answer["epsilon"] == pytest.approx(25 * unit)
    total = ask(
        tmp_path, {"hall": "8000", "loft": "8000"}, "--aggregate", "sum", "--bounds", "-1", "40", "--resolution", ".5"
    )
    assert total.code == 2  # .5 is no number as files have them
    total = ask(
        tmp_path, {"hall": "8000", "loft": "8000"}, "--aggregate", "sum", "--bounds", "-1", "40", "--resolution", "0.5"
    )
    assert {each["predicate"]: each["above"] for each in total.answer["decisions"]} == both
    assert total.answer["epsilon"] == pytest.approx(80 * float(price_of((Fraction(800),), DecisionTerms("tslm", BETA))))


def test_a_value_of_an_unknown_predicate_or_a_bad_one_decides_nothing(tmp_path: Path) -> None:
    how = ("--aggregate", "sum", "--bounds", "0", "40", "--resolution", "1")
    assert ask(tmp_path, {"hall": "10", "loft": "10"}, *how).code == 0
    unknown = ask(tmp_path, {"hall": "10"}, *how)
    assert unknown.code == 3
    assert "must be of predicates that have a threshold" in unknown.problem
    for bad in ("nan", "1e400", "inf", "7654321x", ""):
        (tmp_path / "values.csv").write_text(f"predicate,value\nhall,1\nhall,{bad}\n")
        done = ask(tmp_path, {"hall": "10"}, *how)
        assert (done.code, "line 3: value must be a number" in done.problem) == (3, True), bad
        assert "7654321" not in done.problem


def test_a_tree_has_tables_of_counts_and_of_means(tmp_path: Path) -> None:
    ask(tmp_path, {"hall": "15", "loft": "15"})
    (tmp_path / "counts.csv").write_text("predicate,count\nhall,500\nloft,500\n")
    (tmp_path / "few.csv").write_text("predicate,threshold\nhall,100\nloft,100\n")
    mean = {"counts": "values.csv", "aggregate": "mean", "bounds": [0, 40], "resolution": 1, "alpha": 400}
    counts = {"counts": "counts.csv", "thresholds": "few.csv", "alpha": 20}

    def asked(node: Any) -> Done:
        (tmp_path / "tree.json").write_text(json.dumps(node))
        return ask(tmp_path, {"hall": "15", "loft": "15"}, "--query", str(tmp_path / "tree.json"))

    done = asked({"and": [mean, counts]})
    assert {each["predicate"]: each["above"] for each in done.answer["decisions"]} == {"hall": True, "loft": False}
    assert "must have bounds and a resolution" in asked({"and": [counts, mean | {"bounds": None}]}).problem
    assert '1: "bounds" must be a list of two numbers' in asked({"and": [counts, mean | {"bounds": [1]}]}).problem
    assert '"aggregate" must be one of' in asked({"and": [mean | {"aggregate": "median"}]}).problem
    assert np.isfinite(done.answer["epsilon"])
