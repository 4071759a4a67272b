"""Where a verb's observations come from: what is listened to, or ``--observations``."""

from __future__ import annotations

from functools import update_wrapper
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from connectors.commands.options import FILE, Address, F, Speed
from connectors.commands.snmp_files import communities_now, probe_community, v3_files
from connectors.counters.topic import check_topic
from connectors.files.dialect import OWN, Dialect, dialect_of
from connectors.live_sources import (
    CollectedSource,
    ForwardedSource,
    HandedSource,
    Live,
    LiveSource,
    LoggedSource,
    RadiusSource,
    UdpSource,
)
from connectors.monitoring.monitor import Monitor
from connectors.probes.declared import declared, provoked
from connectors.radius.clients import ClientFile
from connectors.snmp.communities import CommunityFile
from connectors.sources import Probing
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.records import Micros
from stream.settings import Settings

LISTENED = "--udp, --radius, --snmptrapd, --snmptrapd-log, --telegraf, --hooks"
PIPE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


def source_options(function: F) -> F:
    """Add what observations come from: what is listened to, which makes one argument ``to``, or ``--observations``, and
    how fast."""

    def with_listening(*args: Any, udp: Any, radius: Any, snmptrapd: Any, hooks: Any, **more: Any) -> Any:
        log, topic = more.pop("snmptrapd_log"), more.pop("telegraf")
        return function(*args, to=Listening(udp, radius, snmptrapd, hooks, log, topic), **more)

    made = update_wrapper(with_listening, function)
    for option in (
        click.option("--speed", type=Speed(), default="max", show_default=True, help="For a file: times real time."),
        click.option("--observations", type=FILE, help="Read a file instead of listening."),
        click.option("--telegraf", metavar="TOPIC", help="Read traps from a topic of Kafka that telegraf writes."),
        click.option("--snmptrapd-log", type=FILE, help="Read traps from snmptrapd's log as it grows."),
        click.option("--snmptrapd", type=PIPE, help="Read traps from snmptrapd's pipe; - is standard input."),
        click.option("--hooks", type=FILE, help="Take what 'tacet hooks' hands over at this socket."),
        click.option("--radius", type=Address(), help="Listen for RADIUS accounting on HOST:PORT."),
        click.option("--udp", type=Address(), help="Listen for SNMP traps on HOST:PORT."),
    ):
        made = option(made)
    return cast(F, made)


def dialect_options(function: F) -> F:
    """Add how a recording writes what it saw: four options, which make one argument ``dialect``."""

    def with_dialect(*args: Any, columns: Any, timezone: Any, times: Any, devices: Any, **more: Any) -> Any:
        return function(*args, dialect=dialect_of(columns, timezone, times, devices), **more)

    made = update_wrapper(with_dialect, function)
    for option in (
        click.option(
            "--devices",
            type=click.Choice(["address", "opaque"]),
            default="address",
            show_default=True,
            help="opaque: devices of the recording have ids that are no addresses.",
        ),
        click.option(
            "--times",
            type=click.Choice(["rfc3339", "seconds", "milliseconds"]),
            default="rfc3339",
            show_default=True,
            help="How the recording writes times: seconds or milliseconds are since 1970.",
        ),
        click.option("--timezone", help="Of the recording's times without an offset.  [default: the site's]"),
        click.option("--columns", multiple=True, help="The recording's columns: device=mac,access_point=ap,time=when."),
    ):
        made = option(made)
    return cast(F, made)


def refuse_dialect(dialect: Dialect) -> None:
    """Refuse that a recording's dialect is declared where there is no recording."""
    if dialect != OWN:
        raise click.UsageError("--columns, --timezone, --times, --devices: must go with --observations")


class Counts(NamedTuple):
    """What people counters have counted: in a file, or in a topic of Kafka."""

    file: Path | None
    topic: str | None


_NO_FILE = "\0"
"""Stands for --counts without a file; no file is called so."""


