"""serve, token: the HTTP service with its page, and the tokens of its readers."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click

from connectors.cli.metrics import MetricsPort, ServiceWatch, metrics_option, monitor_of, watch_certificates
from connectors.cli.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    Address,
    json_option,
    policy_option,
    print_json,
    read_policy,
    run_async,
)
from connectors.cli.storage_options import one_of, where_options
from connectors.http.server import Tls
from connectors.monitoring.monitor import Monitor
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import stop_signals
from connectors.secrets.private_files import write_new_bytes
from connectors.serve.access import ACCOUNT, OPERATOR, TokenFile, audience_role
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig
from connectors.serve.startup import serve as serve_until
from stream.errors import TacetError, UsageError
from stream.policy.fields import parse_duration
from stream.records import Micros
from stream.schemas import rfc3339
from stream.settings import Settings


class Span(click.ParamType):
    """A duration such as 90d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Micros:
        """Return microseconds."""
        try:
            return value if isinstance(value, int) else parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


@click.command()
@where_options
@policy_option
@click.option("--audience", "audiences", multiple=True, help="Serve this audience; may be repeated.")
@click.option("--account", is_flag=True, help="Serve the account, to who has that role.")
@click.option("--operator", is_flag=True, help="Serve the operator's figures, to who has that role.")
@click.option("--listen", type=Address(), default="127.0.0.1:8050", show_default=True)
@click.option("--tokens", type=FILE, help="Who may see what: a file made by 'tacet token new'.")
@click.option("--open", "opened", metavar="AUDIENCE", help="Let anyone read this audience of counts, without a token.")
@click.option("--index", type=FILE, help="Keep the index of released records in this file.  [default: in memory]")
@click.option("--plans", type=FOLDER, help="Floor plans: SITE/FLOOR.svg or .geojson.")
@click.option("--play", type=click.FloatRange(0.1, 100_000), help="Play what is there, at this speed.")
@click.option("--name", "names", multiple=True, metavar="HOST[:PORT]", help="A name by which it is reached.")
@click.option("--tls-cert", type=FILE, help="Certificate chain (PEM).")
@click.option("--tls-key", type=FILE, help="Its key (PEM).")
@click.option("--behind-proxy", is_flag=True, help="A proxy of yours has TLS, and says who asks.")
@metrics_option
@click.pass_obj
def serve(
    settings: Settings, *, store: Path | None, kafka: str | None, policy_file: Path, audiences: tuple[str, ...],
    account: bool, operator: bool, listen: tuple[str, int], tokens: Path | None, opened: str | None,
    index: Path | None, plans: Path | None, play: float | None, names: tuple[str, ...],
    tls_cert: Path | None, tls_key: Path | None,
    behind_proxy: bool, metrics: MetricsPort | None,
) -> None:  # fmt: skip
    """Serve released records over HTTP: a page for people, an interface for programs.

    \b
    tacet serve --store store --policy policy.toml --audience public
    tacet serve --kafka broker:9092 --policy policy.toml --audience public --index history --tokens tokens

    It opens outboxes (or private topics) of these audiences and nothing else, so it may run as a user who cannot open
    the store. Without --tokens it prints a link that lets one browser in; programs send a token of 'tacet token new'.
    """
    servers = one_of(store, kafka, settings)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert goes with --tls-key")
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key)
    wanted = ServeConfig(
        read_policy(policy_file), tuple(dict.fromkeys(audiences)), store, servers, account=account, operator=operator,
        listen=listen, tokens=tokens, opened=opened, index=index, plans=plans, play=play, names=names, tls=tls,
        behind_proxy=behind_proxy,
    )  # fmt: skip
    with monitor_of("serve", wanted.policy, metrics) as monitor:
        files = {"kafka": settings.kafka_cert_file, "kafka_ca": settings.kafka_ca_file}
        watch_certificates(monitor, page=tls_cert, **({} if servers is None else files))
        serve_here(wanted, monitor)


def serve_here(config: ServeConfig, monitor: Monitor | None = None) -> None:
    """Serve until a stop signal, and print the address."""
    watched = monitor or monitor_of("serve", config.policy, None)

    def beside(service: Service) -> list[Coroutine[Any, Any, None]]:
        watch = ServiceWatch(watched, config, service)
        return [] if watched.address is None else [watch.poll()]

    async def until_stopped() -> None:
        async with stop_signals() as stop:
            await serve_until(config, wall_clock, stop, click.echo, beside)

    run_async(watched.during(until_stopped()))


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
@click.option("--expires", type=Span(), default="90d", show_default=True, help="For how long it is good.")
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
