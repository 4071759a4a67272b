"""policy plan: the expected cost of a day, the quality of its releases, and the epsilons that would reach a target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from connectors.cli.options import FILE, json_option, print_json, progress, read_policy, working
from connectors.cli.output import table, utility_warning
from connectors.cli.source_options import dialect_options, refuse_dialect
from connectors.operations.policy.contribution_loss import Stays, loss_sentence, losses, simulated_stays, stays_of
from connectors.operations.policy.plan import TRIED, targets, windows_to_try
from connectors.operations.policy.plan import plan as plan_of
from connectors.operations.policy.quality import (
    Quality,
    Windows,
    observed_windows,
    simulated_windows,
)
from connectors.sources.recordings.dialect import Dialect
from stream.errors import DataError
from stream.records import ObservationBatch
from stream.release.validation import Policy

NOTICE = (
    "Restricted: made from a recording of people, with noise that anybody can draw again. Keep it like the raw data. "
    "An epsilon that is chosen by it and then published tells of these people, which no guarantee covers: choose from "
    "simulated or public data."
)
SIMULATED = "Counts and errors are those on the simulated day of 'tacet simulate --scale 0.45 --always-on 75'."
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\s?%")


class Percentage(click.ParamType):
    """A fraction, written as ``10%``."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Return the fraction; refuse values other than percentages above 0 and up to 100."""
        match = _PERCENT.fullmatch(value)
        part = Fraction(match[1]) / 100 if match else Fraction(0)
        if not 0 < part <= 1:
            self.fail(f"must be a percentage above 0% and up to 100%, such as 10%, got {value!r}", param, ctx)
        return part


