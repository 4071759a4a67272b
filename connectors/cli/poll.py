"""poll: read the client tables of controllers, and send them to an ingest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from connectors.cli.options import (
    FILE,
    MetricsPort,
    json_option,
    metrics_option,
    monitor_of,
    policy_option,
    read_policy,
    run_async,
)
from connectors.cli.output import print_json
from connectors.operations.monitoring.watches import watch_polls, watch_secrets
from connectors.runtime.signals import stop_signals
from connectors.sources.ingest.access_points import AccessPoints
from connectors.sources.ingest.addresses import access_point_name, colons
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.config import PolledSource, ReloadingPolls, polled_sources
from connectors.sources.polls.schedule import SHORT_SHARE
from connectors.sources.polls.service import DryRun, PollService, read_once
from connectors.sources.snmp.usm.users import UserFile
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.polls import LEAST_INTERVAL
from stream.records import SECOND, JsonObject
from stream.settings import Settings


@click.command()
@policy_option
@click.option("--to", type=FILE, help="Socket of 'tacet ingest --polls' or 'tacet run --polls'.")
@click.option(
    "--dry-run", is_flag=True, help="Read each table once, hand nothing over, and print rows, requests and time."
)
@metrics_option
@json_option
@click.pass_obj
def poll(
    settings: Settings, *, policy_file: Path, to: Path | None, dry_run: bool, metrics: MetricsPort | None, as_json: bool
) -> None:
    """Read the client tables of controllers at fixed times, and pass associated devices to an ingest.

    The process that has the controllers' credentials thus has no key, and nobody connects to it. Sources are those for
    which the policy has a [[site.NAME.poll]]. Communities are read from the file that TACET_POLLS_FILE names, users of
    SNMPv3 from the one that TACET_SNMP_USERS_FILE names.
    """
    if (to is None) != dry_run:
        raise click.UsageError("give either --to, or --dry-run")
    policy = read_policy(policy_file)
    secrets = None if settings.polls_file is None else ReloadingPolls(settings.polls_file)
    users = None if settings.snmp_users_file is None else UserFile(settings.snmp_users_file)
    sources = polled_sources(policy, secrets, users)
    if to is None:
        run_async(_try_all(sources, policy, as_json=as_json))
        return
    service = PollService(sources, to)

    async def until_stopped() -> None:
        async with stop_signals() as stop:
            await service.run(stop)

    with monitor_of("poll", policy, metrics) as monitor:
        watch_polls(monitor, service)
        watch_secrets(monitor, [each for each in (secrets, None if users is None else users.file) if each is not None])
        run_async(monitor.during(until_stopped()))


async def _try_all(sources: list[PolledSource], policy: PolicyDocument, *, as_json: bool) -> None:
    """Try one source after the other and print what each took; UsageError if one could not be read whole."""
    listed = AccessPoints.of_policy(policy)
    found = [await read_once(source) for source in sources]
    entries = [_entry(each, listed) for each in found]
    if as_json:
        print_json([entry.to_json() for entry in entries])
    else:
        for entry in entries:
            _print(entry)
    if failed := [entry for entry in entries if not entry.complete]:
        msg = f"poll of {failed[0].source}: must read the whole table, but {failed[0].outcome.replace('_', ' ')}"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class TriedSource:
    """What one poll of a source has read."""

    site: str
    source: str
    outcome: str
    devices: int
    at_listed: int
    """Devices at access points of the policy."""
    unknown: tuple[str, ...]
    """Access points that the policy lacks."""
    requests: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether the whole table was read."""
        return self.outcome == "complete"

    def to_json(self) -> JsonObject:
        """Return the object that ``--json`` prints."""
        return {
            "site": self.site, "source": self.source, "outcome": self.outcome, "rows": self.devices,
            "rows_at_listed_access_points": self.at_listed, "unknown_access_points": list(self.unknown),
            "requests": self.requests, "seconds": self.seconds,
        }  # fmt: skip


def _entry(result: DryRun, listed: AccessPoints) -> TriedSource:
    rows = [] if result.table is None else result.table.rows
    unknown = {row.client: row for row in rows if listed.find(_placed(row), result.source.source) is None}
    devices = {row.client for row in rows}
    return TriedSource(
        result.source.site, result.source.source, result.outcome, len(devices), len(devices) - len(unknown),
        tuple(sorted({_name(row) for row in unknown.values()})),
        0 if result.table is None else result.table.requests, round(result.seconds, 3),
    )  # fmt: skip


def _placed(row: AssociatedClient) -> Sighting:
    return Sighting(Kind.RUN, row.client, row.access_point, row.name)


def _name(row: AssociatedClient) -> str:
    """Return the address or the name of an access point, which is network equipment."""
    return colons(row.access_point) if row.access_point else access_point_name(row.name) or "an unprintable name"


def _print(entry: TriedSource) -> None:
    click.echo(f"{entry.source} ({entry.site}): {entry.outcome.replace('_', ' ')}")
    click.echo(f"  {entry.devices:>8,}  associated devices")
    click.echo(f"  {entry.at_listed:>8,}  of them at access points of the policy")
    click.echo(f"  {entry.requests:>8,}  requests in {entry.seconds:.1f} s")
    for name in entry.unknown:
        click.echo(f"            the policy lacks {name}")
    fast = LEAST_INTERVAL / SHORT_SHARE / SECOND
    if entry.complete and entry.seconds > fast:
        click.echo(f"            too slow for interval = '2min', which needs less than {fast:.0f} s")
