"""Reports of the experiments with threshold decisions: every result as JSON, and tables for people."""

from __future__ import annotations

import json
from pathlib import Path

from connectors.lab.experiments.decision_report import FIGURES, document, write
from connectors.lab.experiments.decisions import DayResult, Extent, Result, Setting

EXTENT = Extent(2, 5, "safe")
POINT = Result(Setting("Q3", "low", "ppwlm"), 5.0, 0.5, 0.25, None, 0.125, 2)
DAY = DayResult(4, "and", "optimal", 0.5, 0.75, None, 0.125, 2)


def test_a_document_has_the_results_of_every_figure_and_what_was_run() -> None:
    made = document(EXTENT, {"5.6": [POINT], "5.8": [POINT, POINT]}, {"6.3": [DAY], "6.4": [DAY]})
    assert (made["simulated"], made["seed"], made["runs"], made["form"]) == (True, 5, 2, "safe")
    rows = [(row["figure"], row["epsilon"], row["denied"]) for row in made["results"]]
    points, days = [("5.6", 5.0, True), *[("5.8", 5.0, True)] * 2], [("6.3", 0.5, False), ("6.4", 0.5, False)]
    assert rows == points + days


def test_results_are_written_as_json_and_as_tables(tmp_path: Path) -> None:
    found, days = {figure: [POINT] for figure in FIGURES}, {"6.3": [DAY], "6.4": [DAY]}
    made = document(EXTENT, found, days)
    write(tmp_path, made, EXTENT, found, days)
    assert json.loads((tmp_path / "results.json").read_text()) == made
    tables = (tmp_path / "tables.md").read_text()
    assert tables.startswith("# Threshold decisions on simulated data\n\nSeed 5, 2 runs, safe form.\n")
    assert "| Q3 | low | ppwlm | 5.000 | 0.500 | 0.250 | - | 0.125 |\n" in tables
    assert tables.count("| 4 | optimal | 0.500 | 0.750 | - | 0.125 |\n") == 2
