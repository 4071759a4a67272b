"""sink, export: deliver releases to other systems; a sink's library is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from connectors.cli.options import FILE, Address, F, run_async
from connectors.cli.storage_options import source_of, source_options, storage_of
from connectors.runtime.signals import first_to_end, stop_signals
from connectors.secrets.private_files import read_secret, read_secrets
from connectors.sinks.feed import deliver_releases
from connectors.sinks.occasions import Kind, Occasion
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.service import OWN_MACHINE, read_metadata
from connectors.subscribe.subscriber import Origin, subscribe
from stream.errors import OPTIONAL, UsageError
from stream.settings import Settings


@contextmanager
def library(verb: str) -> Iterator[None]:
    """Convert the absence of a library that a verb needs into an error with the command that installs it."""
    try:
        yield
    except ImportError:
        msg = f"{verb}: needs the libraries of sinks; {OPTIONAL}"
        raise UsageError(msg) from None


def cursor_options(function: F) -> F:
    """Add the options of all sinks: ``--cursor`` and ``--until-end``."""
    function = click.option("--until-end", is_flag=True, help="Stop at the end of what is there now.")(function)
    return click.option(
        "--cursor", "cursor_file", type=FILE, required=True, help="How far it has come; made where there is none."
    )(function)  # fmt: skip


@click.group()
def sink() -> None:
    """Hand releases on: to an MQTT broker, or to a webhook."""


@sink.command()
@source_options
@cursor_options
@click.option("--broker", type=Address(), required=True, help="The MQTT broker.")
@click.option("--tls/--no-tls", default=None, help="Default: TLS unless the broker is on this machine.")
@click.option("--ca-file", type=FILE, help="Authorities for the broker's certificate; the system's otherwise.")
@click.option("--username")
@click.option("--password-file", type=FILE, help="With --username: a file with the password, mode 0600.")
@click.option("--prefix", default="tacet", show_default=True, help="First words of every topic; the audience follows.")
@click.option("--home-assistant", metavar="PREFIX", help="Announce a sensor for each node below this topic.")
@click.pass_obj
def mqtt(
    settings: Settings, /, *, cursor_file: Path, until_end: bool, broker: tuple[str, int], tls: bool | None,
    ca_file: Path | None, username: str | None, password_file: Path | None, prefix: str, home_assistant: str | None,
    **source: Any,
) -> None:  # fmt: skip
    """Hold the latest count of each node on an MQTT broker, as retained messages.

    \b
    tacet sink mqtt --store store --audience facilities --cursor mqtt.cursor --broker 127.0.0.1:1883
    """
    with library("sink mqtt"):
        from connectors.sinks.mqtt import Broker, MqttSink  # noqa: PLC0415
    if (password_file is None) != (username is None):
        raise click.UsageError("--username and --password-file: must be given together")
    if any(word in f"{prefix}{home_assistant or ''}" for word in "+#$") or not prefix.strip("/"):
        msg = f"--prefix: must be words of a topic, without + # and $, got {prefix!r}"
        raise UsageError(msg)
    password = None if password_file is None else read_secret(password_file)
    secure = broker[0] not in OWN_MACHINE if tls is None else tls
    cursor, origin = Cursor(cursor_file), source_of(settings, **source)
    held = f"{prefix.strip('/')}/{source['audience']}"

    async def hold() -> None:
        sites = await read_metadata(**storage_of(origin))
        kept = MqttSink(Broker(*broker, secure, username, password, ca_file), held, cursor.notes, sites,
                        home_assistant=home_assistant)  # fmt: skip
        await _until_stopped(
            deliver_releases(origin, cursor, kept.deliver, kept.deliver, until_end=until_end), kept.run()
        )

    run_async(hold())


@sink.command()
@source_options
@cursor_options
@click.option("--from-start", is_flag=True, help="A new cursor begins with the first record kept, not with the next.")
@click.option("--to", required=True, metavar="URL", help="Where to report.")
@click.option("--secret-file", type=FILE, required=True, help="A file with the secret, whsec_…, mode 0600.")
@click.option(
    "--on", "kind", type=click.Choice(["release", "change", "crossing"]), default="release", show_default=True
)
@click.option("--threshold", type=float, help="Of crossings, in devices.")
@click.option("--node", "nodes", multiple=True, help="zone:ID, floor:ID or building; all otherwise. May be repeated.")
@click.pass_obj
def webhook(
    settings: Settings, /, *, cursor_file: Path, until_end: bool, from_start: bool, to: str, secret_file: Path,
    kind: Kind, threshold: float | None, nodes: tuple[str, ...], **source: Any,
) -> None:  # fmt: skip
    """Report releases, changes or crossings of a threshold to an address, signed (Standard Webhooks).

    \b
    tacet sink webhook --store store --audience facilities --cursor hook.cursor \\
      --to https://example.org/hook --secret-file hook.secret --on crossing --threshold 50 --node building
    """
    if (kind == "crossing") != (threshold is not None):
        raise click.UsageError("--threshold: must be given with --on crossing, and only then")
    cursor, origin = Cursor(cursor_file), source_of(settings, **source)
    occasion = Occasion(kind, threshold, frozenset(nodes))
    run_async(_report(origin, cursor, occasion, to, partial(read_secrets, secret_file, 2), from_start=from_start,
                      until_end=until_end))  # fmt: skip


async def _report(
    origin: Origin, cursor: Cursor, occasion: Occasion, url: str, secrets: Callable[[], Sequence[str]], *,
    from_start: bool, until_end: bool,
) -> None:  # fmt: skip
    with library("sink webhook"):
        from connectors.sinks.webhooks import WebhookSink  # noqa: PLC0415
    report = WebhookSink(url, secrets, occasion, cursor.notes)
    try:
        begin = None if from_start else report.begin
        await _until_stopped(deliver_releases(origin, cursor, report.deliver, begin, until_end=until_end))
    finally:
        await report.close()


@click.group()
def export() -> None:
    """Show releases to those who come for them."""


@export.command()
@source_options
@click.option("--listen", type=Address(), default="127.0.0.1:9105", show_default=True, help="Where to answer.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="A name by which it may be asked, besides addresses, localhost and this machine's name. May be repeated.",
)
@click.pass_obj
def prometheus(settings: Settings, /, *, listen: tuple[str, int], names: tuple[str, ...], **source: Any) -> None:
    """Show the latest releases of an audience as metrics, each value with its band.

    Who can reach the address reads what the audience may read.
    """
    with library("export prometheus"):
        from connectors.sinks.prometheus import LatestReleases, serve  # noqa: PLC0415
    origin, latest = source_of(settings, **source), LatestReleases()
    try:
        server = serve(latest, listen, names)
    except OSError as error:
        msg = f"--listen: must be an address that is free here, got {listen[0]}:{listen[1]} ({error.strerror or error})"
        raise UsageError(msg) from None
    click.echo(f"http://{listen[0]}:{server.address[1]}/metrics")

    async def follow() -> None:
        async for record in subscribe(**origin, from_start=True):
            latest.update(record)

    try:
        run_async(_until_stopped(follow()))
    finally:
        server.close()


async def _until_stopped(*works: Coroutine[Any, Any, object]) -> None:
    """Run several tasks until one of them ends, or a stop signal arrives."""
    async with stop_signals() as stop:
        await first_to_end(*works, stop.wait())
