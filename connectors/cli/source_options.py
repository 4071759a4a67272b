"""Options for the source of observations: live traps, RADIUS, topics, counters, or ``--observations``.

The environment names the files for SNMP (communities, users, engine state) and RADIUS clients. The summaries that
``run`` and ``ingest`` print at their end are here as well: rows of a file, datagrams of live traps, and drops.
"""

from __future__ import annotations

from functools import update_wrapper
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from connectors.cli.options import FILE, Address, F, Speed, refuse_dialect
from connectors.cli.output import print_json, report_drops
from connectors.monitoring.monitor import Monitor
from connectors.sources.counters.topic import check_topic
from connectors.sources.counters.windows import WindowCollector
from connectors.sources.ingest.ingest import UNKNOWN_ACCESS_POINT
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.state import most_unknown
from connectors.sources.live import (
    Live,
    LiveSource,
    Probing,
    RadiusSource,
    SnmptrapdLogSource,
    SnmptrapdPipeSource,
    SocketSource,
    TelegrafSource,
    UdpSource,
)
from connectors.sources.probes.methods import declared, provoked
from connectors.sources.radius.clients import ClientFile
from connectors.sources.recordings.dialect import OWN, Dialect
from connectors.sources.recordings.text_rows import RowCounts
from connectors.sources.snmp.communities import CommunityFile, read_communities
from connectors.sources.snmp.usm.receiver import V3Files
from connectors.sources.snmp.usm.users import UserFile
from stream.errors import UsageError
from stream.records import Micros
from stream.release.validation import Policy
from stream.settings import Settings


def communities(settings: Settings) -> tuple[bytes, ...]:
    """Return the accepted communities, none if only SNMPv3 is accepted; UsageError if no file defines senders."""
    if settings.snmp_communities_file is not None:
        return read_communities(settings.snmp_communities_file)
    if settings.snmp_users_file is None:
        msg = "TACET_SNMP_COMMUNITIES_FILE: must name a file of accepted communities, one per line, mode 0600"
        raise UsageError(f"{msg} (or TACET_SNMP_USERS_FILE a file of SNMPv3 users)")
    return ()


def communities_now(settings: Settings) -> tuple[bytes, ...] | CommunityFile:
    """Return the accepted communities, reloaded from their file while a receiver listens."""
    file = settings.snmp_communities_file
    return communities(settings) if file is None else CommunityFile(file)


def probe_community(settings: Settings) -> bytes | None:
    """Return the community for liveness probes; None if no file of it is named."""
    file = settings.snmp_probe_community_file
    if file is None:
        return None
    communities = read_communities(file)
    if len(communities) != 1:
        msg = f"{file}: must contain one community, got {len(communities)}"
        raise UsageError(msg)
    return communities[0]


def v3_files(settings: Settings) -> V3Files | None:
    """Return the SNMPv3 users and the file of engine state; None if no file of users is named."""
    users = settings.snmp_users_file
    if users is None:
        return None
    return V3Files(UserFile(users), settings.snmp_state_file or users.with_name(f"{users.name}.state"))


LISTENED = "--udp, --radius, --snmptrapd, --snmptrapd-log, --telegraf, --hooks, --polls"
PIPE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


def source_options(function: F) -> F:
    """Add the options of live sources, which become one argument ``to``, ``--observations``, and the speed."""

    def with_listening(*args: Any, udp: Any, radius: Any, snmptrapd: Any, hooks: Any, **more: Any) -> Any:
        log, topic, polls = more.pop("snmptrapd_log"), more.pop("telegraf"), more.pop("polls")
        return function(*args, to=Listening(udp, radius, snmptrapd, hooks, log, topic, polls), **more)

    made = update_wrapper(with_listening, function)
    for option in (
        click.option(
            "--speed",
            type=Speed(),
            default="max",
            show_default=True,
            help="For a file: how many times real time, or max.",
        ),
        click.option("--observations", type=FILE, help="Read a file instead of listening."),
        click.option("--telegraf", metavar="TOPIC", help="Read traps from a Kafka topic that telegraf writes."),
        click.option("--snmptrapd-log", type=FILE, help="Read traps from snmptrapd's log as it grows."),
        click.option("--snmptrapd", type=PIPE, help="Read traps from snmptrapd's pipe; - is standard input."),
        click.option("--polls", type=FILE, help="Receive sightings from 'tacet poll' at this socket."),
        click.option("--hooks", type=FILE, help="Receive sightings from 'tacet hooks' at this socket."),
        click.option("--radius", type=Address(), help="Listen for RADIUS accounting on HOST:PORT."),
        click.option("--udp", type=Address(), help="Listen for SNMP traps on HOST:PORT."),
    ):
        made = option(made)
    return cast(F, made)


