"""Results of the experiments with threshold decisions: JSON, tables and figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from connectors.lab.experiments.decisions import (
    BETA,
    EPSILON_MAX,
    LEVELS,
    MECHANISMS,
    SPLITS,
    DayResult,
    Extent,
    Level,
    Result,
    distances,
)
from connectors.lab.plots import INK, SERIES, drawing
from stream.decisions.plan import Mechanism
from stream.lab.simulator.threshold_tables import QUERIES, Query
from stream.records import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


def document(extent: Extent, found: Found, days: Days) -> JsonObject:
    """Return all results as JSON; every number is of simulated data."""
    rows = [result.row(figure) for figure, points in found.items() for result in points]
    rows += [result.row(figure) for figure, points in days.items() for result in points]
    return {"simulated": True, "seed": extent.seed, "runs": extent.runs, "form": extent.form, "results": rows}


def write(folder: Path, report: JsonObject, extent: Extent, found: Found, days: Days) -> None:
    """Write ``results.json`` and ``tables.md``."""
    (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    parts = [
        f"# Threshold decisions on simulated data\n\nSeed {extent.seed}, {extent.runs} runs, {extent.form} form.",
        f"## Distances from the thresholds (5.5)\n\n{_near(extent.seed)}",
    ]
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
    """Return a result's cells for the columns of ``HEADER``."""
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
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


Measure = Literal["ex_post", "min_entropy", "fnr", "fpr"]
NAMES: dict[Measure, str] = {
    "ex_post": "achieved ε", "min_entropy": "min-entropy / ln k", "fnr": "missed", "fpr": "false alarms",
}  # fmt: skip
_COLOURS = dict(zip(MECHANISMS, SERIES, strict=False))
_WIDE = (9.6, 2.6)


FIGURE_VARIED = {
    "5.8": ("alpha", "alpha", "α"),
    "beta": ("beta", "beta", "β"),
    "A.2 first": ("first-epsilon", "epsilon_first", "ε of the first step"),
    "A.2 steps": ("steps", "steps", "steps"),
}
"""Figure of the thesis -> name of the file, what was varied, and how its axis is named."""


def draw_all(
    folder: Path, seed: int, found: Mapping[str, Sequence[Result]], epsilons: Mapping[Mechanism, Sequence[float]]
) -> None:
    """Draw every figure of chapter 5 and A.1.5."""
    draw_distances(folder, seed)
    draw_queries(folder, found["5.6"])
    for figure, (name, varied, label) in FIGURE_VARIED.items():
        draw_varied(folder, name, found[figure], varied, label)
    draw_by_predicate(folder, epsilons)


def draw_distances(folder: Path, seed: int) -> None:
    """Draw the distances of counts from their thresholds (5.5)."""
    with drawing(folder, "distances", rows=2, columns=2) as sheet:
        for panel, query in zip(sheet.panels, QUERIES, strict=True):
            for level in LEVELS:
                found = distances(query, level, seed)
                shares = [(place + 1) / len(found) for place in range(len(found))]
                panel.plot([max(1, each) for each in found], shares, label=level, marker="")
            panel.set(title=query, xscale="log", xlim=(0.8, 100_000))
            panel.set(xlabel="distance from the threshold", ylabel="share of cells within")
        sheet.legend()


def draw_queries(folder: Path, results: Sequence[Result]) -> None:
    """Draw all queries at all levels: achieved ε (5.6), and quality (5.7)."""
    places = [(query, level) for query in QUERIES for level in LEVELS]
    for name, measures in (("privacy", ("ex_post", "min_entropy")), ("accuracy", ("fnr", "fpr"))):
        with drawing(folder, name, rows=2, panel=_WIDE) as sheet:
            for panel, measure in zip(sheet.panels, measures, strict=True):
                shown: Measure = measure  # type: ignore[assignment]
                _bars(panel, results, places, shown)
                if shown == "fnr":
                    panel.axhline(0.05, color=INK, linestyle=":", label="β")
            sheet.legend()


