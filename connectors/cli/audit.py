"""audit: verify, sign and export the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    NEW_FILE,
    ONE_STORAGE,
    VerbGroup,
    bootstrap,
    json_option,
    kafka_unless,
    storage_options,
)
from connectors.cli.output import print_json, working
from connectors.keys import signing_key
from connectors.operations.audit.kafka_bundle import kafka_bundle
from connectors.operations.audit.signed_heads import (
    HeadsFile,
    read_bundle_file,
    read_heads,
    sign_bundle,
    write_bundle_file,
)
from connectors.operations.audit.verification import AuditBundle, AuditReport, store_bundle, verified, verify
from connectors.storage.kafka.heads import HeadsTopic
from stream.accounting.signed_heads import SignedHead, check_heads, longest
from stream.errors import AuditError, UsageError
from stream.settings import Settings


@click.group(cls=VerbGroup)
def audit() -> None:
    """Verify, sign and export the audit log, which contains every charge."""


@audit.command("keygen")
@click.argument("file", type=FILE)
def keygen(file: Path) -> None:
    """Create a key FILE that signs audit heads, and FILE.pub, with which anybody can verify them.

    Keep it out of reach of the engine: on another machine, or under another user.
    """
    signing_key.create(file)
    click.echo(f"{file}: signing key created; give {signing_key.public_path(file)} to those who verify")


@audit.command("sign")
@storage_options
@click.option("--books", type=FILE, help="Or a file written by 'tacet audit export'.")
@click.option("--key-file", type=FILE, required=True, help="A key made by 'tacet audit keygen'.")
@click.option(
    "--heads", "files", type=FILE, multiple=True, required=True, help="File to append the head to. May be repeated."
)
@click.option("--first", is_flag=True, help="Create the first head.")
@json_option
@click.pass_obj
def sign(
    settings: Settings, *, store: Path | None, kafka: str | None, books: Path | None, key_file: Path,
    files: tuple[Path, ...], first: bool, as_json: bool,
) -> None:  # fmt: skip
    """Sign the current head of every site's audit chain, if the log contains everything that was signed before.

    \b
    tacet audit sign --store store --key-file signing.key --heads heads.jsonl --first
    tacet audit sign --store store --key-file signing.key --heads heads.jsonl --heads /mnt/elsewhere/heads.jsonl

    Sign daily, and keep one of the files where nobody who can write the audit log can write. On Kafka each head is also
    published to the topic of heads, so that heads survive the loss of a file.
    """
    bundle, _ = _bundle_of(settings, store, kafka, books)
    topic = [] if store is not None or books is not None else [HeadsTopic(bootstrap(settings, kafka))]
    head = sign_bundle(bundle, key_file, [*topic, *map(HeadsFile, files)], first=first)
    if as_json:
        print_json(head.statement())
    else:
        click.echo(f"head {head.number} signed at {head.time}")
        for site, link in sorted(head.sites.items()):
            click.echo(f"site {site}: {link.sequence:,} entries, head {link.head}")


@audit.command("export")
@storage_options
@click.option("--heads", type=FILE, help="Include these signed heads; a third party then needs only the public key.")
@click.option("--out", type=NEW_FILE, required=True, help="New file to write.")
@click.pass_obj
def export(settings: Settings, *, store: Path | None, kafka: str | None, heads: Path | None, out: Path) -> None:
    """Write all audit entries to one file, which 'audit verify --books' checks without a store or cluster.

    \b
    tacet audit export --store store --heads heads.jsonl --out books.jsonl
    tacet audit verify --books books.jsonl --public-key signing.key.pub

    Entries contain charges, times and audiences, and nothing about people.
    """
    bundle, _ = _bundle_of(settings, store, kafka, None)
    verified(bundle)
    copies = [*_in_topic(settings, kafka, beside=store is not None), *([] if heads is None else [read_heads(heads)])]
    write_bundle_file(out, longest(copies), bundle.entries)
    click.echo(f"{out}: {len(bundle.entries):,} entries")


@audit.command("verify")
@storage_options
@click.option("--books", "file", type=FILE, help="Or a file written by 'tacet audit export'.")
@click.option("--key-file", type=FILE, help="Also check signatures, commitments, and a store's heads against the mark.")
@click.option("--public-key", type=FILE, help="Also check signed heads with this key, made by 'tacet audit keygen'.")
@click.option(
    "--heads", "files", type=FILE, multiple=True, help="With --public-key: file of signed heads. May be repeated."
)
@json_option
@click.pass_obj
def verify_command(
    settings: Settings, *, store: Path | None, kafka: str | None, file: Path | None, key_file: Path | None,
    public_key: Path | None, files: tuple[Path, ...], as_json: bool,
) -> None:  # fmt: skip
    """Check that no entry is missing or altered, and that charges and published records agree.

    \b
    tacet audit verify --store store --key-file key
    tacet audit verify --kafka broker:9092 --json | jq .first_break
    tacet audit verify --books books.jsonl --public-key signing.key.pub

    If a check fails, the exit code is 2 and the first break is named. Somebody who has the audit key and can write both
    the entries and the state can forge a consistent log; only signed heads that are kept elsewhere reveal that.
    """
    bundle, included = _bundle_of(settings, store, kafka, file, records=True)
    elsewhere = store is not None or file is not None or public_key is None
    signed = _signed([*map(read_heads, files), included, *_in_topic(settings, kafka, beside=elsewhere)], public_key)
    with working("reading the audit log"):
        report = verify(bundle, store, key_file, signed)
    if as_json:
        print_json(report.to_json())
    if report.first_break is not None:
        raise AuditError(report.first_break)
    if not as_json:
        _print(report)
        if key_file is None:
            click.echo("give --key-file to check signatures and commitments as well")


def _bundle_of(
    settings: Settings, store: Path | None, kafka: str | None, file: Path | None, *, records: bool = False
) -> tuple[AuditBundle, list[SignedHead]]:
    """Return the audit bundle from its source, and the signed heads if they are in the same file."""
    if file is not None:
        if store is not None or kafka is not None:
            raise click.UsageError(f"{ONE_STORAGE}, or --books")
        return read_bundle_file(file)
    servers = kafka_unless(store, kafka, settings)
    with working("reading the audit log"):
        if store is not None:
            return store_bundle(store, records=records), []
        return kafka_bundle(servers or "", records=records), []


def _in_topic(settings: Settings, kafka: str | None, *, beside: bool) -> list[list[SignedHead]]:
    """Return the heads in the cluster's topic, if it has one; none if the source lies ``beside`` Kafka."""
    topic = None if beside else HeadsTopic(bootstrap(settings, kafka))
    return [topic.read()] if topic is not None and topic.exists() else []


def _signed(copies: list[list[SignedHead]], public: Path | None) -> Sequence[SignedHead]:
    """Return the signed heads of all copies after checking signatures; UsageError if the key or the heads are
    missing."""
    heads = longest(copies)
    if public is None:
        if heads:
            raise click.UsageError("--public-key: must be given, because there are signed heads")
        return ()
    if not heads:
        raise UsageError(
            "--public-key: must be used with signed heads; give --heads, or a file that was exported with them"
        )
    for copy in copies:
        check_heads(copy, signing_key.public_key(public))
    return heads


def _print(report: AuditReport) -> None:
    click.echo(f"{report.entries:>9,}  entries, each following the one before it")
    click.echo(f"{report.records:>9,}  published records, each charged as it states")
    if report.commitments:
        click.echo(f"{report.commitments:>9,}  commitments, each to true counts that are still stored")
    for site, link in sorted(report.sites.items()):
        click.echo(f"site {site}: {link.sequence:,} entries, head {link.head}")
    if signed := report.signed:
        later = signed.later_entries
        click.echo(f"{signed.heads:>9,}  signed heads, the last of {signed.until}; {later:,} entries came later")
    if report.unchecked:
        click.echo(f"not checked: {', '.join(report.unchecked)}")
