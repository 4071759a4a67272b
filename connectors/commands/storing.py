"""store: an embedded store that another version has made."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.commands.options import FOLDER, json_option, print_json
from connectors.embedded.readings import require_store
from connectors.embedded.store import SqliteStore
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
