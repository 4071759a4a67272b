"""policy check and policy contracts: a policy that keeps the rules, and what it publishes as documents for programs."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FILE, FOLDER, json_option, print_json, read_policy
from connectors.operations.policy.contracts import contract_files
from stream.errors import UsageError


@click.command("check")
@click.argument("file", type=FILE)
@json_option
def check(file: Path, *, as_json: bool) -> None:
    """Refuse a policy that breaks a rule; exit code 2 then."""
    checked = read_policy(file)
    if as_json:
        print_json({"valid": True, "policy_version": checked.version})
    else:
        click.echo(f"{file}: valid, version {checked.version}")


@click.command("contracts")
@click.argument("file", type=FILE)
@click.option("--out", required=True, type=FOLDER, help="Folder of the documents; made where it is missing.")
@click.option("--audience", "audiences", multiple=True, help="Only topics of this audience; may be repeated.")
def contracts(file: Path, *, out: Path, audiences: tuple[str, ...]) -> None:
    """Write what is published as contracts: a JSON Schema of each record, and an AsyncAPI document of the topics.

    The document says with each topic what its records cost whom (x-privacy). Documents that are there are replaced.
    """
    checked = read_policy(file)
    unknown = sorted(set(audiences) - {audience.name for audience in checked.audience})
    if unknown:
        raise UsageError(f"--audience must be one of the policy's, got {', '.join(unknown)}")
    out.mkdir(parents=True, exist_ok=True)
    for name, document in contract_files(checked, audiences).items():
        (out / name).write_bytes(document)
        click.echo(f"{out / name}")
