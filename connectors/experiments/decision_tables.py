"""What the experiments with threshold decisions found, as JSON and as tables to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.experiments.compound_decisions import DayResult
from connectors.experiments.decisions import LEVELS, Extent, Result, distances
from stream.simulator.threshold_tables import QUERIES

FIGURES = {
    "5.6": "All queries at all levels (5.6, 5.7)",
    "5.8": "Q3 low, α varied (5.8)",
    "beta": "Q3 low, β varied",
    "A.2 first": "Q3 low, ε of the first step varied (A.2)",
    "A.2 steps": "Q3 low, number of steps varied (A.2)",
}
VARIED = {"5.8": "alpha", "beta": "beta", "A.2 first": "epsilon_first", "A.2 steps": "steps"}
HEADER = ("mechanism", "charged", "achieved", "entropy", "missed", "wrong")
"""Mean over runs: ε charged and achieved, min-entropy divided by ln k, shares missed and wrongly taken for above."""
_NEAR = (10, 100, 215)


Found = Mapping[str, Sequence[Result]]
Days = Mapping[str, Sequence[DayResult]]
_DAYS = {"6.3": "All of two conditions, by the day (6.3)", "6.4": "Any of two conditions, by the day (6.4)"}


def document(extent: Extent, found: Found, days: Days) -> dict[str, Any]:
    """Return all results as JSON; every number is of simulated data."""
    rows = [result.row(figure) for figure, points in found.items() for result in points]
    rows += [result.row(figure) for figure, points in days.items() for result in points]
    return {"simulated": True, "seed": extent.seed, "runs": extent.runs, "form": extent.form, "results": rows}


def write(folder: Path, made: Mapping[str, Any], found: Found, days: Days) -> None:
    """Write ``results.json`` and ``tables.md``."""
    (folder / "results.json").write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    parts = [
        f"# Threshold decisions on simulated data\n\nSeed {made['seed']}, {made['runs']} runs, {made['form']} form."
    ]
    parts.append("## Distances from the thresholds (5.5)\n\n" + _near(made["seed"]))
    parts += [f"## {title}\n\n{_table(figure, found[figure])}" for figure, title in FIGURES.items()]
    parts += [f"## {title}\n\n{_by_day(days[figure])}" for figure, title in _DAYS.items()]
    (folder / "tables.md").write_text("\n\n".join(parts) + "\n", "utf-8")


def _by_day(points: Sequence[DayResult]) -> str:
    header = ("day", "split", "charged", "by the thesis' formula", "missed", "wrong")
    rows = [
        (str(each.day), each.split, *map(_number, (each.epsilon, each.printed, each.fnr, each.fpr))) for each in points
    ]
    return markdown(header, rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def cells(result: Result) -> tuple[str, ...]:
    """Return a result under ``HEADER``."""
    numbers = (result.epsilon, result.ex_post, result.min_entropy, result.fnr, result.fpr)
    return (result.setting.mechanism, *map(_number, numbers))


def _near(seed: int) -> str:
    header = ("query", "threshold", "nearest", "median", *(f"within {each}" for each in _NEAR))
    rows = []
    for query in QUERIES:
        for level in LEVELS:
            found = distances(query, level, seed)
            near = (sum(each < bound for each in found) for bound in _NEAR)
            rows.append((query, level, *map(str, (found[0], found[len(found) // 2], *near))))
    return markdown(header, rows)


def _table(figure: str, points: Sequence[Result]) -> str:
    if figure == "5.6":
        return markdown(
            ("query", "threshold", *HEADER), [(r.setting.query, r.setting.level, *cells(r)) for r in points]
        )
    name = VARIED[figure]
    return markdown((name, *HEADER), [(f"{float(getattr(r.setting, name)):g}", *cells(r)) for r in points])


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