def _bars(panel: Axes, results: Sequence[Result], places: Sequence[tuple[Query, Level]], measure: Measure) -> None:
    shown = MECHANISMS if measure in ("fnr", "fpr") else MECHANISMS[1:]
    width = 0.8 / len(shown)
    for rank, mechanism in enumerate(shown):
        of = {(r.setting.query, r.setting.level): r for r in results if r.setting.mechanism == mechanism}
        heights = [getattr(of[place], measure) for place in places]
        at = [i + (rank - (len(shown) - 1) / 2) * width for i in range(len(places))]
        panel.bar(at, [each or 0.0 for each in heights], width, label=mechanism, color=_COLOURS[mechanism])
        for x, height in zip(at, heights, strict=True):
            if height is None and not rank:
                middle = x + 0.4 - width / 2
                panel.text(middle, 0, "none above", rotation=90, fontsize="x-small", va="bottom", ha="center")
    panel.set_xticks(range(len(places)), [f"{query} {level}" for query, level in places], rotation=30, ha="right")
    panel.grid(visible=False, axis="x")
    panel.set_ylabel(NAMES[measure])


def draw_varied(folder: Path, name: str, results: Sequence[Result], varied: str, label: str) -> None:
    """Draw all four measures of Q3 low over the varied parameter (5.8, and A.2 for the progressive mechanisms)."""
    with drawing(folder, name, rows=2, columns=2) as sheet:
        for panel, (measure, title) in zip(sheet.panels, NAMES.items(), strict=True):
            for mechanism in dict.fromkeys(r.setting.mechanism for r in results):
                line = [r for r in results if r.setting.mechanism == mechanism]
                panel.plot(
                    [float(getattr(r.setting, varied)) for r in line],
                    [getattr(r, measure) for r in line],
                    label=mechanism,
                    color=_COLOURS[mechanism],
                )
            panel.set(xlabel=label, title=title)
            if varied == "epsilon_first":
                panel.set_xscale("log")
            if varied == "alpha" and measure == "ex_post":
                panel.set_yscale("log")
            if measure == "fnr":
                _guarantee(panel, results, varied)
        sheet.legend()


def _guarantee(panel: Axes, results: Sequence[Result], varied: str) -> None:
    """Draw the guaranteed β."""
    points = sorted({(float(getattr(r.setting, varied)), float(r.setting.beta)) for r in results})
    panel.plot(*zip(*points, strict=True), color=INK, linestyle=":", marker="", label="β")


def draw_by_predicate(folder: Path, epsilons: Mapping[Mechanism, Sequence[float]]) -> None:
    """Draw how many predicates were decided within an ε (A.3)."""
    with drawing(folder, "epsilon-by-predicate") as sheet:
        (panel,) = sheet.panels
        for mechanism, found in epsilons.items():
            ranks = range(1, len(found) + 1)
            panel.step(found, ranks, where="post", marker="", label=mechanism, color=_COLOURS[mechanism])
        panel.set(xscale="log", xlabel="ε", ylabel="predicates decided within it", title="Q3 medium")
        sheet.legend()


def draw_days(folder: Path, found: Mapping[str, Sequence[DayResult]]) -> None:
    """Draw the daily cost and quality of conjunctions (6.3) and disjunctions (6.4) of two conditions."""
    for figure, results in found.items():
        with drawing(folder, {"6.3": "conjunction", "6.4": "disjunction"}[figure], columns=3) as sheet:
            for panel, (name, title) in zip(sheet.panels, _BY_DAY.items(), strict=True):
                for split in SPLITS:
                    line = [result for result in results if result.split == split]
                    panel.plot([each.day for each in line], [getattr(each, name) for each in line], label=split)
                panel.set(xlabel="day of March", title=title)
            sheet.panels[0].axhline(float(EPSILON_MAX), color=INK, linestyle=":", marker="", label="ε_max")
            sheet.panels[0].set_yscale("log")
            sheet.panels[1].axhline(float(BETA), color=INK, linestyle="--", marker="", label="β")
            sheet.legend()


_BY_DAY = {"epsilon": "ε charged", "fnr": "missed", "fpr": "false alarms"}
