"""backfill: release the windows of a recording that a store has missed."""

from __future__ import annotations

import os
from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    dialect_options,
    json_option,
    key_option,
    policy_option,
    public_range,
    read_policy,
    windows_options,
)
from connectors.cli.output import print_json, progress
from connectors.keys import key_files
from connectors.operations.audit.verification import merged_policies
from connectors.sources.recorded import refuse_logins, refuse_opt_outs
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.storage.embedded.reader import read_policies
from connectors.storage.embedded.runner import opened
from connectors.storage.embedded.store import SqliteStore
from stream.accounting.ledger import Entry
from stream.engine.backfill import Backfill, BackfillCost
from stream.pipeline import Options
from stream.policy.fields import decimal_string
from stream.records import Micros
from stream.schemas import AUDIT, is_private, parse_record


class StoreHistory:
    """The store's releases and ledger, as backfill reads them."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._entries = [*map(parse_record, store.earlier())]
        self._entries += [parse_record(value) for _, value in store.records(AUDIT)]

    def record(self, release_id: str) -> bytes | None:
        """Return a released record."""
        return self._store.outboxes.record(release_id)

    def entries(self, site: str) -> list[Entry]:
        """Return a site's ledger entries in order."""
        return [entry for entry in self._entries if entry["site"] == site]


def cost_line(price: BackfillCost) -> str:
    """Return the text of a late release's largest cost."""
    total, day = decimal_string(price.total), decimal_string(price.day)
    return (
        f"{price.site}: release {price.release} will charge {price.audience} at most {total} epsilon for "
        f"{price.records:,} records, and at most {day} epsilon on one UTC day"
    )


@click.command()
@click.argument("observations", type=FILE)
@policy_option
@key_option
@click.option("--store", type=FOLDER, required=True, help="Folder of a store that no process is using.")
@click.option("--out", type=NEW_FILE, help="Write all records of these windows, one JSON object per line.")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    default=1,
    help="Above 1: release windows again, with new noise and a new charge.",
)
@click.option(
    "--release", "names", metavar="NAME", multiple=True, help="With --attempt: which count release. May be repeated."
)  # fmt: skip
@click.option(
    "--earlier-policy",
    "earlier",
    type=FILE,
    multiple=True,
    help="An earlier policy of the store, if the store does not contain it. May be repeated.",
)
@dialect_options
@windows_options
@json_option
def backfill(
    observations: Path, *, policy_file: Path, key_file: Path, store: Path, out: Path | None, attempt: int,
    names: tuple[str, ...], earlier: tuple[Path, ...], first_window: Micros | None, last_window: Micros | None,
    dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Release the windows of a recording that a store has missed, and repeat its released windows at no cost.

    Released windows are repeated as they were stored. If their key still exists, other observations for them are
    refused. Missed windows are charged and released; their largest cost is printed first. Zones that were charged
    before, under any name, are charged again only with --attempt N --release NAME. Attributes are queried once.
    Windows that the store has not reached yet are left to 'tacet run'.

    The recording must start before the first window, by the time that an observation is valid; or name the first
    window with --from. If privacy days bound the counts, the recording must start with the day of that window. Under a
    production key --from and --to are required.

    \b
    tacet backfill observations.csv --policy policy.toml --key-file key --store store \\
        --from 2026-03-02T08:00:00Z --to 2026-03-02T18:00:00Z
    """
    policy = read_policy(policy_file)
    since, until = public_range(key_file, policy, first_window, last_window)
    options = Options(attempt=attempt, first_window=since, last_window=until)
    keys = key_files.FileKeys(key_file)
    with opened(policy, key_file, store) as (runner, opened_store), progress("rows") as advance:
        earlier_policies = merged_policies(read_policies(store), [read_policy(f) for f in earlier])
        task = Backfill(policy, keys, runner.partition, StoreHistory(opened_store), options, earlier_policies, names)
        refuse_opt_outs(policy)
        refuse_logins(policy)
        file = ObservationFile(
            observations, policy, key_files.pseudonym_key(key_file), since=task.since, until=until,
            dialect=dialect, progress=advance,
        )  # fmt: skip
        for message in file.messages():
            task.process(message)
        for price in task.price():
            click.echo(cost_line(price), err=True)
        task.close()
        result = task.made
        runner.publish(result.emitted)
    if out is not None:
        fresh = [record.value for record in result.emitted if is_private(record.topic)]
        with open(out, "wb", opener=_for_its_owner) as written:
            written.writelines(value + b"\n" for value in [*result.stored, *fresh])
    report = {
        "released_before": result.again, "not_compared": result.unchecked, "released_now": result.released,
        "left_to_run": result.ahead, "charges": sum(record.topic == AUDIT for record in result.emitted),
    }  # fmt: skip
    if as_json:
        print_json(report)
    else:
        for name, number in report.items():
            click.echo(f"{number:>8,}  {_SUMMARY[name]}")
    problem = shortfall(file.tally)
    if problem is not None:
        raise problem


_SUMMARY = {
    "released_before": "windows that were released before, repeated",
    "not_compared": "of these, windows not compared: the key of their day is destroyed",
    "released_now": "windows that were missing, released now",
    "left_to_run": "windows that the store has not reached, left to 'tacet run'",
    "charges": "charges",
}
"""Field of the report, and what it counts."""


def _for_its_owner(path: str, flags: int) -> int:
    """Open a new file that only its owner can read, from its first byte on."""
    return os.open(path, flags, 0o600)
