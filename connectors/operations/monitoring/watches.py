"""What each process checks for its readiness and its metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cryptography import x509

from connectors.keys import key_files
from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS
from connectors.monitoring.engine import EngineMetrics
from connectors.monitoring.metric_values import Labels, Part, Parts, Series
from connectors.monitoring.monitor import Monitor
from connectors.runtime.clock import wall_clock
from connectors.secrets.secret_files import ReloadingSecrets
from connectors.sources.counters.topic import CountsTopic
from connectors.sources.ingest.ingest import OUTAGE
from connectors.sources.ingest.receiver import Receiver
from connectors.storage.kafka.connection import SYSTEM
from stream.engine.partition import PartitionEngine
from stream.errors import KeyFileError
from stream.policy.sites import Site
from stream.records import DAY, SECOND, Micros
from stream.release.validation import Policy
from stream.runners.embedded import Embedded

if TYPE_CHECKING:
    from connectors.sources.cloud.service import WebhookService
    from connectors.sources.polls.service import PollService

KEY_BEATS, STORE_BEATS = 15, 60
"""Seconds between two checks of the key file, and of the store's files."""
SECRETS_BEATS = 5
"""Seconds between two checks of secret files."""


def watch_receiver(monitor: Monitor, traps: Receiver, policy: Policy, *, simulated: bool = False) -> None:
    """Monitor a trap receiver: ready while it follows its clock's grid, so that heartbeats are durable."""
    everywhere = sum(site.radio_count for site in policy.site.values())

    def is_served() -> bool:
        state = traps.state
        return traps.clock.now() - (state.awake if simulated else state.grid) < OUTAGE

    def look() -> None:
        monitor.metrics.set("tacet_clock_offset_seconds", traps.clock.wall_ahead() / SECOND)
        for name, site in policy.site.items():
            monitor.metrics.set("tacet_working_time", float(is_working_time(site, wall_clock())), name)

    monitor.health.require("feed", is_served)
    monitor.health.require("intake", lambda: not traps.state.suspended)
    monitor.often(look)
    # Below that size the sums are never published, and a 0 would mean that nobody comes.
    if everywhere >= LEAST_ACCESS_POINTS:
        monitor.traffic.count(lambda: _datagrams(traps, everywhere))


def watch_secrets(monitor: Monitor, files: Iterable[ReloadingSecrets[Any]]) -> None:
    """Count reloads of secrets at fixed intervals, so that the counts do not show when a message let a file be read."""
    watched = list(files)
    counted = dict.fromkeys([(file, outcome) for file in watched for outcome in ("taken", "refused")], 0)

    def look() -> None:
        for file in watched:
            file.renew()
            for outcome, number in (("taken", file.reads), ("refused", file.refusals)):
                monitor.metrics.add("tacet_secrets_read_total", number - counted[file, outcome], file.holds, outcome)
                counted[file, outcome] = number

    monitor.often(look, SECRETS_BEATS)


def watch_hooks(monitor: Monitor, service: WebhookService) -> None:
    """Monitor the webhook service: ready while the ingest is available. A failing event stream affects no other.

    What arrives and what is refused depends on people, and the service does not know access points; the ingest
    reports it.
    """

    def look() -> None:
        monitor.metrics.set("tacet_clock_offset_seconds", service.clock.wall_ahead() / SECOND)
        states = service.stream_states.items()
        monitor.metrics.only("tacet_stream_state", dict.fromkeys(states, 1.0))

    monitor.health.require("ingest", lambda: service.is_connected)
    monitor.health.require("streams", lambda: service.streams_connected, readiness=False)
    monitor.often(look)


def watch_polls(monitor: Monitor, service: PollService) -> None:
    """Monitor polls: ready while the ingest is available. A source that fails affects no other.

    Nothing tells how many rows a table has, or how long its walk took.
    """
    counted: dict[Labels, int] = {}

    def look() -> None:
        monitor.metrics.set("tacet_clock_offset_seconds", service.clock.wall_ahead() / SECOND)
        for source, state in service.states.items():
            where = source.site, source.source
            monitor.metrics.set("tacet_poll_closed", float(state.is_closed), *where)
            if state.last_complete is not None:
                monitor.metrics.set("tacet_poll_timestamp_seconds", state.last_complete / SECOND, *where)
            for outcome, number in state.outcomes.items():
                labels = (*where, outcome)
                monitor.metrics.add("tacet_polls_total", number - counted.get(labels, 0), *labels)
                counted[labels] = number

    monitor.health.require("ingest", lambda: service.is_connected)
    monitor.health.require("polls", lambda: not service.closed, readiness=False)
    monitor.often(look)


