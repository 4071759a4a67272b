"""key: makes key files, exports parts of them, ends them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import click

from connectors.cli.options import FILE, FOLDER, json_option, kafka_unless, run_async
from connectors.cli.output import print_json
from connectors.keys import key_files
from connectors.storage.embedded import succession
from connectors.storage.kafka import key_rotation as kafka_succession
from stream.settings import Settings


@click.group()
def key() -> None:
    """Make key files. Who has one can undo the noise made with it: keep it like the raw data."""


@key.command("create")
@click.argument("file", type=FILE)
@click.option("--laboratory", is_flag=True, help="Keep the root, for simulated or recorded data only.")
@click.option(
    "--first-day",
    type=click.DateTime(["%Y-%m-%d"]),
    help="UTC day with which a production key begins.  [default: the first it is used for]",
)
def create(file: Path, *, laboratory: bool, first_day: datetime | None) -> None:
    """Make a new key FILE with mode 0600; an existing file is never written over.

    A production key serves one store or one cluster and forgets each day once it is over. A laboratory key
    can draw any day again, and everything made with it says so.
    """
    day = None if first_day is None else (first_day - datetime(1970, 1, 1)).days  # noqa: DTZ001  (dates only)
    key_files.create(file, laboratory=laboratory, first_day=day)
    click.echo(f"{file}: {'laboratory' if laboratory else 'production'} key made")


@key.command("export")
@click.argument("file", type=FILE)
@click.argument("part", type=click.Choice(["ingest", "worker"]))
@click.argument("target", type=FILE)
def export(file: Path, part: Literal["ingest", "worker"], target: Path) -> None:
    """Write only what an ingest host or a worker host needs of FILE to a new file TARGET."""
    key_files.export(file, part, target)
    click.echo(f"{target}: {part} key made")
    if part == "worker":
        click.echo(f"{file} holds every later day too: keep it offline, or destroy it", err=True)


@key.command("retire")
@click.option("--store", type=FOLDER, help="Folder of the store whose ledger ends; not in use.")
@click.option("--kafka", help="Or bootstrap servers, HOST:PORT, of a cluster.  [env: TACET_KAFKA]")
@click.option("--key-file", type=FILE, help="Its key, which is destroyed.")
@click.option("--lost", is_flag=True, help="There is no key file any more.")
@click.option("--new-store", type=FOLDER, help="Folder to be made; goes with --store.")
@click.option("--new-key", type=FILE, required=True, help="A new key made by 'tacet key create'.")
@json_option
@click.pass_obj
def retire(
    settings: Settings, *, store: Path | None, kafka: str | None, key_file: Path | None, lost: bool,
    new_store: Path | None, new_key: Path, as_json: bool,
) -> None:  # fmt: skip
    """End the ledger of a key that is lost or stolen, and begin another with what it spent.

    \b
    tacet key create new.key
    tacet key retire --store store --key-file key --new-store new-store --new-key new.key
    tacet key retire --kafka broker:9092 --key-file worker.key --new-key new.key
    tacet key retire --kafka broker:9092 --lost --new-key new.key

    The old key is destroyed, and with it nothing is released any more. Budgets and the account go on; the new ledger
    begins with the next window and with nobody in it. 'audit verify' before.

    A store is left for its account, and a new one is made. On Kafka all stays where it is: stop ingests and workers
    before, start them with the new key after it. What was not read by then is lost; entries that a killed worker left
    are counted as if what they pay for had been released, and never released.
    """
    if lost == (key_file is not None):
        raise click.UsageError("give either --key-file or --lost")
    servers = kafka_unless(store, kafka, settings)
    if (store is None) != (new_store is None):
        raise click.UsageError("--new-store goes with --store, and only with that")
    if store is not None and new_store is not None:
        made = succession.retire(store, new_store, new_key, key_file)
        _print_result(str(new_store), made.ledger, made.entries, 0, as_json=as_json)
    else:
        found = run_async(kafka_succession.retire(servers or "", new_key, key_file))
        _print_result("cluster", found.ledger, found.entries, found.unreleased, as_json=as_json)
    if lost and store is not None and not as_json:
        click.echo("without the mark nobody can tell whether the old store was set back before", err=True)


def _print_result(home: str, ledger: str, entries: int, unreleased: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"ledger": ledger, "entries": entries, "unreleased": unreleased})
        return
    click.echo(f"{home}: ledger {ledger} begins with {entries:,} entries of the old one")
    if unreleased:
        click.echo(f"{unreleased:,} of them were charged for windows that are never released", err=True)