class _CountsFile(click.Path):
    """A file, or none where the option is given without one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _NO_FILE if value == _NO_FILE else super().convert(value, param, ctx)


def counts_options(function: F) -> F:
    """Add ``--counts FILE`` and ``--counts --topic NAME``, which make one argument ``counts``."""

    def with_counts(*args: Any, counts: Path | str | None, topic: str | None, **more: Any) -> Any:
        if (counts == _NO_FILE) != (topic is not None):
            raise click.UsageError("--counts: give a file, or --topic, and --topic only with it")
        if topic is not None:
            check_topic("--topic", topic)
        given = None if counts is None else Counts(cast(Path, counts) if topic is None else None, topic)
        return function(*args, counts=given, **more)

    made = update_wrapper(with_counts, function)
    for option in (
        click.option("--topic", help="With --counts: read them from this topic of Kafka, a row a record."),
        click.option(
            "--counts", type=_CountsFile(path_type=Path, dir_okay=False), is_flag=False, flag_value=_NO_FILE,
            help="Read what people counters have counted: window_end, zone, count.",
        ),
    ):  # fmt: skip
        made = option(made)
    return cast(F, made)


def alone(counts: Counts, *others: object, dialect: Dialect) -> Counts:
    """Return the counts; a usage error where something else is given besides."""
    refuse_dialect(dialect)
    if any(other is not None for other in others):
        raise click.UsageError(f"give --counts alone, or --observations, or some of {LISTENED}")
    return counts


class Listening(NamedTuple):
    """All that may be listened to."""

    udp: tuple[str, int] | None = None
    radius: tuple[str, int] | None = None
    snmptrapd: Path | None = None
    hooks: Path | None = None
    snmptrapd_log: Path | None = None
    telegraf: str | None = None
    """Topic."""


def chosen(
    settings: Settings,
    to: Listening,
    observations: Path | None,
    dialect: Dialect = OWN,
    start: Micros | None = None,
) -> Live | Path:
    """Return the file that is given, or all that is listened to; a usage error where it is neither or both, or
    what is live has a file's dialect.

    ``start`` is what uptime 0 stands for, where event time is the controllers' uptime; else None. Communities and
    clients are read from the files that the settings name.
    """
    live: list[LiveSource] = []
    listening = any(each is not None for each in to)
    if listening == (observations is not None):
        raise click.UsageError(f"give either --observations, or some of {LISTENED}")
    if observations is not None:
        return observations
    refuse_dialect(dialect)
    if start is not None and to != Listening(to.udp):
        raise click.UsageError("--clock uptime: must go with --udp alone, whose traps tell an uptime")
    if to.udp is not None:
        live.append(UdpSource(to.udp, communities_now(settings), v3_files(settings), start))
    if to.radius is not None:
        live.append(RadiusSource(to.radius, clients(settings)))
    if to.snmptrapd is not None:
        live.append(ForwardedSource(to.snmptrapd))
    if to.snmptrapd_log is not None:
        live.append(LoggedSource(to.snmptrapd_log, _state_of(settings, to.snmptrapd_log)))
    if to.telegraf is not None:
        live.append(_collected(settings, to.telegraf))
    if to.hooks is not None:
        live.append(HandedSource(to.hooks))
    return live


def _state_of(settings: Settings, log: Path) -> Path:
    return settings.snmptrapd_state_file or log.with_name(f"{log.name}.state")


def _collected(settings: Settings, topic: str) -> CollectedSource:
    """Return traps of a topic; UsageError where no broker is named."""
    if settings.kafka is None:
        msg = "--telegraf: must go with --kafka or TACET_KAFKA, the brokers that telegraf writes to"
        raise UsageError(msg)
    file = settings.snmp_communities_file
    known = None if file is None else CommunityFile(file)
    return CollectedSource(settings.kafka, topic, settings.telegraf_group, known)


def probing(settings: Settings, policy: Policy, monitor: Monitor) -> Probing | None:
    """Return how sources are asked as the policy declares, None where it declares nothing; the monitor is told.

    Raises ``UsageError`` where a user, a community or a right is missing that a probe needs.
    """
    if not any(site.probe for site in policy.site.values()):
        return None
    files = v3_files(settings)
    asked = declared(policy, None if files is None else files.users, probe_community(settings))
    return Probing(asked, monitor.probed, provoked(policy))


def clients(settings: Settings) -> ClientFile:
    """Return the clients of RADIUS, as their file will have them; UsageError when no file of them is named."""
    if settings.radius_clients_file is None:
        msg = "TACET_RADIUS_CLIENTS_FILE: must name a file of RADIUS clients and their secrets, mode 0600"
        raise UsageError(msg)
    return ClientFile(settings.radius_clients_file)
