"""store: copy and restore an embedded store."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FOLDER, json_option, key_option
from connectors.cli.output import print_json, working
from connectors.storage.embedded.backup import back_up, restore


@click.group()
def store() -> None:
    """Look after an embedded store."""


@store.command("backup")
@click.option("--store", "folder", type=FOLDER, required=True, help="Folder of a store; it may be running.")
@click.option("--out", type=FOLDER, required=True, help="New folder.")
@json_option
def backup_command(folder: Path, *, out: Path, as_json: bool) -> None:
    """Copy a store, which may be running, to a new folder.

    \b
    tacet store backup --store store --out backup-monday

    Keys and the mark are not in it. What it holds of open windows tells who is where: keep it like the store.
    """
    with working("copying"):
        heads = back_up(folder, out)
    if as_json:
        print_json({"sites": {site: link._asdict() for site, link in sorted(heads.items())}})
    else:
        click.echo(f"{out}: {sum(link.sequence for link in heads.values()):,} ledger entries, checked")


@store.command("restore")
@click.argument("backup", type=FOLDER)
@click.option("--store", "folder", type=FOLDER, required=True, help="Folder to be made; a store is never written over.")
@key_option
@click.option("--accept-loss", is_flag=True, help="Put it back although something newer was released.")
@json_option
def restore_command(backup: Path, *, folder: Path, key_file: Path, accept_loss: bool, as_json: bool) -> None:
    """Put BACKUP back as a store, if the mark beside the key knows of nothing newer that was released.

    \b
    tacet store restore backup-monday --store store --key-file key

    What was released since the backup is in no window of it: released again it would have other noise. So that is
    refused. With --accept-loss the store is there again for its account; 'tacet recover' says how releases go on.
    """
    with working("comparing with the mark"):
        lost = restore(backup, folder, key_file, accept_loss=accept_loss)
    if as_json:
        print_json({"lost": lost})
        return
    click.echo(f"{folder}: put back")
    for site, entries in lost.items():
        click.echo(f"site {site}: {entries:,} newer ledger entries are lost; see 'tacet recover'")
