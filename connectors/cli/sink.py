"""sink: deliver releases to an MQTT broker, a webhook or by mail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.errors import MessageError
from email.headerregistry import Address as HeaderAddress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from connectors.cli.options import (
    FILE,
    Address,
    Duration,
    F,
    VerbGroup,
    origin_of,
    origin_options,
    run_async,
    storage_of,
    until_stopped,
)
from connectors.runtime.clock import wall_clock
from connectors.secrets.private_files import read_secret, read_secrets
from connectors.sinks.feed import deliver_releases, notes_of
from connectors.sinks.triggers import ABOVE, BELOW, Kind, Trigger
from connectors.subscribe.cursor import Cursor
from connectors.subscribe.service import OWN_MACHINE
from connectors.subscribe.subscriber import Origin, read_metadata
from stream.errors import OPTIONAL, UsageError
from stream.records import Micros
from stream.settings import Settings

if TYPE_CHECKING:
    from connectors.documents.month import Month


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
    """Deliver releases to an MQTT broker, a webhook or by mail."""


def _password(username: str | None, file: Path | None) -> Callable[[], str] | None:
    """Return what reads the password anew for each connection; KeyFileError if the file is wrong already."""
    if (file is None) != (username is None):
        raise click.UsageError("--username and --password-file: must be given together")
    if file is None:
        return None
    read_secret(file)
    return partial(read_secret, file)


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
    password = _password(username, password_file)
    if any(word in f"{prefix}{home_assistant or ''}" for word in "+#$") or not prefix.strip("/"):
        msg = f"--prefix: must be a topic without + # and $, got {prefix!r}"
        raise UsageError(msg)
    client = Broker(*broker, broker[0] not in OWN_MACHINE if tls is None else tls, username, password, ca_file)
    cursor, origin = Cursor(cursor_file), origin_of(settings, **source)
    topic = f"{prefix.strip('/')}/{source['audience']}"

    async def publish() -> None:
        sites = await read_metadata(**storage_of(origin))
        mqtt_sink = MqttSink(client, topic, notes_of(cursor), sites, home_assistant=home_assistant)
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
    report = WebhookSink(url, secrets, trigger, notes_of(cursor))
    try:
        begin = None if from_start else report.begin
        await until_stopped(deliver_releases(origin, cursor, report.deliver, begin, until_end=until_end))
    finally:
        await report.close()


class _Quiet(click.ParamType):
    """Quiet hours."""

    name = "hh:mm-hh:mm"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a span of local time."""
        from connectors.sinks.mail import QuietHours  # noqa: PLC0415 - loads what makes reports

        try:
            return value if isinstance(value, QuietHours) else QuietHours.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} must be two times such as 22:00-07:00", param, ctx)


class _MailAddress(click.ParamType):
    """A mail address without a name."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check its form."""
        try:
            found = HeaderAddress(addr_spec=str(value))
        except (ValueError, IndexError, MessageError):
            found = None
        if found is None or not found.domain or not str(value).isascii():
            self.fail(f"{value!r} must be an address such as desk@example.org", param, ctx)
        return str(value)


@sink.command()
@origin_options
@cursor_options
@click.option("--smtp", type=Address(), required=True, help="Address of the mail server.")
@click.option(
    "--tls/--no-tls", default=None, help="Whether to use TLS: at port 465 from the start, elsewhere by STARTTLS.  "
    "[default: yes, unless the server is on this machine]",
)  # fmt: skip
@click.option("--ca-file", type=FILE, help="Certificate authorities for the server.  [default: the system's]")
@click.option("--username", help="User name on the server.")
@click.option("--password-file", type=FILE, help="With --username: a file with the password, mode 0600.")
@click.option("--from", "sender", type=_MailAddress(), required=True, help="Address of the sender.")
@click.option(
    "--to", "recipients", type=_MailAddress(), required=True, multiple=True, help="Recipient; may be repeated."
)
@click.option("--threshold", type=float, help="Mail when a count's whole band is beyond this, in devices.")
@click.option(
    "--side", type=click.Choice([ABOVE, BELOW]), default=ABOVE, show_default=True, help="Side of --threshold to mail."
)
@click.option("--node", "nodes", multiple=True, help="Only this node: zone:ID, floor:ID or building. May be repeated.")
@click.option(
    "--silent-after",
    type=Duration(),
    default="30min",
    show_default=True,
    help="Mail when no window has come for so long.",
)
@click.option("--quiet", type=_Quiet(), help="Local hours in which nothing is sent, such as 22:00-07:00.")
@click.option("--monthly", is_flag=True, help="Mail each month's report when the month is over.")
@click.option("--language", default="en", show_default=True, help="Language of mails and reports.")
@click.pass_obj
def mail(
    settings: Settings, /, *, cursor_file: Path, until_end: bool, smtp: tuple[str, int], tls: bool | None,
    ca_file: Path | None, username: str | None, password_file: Path | None, sender: str, recipients: tuple[str, ...],
    threshold: float | None, side: str, nodes: tuple[str, ...], silent_after: Micros, quiet: Any, monthly: bool,
    language: str, **source: Any,
) -> None:  # fmt: skip
    """Mail alerts, crossings of a threshold, a feed that fails, and the monthly report: one mail for each episode.

    \b
    tacet sink mail --store store --audience facilities --cursor mail.cursor --smtp mail.example.org:587 \\
      --username tacet --password-file smtp.password --from tacet@example.org --to desk@example.org \\
      --threshold 60 --node zone:2011 --quiet 22:00-07:00 --monthly
    """
    from connectors.cli.report import report_of  # noqa: PLC0415 - loads what makes reports
    from connectors.documents.report import SHARE, Report, report_languages  # noqa: PLC0415
    from connectors.sinks.mail import Letters, MailSink, Server, mail_languages  # noqa: PLC0415

    password = _password(username, password_file)
    spoken = sorted({*mail_languages()} & {*report_languages()})
    if language not in spoken:
        raise UsageError(f"--language: must be one of {', '.join(spoken)}, got {language!r}")
    secure = smtp[0] not in OWN_MACHINE if tls is None else tls
    if not secure and username is not None and smtp[0] not in OWN_MACHINE:
        raise UsageError("--no-tls: must not be given with --password-file for another machine")
    server = Server(*smtp, secure, username, password, ca_file)
    cursor, origin = Cursor(cursor_file), origin_of(settings, **source)

    async def monthly_report(site: str, month: Month) -> Report:
        return await report_of(origin, site, month, language, SHARE)

    async def send() -> None:
        letters = Letters(sender, recipients, await read_metadata(**storage_of(origin)), language)
        mails = MailSink(
            server.send, letters, notes_of(cursor), now=wall_clock,
            trigger=None if threshold is None else Trigger("crossing", threshold, frozenset(nodes)), side=side,
            silent_after=silent_after, quiet=quiet, report_of=monthly_report if monthly else None,
        )  # fmt: skip
        feed = deliver_releases(origin, cursor, mails.deliver, mails.begin, until_end=until_end)
        if until_end:
            await feed
            await mails.check()
            cursor.save()
        else:
            await until_stopped(feed, mails.watch())

    run_async(send())
