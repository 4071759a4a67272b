"""simulate, replay, release: commands that read files and write files."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from connectors.cli.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    Address,
    Speed,
    json_option,
    key_option,
    on_grid,
    policy_option,
    print_json,
    progress,
    read_policy,
    report_drops,
    run_async,
    windows_options,
    working,
)
from connectors.cli.source_options import dialect_options
from connectors.keys import key_files
from connectors.lab.simulation import files as simulation
from connectors.lab.simulation import policy as simulation_policy
from connectors.lab.simulation.faults import parse_faults
from connectors.lab.simulation.traps import send_schedule, trap_schedule
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.sources.recordings.replay import replay as run_replay
from connectors.tables.counts import TableRelease, release_file
from stream.errors import UsageError
from stream.lab.simulator.events import SimulatorConfig
from stream.lab.simulator.events import simulate as run_simulation
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.pipeline import Options
from stream.policy.counts import Span
from stream.policy.fields import decimal_string, parse_delta, parse_epsilon
from stream.policy.mechanisms import MECHANISMS, names_where
from stream.records import Micros, NoiseKind
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
        (by_day == (price.ticks is not None), "--ticks: must go with --unit device_day, and only with it"),
        (
            by_day or price.noise == "laplace",
            "--noise: gaussian must go with --unit device_day, whose price it keeps to",
        ),
        (price.noise == "gaussian" or price.delta is None, "--delta: must go with --noise gaussian"),
        (
            not by_day or MECHANISMS[price.mechanism].by_day,
            f"--unit: device_day must go with {' or '.join(names_where('by_day'))}, got {price.mechanism}",
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


FIRST_START, LAST_START = date(1970, 1, 2), date(2240, 1, 1)
"""First days of a simulation whose times all lie between 1970 and 2255, in any time zone."""


PAID_BY_WINDOW = [name for name, declared in MECHANISMS.items() if not declared.pays_for_w]
"""Mechanisms that release a table of counts: each window costs an epsilon."""


@click.command()
@click.option("--days", type=click.IntRange(1, 3660), default=1, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Same seed, same building.")
@click.option("--zones", type=click.IntRange(1, 4095), default=64, show_default=True)
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), help="First day.  [default: 2018-02-01]")
@click.option("--timezone", default="America/Los_Angeles", show_default=True)
@click.option("--site", default="dbh", show_default=True)
@click.option("--scale", type=float, default=1.0, show_default=True, help="People, against the real building.")
@click.option("--always-on", type=click.IntRange(0), default=0, show_default=True, help="Machines that never leave.")
@click.option("--out", type=NEW_FILE, help="File of observations to write.")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl", "snmptrapd"]), default="csv", show_default=True)
@click.option("--truth", type=NEW_FILE, help="Also write every true visit.")
@click.option("--policy-out", type=NEW_FILE, help="Also write a policy for this building.")
@click.option("--udp", type=Address(), help="Send it as SNMP traps to HOST:PORT.")
@click.option("--community", default="public", show_default=True, help="Of the traps sent with --udp.")
@click.option("--speed", type=Speed(), default="max", show_default=True, help="Times real time, or 'max'.")
@click.option("--faults", default="", help="duplicates,reordering,loss,reboot,unknown-ap,wrong-community,flood,…")
@click.option("--controllers", type=click.IntRange(1, 64), default=1, show_default=True)
@json_option
def simulate(
    *, days: int, seed: int, zones: int, start: Any, timezone: str, site: str, scale: float, always_on: int,
    out: Path | None, form: str, truth: Path | None, policy_out: Path | None, udp: tuple[str, int] | None,
    community: str, speed: float | None, faults: str, controllers: int, as_json: bool,
) -> None:  # fmt: skip
    """Simulate a building: people with phones, classrooms, offices, and 64 access points.

    The model is calibrated to published figures of a real building (36,000 devices and 3.9 million events
    in 89 days). With --always-on so many of its machines are heard every few minutes, as printers are
    in most buildings: --scale 0.45 --always-on 75 is the demo's. Write its observations to a file, send
    them as SNMP traps, or both.

    \b
    tacet simulate --scale 0.45 --always-on 75 --out observations.csv --policy-out policy.toml
    tacet simulate --udp 127.0.0.1:1162 --speed 60
    """
    if start is not None and not FIRST_START <= start.date() <= LAST_START:
        msg = f"--start: must be from {FIRST_START} to {LAST_START}, got {start.date()}"
        raise UsageError(msg)
    chosen = parse_faults([name for name in faults.split(",") if name])
    settings: dict[str, Any] = {"start": start.date()} if start else {}
    config = SimulatorConfig(
        days=days, seed=seed, zones=zones, timezone=timezone, site=site, scale=scale, always_on=always_on, **settings
    )
    with working("simulating"):
        made = run_simulation(config)
    report: dict[str, Any] = {"events": len(made.time), "devices": len(made.devices)}
    if out is not None:
        _write(out, lambda file, tick: _writer(form)(made, file, tick), len(made.time))
    if truth is not None:
        _write(truth, lambda file, _: simulation.write_truth(made, file), None)
    if policy_out is not None:
        policy_out.write_text(simulation_policy.policy_text(made))
    if udp is not None:
        faulty = [str(fault) for fault in chosen]
        schedule = trap_schedule(made, faulty, seed, controllers, community=community.encode())
        with progress("sending traps", len(schedule)) as tick:
            report["sent"] = run_async(send_schedule(schedule, udp, speed, tick))
        report["traps"] = dict(schedule.counts)
    if as_json:
        print_json(report)
    else:
        click.echo(f"{report['events']:,} events of {report['devices']:,} devices over {days} day(s)")


def _writer(form: str) -> Any:
    return {
        "csv": simulation.write_csv, "jsonl": simulation.write_jsonl, "snmptrapd": simulation.write_snmptrapd,
    }[form]  # fmt: skip


def _write(path: Path, write: Any, total: int | None) -> None:
    with path.open("w", newline="") as file, progress(f"writing {path.name}", total) as tick:
        out: TextIO = file
        write(out, tick)


@click.command()
@click.argument("observations", type=FILE)
@policy_option
@key_option
@click.option("--out", type=FOLDER, required=True, help="New folder for what comes out (mode 0700).")
@click.option("--include-restricted", is_flag=True, help="Also write true presence and counts.")
@click.option("--attempt", type=click.IntRange(1), default=1, help="Above 1: an operator-requested re-release.")
@dialect_options
@windows_options
@json_option
def replay(
    observations: Path, *, policy_file: Path, key_file: Path, out: Path, include_restricted: bool, attempt: int,
    first_window: Micros | None, last_window: Micros | None, dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Run recorded OBSERVATIONS (CSV or JSONL) through the whole pipeline into files.

    Takes a laboratory key only. The same file, policy and key give the same bytes every time.
    """
    policy = read_policy(policy_file)
    keys = key_files.laboratory_keys(key_file)
    options = Options(
        attempt=attempt, presence=include_restricted, occupancy=include_restricted,
        first_window=on_grid(policy, first_window, up=True), last_window=on_grid(policy, last_window, up=False),
    )  # fmt: skip
    with progress("rows replayed") as tick:
        file = ObservationFile(
            observations, policy, key_files.pseudonym_key(key_file),
            since=options.first_window, until=options.last_window, dialect=dialect, progress=tick,
        )  # fmt: skip
        made = run_replay(file, policy, keys, out, options)
    report = asdict(made) | {"tally": made.tally.figures(), "policy_version": policy.version}
    if as_json:
        print_json(report)
    else:
        click.echo(f"{made.tally.rows:,} rows, {made.windows} windows, {made.refused} denied by budget → {out}")
        for name, records in sorted(made.records.items()):
            click.echo(f"  {records:>8,}  {name}")
        report_drops(made.dropped, made.tally.unknown_access_points, made.tally.outside)
    problem = shortfall(made.tally, made.dropped)
    if problem is not None:
        raise problem


