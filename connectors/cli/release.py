"""release: release a table of counts privately."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import click

from connectors.cli.options import FILE, NEW_FILE, json_option, key_option
from connectors.cli.output import print_json, progress
from connectors.keys import key_files
from connectors.tables.counts import TableRelease, release_file
from stream.errors import UsageError
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.policy.counts import Span
from stream.policy.fields import decimal_string, parse_delta, parse_epsilon
from stream.policy.mechanisms import MECHANISMS, names_where
from stream.records import JsonObject, NoiseKind
from stream.release.prices import DayPrice

# The price of 'tacet release' and the noise that it implies for each time.

DELTA = "1e-6"


class ReleaseCost(NamedTuple):
    """The price in the form of the options."""

    mechanism: str
    epsilon: str
    noise: NoiseKind
    unit: str
    ticks: int | None
    delta: str | None


def noise_of_table(price: ReleaseCost) -> NoiseParameter:
    """Return the noise of each time; UsageError if options contradict each other, or are out of range."""
    by_day = price.unit == "device_day"
    rules = (
        (by_day == (price.ticks is not None), "--ticks: must be used with --unit device_day, and only with it"),
        (
            by_day or price.noise == "laplace",
            "--noise: gaussian must be used with --unit device_day",
        ),
        (price.noise == "gaussian" or price.delta is None, "--delta: must be used with --noise gaussian"),
        (
            not by_day or MECHANISMS[price.mechanism].by_day,
            f"--unit: device_day must be used with {' or '.join(names_where('by_day'))}, got {price.mechanism}",
        ),
    )
    for holds, rule in rules:
        if not holds:
            raise UsageError(rule)
    epsilon = _epsilon(price)
    if price.ticks is None:
        return laplace_noise(epsilon)
    delta = _delta(price.delta or DELTA) if price.noise == "gaussian" else Fraction(0)
    return NoiseParameter(price.noise, DayPrice(price.noise, epsilon, delta, price.ticks).parameters[0])


def _epsilon(price: ReleaseCost) -> Fraction:
    try:
        exact = parse_epsilon(price.epsilon)
    except ValueError as error:
        msg = f"--epsilon: {error}, got {price.epsilon!r}"
        raise UsageError(msg) from None
    least = MECHANISMS[price.mechanism].smallest * (price.ticks or 1)
    if exact < least:
        msg = f"--epsilon: must be at least {decimal_string(least)} with {price.mechanism}, got {price.epsilon!r}"
        raise UsageError(msg)
    return exact


def _delta(text: str) -> Fraction:
    try:
        return parse_delta(text)
    except ValueError as error:
        msg = f"--delta: {error}, got {text!r}"
        raise UsageError(msg) from None


PAID_BY_WINDOW = [name for name, declared in MECHANISMS.items() if not declared.pays_for_w]
"""Mechanisms that release a table of counts: each window costs an epsilon."""


@click.command()
@click.argument("counts", type=FILE)
@click.option("--mechanism", type=click.Choice(PAID_BY_WINDOW), required=True, help="How to release.")
@click.option(
    "--smoother",
    type=click.Choice(["average", "median", "james-stein"]),
    default="median",
    show_default=True,
    help="PeGaSus' smoother.",
)
@click.option("--calendar/--no-calendar", default=True, show_default=True, help="Whether the filter uses a calendar.")
@click.option("--epsilon", required=True, help="Epsilon of --unit, a decimal such as 0.1.")
@click.option(
    "--noise",
    type=click.Choice(["laplace", "gaussian"]),
    default="laplace",
    show_default=True,
    help="Law of the noise.",
)
@click.option(
    "--unit",
    type=click.Choice(["window", "device_day"]),
    default="window",
    show_default=True,
    help="What epsilon pays for: one time and zone, or the whole day of a device.",
)
@click.option(
    "--ticks", type=click.IntRange(1, 10_000), help="Largest number of times per day at which one device counts."
)
@click.option("--delta", help="With gaussian noise: the delta of epsilon.  [default: 1e-6]")
@click.option(
    "--max-count",
    type=click.IntRange(1, 1_000_000),
    help="The filter's largest count.  [default: the largest noisy count]",
)
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of the filter's calendar.")
@click.option(
    "--revise",
    type=click.Choice(["1h", "1d"]),
    help="Values as estimated an hour after each hour, or at the end of each day.",
)
@key_option
@click.option("--out", type=NEW_FILE, required=True, help="New file for the released table.")
@json_option
def release(
    counts: Path, *, mechanism: str, smoother: str, calendar: bool, epsilon: str, noise: NoiseKind, unit: str,
    ticks: int | None, delta: str | None, max_count: int | None, timezone: str, revise: Span | None, key_file: Path,
    out: Path, as_json: bool,
) -> None:  # fmt: skip
    """Release a table of counts privately: from columns time, zone, count to time, zone, value, half_width.

    This is for research on recorded counts: it requires a laboratory key and keeps no ledger. With --unit device_day a
    device must be in at most --ticks counts per day, which this command cannot enforce. With --revise the filter also
    uses later values, at no further cost; fewer of them exist for the last times of the table.

    \b
    tacet release counts.csv --mechanism filter --noise gaussian --unit device_day --ticks 96 \\
        --epsilon 2 --delta 1e-6 --key-file lab.key --out private.csv
    """
    law = noise_of_table(ReleaseCost(mechanism, epsilon, noise, unit, ticks, delta))
    keys = key_files.laboratory_keys(key_file)
    with progress("rows released") as advance:
        terms = TableRelease(mechanism, law, smoother, calendar, max_count, timezone, revise)
        result = release_file(counts, out, keys, terms, advance)
    if as_json:
        report: JsonObject = {
            "rows": result.rows,
            "zones": result.zones,
            "windows": result.windows,
            "bad": result.bad,
        }
        if unit == "device_day":
            report |= {"noise": law.kind, "noise_scale": law.scale}
        print_json(report | {"left_out": result.left_out, "laboratory": True})
    else:
        click.echo(f"{result.windows:,} windows of {result.zones} zone(s) → {out}")
    if result.problem is not None:
        raise result.problem
