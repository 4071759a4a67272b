"""doctor: check an installation without interfering with running processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

from connectors.cli.options import (
    FILE,
    FOLDER,
    Address,
    Duration,
    bootstrap,
    json_option,
    policy_option,
    read_policy,
    run_async,
)
from connectors.cli.output import print_json, table, working
from connectors.cli.source_options import communities, probe_community, v3_files
from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS
from connectors.operations.doctor import checks, live_check
from connectors.operations.doctor.findings import Finding, findings_of, note
from connectors.runtime.clock import wall_clock
from connectors.sources.probes.methods import declared
from connectors.sources.snmp.usm.receiver import V3Files
from stream.records import MINUTE, SECOND, Micros
from stream.release.validation import Policy
from stream.settings import Settings

WRONG = 1
"""Exit code if something is wrong."""
LONGEST: Micros = 60 * MINUTE
_COLOURS = {"fine": "green", "note": "yellow", "wrong": "red"}


@click.command()
@policy_option
@click.option("--key-file", type=FILE, help="Check the key file of the run or cluster, and the mark beside it.")
@click.option("--store", type=FOLDER, help="Check an embedded store in this folder.")
@click.option("--kafka", help="Check the topics of a cluster; bootstrap servers, HOST:PORT.")
@click.option("--udp", type=Address(), help="Listen for SNMP traps on HOST:PORT, if no other process does.")
@click.option("--for", "span", type=Duration(LONGEST), default="60s", show_default=True, help="How long to listen.")
@json_option
@click.pass_obj
def doctor(
    settings: Settings, *, policy_file: Path, key_file: Path | None, store: Path | None, kafka: str | None,
    udp: tuple[str, int] | None, span: Micros, as_json: bool,
) -> None:  # fmt: skip
    """Check an installation, and suggest remedies.

    Checks the machine's clock, socket buffers, disk and versions, and whatever is given: the key and its mark, a store
    or topics, and the traps that arrive at a port (SNMPv3 as well, if TACET_SNMP_USERS_FILE names its users). Queries
    the controllers for which the policy declares a probe.

    Access points that belong to no zone are named by their address, devices never. The check writes nothing, answers no
    inform and does not disturb running processes. The exit code is 1 if something is wrong, otherwise 0.

    \b
    tacet doctor --policy building.toml --key-file building.key --store building
    tacet doctor --policy building.toml --udp 0.0.0.0:1162 --for 60s
    """
    policy = read_policy(policy_file)
    servers = None if kafka is None else bootstrap(settings, kafka)
    senders = None if udp is None else _Senders(communities(settings), v3_files(settings))
    found = [*_machine(store), *_keys(key_file, store), *_check_storage(policy, store, servers)]
    found += findings_of(checks.PROBE, lambda: _probed(settings, policy))
    if udp is not None and senders is not None:
        with working(f"listening for {span / SECOND:g} s"):
            found += findings_of(live_check.HEARD, lambda: _check_live(policy, udp, senders, span, store))
    states = [finding.state for finding in found]
    if as_json:
        print_json({"wrong": states.count("wrong"), "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    sys.exit(WRONG if "wrong" in states else 0)


class _Senders(NamedTuple):
    """The credentials of accepted senders."""

    communities: tuple[bytes, ...]
    v3: V3Files | None


def _machine(store: Path | None) -> Iterator[Finding]:
    yield from findings_of(checks.CLOCK, lambda: checks.clock(checks.kernel_clock()))
    yield from findings_of(checks.SOCKET, checks.socket_buffer)
    yield from findings_of(checks.VERSIONS, checks.versions)
    if store is not None:
        yield from findings_of(checks.DISK, lambda: checks.disk(store))


def _probed(settings: Settings, policy: Policy) -> list[Finding]:
    """Query each source once for which the policy declares a probe."""
    if not any(site.probe for site in policy.site.values()):
        return []
    files = v3_files(settings)
    probes = declared(policy, None if files is None else files.users, probe_community(settings))
    return run_async(checks.answers(probes))


def _keys(key_file: Path | None, store: Path | None) -> Iterator[Finding]:
    if key_file is not None:
        yield from findings_of(checks.KEY, lambda: checks.key_file(key_file, wall_clock()))
        yield from findings_of(checks.MARK, lambda: checks.serves(key_file, store))


def _check_storage(policy: Policy, store: Path | None, servers: str | None) -> Iterator[Finding]:
    if store is not None:
        yield from findings_of(checks.STORE, lambda: checks.store(store, policy, wall_clock()))
    if servers is not None:
        from connectors.operations.doctor.checks import TOPICS, cluster  # noqa: PLC0415 - loads a client of Kafka

        yield from findings_of(TOPICS, lambda: run_async(cluster(servers, policy)))


def _check_live(
    policy: Policy, address: tuple[str, int], senders: _Senders, span: Micros, store: Path | None
) -> Iterator[Finding]:
    users = None if senders.v3 is None else senders.v3.users
    try:
        received = run_async(live_check.listen(policy, address, senders.communities, span / SECOND, users))
    except OSError as error:
        if store is None or not live_check.is_address_in_use(error):
            raise
        known = checks.dropped_datagrams(store) is not None
        yield note(live_check.HEARD, f"{error}: another process receives them; {_DROPS if known else _NO_DROPS}")
        return
    yield from live_check.findings(policy, received)


_DROPS = f"'{checks.RECEIVED}' lists what the store's run has dropped, up to ten minutes ago"
_NO_DROPS = (
    "what it drops is not known here: a run records its drops when a window closes, at most every 5 minutes, for the "
    "first time with the first window that closes after its start, and only for a policy with at least "
    f"{LEAST_ACCESS_POINTS} access points; its log names the reasons (traps_dropped)"
)


def _print(found: list[Finding]) -> None:
    console = Console(highlight=False)
    rows = table("", ("check", "state", "finding"))
    for finding in found:
        rows.add_row(finding.check, Text(finding.state, _COLOURS[finding.state]), Text(finding.text))  # no markup
    console.print(rows)
    wrong = sum(finding.state == "wrong" for finding in found)
    noted = sum(finding.state == "note" for finding in found)
    if noted and not wrong:
        console.print(f"no problem found; notes to read: {noted}")
    else:
        console.print(f"problems: {wrong}" if wrong else "nothing is wrong")
