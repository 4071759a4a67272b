"""token: the access tokens of readers of the HTTP service."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    NEW_FILE,
    Duration,
    VerbGroup,
    json_option,
)
from connectors.cli.output import print_json
from connectors.runtime.clock import wall_clock
from connectors.secrets.private_files import write_new_bytes
from connectors.serve.access import ACCOUNT, OPERATOR, TokenFile, audience_role, room_role
from stream.errors import TacetError, UsageError
from stream.records import Micros
from stream.schemas import rfc3339


@click.group(cls=VerbGroup)
def token() -> None:
    """Manage the access tokens of 'tacet serve'."""


_tokens = click.option("--tokens", type=FILE, required=True, help="The file of tokens; created if missing.")


@token.command("new")
@_tokens
@click.option("--name", required=True, help="Name of the reader.")
@click.option("--audience", "audiences", multiple=True, help="May read this audience's releases; may be repeated.")
@click.option("--room", "rooms", multiple=True, metavar="AUDIENCE", help="A screen: may see where there is room.")
@click.option("--account", is_flag=True, help="May read the account.")
@click.option("--operator", is_flag=True, help="May read the operator's figures.")
@click.option("--expires", type=Duration(), default="90d", show_default=True, help="How long it is valid.")
@click.option("--link", metavar="URL", help="With --room: print a link to the page of this service, with the token.")
@click.option("--out", type=NEW_FILE, help="Write the token to this new file (mode 0600) instead of printing it.")
def new(
    tokens: Path, name: str, audiences: tuple[str, ...], rooms: tuple[str, ...], link: str | None,
    *, account: bool, operator: bool, expires: Micros, out: Path | None,
) -> None:  # fmt: skip
    """Create a token, and print it or write it to a file. It is shown once; the file of tokens stores only a digest."""
    more = [role for role, granted in ((ACCOUNT, account), (OPERATOR, operator)) if granted]
    roles = [*map(audience_role, audiences), *map(room_role, rooms), *more]
    if link is not None and (len(rooms) != 1 or len(roles) != 1):
        raise click.UsageError("--link: must be used with one --room and no other role, as whoever has it is let in")
    if not roles:
        msg = "--audience: must be given, or --room, --account or --operator; otherwise the token grants nothing"
        raise UsageError(msg)
    file = TokenFile(tokens)
    secret = file.add(name, roles, wall_clock() + expires)
    if link is not None:
        secret = f"{link.rstrip('/')}/room?audience={rooms[0]}#token={secret}"
    if out is None:
        click.echo(secret)
        return
    try:
        write_new_bytes(out, secret.encode() + b"\n")
    except TacetError:
        file.revoke(name)
        raise


@token.command("list")
@_tokens
@json_option
def listed(tokens: Path, *, as_json: bool) -> None:
    """List the names, roles and expiry dates of all tokens."""
    known = TokenFile(tokens).tokens()
    if as_json:
        rows = [{"name": t.name, "roles": sorted(t.roles), "expires": rfc3339(t.expires)} for t in known]
        print_json({"tokens": rows})
        return
    for each in known:
        expired = "  (expired)" if each.expires <= wall_clock() else ""
        click.echo(f"{each.name}  {', '.join(sorted(each.roles))}  until {rfc3339(each.expires)}{expired}")


@token.command("revoke")
@_tokens
@click.argument("name")
def revoke(tokens: Path, name: str) -> None:
    """Revoke the token NAME: its open streams end within a second or two."""
    TokenFile(tokens).revoke(name)
    click.echo(f"{name}: revoked")
