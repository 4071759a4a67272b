"""Options for the storage to read from: an embedded store, Kafka, or a service."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FILE, FOLDER, F, bootstrap
from connectors.secrets.private_files import read_secret
from connectors.storage.embedded.reader import given_releases, has_outbox
from connectors.subscribe.subscriber import Origin, StorageOptions
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
    """Add the options for reading an audience's releases: ``--store``, ``--kafka``, or ``--url`` with
    ``--token-file``."""
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
    """Return the arguments of ``subscribe`` from the options of ``source_options``; print a note on an empty outbox."""
    if url is not None and (store is not None or kafka is not None):
        msg = f"{WHERE}, or --url"
        raise click.UsageError(msg)
    if token_file is not None and url is None:
        msg = "--token-file: must go with --url"
        raise UsageError(msg)
    if store is not None:
        _print_no_records_note(store, audience, release)
    servers = None if url is not None else one_of(store, kafka, settings)
    token = None if token_file is None else read_secret(token_file)
    return {
        "audience": audience, "release": release, "store": store, "kafka": servers, "url": url, "token": token,
    }  # fmt: skip


def storage_of(origin: Origin) -> StorageOptions:
    """Return the storage of a source, without audience and release."""
    return {"store": origin.get("store"), "kafka": origin.get("kafka"), "url": origin.get("url"),
            "token": origin.get("token")}  # fmt: skip


def _print_no_records_note(store: Path, audience: str, release: str | None) -> None:
    """Print a note if an outbox has no records of a release: they may come later, or the name may be misspelt."""
    given = given_releases(store, audience)
    if has_outbox(store, audience) and (not given if release is None else release not in given):
        what = "release" if release is None else f"release {release!r}"
        click.echo(f"tacet: no {what} has been given to audience {audience!r} yet", err=True)
