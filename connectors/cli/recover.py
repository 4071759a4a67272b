"""recover: diagnose why a run cannot continue, and list the remedies with their prices."""

from __future__ import annotations

from pathlib import Path

import click

from connectors.cli.options import FILE, FOLDER, json_option, kafka_unless, read_policy, refuse_unknown
from connectors.cli.output import print_json
from connectors.operations.recovery.cluster import cluster_obstacles
from connectors.operations.recovery.mark import rebuild_mark
from connectors.operations.recovery.obstacles import Obstacle
from connectors.operations.recovery.store import store_obstacles
from connectors.runtime.clock import wall_clock
from connectors.storage.embedded.runner import embedded
from stream.release.validation import Policy
from stream.settings import Settings


@click.command()
@click.option("--store", type=FOLDER, help="Folder of an embedded store.")
@click.option("--kafka", help="Or bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@click.option("--key-file", type=FILE, help="Also check the key file and the mark beside it.")
@click.option("--policy", "policy_file", type=FILE, help="Also check whether the store was made under this policy.")
@click.option(
    "--heads",
    type=FILE,
    help="Rebuild a lost mark if the store contains these heads, the output of an earlier 'audit verify --json'.",
)
@click.option(
    "--reopen", multiple=True, metavar="SITE", help="Resume a site that was suspended at max_devices. May be repeated."
)
@json_option
@click.pass_obj
def recover(
    settings: Settings, *, store: Path | None, kafka: str | None, key_file: Path | None, policy_file: Path | None,
    heads: Path | None, reopen: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Find out why a run cannot continue, and list the remedies with their prices.

    Nothing is changed without --heads or --reopen.

    \b
    tacet recover --store store --key-file key --policy policy.toml
    tacet recover --store store --key-file key --heads verified.json
    tacet recover --store store --key-file key --policy policy.toml --reopen east
    tacet recover --kafka broker:9092 --key-file key --policy policy.toml

    No remedy publishes a window twice with different noise, or overwrites a ledger entry.
    """
    servers = kafka_unless(store, kafka, settings)
    if store is None:
        if heads is not None or reopen:
            raise click.UsageError(
                "--heads, --reopen: must be used with --store; on Kafka 'tacet worker --reopen' reopens"
            )
        policy = None if policy_file is None else read_policy(policy_file)
        _report(cluster_obstacles(servers or "", key_file, policy), as_json=as_json)
        return
    if heads is not None:
        if key_file is None:
            raise click.UsageError("--heads needs --key-file")
        rebuild_mark(store, key_file, heads)
    policy = None if policy_file is None else read_policy(policy_file)
    if reopen:
        if key_file is None or policy is None:
            raise click.UsageError("--reopen needs --key-file and --policy")
        _resume_sites(policy, key_file, store, reopen)
    _report(store_obstacles(store, key_file, policy, wall_clock(), policy_file=policy_file), as_json=as_json)


def _resume_sites(policy: Policy, key_file: Path, store: Path, sites: tuple[str, ...]) -> None:
    refuse_unknown(policy, sites)
    with embedded(policy, key_file, store) as runner:
        for site in sites:
            runner.resume(site)


def _report(obstacles: list[Obstacle], *, as_json: bool) -> None:
    if as_json:
        report = [
            {"what": each.what, "ways": [{"do": remedy.do, "price": remedy.price} for remedy in each.remedies]}
            for each in obstacles
        ]
        print_json({"ok": not obstacles, "findings": report})
        return
    for each in obstacles:
        click.echo(each.what)
        for remedy in each.remedies:
            click.echo(f"  * {remedy.do}\n    price: {remedy.price}")
    if not obstacles:
        click.echo("nothing prevents a run from continuing")
