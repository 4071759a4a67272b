"""``tacet evaluate decisions``: its files, which the same seed reproduces."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from connectors.lab.experiments import decisions as trials
from stream.decisions.plan import Mechanism
from tests.acceptance.command_line import Done, run

FIGURES = {
    "distances", "privacy", "accuracy", "alpha", "beta", "first-epsilon", "steps", "epsilon-by-predicate",
    "conjunction", "disjunction",
}  # fmt: skip


@pytest.fixture(scope="module", params=["named", pytest.param("drawn", marks=pytest.mark.long)], ids=["named", "drawn"])
def evaluated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """What the verb writes; each night with what Matplotlib draws, of which else there are the names."""
    out = tmp_path_factory.mktemp("evaluated") / "out"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "named":
            patch.setattr(Figure, "savefig", lambda _, path, **__: path.touch())
        return out, run("evaluate", "decisions", "--quick", "--runs", "1", "--seed", "5", "--out", out, "--json")


def test_it_writes_results_tables_and_each_figure_twice(evaluated: tuple[Path, Done]) -> None:
    out, done = evaluated
    assert done.code == 0
    figures = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    assert {path.name for path in out.iterdir()} == {"results.json", "tables.md"} | figures
    assert json.loads((out / "results.json").read_text()) == done.answer
    assert done.answer["simulated"] is True
    tables = (out / "tables.md").read_text()
    assert all(f"| {query} | {level} |" in tables for query in ("Q1", "Q2", "Q3", "Q4") for level in trials.LEVELS)


def test_misses_are_as_rare_as_promised_but_for_laplace(evaluated: tuple[Path, Done]) -> None:
    """Each count above is missed with probability beta at most; a share further off has one of 1e-7 (Hoeffding)."""
    _, done = evaluated
    for row in done.answer["results"]:
        if (
            row.get("mechanism", "laplace") == "laplace"
            or row["fnr"] is None
            or row["query"] != "Q3"
            or row["level"] != "low"
        ):
            continue
        table = trials.table_of("Q3", "low", Fraction(1), 5)
        room = math.sqrt(math.log(1e7) / (2 * int(table.truth.sum())))
        assert row["fnr"] <= row["beta"] + room, row


def test_the_same_seed_gives_the_same_numbers(evaluated: tuple[Path, Done]) -> None:
    """One curve of the same data, run again; not the figures, whose bytes ``test_plots.py`` compares."""
    extent = trials.Extent(1, 5, "safe")
    shown: list[tuple[Mechanism, str]] = [("ppwlm", "5.8"), ("dppwlm", "5.6")]
    for mechanism, figure in shown:
        assert trials.result_of(trials.Setting("Q3", "low", mechanism), extent).row(figure) in rows_of(evaluated)


def rows_of(evaluated: tuple[Path, Done]) -> list[dict[str, Any]]:
    return [row for row in evaluated[1].answer["results"] if row["figure"] in ("5.6", "5.8")]
