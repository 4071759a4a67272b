"""audit: whether the books are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from connectors.commands.homes import one_of, where_options
from connectors.commands.options import FILE, json_option, print_json, working
from connectors.reports.books import store_books, verify
from connectors.reports.kafka_books import kafka_books
from stream.errors import AuditError
from stream.settings import Settings


@click.group()
def audit() -> None:
    """Check the books that all releases are charged to."""


@audit.command("verify")
@where_options
@click.option("--key-file", type=FILE, help="Also check signatures, a store's heads against the mark, and commitments.")
@json_option
@click.pass_obj
def verify_command(
    settings: Settings, *, store: Path | None, kafka: str | None, key_file: Path | None, as_json: bool
) -> None:
    """Check that no entry is missing or altered, and that charges and published records agree.

    \b
    tacet audit verify --store store --key-file key
    tacet audit verify --kafka broker:9092 --json | jq .first_break

    Exits with 2 and names the first break. Who can write both the entries and the state, and has the audit
    key, can make books that fit: keep a copy of the heads elsewhere.
    """
    servers = one_of(store, kafka, settings)
    books = store_books(store, records=True) if store is not None else kafka_books(servers or "", records=True)
    with working("reading the books"):
        report = verify(books, store, key_file)
    if as_json:
        print_json(report)
    if not report["ok"]:
        raise AuditError(report["first_break"])
    if not as_json:
        _print(report)
        if key_file is None:
            click.echo("give --key-file to check more")


def _print(report: dict[str, Any]) -> None:
    click.echo(f"{report['entries']:>9,}  entries, each following the one before it")
    click.echo(f"{report['records']:>9,}  published records, each charged as it says")
    if report["commitments"]:
        click.echo(f"{report['commitments']:>9,}  commitments, each to the true counts that are still kept")
    for site, link in report["sites"].items():
        click.echo(f"site {site}: {link['sequence']:,} entries, head {link['head']}")
    if report["unchecked"]:
        click.echo(f"not checked: {', '.join(report['unchecked'])}")
