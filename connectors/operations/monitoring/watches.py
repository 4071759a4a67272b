"""``--metrics``: the metrics and the readiness of each verb."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import click
import structlog
from cryptography import x509

from connectors.cli.options import Address, F
from connectors.keys import key_files
from connectors.monitoring.catalogue import TOGETHER, Verb
from connectors.monitoring.engine import EngineMetrics, access_points
from connectors.monitoring.figures import Labels, Part, Parts, Series
from connectors.monitoring.monitor import Monitor
from connectors.runtime.clock import wall_clock
from connectors.secrets.secret_files import ReloadingSecrets
from connectors.sources.counters.topic import CountsTopic
from connectors.sources.ingest.ingest import OUTAGE
from connectors.sources.ingest.receiver import Receiver
from connectors.storage.embedded.reader import has_outbox
from connectors.storage.kafka.connection import SYSTEM
from stream.engine.partition import PartitionEngine
from stream.errors import KeyFileError
from stream.policy.sites import Site
from stream.records import DAY, SECOND, Micros
from stream.release.validation import Policy
from stream.runners.embedded import Embedded

if TYPE_CHECKING:
    from connectors.serve.service import Service
    from connectors.serve.startup import ServeConfig
    from connectors.sources.webhooks.service import WebhookService

KEY_BEATS, STORE_BEATS = 15, 60
"""Seconds between two checks of the key file, and of the store's files."""
SECRETS_BEATS = 5
"""Seconds between two checks of secret files."""
ASK_EVERY, ANSWERED_WITHIN = 15.0, 45.0
"""Seconds between two availability checks, and the age of the last answer beyond which a service is unavailable."""
log = structlog.get_logger("tacet.monitoring")


class MetricsPort(NamedTuple):
    """The address of metrics and health, and the names under which they are served."""

    address: tuple[str, int]
    names: tuple[str, ...] = ()


def metrics_option(function: F) -> F:
    """Add ``--metrics`` and ``--metrics-name``, as one value."""

    @click.option(
        "--metrics", type=Address(), help="Show metrics and health here, to whoever can reach it (:PORT: loopback)."
    )
    @click.option(
        "--metrics-name", "metrics_names", multiple=True, metavar="NAME",
        help="A name by which --metrics may be asked, besides addresses, localhost and this machine's name. "
        "May be repeated.",
    )  # fmt: skip
    @wraps(function)
    def with_metrics(*args: Any, metrics: tuple[str, int] | None, metrics_names: tuple[str, ...], **more: Any) -> Any:
        if metrics_names and metrics is None:
            raise click.UsageError("--metrics-name: must be given with --metrics")
        port = None if metrics is None else MetricsPort(metrics, metrics_names)
        return function(*args, metrics=port, **more)

    return cast("F", with_metrics)


def monitor_of(verb: Verb, policy: Policy | None, port: MetricsPort | None) -> Monitor:
    """Return the monitor of a verb, a context manager."""
    address, names = (None, ()) if port is None else port
    return Monitor(verb, policy, address, wall_clock, names)


def watch_receiver(monitor: Monitor, made: Receiver, policy: Policy, *, simulated: bool = False) -> None:
    """Monitor a trap receiver: ready while it follows its clock's grid, so that heartbeats are durable."""
    everywhere = sum(access_points(site) for site in policy.site.values())

    def is_served() -> bool:
        state = made.state
        return made.clock.now() - (state.awake if simulated else state.grid) < OUTAGE

    def look() -> None:
        monitor.metrics.set("tacet_clock_offset_seconds", made.clock.wall_ahead() / SECOND)
        for name, site in policy.site.items():
            monitor.metrics.set("tacet_working_time", float(is_working_time(site, wall_clock())), name)

    monitor.health.require("feed", is_served)
    monitor.health.require("intake", lambda: not made.state.suspended)
    monitor.often(look)
    if everywhere >= TOGETHER:  # below that size the sums are never published, and a 0 would mean that nobody comes
        monitor.traffic.count(lambda: _datagrams(made, everywhere))


def watch_secrets(monitor: Monitor, files: Iterable[ReloadingSecrets[Any]]) -> None:
    """Count reloads of secrets at points of a grid, independently of traffic."""
    given = list(files)
    told = dict.fromkeys([(file, outcome) for file in given for outcome in ("taken", "refused")], 0)

    def look() -> None:
        for file in given:
            file.renew()
            for outcome, number in (("taken", file.reads), ("refused", file.refusals)):
                monitor.metrics.add("tacet_secrets_read_total", number - told[file, outcome], file.holds, outcome)
                told[file, outcome] = number

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
    monitor.health.require("streams", lambda: service.hears, readiness=False)
    monitor.often(look)


