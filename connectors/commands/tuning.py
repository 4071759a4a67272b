"""tune: the most private epsilon, or salt life, at which released counts still serve a task."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import cast, get_args

import click
from rich.console import Console

from connectors import keyfile
from connectors.attacks.recording import laboratory
from connectors.commands.choosing import dialect_options
from connectors.commands.deciding import NUMBER
from connectors.commands.options import FILE, json_option, policy_option, print_json, progress, read_policy
from connectors.commands.tuned import NOTICE, show
from connectors.files.dialect import Dialect
from connectors.tuning.answers import TTL, Asked
from connectors.tuning.answers import tune as tuned
from connectors.tuning.recording import recorded_site
from stream.tuning.bench import Task
from stream.tuning.price import Unit
from stream.tuning.world import Period

MECHANISMS = ("laplace", "pegasus", "filter", TTL)


@click.command()
@click.option("--observations", type=FILE, required=True, help="A recording (CSV or JSONL).")
@policy_option
@click.option("--site", help="Of the policy.  [default: the only one]")
@click.option("--task", type=click.Choice(get_args(Task)), required=True, help="What the counts are to be good for.")
@click.option("--utility", type=NUMBER, multiple=True, required=True, help="To be reached, above 0 and at most 1.")
@click.option("--mechanism", type=click.Choice(MECHANISMS), multiple=True, required=True)
@click.option("--unit", type=click.Choice(get_args(Unit)), default="window", show_default=True, help="Of epsilon.")
@click.option(
    "--period", type=click.Choice(["day", "night"]), multiple=True, help="07 to 19 h, or else.  [default: all]"
)
@click.option("--days", type=click.IntRange(1, 366), default=1, show_default=True, help="Last days, to be measured.")
@click.option("--before", type=click.IntRange(0, 366), default=0, show_default=True, help="Days before, to learn from.")
@click.option("--confidence", type=NUMBER, default="0.99", show_default=True, help="That no verdict is wrong.")
@click.option("--runs", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Most of one candidate.")
@click.option("--epsilon-min", type=NUMBER, default="0.00001", show_default=True, help="No smaller one is tried.")
@click.option("--epsilon-max", type=NUMBER, default="100", show_default=True, help="No larger one is tried.")
@click.option("--clamp", is_flag=True, help="Take what is below 0 for 0, which costs nothing.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Same seed, same noise.")
@click.option("--key-file", type=FILE, help="A laboratory key, in place of the seed.")
@dialect_options
@json_option
def tune(
    *, observations: Path, policy_file: Path, site: str | None, task: Task, utility: tuple[Fraction, ...],
    mechanism: tuple[str, ...], unit: Unit, period: tuple[str, ...], days: int, before: int, confidence: Fraction,
    runs: int, epsilon_min: Fraction, epsilon_max: Fraction, clamp: bool, seed: int, key_file: Path | None,
    dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Find the least epsilon, or shortest salt life (ttl), at which what is released still serves a task.

    Utility is measured on the last whole days of the recording. A candidate reaches it if more than half of all runs
    do; each is run until that is sure. Noise comes from --seed or a laboratory key: nothing made here is anybody's
    release. The same files, options and seed give the same answer.

    \b
    tacet tune --observations observations.csv --policy policy.toml --task heatmap --utility 0.9 \\
        --mechanism laplace --mechanism pegasus --period day
    """
    for value in utility:
        if not 0 < value <= 1:
            raise click.UsageError(f"--utility: must be above 0 and at most 1, got {float(value):g}")
    if not 0 < confidence < 1:
        raise click.UsageError(f"--confidence: must be above 0 and below 1, got {float(confidence):g}")
    policy = read_policy(policy_file)
    keys = laboratory(seed, "tune") if key_file is None else keyfile.laboratory_keys(key_file)
    periods = cast(tuple[Period, ...], tuple(dict.fromkeys(period)) or ("all",))
    asked = Asked(
        task, tuple(dict.fromkeys(mechanism)), tuple(dict.fromkeys(utility)), periods, unit, days, before,
        1 - confidence, runs, (epsilon_min, epsilon_max), clamp,
    )  # fmt: skip
    with progress("rows read") as tick:
        recorded = recorded_site(policy, site, observations, tick, dialect)
    with progress("runs made") as tick:
        numbers = count(1)
        report = tuned(recorded, asked, keys, lambda: tick(next(numbers)))
    report["notice"] = NOTICE
    print_json(report) if as_json else show(report, Console(highlight=False))
