"""tune: find the most private epsilon, or pseudonym lifetime, that serves a task."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import cast, get_args

import click
from rich.console import Console

from connectors.cli.options import FILE, NUMBER, dialect_options, json_option, observed_site, policy_option, read_policy
from connectors.cli.output import print_json, progress, table
from connectors.keys import key_files
from connectors.lab.attacks.recording import laboratory
from connectors.lab.tuning import TTL, Candidate, TuningReport, TuningRequest, TuningRow, check_request, recorded_site
from connectors.lab.tuning import tune as tuned
from connectors.sources.recordings.dialect import Dialect
from stream.lab.tuning.bench import Task, Unit
from stream.lab.tuning.utility import Period
from stream.policy.mechanisms import names_where

# The results of a search as tables for people.

NOTICE = (
    "Restricted: computed from a recording of people, by comparing released with true counts. Protect it like the raw "
    "data. An epsilon that is chosen from it and then published reveals something about these people, which no "
    "guarantee covers: choose epsilons from simulated or public data."
)
_NUMBERS = ("utility", "mean", "spread", "runs", "next\nbelow")


def show(report: TuningReport, console: Console) -> None:
    """Print the results, the attackers' success against them, and their confidence."""
    _answers(report, console)
    _attackers(report, console)
    if any(row["status"] == "boundary" for row in report["answers"]):
        console.print("* At the boundary: the most private candidate already reaches the utility.")
    for row in report["answers"]:
        if row["open_below"]:
            names = ", ".join(_named(each) for each in row["open_below"])
            console.print(f"{_line(row)}: the runs did not decide about {names}.")
    sure = f"All verdicts of a row hold together with confidence {report['confidence']:g}."
    console.print(f"{sure} Candidates that were not tried are not judged.")
    console.print(f"[bold]{NOTICE}[/bold]")


def _answers(report: TuningReport, console: Console) -> None:
    unit = "a device's day" if report["unit"] == "device_day" else "a window"
    title = f"Most private candidates for {report['task']} at {report['site']}, epsilon of {unit}"
    beside = any(row["thesis"] for row in report["answers"])
    words = ("mechanism", "period", "found")
    found = table(title, words, (*_NUMBERS, "thesis", "its\nspread") if beside else _NUMBERS)
    for row in report["answers"]:
        measured, thesis = row["measured"] or {}, row["thesis"]
        cells = [row["mechanism"], row["period"], _result_text(row), f"{row['utility']:.0%}"]
        cells += [_percent(measured.get("utility")), _percent(measured.get("spread")), str(measured.get("runs", "-"))]
        cells += [_named(row["next_below"])]
        cells += [_named(thesis), _percent(thesis and thesis["spread"])] if beside else []
        found.add_row(*cells)
    console.print(found)


def _attackers(report: TuningReport, console: Console) -> None:
    """Print the share of people whom each attacker guesses right, compared with guesses without releases."""
    rows = [(row, attackers) for row in report["answers"] if (attackers := row["attackers"])]
    if not rows:
        return
    names = list(rows[0][1])
    found = table(
        "People guessed right from these releases (and from the prior alone)", ("mechanism", "period", "utility"), names
    )
    for row, attackers in rows:
        shares = [attackers[name] for name in names]
        cells = [f"{each['success']:.1%} ({each['prior']:.1%})" for each in shares]
        found.add_row(row["mechanism"], row["period"], f"{row['utility']:.0%}", *cells)
    console.print(found)


def _line(row: TuningRow) -> str:
    return f"{row['mechanism']}, {row['period']}, {row['utility']:.0%}"


def _result_text(row: TuningRow) -> str:
    named = _named(row)
    if row["status"] == "found":
        return named
    return f"{named} *" if row["status"] == "boundary" else str(row["status"])


