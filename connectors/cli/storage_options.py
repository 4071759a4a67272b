"""Where a verb reads from: an embedded store, Kafka, or a service."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.commands.options import FILE, FOLDER, F, bootstrap
from connectors.embedded.readings import given_releases, has_outbox
from connectors.private_file import read_secret
from connectors.subscriber import Home, Origin
from stream.errors import UsageError
from stream.settings import Settings

WHERE = "give either --store or --kafka"


def where_options(function: F) -> F:
    """Add ``--store`` and ``--kafka``."""
    function = click.option("--kafka", help="Bootstrap servers, HOST:PORT.")(function)
    return click.option("--store", type=FOLDER, help="Folder of an embedded store.")(function)


def one_of(store: Path | None, kafka: str | None, settings: Settings) -> str | None:
    """Return Kafka's address, None for a store."""
    if store is not None and kafka is not None:
        raise click.UsageError(WHERE)
    return None if store is not None else bootstrap(settings, kafka)


def source_options(function: F) -> F:
    """Add where an audience's releases are read from: ``--store``, ``--kafka``, or ``--url`` with ``--token-file``."""
    function = click.option(
        "--token-file", type=FILE, help="With --url: a file with the token, mode 0600."
    )(function)  # fmt: skip
    function = click.option("--url", help="Address of a 'tacet serve'.")(function)
    function = where_options(function)
    function = click.option("--release", help="Only this release.")(function)
    return click.option("--audience", required=True)(function)


def source_of(
    settings: Settings, *, audience: str, release: str | None, store: Path | None, kafka: str | None,
    url: str | None, token_file: Path | None,
) -> Origin:  # fmt: skip
    """Return what ``subscribe`` is to read, of the options of ``source_options``; notes what an outbox lacks."""
    if url is not None and (store is not None or kafka is not None):
        msg = f"{WHERE}, or --url"
        raise click.UsageError(msg)
    if token_file is not None and url is None:
        msg = "--token-file: must go with --url"
        raise UsageError(msg)
    if store is not None:
        _note_nothing_yet(store, audience, release)
    servers = None if url is not None else one_of(store, kafka, settings)
    token = None if token_file is None else read_secret(token_file)
    return {
        "audience": audience, "release": release, "store": store, "kafka": servers, "url": url, "token": token,
    }  # fmt: skip


def home_of(origin: Origin) -> Home:
    """Return where a source is read from, without what is read there."""
    return {"store": origin.get("store"), "kafka": origin.get("kafka"), "url": origin.get("url"),
            "token": origin.get("token")}  # fmt: skip


def _note_nothing_yet(store: Path, audience: str, release: str | None) -> None:
    """Say where an outbox holds nothing of what is asked for: that may come yet, or be a slip."""
    given = given_releases(store, audience)
    if has_outbox(store, audience) and (not given if release is None else release not in given):
        what = "release" if release is None else f"release {release!r}"
        click.echo(f"tacet: no {what} has been given to audience {audience!r} yet", err=True)
