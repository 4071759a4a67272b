"""evaluate: experiments on data whose truth is known; each is one library call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click
from rich.console import Console
from rich.table import Table

from connectors.cli.options import FOLDER, VerbGroup, json_option
from connectors.cli.output import print_json, progress, table
from connectors.lab.experiments import decision_report as figures
from connectors.lab.experiments import decisions as decision_trials
from connectors.lab.experiments import tasks as task_trials
from connectors.lab.experiments.decision_report import HEADER, cells, document, markdown, write
from connectors.lab.experiments.decisions import day_results
from connectors.lab.plots import need_matplotlib
from connectors.lab.simulation.lessons import EPSILONS, MECHANISMS, TASKS, Mechanism


@click.group(cls=VerbGroup)
def evaluate() -> None:
    """Run experiments on simulated data: how accurate private answers are, compared with the truth."""


# evaluate decisions


@evaluate.command()
@click.option("--out", type=FOLDER, required=True, help="Folder for results.json, tables.md and figures.")
@click.option("--runs", type=click.IntRange(1, 10_000), help="Runs of each setting.  [default: 100, with --quick 5]")
@click.option("--seed", type=click.IntRange(0, 1 << 32), default=1, show_default=True, help="Seed of data and noise.")
@click.option(
    "--as-printed", is_flag=True, help="Use epsilons and shares of beta as printed in the thesis: more misses."
)
@click.option("--quick", is_flag=True, help="Use fewer runs and fewer points of each curve.")
@json_option
def decisions(*, out: Path, runs: int | None, seed: int, as_printed: bool, quick: bool, as_json: bool) -> None:
    """Evaluate threshold decisions on data of known truth: their cost, their leakage, and their error rates.

    Queries Q1 to Q4 are run with high, medium and low thresholds, with varied alpha, beta, first epsilon and steps, and
    with all or any of two conditions for each day of a month. The same seed, options and version give the same numbers.

    \b
    tacet evaluate decisions --quick --out decisions
    """
    need_matplotlib("evaluate decisions")
    extent = decision_trials.Extent(runs or (5 if quick else 100), seed, "thesis" if as_printed else "safe")
    if quick:
        extent = decision_trials.quick(extent)
    out.mkdir(parents=True, exist_ok=True)
    with progress("settings", len(decision_trials.every(extent))) as advance:
        found = decision_trials.results(extent, advance)
    with progress("days", len(extent.days)) as advance:
        days = day_results(extent, advance)
    figures.draw_all(out, seed, found, decision_trials.by_predicate(extent))
    figures.draw_days(out, days)
    report = document(extent, found, days)
    write(out, report, extent, found, days)
    if as_json:
        print_json(report)
        return
    shown = Table("query", "", *HEADER, title=f"means of {extent.runs} runs", title_justify="left")
    for each in found["5.6"]:
        shown.add_row(each.setting.query, each.setting.level, *cells(each))
    Console().print(shown)
    click.echo(f"{len(report['results'])} points, with tables and figures → {out}")


# evaluate tasks

WORDS = ("mechanism", "ε")
NUMBERS = ("points", "spread", "right", "worthless", "off")
TITLES = {
    "above": "In how many windows of a day is a room above its limit?",
    "region": "Which of five rooms is the most occupied at night?",
    "stuck": "Since when has a sensor counted nothing?",
    "event": "When does a weekly event begin?",
}


@evaluate.command()
@click.option("--out", type=FOLDER, help="Folder for results.json and tables.md.")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=click.Choice(MECHANISMS), help="Only this one; may be repeated."
)
@click.option(
    "--epsilon", "epsilons", multiple=True, type=click.Choice(EPSILONS), help="Only this one; may be repeated."
)
@click.option("--runs", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs of each question.")
@json_option
def tasks(
    *, out: Path | None, mechanisms: tuple[str, ...], epsilons: tuple[str, ...], runs: int, as_json: bool
) -> None:
    """Evaluate the four questions of the page's detective game, which a program answers from released values.

    Twelve versions of each question are answered for four weeks of a simulated building, with different noise in each
    run. The last row of each table is the score of somebody who has seen no values. The same options give the same
    numbers.

    \b
    tacet evaluate tasks --mechanism pegasus --runs 1
    """
    extent = task_trials.Extent(runs, epsilons or EPSILONS, cast("tuple[Mechanism, ...]", mechanisms or MECHANISMS))
    with progress("settings", len(task_trials.settings(extent))) as advance:
        found = task_trials.results(extent, advance)
    report = task_trials.document(extent, found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        (out / "tables.md").write_text(_markdown(found, runs), "utf-8")
    if as_json:
        print_json(report)
        return
    for task in TASKS:
        shown = table(TITLES[task], WORDS, NUMBERS)
        for each in _of(task, found):
            shown.add_row(*_cells(each))
        Console().print(shown)
    click.echo(f"points: mean of {extent.rounds * runs} answers, at most 100; spread: their standard deviation")


def _of(task: str, found: Sequence[task_trials.Result]) -> list[task_trials.Result]:
    return sorted((each for each in found if each.task == task), key=lambda each: each.epsilon is None)


def _cells(each: task_trials.Result) -> tuple[str, ...]:
    shares = (f"{each.right:.0%}", f"{each.worthless:.0%}")
    return each.mechanism, each.epsilon or "", f"{each.points:.0f}", f"{each.spread:.0f}", *shares, _off(each)


def _off(each: task_trials.Result) -> str:
    return f"{each.off:.1f} {each.unit}"


def _markdown(found: Sequence[task_trials.Result], runs: int) -> str:
    parts = [f"# An analyst's questions on simulated data\n\n{runs} run(s) of each of twelve versions."]
    header = (*WORDS, *NUMBERS)
    parts += [f"## {TITLES[task]}\n\n{markdown(header, map(_cells, _of(task, found)))}" for task in TASKS]
    return "\n\n".join(parts) + "\n"
