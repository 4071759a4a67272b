"""key: makes key files, exports parts of them, ends them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import click

from connectors.cli.key_retire import retire
from connectors.cli.options import FILE
from connectors.keys import key_files


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


key.add_command(retire)