@click.command("plan")
@click.argument("file", type=FILE, required=False)
@click.option("--policy", "policy_file", type=FILE, help="The policy, instead of FILE.")
@click.option("--observations", type=FILE, help="Try it on recorded observations (CSV or JSONL) instead: restricted.")
@dialect_options
@click.option("--target-error", "target", type=Percentage(), help="Which epsilon reaches this part of the mean count?")
@json_option
def plan(
    file: Path | None, *, policy_file: Path | None, observations: Path | None, target: Fraction | None,
    dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Report, before anything runs, what a day will cost and how good its releases will be.

    Errors are those on the demo's day, which 'tacet simulate --scale 0.45 --always-on 75' makes, or on --observations:
    what is printed then is restricted. With --target-error, say for each release and level which epsilon makes its
    mean error so small.

    \b
    tacet policy plan policy.toml --target-error 10%
    """
    if (file is None) == (policy_file is None):
        raise click.UsageError("give the policy once: as FILE, or with --policy")
    policy = read_policy(file or policy_file or Path())
    days, stays, problem = _days(policy, observations, dialect)
    report = _plan(policy, days) if target is None else _targets(policy, days, target)
    report["losses"] = losses(policy, stays)
    if observations is not None:
        report |= {"restricted": True, "notice": NOTICE}
    if as_json:
        print_json(report)
    else:
        console = Console(highlight=False)
        _print_plan(console, report) if target is None else _print_targets(console, report)
        for loss in report["losses"]:
            console.print(loss_sentence(loss))
        console.print(SIMULATED if observations is None else f"[bold]{NOTICE}[/bold]")
    if problem is not None:
        raise problem


def _days(policy: Policy, observations: Path | None, dialect: Dialect) -> tuple[Windows, Stays, DataError | None]:
    """Return the tried day's windows, who is there when, and what to report of rows that were bad or lost."""
    if observations is None:
        refuse_dialect(dialect)
        with working("a day simulated"):
            return simulated_windows(policy), simulated_stays(policy), None
    stays = stays_of(policy)

    def heard(batch: ObservationBatch) -> None:
        if batch.site in stays:
            stays[batch.site].add_batch(batch)

    with progress("rows read") as tick:
        observed = observed_windows(policy, observations, tick, dialect, heard)
    return observed.windows, stays, observed.problem


def _plan(policy: Policy, days: Windows) -> dict[str, Any]:
    with progress("windows tried", windows_to_try(policy, days)) as tick:
        tried = count(1)
        return plan_of(policy, days, lambda: tick(next(tried)))


def _targets(policy: Policy, days: Windows, target: Fraction) -> dict[str, Any]:
    with progress("epsilons tried") as tick:
        tried = count(1)
        rows = targets(policy, days, target, lambda: tick(next(tried)))
    return {"policy_version": policy.version, "target_error": float(target), "targets": rows}


# --- on a terminal ------------------------------------------------------------------------------------


def _print_plan(console: Console, report: dict[str, Any]) -> None:
    for site, rows in _by_site(report["counts"]):
        title = f"A day at {site} under policy {report['policy_version']}"
        _print_costs(console, f"{title}: costs", rows)
        _print_errors(console, f"{title}: counts", rows)
    for site, rows in _by_site(report["thresholds"]):
        _print_thresholds(console, f"Threshold streams at {site}", rows)
    for site, rows in _by_site(report["attributes"]):
        attributes = table(
            f"Attributes at {site}", ("release", "attribute", "audience"), ("epsilon", "zones", "odds factor")
        )
        for row in rows:
            attributes.add_row(
                row["release"], row["attribute"], row["audience"], row["epsilon"],
                str(row["zones"]), f"{row['with_counts']:.4g}",
            )  # fmt: skip
        console.print(attributes)


def _print_thresholds(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = ("missed", "within", "quiet\nfrom", "false\nalarms", "denied", "epsilon\na run", "a day")
    made = table(title, ("release", "audience"), columns)
    for column, width in zip(made.columns, (12, 8), strict=False):
        column.min_width = width  # on a narrow terminal names take precedence over numbers
    for row in rows:
        quiet = row["quiet"]
        made.add_row(
            row["release"], "\n".join(row["audiences"]), row["miss"], f"{row['within_seconds'] // 60} min",
            str(quiet["devices"]), f"{quiet['false_alarms_a_day']:.2g}", f"{quiet['denied']:.2g}",
            row["epsilon_run"], row["epsilon_day"],
        )  # fmt: skip
    console.print(made)
    console.print(
        "Quiet is what stays so many devices off its threshold all day: false alarms a day, and events denied."
    )


def _print_costs(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = ("epsilon\na window", "epsilon\na day", "windows\nthat fit", "cost of\na day", "one person,\none day")
    costs = table(title, ("release", "audience"), columns)
    for row in rows:
        by_day, cost = row["unit"] == "device_day", row["cost"]
        costs.add_row(
            row["release"], row["audience"], "-" if by_day else row["epsilon"],
            row["epsilon"] if by_day else cost["device_day"], f"{row['releases_that_fit']} of {row['windows_per_day']}",
            cost["day"], _tight(row, "person_day"),
        )  # fmt: skip
    console.print(costs)


def _tight(row: dict[str, Any], unit: str) -> str:
    """Return a unit's epsilon, at its delta if it has one."""
    return f"{row['tight'][unit]['epsilon']:.3g}" if row["tight"] else str(row["cost"][unit])


def _print_errors(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = ("mean\ncount", "mean\nerror", "error of\nthe median")
    errors, poor = table(title, ("release", "audience", "level"), columns), []
    for row in rows:
        for level, expected, published in _levels(row):
            name = level if published else f"({level})"
            figures = (expected.mean, expected.error, expected.median)
            errors.add_row(row["release"], row["audience"], name, *(f"{figure:.2f}" for figure in figures))
            if expected.poor:
                poor.append(utility_warning(row["release"], row["audience"], level, expected))
    console.print(errors)
    for line in poor:
        console.print(line)
    if any(row["left_out"] for row in rows):
        console.print("In brackets: what is not published, if all levels had equal shares of the price.")


def _levels(row: dict[str, Any]) -> Iterator[tuple[str, Quality, bool]]:
    """Yield each level of a release with its expected quality, and whether it is published."""
    for key in ("levels", "left_out"):
        for level, held in row[key].items():
            figures = (held["expected_mean_absolute_error"], held["expected_mean_count"], held["median_error"])
            yield level, Quality(*figures), key == "levels"


def _print_targets(console: Console, report: dict[str, Any]) -> None:
    part = f"{100 * report['target_error']:g} %"
    for site, rows in _by_site(report["targets"]):
        columns = ("epsilon", "epsilon\na day", "mean\ncount", "mean\nerror")
        found = table(
            f"Epsilons at {site} for a mean error of {part}", ("release", "level", "epsilon pays for"), columns
        )
        for row in rows:
            pays = "a device's day" if row["unit"] == "device_day" else "a window"
            if not row["reached"]:
                found.add_row(row["release"], row["level"], pays, "unreachable", "-", "-", "-")
                continue
            figures = (f"{row[name]:.2f}" for name in ("mean_count", "mean_absolute_error"))
            found.add_row(row["release"], row["level"], pays, row["epsilon"], row["epsilon_a_day"], *figures)
        console.print(found)
    console.print(
        f"Tried were epsilons of two digits from {float(TRIED[0]):g} to {float(TRIED[-1]):g}, of gaussian "
        "days those that ask for no less noise than is supported."
    )


def _by_site(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each site with its rows, in their order."""
    sites: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sites.setdefault(row["site"], []).append(row)
    yield from sites.items()