def is_working_time(site: Site, now: Micros) -> bool:
    """Whether an instant is within a site's working hours, on any day."""
    begin, end = site.working_hours
    return begin <= datetime.fromtimestamp(now / SECOND, ZoneInfo(site.timezone)).strftime("%H:%M") < end


def watch_topic(monitor: Monitor, topic: CountsTopic) -> None:
    """Monitor a topic of counts: ready while it has been read to its end."""
    monitor.health.require("feed", lambda: topic.is_read)


def _datagrams(traps: Receiver, everywhere: int) -> Parts:
    counters = traps.counters
    counts: dict[Series, int] = {
        ("tacet_datagrams_total",): counters.datagrams,
        ("tacet_datagrams_accepted_total",): counters.accepted,
        ("tacet_kernel_drops_total",): counters.kernel_drops,
    }
    for administration, number in counters.sightings.items():
        counts["tacet_sightings_total", administration] = number
    for reason, number in counters.dropped.items():
        counts["tacet_datagrams_dropped_total", reason] = number
    return {"": Part(everywhere, counts)}


def watch_key(monitor: Monitor, path: Path) -> None:
    """Monitor a key file of the engine: ready while it can be read."""
    state: dict[str, bool] = {}

    def look() -> None:
        try:
            day = key_files.oldest_key_day(path)
            state["readable"] = True
        except KeyFileError:
            day, state["readable"] = None, False
        monitor.metrics.only_since("tacet_key_epoch_age_seconds", {} if day is None else {(): day * DAY})

    monitor.health.require("key", lambda: state["readable"])
    monitor.often(look, KEY_BEATS)


def watch_store(monitor: Monitor, folder: Path) -> None:
    """Monitor a store's size and free disk space."""

    def look() -> None:
        disk = os.statvfs(folder)
        monitor.metrics.set("tacet_store_size_bytes", sum(_octets(path) for path in folder.rglob("*")))
        monitor.metrics.set("tacet_disk_free_bytes", disk.f_bavail * disk.f_frsize)
        monitor.metrics.set("tacet_disk_size_bytes", disk.f_blocks * disk.f_frsize)

    monitor.often(look, STORE_BEATS)


def _octets(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # SQLite's temporary files come and go
        return 0


def watch_engine(
    monitor: Monitor,
    policy: Policy,
    engines: Callable[[], Iterable[PartitionEngine]],
    clock: Callable[[], Micros] | None,
) -> EngineMetrics:
    """Monitor the engines of some partitions: ready while none of their sites is suspended."""
    figures = EngineMetrics(monitor.metrics, policy, engines, clock)
    monitor.health.require("sites", figures.is_open)
    monitor.often(figures.update)
    monitor.traffic.count(figures.traffic)
    return figures


def watch_embedded(monitor: Monitor, runner: Embedded, policy: Policy, *, live: bool) -> None:
    """Monitor an embedded runner; releases of a recording have neither lag nor delay."""
    engine = watch_engine(monitor, policy, lambda: [runner.partition], wall_clock if live else None)
    runner.observers.append(lambda _, records: engine.committed(records))


def watch_certificates(monitor: Monitor, **files: Path | None) -> None:
    """Monitor the expiry of certificates, each by the name of its purpose."""
    watched = {name: path for name, path in files.items() if path is not None and path != SYSTEM}

    def look() -> None:
        remaining: dict[Labels, float] = {(name,): expiry(path) - time.time() for name, path in watched.items()}
        monitor.metrics.only("tacet_certificate_expiry_seconds", remaining)

    def expiry(path: Path) -> float:
        try:
            certificates = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            return time.time()
        return min(each.not_valid_after_utc.timestamp() for each in certificates)

    if watched:
        monitor.often(look, STORE_BEATS)
