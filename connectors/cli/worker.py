"""worker: process observations on Kafka into private topics."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from connectors.cli.options import (
    MetricsPort,
    bootstrap,
    key_option,
    metrics_option,
    monitor_of,
    on_grid,
    policy_option,
    read_policy,
    refuse_unknown,
    run_async,
    windows_options,
)
from connectors.keys import key_files
from connectors.operations.monitoring.kafka import WorkerWatch
from connectors.operations.monitoring.watches import watch_certificates, watch_key
from connectors.runtime.logs import report_suspended_site
from connectors.storage.kafka import metadata
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.cluster import ENGINE_FENCE, checked, join, read, refuse_ended, refuse_unfit
from connectors.storage.kafka.key_rotation import forget_past_key_days
from connectors.storage.kafka.topic_readers import topic_names
from connectors.storage.kafka.topics import refuse_missing, refuse_settings, result_topics
from connectors.storage.kafka.worker import PeriodicTask, WorkerConfig, run_worker
from connectors.storage.kafka.writers import EngineTopics
from connectors.storage.site_metadata import site_metadata
from stream.engine.cluster_state import refuse_other_counts, refuse_superseded
from stream.engine.key_rotation import refuse_other_key, refuse_retired
from stream.engine.partition import PartitionEngine
from stream.engine.site_engines import OverflowPolicy
from stream.keys import fingerprint
from stream.pipeline import Options
from stream.records import Micros
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy
from stream.schemas import OBSERVATIONS
from stream.settings import Settings

KEY_CHECK_EVERY = 10.0
"""Seconds between two checks whether the cluster still uses the worker's key."""
FORGET_EVERY = 600.0
"""Seconds between two attempts to destroy keys of past days."""


@click.command()
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@key_option
@click.option("--accept-policy", is_flag=True, help="Start a changed policy with the next window.")
@click.option(
    "--again",
    type=int,
    metavar="N",
    help="With --accept-policy: use a replaced policy again, in place of policy number N.",
)
@click.option(
    "--reopen",
    "reopened",
    multiple=True,
    metavar="SITE",
    help="Resume a site that was suspended at max_devices. May be repeated.",
)
@click.option("--accept-loss", is_flag=True, help="Continue although observations are lost; their windows are marked.")
@windows_options
@metrics_option
@click.pass_obj
def worker(
    settings: Settings, *, kafka: str | None, policy_file: Path, key_file: Path, accept_policy: bool,
    again: int | None, reopened: tuple[str, ...], accept_loss: bool,
    first_window: Micros | None, last_window: Micros | None, metrics: MetricsPort | None,
) -> None:  # fmt: skip
    """Process observations on Kafka into private releases: one Faust worker; start up to one for each partition.

    It stops with exit code 0 within ten seconds of SIGTERM, and may be killed at any moment.

    \b
    tacet worker --kafka broker:9092 --policy policy.toml --key-file worker.key
    """
    if again is not None and not accept_policy:
        raise click.UsageError("--again needs --accept-policy")
    policy = read_policy(policy_file)
    refuse_unknown(policy, reopened)
    options = Options(
        first_window=on_grid(policy, first_window, up=True),
        last_window=on_grid(policy, last_window, up=False),
    )
    servers = bootstrap(settings, kafka)
    with monitor_of("worker", policy, metrics) as monitor:
        watch = WorkerWatch(monitor, policy, servers)
        watch_key(monitor, key_file)
        watch_certificates(monitor, kafka=settings.kafka_cert_file, kafka_ca=settings.kafka_ca_file)
        consent = _OperatorConsent(
            accept_policy=accept_policy, again=again, reopened=frozenset(reopened), loss=accept_loss
        )
        sys.exit(_work(settings, _ClusterJob(servers, policy, key_file), consent, options, watch))


@dataclass(frozen=True, slots=True)
class _ClusterJob:
    """The cluster, policy and keys of a worker."""

    servers: str
    policy: Policy
    key_file: Path


@dataclass(frozen=True, slots=True)
class _OperatorConsent:
    """The losses and reopened sites that the operator has accepted."""

    accept_policy: bool
    again: int | None
    reopened: frozenset[str]
    loss: bool


def _work(settings: Settings, job: _ClusterJob, consent: _OperatorConsent, options: Options, watch: WorkerWatch) -> int:
    """Check the cluster, and run the worker to its end; return the exit code."""
    servers, policy, keys = job.servers, job.policy, key_files.FileKeys(job.key_file)
    existing = run_async(topic_names(servers))
    refuse_missing(existing, policy)
    run_async(refuse_settings(servers, policy))
    _ = keys.vault  # refuse a key file without a data key before anything is agreed on in the cluster
    cluster = run_async(checked(servers))
    refuse_retired(cluster, keys.ledger)
    if consent.accept_policy:
        run_async(refuse_unfit(servers, cluster, policy, keys, options))
    if not keys.laboratory:
        key_files.serve(job.key_file, str(cluster.id))
    control = run_async(
        join(
            servers,
            policy,
            fingerprint(keys),
            MECHANISM_VERSION,
            accept_policy=consent.accept_policy,
            again=consent.again,
        )
    )
    run_async(metadata.publish(servers, site_metadata(policy)))
    assert control.partitions is not None  # noqa: S101
    partitions = control.partitions
    results = result_topics(existing, (policy, *control.accepted()))
    config = WorkerConfig(
        servers,
        fence=ENGINE_FENCE,
        topics=EngineTopics(results=results),
        session_timeout=settings.session_timeout,
        open_timeout=settings.open_timeout,
        accept_loss=consent.loss,
        watch=watch,
        chores=_periodic_tasks(servers, policy, keys),
    )

    async def engine(partition: int) -> PartitionEngine:
        if partition >= partitions:
            refuse_other_counts(control, {OBSERVATIONS: partition + 1})
        state = await read(servers)
        refuse_other_key(state, fingerprint(keys), keys.ledger)
        refuse_superseded(state, policy, MECHANISM_VERSION)
        opened = PartitionEngine(
            policy, keys, options, accept_policy=consent.accept_policy, accepted=state.accepted(),
            versions=state.versions, owns=lambda site: partition_of(site, partitions) == partition,
            overflow=OverflowPolicy(report_suspended_site, consent.reopened),
        )  # fmt: skip
        return watch.engine(partition, opened)

    return run_worker(config, engine)


def _periodic_tasks(servers: str, policy: Policy, keys: key_files.FileKeys) -> list[PeriodicTask]:
    """Return a worker's periodic tasks: checking whether its key was retired, and destroying past days' keys."""
    chores = [PeriodicTask(lambda: refuse_ended(servers, fingerprint(keys), keys.ledger), KEY_CHECK_EVERY)]
    if not keys.laboratory:
        chores.append(PeriodicTask(lambda: forget_past_key_days(servers, policy, keys), FORGET_EVERY))
    return chores
