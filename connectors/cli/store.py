"""store: back up and restore an embedded store."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FOLDER, VerbGroup, json_option, key_option
from connectors.cli.output import print_json, working
from connectors.storage.embedded.backup import back_up, restore


@click.group(cls=VerbGroup)
def store() -> None:
    """Back up and restore an embedded store."""


@store.command("backup")
@click.option("--store", "folder", type=FOLDER, required=True, help="Folder of the store; it may be in use.")
@click.option("--out", type=FOLDER, required=True, help="New folder for the copy.")
@json_option
def backup_command(folder: Path, *, out: Path, as_json: bool) -> None:
    """Copy a store, which may be in use, to a new folder.

    \b
    tacet store backup --store store --out backup-monday

    The copy does not contain keys or the mark. Its open windows show where devices are: protect it like the store.
    """
    with working("copying"):
        heads = back_up(folder, out)
    if as_json:
        print_json({"sites": {site: link._asdict() for site, link in sorted(heads.items())}})
    else:
        click.echo(f"{out}: {sum(link.sequence for link in heads.values()):,} ledger entries, checked")


@store.command("restore")
@click.argument("backup", type=FOLDER)
@click.option(
    "--store", "folder", type=FOLDER, required=True, help="New folder; an existing store is never overwritten."
)
@key_option
@click.option("--accept-loss", is_flag=True, help="Restore although newer windows were released.")
@json_option
def restore_command(backup: Path, *, folder: Path, key_file: Path, accept_loss: bool, as_json: bool) -> None:
    """Restore BACKUP as a store, if the mark beside the key shows that nothing newer was released.

    \b
    tacet store restore backup-monday --store store --key-file key

    The backup lacks windows that were released after it was made. Released again, they would have different noise;
    therefore such a backup is refused. With --accept-loss it is restored for its account, and 'tacet recover' explains
    how to continue.
    """
    with working("comparing with the mark"):
        lost = restore(backup, folder, key_file, accept_loss=accept_loss)
    if as_json:
        print_json({"lost": lost})
        return
    click.echo(f"{folder}: restored")
    for site, entries in lost.items():
        click.echo(f"site {site}: {entries:,} newer ledger entries are lost; see 'tacet recover'")
