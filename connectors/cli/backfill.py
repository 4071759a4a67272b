"""backfill: release the windows of a recording that an embedded store has missed, without releasing a window twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
from connectors.operations.reports.audit import merged_policies
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.storage.embedded.reader import read_policies
from connectors.storage.embedded.runner import opened
from connectors.storage.embedded.store import SqliteStore
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

    def entries(self, site: str) -> list[dict[str, Any]]:
        """Return a site's ledger entries in order."""
        return [entry for entry in self._entries if entry["site"] == site]


def cost_line(price: BackfillCost) -> str:
    """Return the text of a late release's maximal cost."""
    sums = decimal_string(price.total), decimal_string(price.day)
    return (
        f"{price.site}: release {price.release} will charge {price.audience} at most {sums[0]} epsilon for "
        f"{price.records:,} records, of it {sums[1]} on one UTC day"
    )


@click.command()
@click.argument("observations", type=FILE)
@policy_option
@key_option
@click.option("--store", type=FOLDER, required=True, help="Store of a run that is not running now.")
@click.option("--out", type=NEW_FILE, help="Write every record of these windows, old and new, one JSON object a line.")
@click.option(
    "--attempt", type=click.IntRange(1), default=1, help="Above 1: an operator-requested re-release, charged again."
)
@click.option(
    "--release", "names", metavar="NAME", multiple=True, help="Count release to charge again; once for each."
)  # fmt: skip
@click.option(
    "--earlier-policy",
    "earlier",
    type=FILE,
    multiple=True,
    help="A policy under which the store released before, where the store has not kept it; once for each.",
)
@dialect_options
@windows_options
@json_option
def backfill(
    observations: Path, *, policy_file: Path, key_file: Path, store: Path, out: Path | None, attempt: int,
    names: tuple[str, ...], earlier: tuple[Path, ...], first_window: Micros | None, last_window: Micros | None,
    dialect: Dialect, as_json: bool,
) -> None:  # fmt: skip
    """Settle recorded OBSERVATIONS with a store: release what was passed over, repeat what was released.

    A window that was released comes out as it was stored and costs nothing; if its key still exists, other
    observations under the same ids are refused. A window that never was is charged and released, and what
    that costs at most is said first. Zones that were charged before, under whatever name, are charged again
    only for --attempt N --release NAME; attributes are asked once. Windows that the store has not come to
    are left to 'tacet run'. Give the recording from before the first window on, as long as an observation
    is valid, or name that window with --from; where counts are bounded by privacy days, from the start of
    that window's day on: it is read from there, and released from --from on. Under a production key both
    --from and --to are needed.
    """
    policy = read_policy(policy_file)
    since, until = public_range(key_file, policy, first_window, last_window)
    options = Options(attempt=attempt, first_window=since, last_window=until)
    keys = key_files.FileKeys(key_file)
    with opened(policy, key_file, store) as (runner, held), progress("rows") as tick:
        earlier_policies = merged_policies(read_policies(store), [read_policy(f) for f in earlier])
        settled = Backfill(policy, keys, runner.partition, StoreHistory(held), options, earlier_policies, names)
        file = ObservationFile(
            observations, policy, key_files.pseudonym_key(key_file), since=settled.since, until=until,
            dialect=dialect, progress=tick,
        )  # fmt: skip
        for message in file.messages():
            settled.process(message)
        for price in settled.price():
            click.echo(cost_line(price), err=True)
        settled.close()
        made = settled.made
        runner.publish(made.emitted)
    if out is not None:
        fresh = [record.value for record in made.emitted if is_private(record.topic)]
        with open(out, "wb", opener=_for_its_owner) as written:
            written.writelines(value + b"\n" for value in [*made.stored, *fresh])
    report = {
        "released_before": made.again, "not_compared": made.unchecked, "released_now": made.released,
        "left_to_run": made.ahead, "charges": sum(record.topic == AUDIT for record in made.emitted),
    }  # fmt: skip
    if as_json:
        print_json(report)
    else:
        for name, number in report.items():
            click.echo(f"{number:>8,}  {name.replace('_', ' ')}")
    problem = shortfall(file.tally)
    if problem is not None:
        raise problem


def _for_its_owner(path: str, flags: int) -> int:
    """Open a new file that only its owner can read, from its first byte on."""
    return os.open(path, flags, 0o600)
