"""dossier: drafts for those who answer for the processing of personal data."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from connectors.cli.options import FILE, FOLDER, policy_option, read_policy
from connectors.documents.page import printable
from connectors.documents.template import Outdated, outdated, places_to_fill
from connectors.operations.account import published_summary
from connectors.operations.dossier.facts import Installation, dossier_languages, dossier_template, facts
from stream.errors import DataError
from stream.settings import Settings

OUTDATED = 1
"""Exit code if a document has statements that are no longer true."""
MARKDOWN, PAGE = "dossier.md", "dossier.html"


@click.command()
@policy_option
@click.option("--store", type=FOLDER, help="The embedded store: its account is added.")
@click.option("--kafka", help="The brokers: the account and the topics are added.")
@click.option(
    "--public-body/--no-public-body",
    default=None,
    help="Whether the controller is a public authority performing its tasks.",
)
@click.option(
    "--language", type=click.Choice(dossier_languages()), default="en", show_default=True, help="Language of the words."
)
@click.option("--out", type=FOLDER, help=f"Folder for {MARKDOWN} and {PAGE}; created if missing.")
@click.option("--check", "checked", type=FILE, help="Compare this completed document with the policy of today.")
@click.pass_obj
def dossier(
    settings: Settings, *, policy_file: Path, store: Path | None, kafka: str | None, public_body: bool | None,
    language: str, out: Path | None, checked: Path | None,
) -> None:  # fmt: skip
    """Write drafts for the data protection officer: no legal advice.

    Impact assessment (GDPR article 35(7)), record of processing (30(1)), notice for the door (13), answers to requests
    (11), open questions of ePrivacy and employment, and an appendix for NIST SP 800-226 and the Differential Privacy
    Deployments Registry. Numbers are those of 'tacet policy show'. What only a person can answer is marked ⟦…⟧.

    \b
    tacet dossier --policy policy.toml --store store --public-body --out dossier
    tacet dossier --policy policy.toml --store store --public-body --check dossier/dossier.md

    --check lists the statements that are no longer true, and exits with 1 if there are any. Give it the options with
    which the document was made.
    """
    if (out is None) == (checked is None):
        raise click.UsageError("give either --out or --check")
    policy, template = read_policy(policy_file), dossier_template(language)
    installation = Installation(
        store=store is not None, kafka=kafka is not None, encrypted="SSL" in settings.kafka_security_protocol,
        inputs=tuple(_inputs(settings)), public_body=public_body,
    )  # fmt: skip
    account = None if store is None and kafka is None else published_summary(store, kafka)
    made = template.fill(facts(policy, installation, account))
    if checked is not None:
        _check(checked, made)
        return
    assert out is not None  # noqa: S101
    if (out / MARKDOWN).exists():
        raise click.UsageError(f"--out: {out / MARKDOWN} must not exist yet; somebody may have completed it")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKDOWN).write_text(made, encoding="utf-8")
    (out / PAGE).write_text(printable(made, template.head), encoding="utf-8")
    click.echo(f"{out / MARKDOWN} and {PAGE}: a draft with {places_to_fill(made)} places to fill in; no legal advice")


def _inputs(settings: Settings) -> Iterable[str]:
    files = {
        "snmp": settings.snmp_communities_file, "snmp3": settings.snmp_users_file,
        "radius": settings.radius_clients_file, "hooks": settings.hooks_file, "polls": settings.polls_file,
    }  # fmt: skip
    return (way for way, file in files.items() if file is not None)


def _check(file: Path, today: str) -> None:
    text = file.read_text(encoding="utf-8")
    try:
        differences = outdated(text, today)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    for each in differences:
        click.echo(_difference(each))
    click.echo(f"{file}: {len(differences)} statement(s) differ, {places_to_fill(text)} places to fill in")
    sys.exit(OUTDATED if differences else 0)


def _difference(each: Outdated) -> str:
    says = f"says   {each.says}" if each.says is not None else "lacks this statement"
    true = f"today  {each.true}" if each.true is not None else "does not hold any more"
    return f"{each.name}\n  {says}\n  {true}"