class CounterOptions(NamedTuple):
    """Counts of people counters, in a file or in a topic of Kafka."""

    file: Path | None
    topic: str | None


_NO_FILE = "\0"
"""The value of --counts without a file; no file can have this name."""


class _CountsFile(click.Path):
    """A file, or None if the option is given without a value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _NO_FILE if value == _NO_FILE else super().convert(value, param, ctx)


def counts_options(function: F) -> F:
    """Add ``--counts FILE`` and ``--counts --topic NAME``, which make one argument ``counts``."""

    def with_counts(*args: Any, counts: Path | str | None, topic: str | None, **more: Any) -> Any:
        if (counts == _NO_FILE) != (topic is not None):
            raise click.UsageError("--counts: give a file, or --topic, and --topic only with it")
        if topic is not None:
            check_topic("--topic", topic)
        given = None if counts is None else CounterOptions(cast(Path, counts) if topic is None else None, topic)
        return function(*args, counts=given, **more)

    made = update_wrapper(with_counts, function)
    for option in (
        click.option("--topic", help="With --counts: read rows from this Kafka topic, one per record."),
        click.option(
            "--counts", type=_CountsFile(path_type=Path, dir_okay=False), is_flag=False, flag_value=_NO_FILE,
            help="Read counts of people counters: window_end, zone, count.",
        ),
    ):  # fmt: skip
        made = option(made)
    return cast(F, made)


def counts_alone(counts: CounterOptions, *others: object, dialect: Dialect) -> CounterOptions:
    """Return the counts; a usage error if other sources are given as well."""
    refuse_dialect(dialect)
    if any(other is not None for other in others):
        raise click.UsageError(f"give --counts alone, or --observations, or some of {LISTENED}")
    return counts


class Listening(NamedTuple):
    """All live sources."""

    udp: tuple[str, int] | None = None
    radius: tuple[str, int] | None = None
    snmptrapd: Path | None = None
    hooks: Path | None = None
    snmptrapd_log: Path | None = None
    telegraf: str | None = None
    """Topic."""
    polls: Path | None = None


def chosen_source(
    settings: Settings,
    to: Listening,
    observations: Path | None,
    dialect: Dialect = OWN,
    start: Micros | None = None,
) -> Live | Path:
    """Return the given file, or the live sources; a usage error if both or neither are given, or if a live source has a
    file's format.

    ``start`` is the time of uptime 0, if event time is the controllers' uptime; else None. Communities and clients are
    read from the files that the settings name.
    """
    live: list[LiveSource] = []
    listening = any(each is not None for each in to)
    if listening == (observations is not None):
        raise click.UsageError(f"give either --observations, or some of {LISTENED}")
    if observations is not None:
        return observations
    refuse_dialect(dialect)
    if start is not None and to != Listening(to.udp):
        raise click.UsageError(
            "--clock uptime: must be used with --udp alone, because only its traps contain an uptime"
        )
    if to.udp is not None:
        live.append(UdpSource(to.udp, communities_now(settings), v3_files(settings), start))
    if to.radius is not None:
        live.append(RadiusSource(to.radius, clients(settings)))
    if to.snmptrapd is not None:
        live.append(SnmptrapdPipeSource(to.snmptrapd))
    if to.snmptrapd_log is not None:
        live.append(SnmptrapdLogSource(to.snmptrapd_log, _state_of(settings, to.snmptrapd_log)))
    if to.telegraf is not None:
        live.append(_collected(settings, to.telegraf))
    sockets = (to.hooks, "--hooks"), (to.polls, "--polls")
    live += [SocketSource(path, option) for path, option in sockets if path is not None]
    return live


def _state_of(settings: Settings, log: Path) -> Path:
    return settings.snmptrapd_state_file or log.with_name(f"{log.name}.state")


def _collected(settings: Settings, topic: str) -> TelegrafSource:
    """Return the source that reads traps from a topic; UsageError if no broker is named."""
    if settings.kafka is None:
        msg = "--telegraf: must be used with --kafka or TACET_KAFKA, the brokers that telegraf writes to"
        raise UsageError(msg)
    file = settings.snmp_communities_file
    known = None if file is None else CommunityFile(file)
    return TelegrafSource(settings.kafka, topic, settings.telegraf_group, known)


def probing(settings: Settings, policy: Policy, monitor: Monitor) -> Probing | None:
    """Return the probes that the policy declares, None if it declares none; the monitor receives their results.

    Raises ``UsageError`` if a probe lacks a user, a community or a permission.
    """
    if not any(site.probe for site in policy.site.values()):
        return None
    files = v3_files(settings)
    probes = declared(policy, None if files is None else files.users, probe_community(settings))
    return Probing(probes, monitor.probed, provoked(policy))


def clients(settings: Settings) -> ClientFile:
    """Return the clients of RADIUS, reloaded from their file; UsageError if no file of them is named."""
    if settings.radius_clients_file is None:
        msg = "TACET_RADIUS_CLIENTS_FILE: must name a file of RADIUS clients and their secrets, mode 0600"
        raise UsageError(msg)
    return ClientFile(settings.radius_clients_file)


class FeedSummary(NamedTuple):
    """The counts of a processed file."""

    tally: RowCounts
    dropped: dict[str, int]
    """Rows that sensing dropped in this run, by reason."""
    whole: bool
    """Whether the file was processed to its end."""


def report_file(tally: RowCounts, *, as_json: bool) -> None:
    """Print the counts of a file that was sent to Kafka."""
    if as_json:
        print_json(_tally_entries(tally))
        return
    click.echo(f"{tally.rows:,} rows, {tally.bad:,} bad")
    report_drops({}, tally.unknown_access_points, tally.outside)


def report_run(summary: FeedSummary, *, as_json: bool) -> None:
    """Print the counts of a file that was processed."""
    if as_json:
        print_json(_tally_entries(summary.tally) | {"dropped": summary.dropped, "stopped": not summary.whole})
        return
    click.echo(f"{summary.tally.rows:,} rows, {summary.tally.bad:,} bad")
    report_drops(summary.dropped, summary.tally.unknown_access_points, summary.tally.outside)
    if not summary.whole:
        click.echo("stopped before the end of the file; the same command resumes from here")


def report_counts(gathered: WindowCollector, *, as_json: bool) -> None:
    """Print the counts of a topic's rows."""
    if as_json:
        print_json({"rows": gathered.rows, "dropped": dict(sorted(gathered.dropped.items()))})
        return
    click.echo(f"{gathered.rows:,} rows read")
    report_drops(gathered.dropped, 0, 0)


