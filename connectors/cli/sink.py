"""sink, export: deliver releases to other systems; a sink's library is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from connectors.cli.options import FILE, Address, F, origin_of, origin_options, run_async, storage_of, until_stopped
from connectors.secrets.private_files import read_secret, read_secrets
from connectors.sinks.feed import deliver_releases
from connectors.sinks.occasions import Kind, Occasion
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.service import OWN_MACHINE, read_metadata
from connectors.subscribe.subscriber import Origin
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
@origin_options
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
    cursor, origin = Cursor(cursor_file), origin_of(settings, **source)
    held = f"{prefix.strip('/')}/{source['audience']}"

    async def hold() -> None:
        sites = await read_metadata(**storage_of(origin))
        kept = MqttSink(Broker(*broker, secure, username, password, ca_file), held, cursor.notes, sites,
                        home_assistant=home_assistant)  # fmt: skip
        await until_stopped(
            deliver_releases(origin, cursor, kept.deliver, kept.deliver, until_end=until_end), kept.run()
        )

    run_async(hold())


@sink.command()
@origin_options
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
    cursor, origin = Cursor(cursor_file), origin_of(settings, **source)
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
        await until_stopped(deliver_releases(origin, cursor, report.deliver, begin, until_end=until_end))
    finally:
        await report.close()
