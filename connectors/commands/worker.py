"""worker: observations on Kafka into private topics."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from connectors import keyfile
from connectors.commands.options import (
    bootstrap,
    key_option,
    on_grid,
    policy_option,
    read_policy,
    run_async,
    windows_options,
)
from connectors.days import forget_past_days
from connectors.kafka import topics
from connectors.live import refuse_unknown, tell_shut
from connectors.topics import refuse_missing
from connectors.worker import WorkerConfig, run_worker
from stream.partition import Partition
from stream.pipeline import Options
from stream.records import Micros
from stream.settings import Settings


@click.command()
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@key_option
@click.option("--accept-policy", is_flag=True, help="Let a changed policy begin with the next window.")
@click.option(
    "--reopen",
    "reopened",
    multiple=True,
    metavar="SITE",
    help="Let a site that closed at max_devices go on; give it once. May be repeated.",
)
@click.option("--accept-loss", is_flag=True, help="Go on although observations are gone; their windows say so.")
@windows_options
@click.pass_obj
def worker(
    settings: Settings, *, kafka: str | None, policy_file: Path, key_file: Path, accept_policy: bool,
    reopened: tuple[str, ...], accept_loss: bool, first_window: Micros | None, last_window: Micros | None,
) -> None:  # fmt: skip
    """Turn observations on Kafka into private topics: one Faust worker, as many as there are partitions.

    Stops with exit code 0 within ten seconds of SIGTERM. It may be killed at any moment.
    """
    policy = read_policy(policy_file)
    refuse_unknown(policy, reopened)
    keys = keyfile.FileKeys(key_file)
    options = Options(
        first_window=on_grid(policy, first_window, up=True),
        last_window=on_grid(policy, last_window, up=False),
    )
    servers = bootstrap(settings, kafka)
    refuse_missing(run_async(topics(servers)), policy)
    config = WorkerConfig(
        servers,
        fence="tacet",
        session_timeout=settings.session_timeout,
        accept_loss=accept_loss,
        housekeeping=None if keys.laboratory else lambda: forget_past_days(servers, policy, keys),
    )

    async def engine(partition: int) -> Partition:
        return Partition(policy, keys, options, accept_policy=accept_policy, alarm=tell_shut, reopen=reopened)

    sys.exit(run_worker(config, engine))