def is_working_time(site: Site, now: Micros) -> bool:
    """Whether an instant is within a site's working hours, on any day."""
    begin, end = site.working_hours
    return begin <= datetime.fromtimestamp(now / SECOND, ZoneInfo(site.timezone)).strftime("%H:%M") < end


def watch_topic(monitor: Monitor, topic: CountsTopic) -> None:
    """Monitor a topic of counts: ready while it has been read to its end."""
    monitor.health.require("feed", lambda: topic.is_read)


def _datagrams(made: Receiver, everywhere: int) -> Parts:
    counters = made.counters
    counts: dict[Series, int] = {
        ("tacet_datagrams_total",): counters.datagrams,
        ("tacet_datagrams_accepted_total",): counters.accepted,
        ("tacet_kernel_drops_total",): counters.kernel_drops,
    }
    for reason, number in counters.dropped.items():
        counts["tacet_datagrams_dropped_total", reason] = number
    return {"": Part(everywhere, counts)}


def watch_key(monitor: Monitor, path: Path) -> None:
    """Monitor a key file of the engine: ready while it can be read."""
    held: dict[str, bool] = {}

    def look() -> None:
        try:
            day = key_files.oldest_key_day(path)
            held["well"] = True
        except KeyFileError:
            day, held["well"] = None, False
        monitor.metrics.only_since("tacet_key_epoch_age_seconds", {} if day is None else {(): day * DAY})

    monitor.health.require("key", lambda: held["well"])
    monitor.often(look, KEY_BEATS)


def watch_store(monitor: Monitor, folder: Path) -> None:
    """Monitor a store's size and free disk space."""

    def look() -> None:
        room = os.statvfs(folder)
        monitor.metrics.set("tacet_store_size_bytes", sum(_octets(path) for path in folder.rglob("*")))
        monitor.metrics.set("tacet_disk_free_bytes", room.f_bavail * room.f_frsize)
        monitor.metrics.set("tacet_disk_size_bytes", room.f_blocks * room.f_frsize)

    monitor.often(look, STORE_BEATS)


def _octets(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # SQLite's temporary files come and go
        return 0


def watch_engine(
    monitor: Monitor, policy: Policy, held: Callable[[], Iterable[PartitionEngine]], clock: Callable[[], Micros] | None
) -> EngineMetrics:
    """Monitor the engine of some partitions: ready while none of their sites is closed."""
    figures = EngineMetrics(monitor.metrics, policy, held, clock)
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
    given = {name: path for name, path in files.items() if path is not None and path != SYSTEM}

    def look() -> None:
        lasting: dict[Labels, float] = {(name,): expiry(path) - time.time() for name, path in given.items()}
        monitor.metrics.only("tacet_certificate_expiry_seconds", lasting)

    def expiry(path: Path) -> float:
        try:
            held = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            return time.time()
        return min(each.not_valid_after_utc.timestamp() for each in held)

    if given:
        monitor.often(look, STORE_BEATS)


class ServiceWatch:
    """Monitors a service of releases: ready while its outboxes exist and its history answers, also without brokers."""

    def __init__(self, monitor: Monitor, config: ServeConfig, service: Service) -> None:
        self._monitor, self._config, self._service = monitor, config, service
        self._answered = -ANSWERED_WITHIN
        monitor.health.require("history", lambda: time.monotonic() - self._answered < ANSWERED_WITHIN)
        if config.store is not None:
            store = config.store
            monitor.health.require("outboxes", lambda: all(has_outbox(store, name) for name in config.audiences))
        if config.kafka is not None:
            monitor.health.require("broker", lambda: service.outage_seconds() is None, readiness=False)

    async def poll(self) -> None:
        """Query the history until cancelled, in a thread, because a query may take a while."""
        while True:
            try:
                ends = await asyncio.to_thread(self._ends)
            except Exception as error:  # readiness reports it; errors that must end the service are raised elsewhere
                log.warning("history does not answer", error=type(error).__name__)
            else:
                self._answered = time.monotonic()
                self._monitor.metrics.only("tacet_window_end_timestamp_seconds", ends)
            await asyncio.sleep(ASK_EVERY)

    def _ends(self) -> dict[Labels, float]:
        """Return the end of each site's newest published window."""
        ends: dict[Labels, float] = {}
        for audience in self._config.audiences:
            for site in self._config.policy.site:
                end = self._service.history.newest_end(audience, site)
                if end is not None:
                    ends[site,] = max(ends.get((site,), 0.0), end / SECOND)
        return ends