def _tally_entries(tally: RowCounts) -> dict[str, int]:
    return {name: getattr(tally, name) for name in ("rows", "bad", "unknown_access_points", "outside")}


def report_traps(traps: Receiver, *, as_json: bool) -> None:
    """Print what a receiver has received, accepted and dropped."""
    counters, state = traps.counters, traps.state
    dropped = {reason: n for reason, n in counters.dropped.items() if n}
    unknown = most_unknown(state)
    others = dropped.get(UNKNOWN_ACCESS_POINT, 0) - sum(unknown.values())
    if as_json:
        print_json(
            {"datagrams": counters.datagrams, "accepted": counters.accepted, "dropped": dropped,
             "waiting": counters.waiting, "kernel_drops": counters.kernel_drops,
             "informs_answered": counters.informs_answered, "requests_answered": counters.requests_answered,
             "answers_unsent": counters.answers_unsent,
             "locally_administered": state.locally_administered, "unknown_access_points": unknown,
             "traps_of_other_unknown_access_points": others, "shut_sites": sorted(state.suspended)}
        )  # fmt: skip
        return
    click.echo(f"{counters.datagrams:,} datagrams, {counters.accepted:,} accepted")
    for reason, n in sorted(dropped.items()):
        click.echo(f"  {n:>8,}  dropped: {reason.replace('_', ' ')}")
        if reason == UNKNOWN_ACCESS_POINT:
            _list_unknown(unknown, others)
    for n, what in (
        (counters.waiting, "still in the queue"),
        (counters.kernel_drops, "lost in the kernel, not among these"),
        (state.locally_administered, "sightings of locally administered addresses"),
        (counters.informs_answered, "informs answered"),
        (counters.requests_answered, "accounting requests answered"),
        (counters.answers_unsent, "answers that could not be sent"),
    ):
        if n:
            click.echo(f"  {n:>8,}  {what}")
    for site in sorted(state.suspended):
        click.echo(f"site {site} is suspended: it had more devices than max_devices")


def _list_unknown(unknown: dict[str, int], others: int) -> None:
    """Print access points that the policy lacks: network equipment, never a client."""
    for name, n in unknown.items():
        click.echo(f"  {n:>12,}  {name}")
    if others:
        click.echo(f"  {others:>12,}  at others")
