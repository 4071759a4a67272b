"""serve, token: the HTTP service with its page, and the tokens of its readers."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    NEW_FILE,
    Duration,
    json_option,
)
from connectors.cli.output import print_json
from connectors.runtime.clock import wall_clock
from connectors.secrets.private_files import write_new_bytes
from connectors.serve.access import ACCOUNT, OPERATOR, TokenFile, audience_role
from stream.errors import TacetError, UsageError
from stream.records import Micros
from stream.schemas import rfc3339


@click.group()
def token() -> None:
    """Say who may see what at 'tacet serve'."""


_tokens = click.option("--tokens", type=FILE, required=True, help="The file of tokens; made if missing.")


@token.command("new")
@_tokens
@click.option("--name", required=True, help="Whose it is.")
@click.option("--audience", "audiences", multiple=True, help="May read this audience's releases; may be repeated.")
@click.option("--account", is_flag=True, help="May read the account.")
@click.option("--operator", is_flag=True, help="May read the operator's figures.")
@click.option("--expires", type=Duration(), default="90d", show_default=True, help="For how long it is good.")
@click.option("--out", type=NEW_FILE, help="Write the token to this new file (mode 0600) instead of printing it.")
def new(
    tokens: Path, name: str, audiences: tuple[str, ...], *, account: bool, operator: bool, expires: Micros,
    out: Path | None,
) -> None:  # fmt: skip
    """Make a token and print it, or write it to a file: it is shown once, the file of tokens keeps a digest."""
    more = [role for role, wanted in ((ACCOUNT, account), (OPERATOR, operator)) if wanted]
    roles = [*map(audience_role, audiences), *more]
    if not roles:
        msg = "--audience: must be given, or --account or --operator: it would open nothing"
        raise UsageError(msg)
    held = TokenFile(tokens)
    secret = held.add(name, roles, wall_clock() + expires)
    if out is None:
        click.echo(secret)
        return
    try:
        write_new_bytes(out, secret.encode() + b"\n")
    except TacetError:
        held.revoke(name)
        raise


@token.command("list")
@_tokens
@json_option
def listed(tokens: Path, *, as_json: bool) -> None:
    """List names, roles and expiries."""
    held = TokenFile(tokens).tokens()
    if as_json:
        rows = [{"name": t.name, "roles": sorted(t.roles), "expires": rfc3339(t.expires)} for t in held]
        print_json({"tokens": rows})
        return
    for each in held:
        over = "  (expired)" if each.expires <= wall_clock() else ""
        click.echo(f"{each.name}  {', '.join(sorted(each.roles))}  until {rfc3339(each.expires)}{over}")


@token.command("revoke")
@_tokens
@click.argument("name")
def revoke(tokens: Path, name: str) -> None:
    """Let go of the token NAME: open streams of it end within a second or two."""
    TokenFile(tokens).revoke(name)
    click.echo(f"{name}: revoked")
