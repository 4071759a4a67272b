"""key: create key files, export parts of them, and retire them with their ledger."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import click

from connectors.cli.options import FILE, FOLDER, VerbGroup, json_option, kafka_unless, run_async
from connectors.cli.output import print_json
from connectors.keys import key_files
from connectors.storage.embedded.retirement import StoreLedger
from connectors.storage.kafka.key_rotation import ClusterLedger
from connectors.storage.retirement import EndingLedger, Retired
from connectors.storage.retirement import retire as retire_ledger
from stream.settings import Settings


@click.group(cls=VerbGroup)
def key() -> None:
    """Create, export and retire key files. Anyone with a key can undo its noise: protect it like the raw data."""


@key.command("create")
@click.argument("file", type=FILE)
@click.option("--laboratory", is_flag=True, help="Key for simulated or recorded data, which never forgets a day.")
@click.option(
    "--opt-outs-of", type=FILE, metavar="OLD", help="Take over the opt-out key of this key file: its list stays valid."
)
@click.option(
    "--first-day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="First UTC day of a production key.  [default: the first day it is used for]",
)
def create(file: Path, *, laboratory: bool, opt_outs_of: Path | None, first_day: datetime | None) -> None:
    """Create a new key FILE with mode 0600; an existing file is never overwritten.

    A production key serves one store or one cluster, and forgets each day when it is over. A laboratory key can draw
    the noise of any day again; all records made with it are marked.
    """
    day = None if first_day is None else (first_day - datetime(1970, 1, 1)).days  # noqa: DTZ001  (dates only)
    opt_out = None if opt_outs_of is None else key_files.opt_out_key(opt_outs_of)
    key_files.create(file, laboratory=laboratory, first_day=day, opt_out=opt_out)
    click.echo(f"{file}: {'laboratory' if laboratory else 'production'} key created")


@key.command("export")
@click.argument("file", type=FILE)
@click.argument("part", type=click.Choice(["ingest", "worker"]))
@click.argument("target", type=FILE)
def export(file: Path, part: Literal["ingest", "worker"], target: Path) -> None:
    """Write the part of FILE that an ingest host or a worker host needs to a new file TARGET."""
    key_files.export(file, part, target)
    click.echo(f"{target}: {part} key created")
    if part == "worker":
        click.echo(f"{file} still contains all later days: keep it offline, or destroy it", err=True)


@key.command("retire")
@click.option("--store", type=FOLDER, help="Folder of the store whose ledger ends; no process may use it.")
@click.option("--kafka", help="Or bootstrap servers of a cluster, HOST:PORT.  [env: TACET_KAFKA]")
@click.option("--key-file", type=FILE, help="The old key, which is destroyed.")
@click.option("--lost", is_flag=True, help="The old key file is lost.")
@click.option("--new-store", type=FOLDER, help="With --store: folder of the new store.")
@click.option("--new-key", type=FILE, required=True, help="The new key, made by 'tacet key create'.")
@json_option
@click.pass_obj
def retire(
    settings: Settings, *, store: Path | None, kafka: str | None, key_file: Path | None, lost: bool,
    new_store: Path | None, new_key: Path, as_json: bool,
) -> None:  # fmt: skip
    """End the ledger of a lost or stolen key, and start another that carries over what was spent.

    \b
    tacet key create new.key
    tacet key retire --store store --key-file key --new-store new-store --new-key new.key
    tacet key retire --kafka broker:9092 --key-file worker.key --new-key new.key
    tacet key retire --kafka broker:9092 --lost --new-key new.key

    The old key is destroyed, and nothing is released with it again. Budgets and the account continue. The new ledger
    starts with the next window, and with no device present. Run 'tacet audit verify' first.

    The old store remains for its account, and a new one is created. On Kafka everything stays in place: stop all
    ingests and workers first, and start them again with the new key. Observations that were not read by then are lost.
    Charges that a killed worker left behind count as spent, although their windows are never released.
    """
    if lost == (key_file is not None):
        raise click.UsageError("give either --key-file or --lost")
    servers = kafka_unless(store, kafka, settings)
    if (store is None) != (new_store is None):
        raise click.UsageError("--new-store: must be used with --store, and only with it")
    ending: EndingLedger = ClusterLedger(servers or "")
    if store is not None and new_store is not None:
        ending = StoreLedger(store, new_store)
    retired = run_async(retire_ledger(ending, new_key, key_file))
    _print_result("cluster" if new_store is None else str(new_store), retired, as_json=as_json)
    if lost and store is not None and not as_json:
        click.echo("without the mark it cannot be checked whether the old store had been set back", err=True)


def _print_result(storage: str, retired: Retired, *, as_json: bool) -> None:
    if as_json:
        print_json({"ledger": retired.ledger, "entries": retired.entries, "unreleased": retired.unreleased})
        return
    click.echo(f"{storage}: ledger {retired.ledger} starts with {retired.entries:,} entries of the old one")
    if retired.unreleased:
        click.echo(f"{retired.unreleased:,} of them are charges for windows that are never released", err=True)
