"""status: show the progress of each site."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from connectors.cli.options import FILE, json_option, kafka_unless, read_policy, run_async, storage_options
from connectors.cli.output import print_json, table
from connectors.operations.status import Status, describe
from connectors.storage.embedded.reader import read_snapshot
from connectors.storage.kafka.topic_readers import end_offsets, last_snapshots
from stream.schemas import OBSERVATIONS, parse_time
from stream.settings import Settings


class PartitionStatus(NamedTuple):
    """The progress of a partition; a store is one."""

    status: Status
    partition: int
    lag: int
    """Messages that wait."""


@click.command()
@storage_options
@click.option(
    "--policy", "policy_file", type=FILE, help="Also show how many releases the budgets of the last day have left."
)
@json_option
@click.pass_obj
def status(
    settings: Settings, *, store: Path | None, kafka: str | None, policy_file: Path | None, as_json: bool
) -> None:
    """Show the progress of each site: position, lag, last window, releases left."""
    servers = kafka_unless(store, kafka, settings)
    policy = None if policy_file is None else read_policy(policy_file)
    if store is not None:
        snapshot, waiting = read_snapshot(store)
        parts = [] if snapshot is None else [PartitionStatus(describe(snapshot, policy), 0, waiting)]
    else:
        parts = []
        for partition, (snapshot, end) in run_async(_positions(servers or "")).items():
            if snapshot is not None:
                report = describe(snapshot, policy)
                parts.append(PartitionStatus(report, partition, end - report["next"]))
    if as_json:
        print_json({"partitions": [each.status | {"partition": each.partition, "lag": each.lag} for each in parts]})
    else:
        _print_status(parts)


async def _positions(kafka: str) -> dict[int, tuple[bytes | None, int]]:
    ends = await end_offsets(kafka, OBSERVATIONS)
    snapshots = await last_snapshots(kafka)
    return {partition: (snapshots.get(partition), end) for partition, end in ends.items()}


def _print_status(parts: list[PartitionStatus]) -> None:
    console = Console(highlight=False)
    if not parts:
        console.print("Nothing has been processed yet.")
    for part in parts:
        title = f"partition {part.partition}: next message {part.status['next']}, lag {part.lag} messages"
        sites = table(title, ("site", "last window"), ("behind the\nclock", "ledger\nentries", "releases left\ntoday"))
        for times in sites.columns[1:3]:
            times.no_wrap = True
        for name, site in part.status["sites"].items():
            left = site.get("releases_left_today")
            sites.add_row(
                f"{name} (suspended)" if site["closed"] else name,
                site["last_window"] or "-", _behind(site["watermark"]), str(site["ledger_entries"]),
                "-" if left is None else "\n".join(f"{r}: {'no limit' if n is None else n}" for r, n in left.items()),
            )  # fmt: skip
        console.print(sites)


def _behind(watermark: str | None) -> str:
    if watermark is None:
        return "-"
    seconds = time.time() - parse_time(watermark) / 1e6
    return f"{seconds:,.0f} s" if seconds < 2 * 86_400 else f"{seconds / 86_400:,.0f} days"