def _named(value: Candidate | None) -> str:
    """Return a candidate in words."""
    if value is None:
        return "-"
    if "ttl_seconds" in value:
        seconds = value["ttl_seconds"]
        if seconds is None:
            return "-"
        unit, size = next((pair for pair in (("h", 3600), ("min", 60)) if seconds % pair[1] == 0), ("s", 1))
        return f"{seconds / size:g} {unit}"
    return "-" if value["epsilon"] is None else str(value["epsilon"])


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"


TRIED = (*names_where("pays_by_window"), TTL)


@click.command()
@click.option("--observations", type=FILE, required=True, help="A recording (CSV or JSONL).")
@policy_option
@click.option("--site", help="Site of the policy.  [default: the only one]")
@click.option("--task", type=click.Choice(get_args(Task)), required=True, help="The task that the counts must serve.")
@click.option(
    "--utility",
    type=NUMBER,
    multiple=True,
    required=True,
    help="Utility to reach, above 0 and at most 1. May be repeated.",
)
@click.option(
    "--mechanism",
    type=click.Choice(TRIED),
    multiple=True,
    required=True,
    help="Mechanism to try, or ttl for pseudonym lifetimes. May be repeated.",
)
@click.option(
    "--unit", type=click.Choice(get_args(Unit)), default="window", show_default=True, help="What epsilon pays for."
)
@click.option(
    "--period",
    type=click.Choice(["day", "night"]),
    multiple=True,
    help="Day is 07 to 19 h, night the rest.  [default: all]",
)
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=1,
    show_default=True,
    help="Number of last days on which utility is measured.",
)
@click.option(
    "--before",
    type=click.IntRange(0, 366),
    default=0,
    show_default=True,
    help="Number of days before these, to learn from.",
)
@click.option(
    "--confidence", type=NUMBER, default="0.99", show_default=True, help="Confidence that no verdict is wrong."
)
@click.option(
    "--runs",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    help="Largest number of runs of a candidate.",
)
@click.option("--epsilon-min", type=NUMBER, default="0.00001", show_default=True, help="Smallest epsilon to try.")
@click.option("--epsilon-max", type=NUMBER, default="100", show_default=True, help="Largest epsilon to try.")
@click.option("--clamp", is_flag=True, help="Replace negative values by 0, which costs nothing.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed gives the same noise."
)
@click.option("--key-file", type=FILE, help="A laboratory key, instead of --seed.")
@dialect_options
@json_option
def tune(
    *, observations: Path, policy_file: Path, site: str | None, task: Task, utility: tuple[Fraction, ...],
    mechanism: tuple[str, ...], unit: Unit, period: tuple[str, ...], days: int, before: int, confidence: Fraction,
    runs: int, epsilon_min: Fraction, epsilon_max: Fraction, clamp: bool, seed: int, key_file: Path | None,
    dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Find the most private epsilon that still serves a task, or the shortest pseudonym lifetime (ttl).

    Utility is measured on the last whole days of the recording. A candidate reaches it if more than half of its runs
    do; runs are repeated until that is decided. Noise comes from --seed or a laboratory key, so nothing is published.
    The same files, options and seed give the same answer.

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
    keys = laboratory(seed, "tune") if key_file is None else key_files.laboratory_keys(key_file)
    periods = cast(tuple[Period, ...], tuple(dict.fromkeys(period)) or ("all",))
    request = TuningRequest(
        task, tuple(dict.fromkeys(mechanism)), tuple(dict.fromkeys(utility)), periods, unit, days, before,
        1 - confidence, runs, (epsilon_min, epsilon_max), clamp,
    )  # fmt: skip
    name = observed_site(policy, site)
    check_request(policy, name, request)
    with progress("rows read") as advance:
        recorded = recorded_site(policy, name, observations, advance, dialect)
    with progress("runs made") as advance:
        numbers = count(1)
        report = tuned(recorded, request, keys, lambda: advance(next(numbers)))
    print_json({**report, "notice": NOTICE}) if as_json else show(report, Console(highlight=False))
    if recorded.problem is not None:
        raise recorded.problem
