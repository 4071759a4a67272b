"""store: copy and restore an embedded store, and upgrade one of another version."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FOLDER, json_option, key_option, print_json, working
from connectors.storage.embedded.backup import back_up, restore
from connectors.storage.embedded.reader import require_store
from connectors.storage.embedded.store import SqliteStore
from stream.release.stage import MECHANISMS


@click.group()
def store() -> None:
    """Look after an embedded store."""


@store.command("upgrade")
@click.option("--store", "folder", type=FOLDER, required=True, help="Folder of a store that is not in use.")
@json_option
def upgrade(folder: Path, *, as_json: bool) -> None:
    """Let the present version go on with a store that the version before has made.

    What was released stays as it is, books and budgets go on; groups, filters and the local day at hand begin
    anew with the next window, as under an accepted change of policy. Until that is released the version before can
    still go on with the store. Done a second time it changes nothing.
    """
    require_store(folder)
    held = SqliteStore(folder)
    try:
        changed = held.upgrade()
    finally:
        held.close()
    if as_json:
        print_json({"upgraded": changed, "mechanisms": MECHANISMS})
    elif changed:
        click.echo(f"{folder}: upgraded; mechanism version {MECHANISMS} begins with the next window")
    else:
        click.echo(f"{folder}: is of this version, nothing to do")


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
