"""evaluate tasks: a building analyst's four questions, answered from released values and compared with the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click
from rich.console import Console

from connectors.cli.options import FOLDER, json_option, print_json, progress
from connectors.cli.output import table
from connectors.lab.experiments import tasks as trials
from connectors.lab.experiments.decision_report import markdown
from connectors.lab.simulation.lessons import EPSILONS, MECHANISMS, TASKS, Mechanism

WORDS = ("mechanism", "ε")
NUMBERS = ("points", "spread", "right", "worthless", "off")
TITLES = {
    "above": "In how many windows of a day is a room fuller than it may be?",
    "region": "Which of five rooms is the most occupied at night?",
    "stuck": "From when on does a sensor count nothing any more?",
    "event": "When does a weekly event begin?",
}


@click.command()
@click.option("--out", type=FOLDER, help="Folder for results.json and tables.md.")
@click.option("--mechanism", "mechanisms", multiple=True, type=click.Choice(MECHANISMS), help="Only these.")
@click.option("--epsilon", "epsilons", multiple=True, type=click.Choice(EPSILONS), help="Only these.")
@click.option("--runs", type=click.IntRange(1, 1000), default=1, show_default=True, help="Of each question.")
@json_option
def tasks(
    *, out: Path | None, mechanisms: tuple[str, ...], epsilons: tuple[str, ...], runs: int, as_json: bool
) -> None:
    """The four questions of the detective's game, answered by a program from released values: points against the truth.

    Twelve versions of each question, of four weeks of a simulated building, with other noise in each run. Below what
    the values answer stands what somebody scores who has seen nothing. The same options give the same numbers.

    \b
    tacet evaluate tasks --mechanism pegasus --runs 1
    """
    tried = trials.Extent(runs, epsilons or EPSILONS, cast("tuple[Mechanism, ...]", mechanisms or MECHANISMS))
    with progress("settings", len(trials.settings(tried))) as tick:
        found = trials.results(tried, tick)
    made = trials.document(tried, found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(made, indent=1) + "\n", "utf-8")
        (out / "tables.md").write_text(_markdown(found, runs), "utf-8")
    if as_json:
        print_json(made)
        return
    for task in TASKS:
        shown = table(TITLES[task], WORDS, NUMBERS)
        for each in _of(task, found):
            shown.add_row(*_cells(each))
        Console().print(shown)
    click.echo(f"points of 100 in the mean of {tried.rounds * runs} answers, with their standard deviation")


def _of(task: str, found: Sequence[trials.Result]) -> list[trials.Result]:
    return sorted((each for each in found if each.task == task), key=lambda each: each.epsilon is None)


def _cells(each: trials.Result) -> tuple[str, ...]:
    shares = (f"{each.right:.0%}", f"{each.worthless:.0%}")
    return each.mechanism, each.epsilon or "", f"{each.points:.0f}", f"{each.spread:.0f}", *shares, _off(each)


def _off(each: trials.Result) -> str:
    return f"{each.off:.1f} {each.unit}"


def _markdown(found: Sequence[trials.Result], runs: int) -> str:
    parts = [f"# An analyst's questions on simulated data\n\n{runs} runs of each of twelve versions."]
    header = (*WORDS, *NUMBERS)
    parts += [f"## {TITLES[task]}\n\n{markdown(header, map(_cells, _of(task, found)))}" for task in TASKS]
    return "\n\n".join(parts) + "\n"