@click.command()
@click.argument("counts", type=FILE)
@click.option("--mechanism", type=click.Choice(PAID_BY_WINDOW), required=True)
@click.option(
    "--smoother", type=click.Choice(["average", "median", "james-stein"]), default="median", show_default=True
)
@click.option("--calendar/--no-calendar", default=True, show_default=True, help="The filter's calendar.")
@click.option("--epsilon", required=True, help="Of what --unit says, a decimal such as 0.1.")
@click.option("--noise", type=click.Choice(["laplace", "gaussian"]), default="laplace", show_default=True)
@click.option(
    "--unit",
    type=click.Choice(["window", "device_day"]),
    default="window",
    show_default=True,
    help="What epsilon pays for: one time and zone, or all of a device's day.",
)
@click.option("--ticks", type=click.IntRange(1, 10_000), help="Times of a day at which one device counts, at most.")
@click.option("--delta", help="With which epsilon holds, with gaussian noise.  [default: 1e-6]")
@click.option(
    "--max-count",
    type=click.IntRange(1, 1_000_000),
    help="The filter's largest count.  [default: the largest noisy one]",
)
@click.option("--timezone", default="UTC", show_default=True, help="Of the filter's calendar.")
@click.option(
    "--revise", type=click.Choice(["1h", "1d"]), help="Values as they are known an hour after their hour, or day."
)
@key_option
@click.option("--out", type=NEW_FILE, required=True)
@json_option
def release(
    counts: Path, *, mechanism: str, smoother: str, calendar: bool, epsilon: str, noise: NoiseKind, unit: str,
    ticks: int | None, delta: str | None, max_count: int | None, timezone: str, revise: Span | None, key_file: Path,
    out: Path, as_json: bool,
) -> None:  # fmt: skip
    """Release a table COUNTS (columns time, zone, count) privately into OUT (time, zone, value, half_width).

    For research on recorded counts: takes a laboratory key only, and keeps no ledger. With --unit device_day the counts
    must be such that one device is in at most --ticks of them a day: nothing here can bound that. With --revise the
    filter's values are those that are known when what comes after them is too, at no further cost; the last times have
    less behind them.

    \b
    tacet release counts.csv --mechanism filter --noise gaussian --unit device_day --ticks 96 \\
        --epsilon 2 --delta 1e-6 --key-file lab.key --out private.csv
    """
    law = noise_of_table(ReleaseCost(mechanism, epsilon, noise, unit, ticks, delta))
    keys = key_files.laboratory_keys(key_file)
    with progress("rows released") as tick:
        how = TableRelease(mechanism, law, smoother, calendar, max_count, timezone, revise)
        made = release_file(counts, out, keys, how, tick)
    if as_json:
        report: dict[str, Any] = {"rows": made.rows, "zones": made.zones, "windows": made.windows, "bad": made.bad}
        if unit == "device_day":
            report |= {"noise": law.kind, "noise_scale": law.scale}
        print_json(report | {"left_out": made.left_out, "laboratory": True})
    else:
        click.echo(f"{made.windows:,} windows of {made.zones} zone(s) → {out}")
    if made.problem is not None:
        raise made.problem
