"""sink: deliver releases to an MQTT broker or a webhook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from connectors.cli.options import (
    FILE,
    Address,
    F,
    VerbGroup,
    origin_of,
    origin_options,
    run_async,
    storage_of,
    until_stopped,
)
from connectors.secrets.private_files import read_secret, read_secrets
from connectors.sinks.feed import deliver_releases
from connectors.sinks.triggers import Kind, Trigger
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
    function = click.option("--until-end", is_flag=True, help="Stop after the last record that exists now.")(function)
    return click.option(
        "--cursor", "cursor_file", type=FILE, required=True, help="File with the position; created if missing."
    )(function)  # fmt: skip


@click.group(cls=VerbGroup)
def sink() -> None:
    """Deliver releases to an MQTT broker or a webhook."""


@sink.command()
@origin_options
@cursor_options
@click.option("--broker", type=Address(), required=True, help="Address of the MQTT broker.")
@click.option(
    "--tls/--no-tls", default=None, help="Whether to use TLS.  [default: yes, unless the broker is on this machine]"
)
@click.option("--ca-file", type=FILE, help="Certificate authorities for the broker.  [default: the system's]")
@click.option("--username", help="User name on the broker.")
@click.option("--password-file", type=FILE, help="With --username: a file with the password, mode 0600.")
@click.option("--prefix", default="tacet", show_default=True, help="Prefix of every topic; the audience follows.")
@click.option("--home-assistant", metavar="PREFIX", help="Announce each node as a sensor, under this discovery prefix.")
@click.pass_obj
def mqtt(
    settings: Settings, /, *, cursor_file: Path, until_end: bool, broker: tuple[str, int], tls: bool | None,
    ca_file: Path | None, username: str | None, password_file: Path | None, prefix: str, home_assistant: str | None,
    **source: Any,
) -> None:  # fmt: skip
    """Publish the latest count of each node to an MQTT broker, as retained messages.

    \b
    tacet sink mqtt --store store --audience facilities --cursor mqtt.cursor --broker 127.0.0.1:1883
    """
    with library("sink mqtt"):
        from connectors.sinks.mqtt import Broker, MqttSink  # noqa: PLC0415
    if (password_file is None) != (username is None):
        raise click.UsageError("--username and --password-file: must be given together")
    if any(word in f"{prefix}{home_assistant or ''}" for word in "+#$") or not prefix.strip("/"):
        msg = f"--prefix: must be a topic without + # and $, got {prefix!r}"
        raise UsageError(msg)
    password = None if password_file is None else read_secret(password_file)
    secure = broker[0] not in OWN_MACHINE if tls is None else tls
    cursor, origin = Cursor(cursor_file), origin_of(settings, **source)
    topic = f"{prefix.strip('/')}/{source['audience']}"

    async def publish() -> None:
        sites = await read_metadata(**storage_of(origin))
        mqtt_sink = MqttSink(Broker(*broker, secure, username, password, ca_file), topic, cursor.notes, sites,
                        home_assistant=home_assistant)  # fmt: skip
        await until_stopped(
            deliver_releases(origin, cursor, mqtt_sink.deliver, mqtt_sink.deliver, until_end=until_end), mqtt_sink.run()
        )

    run_async(publish())


@sink.command()
@origin_options
@cursor_options
@click.option(
    "--from-start", is_flag=True, help="With a new cursor: start with the first stored record, not with the next one."
)
@click.option("--to", required=True, metavar="URL", help="Address to report to.")
@click.option("--secret-file", type=FILE, required=True, help="File with the signing secret, whsec_…, mode 0600.")
@click.option(
    "--on",
    "kind",
    type=click.Choice(["release", "change", "crossing"]),
    default="release",
    show_default=True,
    help="What to report: every release, changed values, or crossings of --threshold.",
)
@click.option("--threshold", type=float, help="With --on crossing: the threshold, in devices.")
@click.option("--node", "nodes", multiple=True, help="Only this node: zone:ID, floor:ID or building. May be repeated.")
@click.pass_obj
def webhook(
    settings: Settings, /, *, cursor_file: Path, until_end: bool, from_start: bool, to: str, secret_file: Path,
    kind: Kind, threshold: float | None, nodes: tuple[str, ...], **source: Any,
) -> None:  # fmt: skip
    """Report releases, changed values or crossings of a threshold to a URL, signed (Standard Webhooks).

    \b
    tacet sink webhook --store store --audience facilities --cursor hook.cursor \\
      --to https://example.org/hook --secret-file hook.secret --on crossing --threshold 50 --node building
    """
    if (kind == "crossing") != (threshold is not None):
        raise click.UsageError("--threshold: must be given with --on crossing, and only then")
    cursor, origin = Cursor(cursor_file), origin_of(settings, **source)
    trigger = Trigger(kind, threshold, frozenset(nodes))
    run_async(_report(origin, cursor, trigger, to, partial(read_secrets, secret_file, 2), from_start=from_start,
                      until_end=until_end))  # fmt: skip


async def _report(
    origin: Origin, cursor: Cursor, trigger: Trigger, url: str, secrets: Callable[[], Sequence[str]], *,
    from_start: bool, until_end: bool,
) -> None:  # fmt: skip
    with library("sink webhook"):
        from connectors.sinks.webhooks import WebhookSink  # noqa: PLC0415
    report = WebhookSink(url, secrets, trigger, cursor.notes)
    try:
        begin = None if from_start else report.begin
        await until_stopped(deliver_releases(origin, cursor, report.deliver, begin, until_end=until_end))
    finally:
        await report.close()
