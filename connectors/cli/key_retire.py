"""key retire: end a ledger whose key is lost or stolen, and start another that carries over what was spent."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FILE, FOLDER, json_option, print_json, run_async
from connectors.cli.storage_options import one_of
from connectors.storage.embedded.retirement import StoreLedger
from connectors.storage.kafka.key_rotation import ClusterLedger
from connectors.storage.retirement import EndingLedger, Retired
from connectors.storage.retirement import retire as retire_key
from stream.settings import Settings


@click.command("retire")
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
    servers = one_of(store, kafka, settings)
    if (store is None) != (new_store is None):
        raise click.UsageError("--new-store goes with --store, and only with that")
    if store is not None and new_store is not None:
        ending: EndingLedger = StoreLedger(store, new_store)
    else:
        ending = ClusterLedger(servers or "")
    retired = run_async(retire_key(ending, new_key, key_file))
    _print_result("cluster" if new_store is None else str(new_store), retired, as_json=as_json)
    if lost and store is not None and not as_json:
        click.echo("without the mark nobody can tell whether the old store was set back before", err=True)


def _print_result(home: str, retired: Retired, *, as_json: bool) -> None:
    if as_json:
        print_json({"ledger": retired.ledger, "entries": retired.entries, "unreleased": retired.unreleased})
        return
    click.echo(f"{home}: ledger {retired.ledger} begins with {retired.entries:,} entries of the old one")
    if retired.unreleased:
        click.echo(f"{retired.unreleased:,} of them were charged for windows that are never released", err=True)
