"""replay: run a recording through the whole pipeline into files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    FOLDER,
    dialect_options,
    json_option,
    key_option,
    on_grid,
    policy_option,
    read_policy,
    windows_options,
)
from connectors.cli.output import print_json, progress, report_drops
from connectors.keys import key_files
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.sources.recordings.replay import replay as run_replay
from stream.pipeline import Options
from stream.records import Micros


@click.command()
@click.argument("observations", type=FILE)
@policy_option
@key_option
@click.option("--out", type=FOLDER, required=True, help="New folder for the records (mode 0700).")
@click.option("--include-restricted", is_flag=True, help="Also write true stays and counts.")
@click.option("--attempt", type=click.IntRange(1), default=1, help="Above 1: release again, with different noise.")
@dialect_options
@windows_options
@json_option
def replay(
    observations: Path, *, policy_file: Path, key_file: Path, out: Path, include_restricted: bool, attempt: int,
    first_window: Micros | None, last_window: Micros | None, dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Run a recording through the whole pipeline into files: OBSERVATIONS, as CSV or JSONL.

    A laboratory key is required. The same file, policy and key always give the same bytes.

    \b
    tacet replay observations.csv --policy policy.toml --key-file lab.key --out replayed
    """
    policy = read_policy(policy_file)
    keys = key_files.laboratory_keys(key_file)
    options = Options(
        attempt=attempt, presence=include_restricted, occupancy=include_restricted,
        first_window=on_grid(policy, first_window, up=True), last_window=on_grid(policy, last_window, up=False),
    )  # fmt: skip
    with progress("rows replayed") as advance:
        file = ObservationFile(
            observations, policy, key_files.pseudonym_key(key_file),
            since=options.first_window, until=options.last_window, dialect=dialect, progress=advance,
        )  # fmt: skip
        summary = run_replay(file, policy, keys, out, options)
    report = asdict(summary) | {"tally": summary.tally.figures(), "policy_version": policy.version}
    if as_json:
        print_json(report)
    else:
        click.echo(
            f"{summary.tally.rows:,} rows, {summary.windows} windows, {summary.refused} denied by budget → {out}"
        )
        for name, records in sorted(summary.records.items()):
            click.echo(f"  {records:>8,}  {name}")
        report_drops(summary.dropped, summary.tally.unknown_access_points, summary.tally.outside)
    problem = shortfall(summary.tally, summary.dropped)
    if problem is not None:
        raise problem
