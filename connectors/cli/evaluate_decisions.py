"""evaluate decisions: the thesis' experiments with threshold decisions, on simulated data."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from connectors.cli.options import FOLDER, json_option, print_json, progress
from connectors.lab.experiments import decision_report as figures
from connectors.lab.experiments import decisions as trials
from connectors.lab.experiments.decision_report import HEADER, cells, document, write
from connectors.lab.experiments.decisions import day_results
from connectors.lab.plots import need_matplotlib


@click.command()
@click.option("--out", type=FOLDER, required=True, help="Folder for results.json, tables.md and figures.")
@click.option("--runs", type=click.IntRange(1, 10_000), help="Of each setting.  [default: 100, with --quick 5]")
@click.option("--seed", type=click.IntRange(0, 1 << 32), default=1, show_default=True, help="Of data and noise.")
@click.option("--as-printed", is_flag=True, help="Epsilons and shares of beta as the thesis has them: more misses.")
@click.option("--quick", is_flag=True, help="Fewer runs, and fewer points of each curve.")
@json_option
def decisions(*, out: Path, runs: int | None, seed: int, as_printed: bool, quick: bool, as_json: bool) -> None:
    """Threshold decisions on data of known truth: what they cost, what they give away, how often they are wrong.

    Queries Q1 to Q4 with high, medium and low thresholds; alpha, beta, first epsilon and steps varied; all and any of
    two conditions for each day of a month. The same seed, options and version give the same numbers.

    \b
    tacet evaluate decisions --quick --out decisions
    """
    need_matplotlib("evaluate decisions")
    tried = trials.Extent(runs or (5 if quick else 100), seed, "thesis" if as_printed else "safe")
    if quick:
        tried = trials.quick(tried)
    out.mkdir(parents=True, exist_ok=True)
    with progress("settings", len(trials.every(tried))) as tick:
        found = trials.results(tried, tick)
    with progress("days", len(tried.days)) as tick:
        days = day_results(tried, tick)
    figures.draw_all(out, seed, found, trials.by_predicate(tried))
    figures.draw_days(out, days)
    made = document(tried, found, days)
    write(out, made, found, days)
    if as_json:
        print_json(made)
        return
    shown = Table("query", "", *HEADER, title=f"means of {tried.runs} runs", title_justify="left")
    for each in found["5.6"]:
        shown.add_row(each.setting.query, each.setting.level, *cells(each))
    Console().print(shown)
    click.echo(f"{len(made['results'])} points, with tables and figures → {out}")
