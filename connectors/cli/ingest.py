"""ingest: write observations to Kafka, from traps or a file."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import click
import structlog

from connectors.cli.options import (
    MetricsPort,
    bootstrap,
    dialect_options,
    json_option,
    key_option,
    metrics_option,
    monitor_of,
    on_grid,
    policy_option,
    public_range,
    read_policy,
    run_async,
    windows_options,
)
from connectors.cli.source_options import (
    CounterOptions,
    Listening,
    chosen_source,
    counts_alone,
    counts_options,
    probing,
    report_counts,
    report_file,
    report_traps,
    source_options,
)
from connectors.keys import key_files
from connectors.keys.opt_outs import OptOutFile
from connectors.monitoring.monitor import Monitor
from connectors.operations.monitoring.kafka import BrokerWatch
from connectors.operations.monitoring.watches import (
    watch_certificates,
    watch_key,
    watch_receiver,
    watch_secrets,
    watch_topic,
)
from connectors.runtime import logs
from connectors.runtime.clock import wall_clock
from connectors.runtime.signals import first_to_end, stop_signals, within
from connectors.sources.counters.files import CountsFile
from connectors.sources.counters.topic import CountsTopic, windows_behind
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.live import Live, Probing, live_pairs, opt_out_file, receiver, secrets_of, until_stopped
from connectors.sources.recorded import FileSource, TopicSource, pass_file
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.sources.recordings.rows import CellRules
from connectors.storage.kafka.cluster import checked
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.source_leases import SourceLeases
from stream.encoding import encode_message
from stream.engine.key_rotation import refuse_retired
from stream.errors import KeyFileError
from stream.keys import key_day_of
from stream.records import MINUTE, Micros
from stream.release.validation import Policy
from stream.settings import Settings

FORGET_AFTER = 10 * MINUTE
"""Retention of a day's data key after the day's end; rows that are still in transit then are encrypted under the
next key."""
FORGET_EVERY = 60.0
"""Seconds between two attempts to destroy data keys of past days."""
LAST_DRAIN = 8.0
"""Seconds that a stopping ingest has to send its buffered messages; a broker may never answer."""


Source = FileSource | TopicSource | Live


@click.command()
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@key_option
@source_options
@counts_options
@dialect_options
@click.option("--take-over", is_flag=True, help="Take over sources that another ingest sends for; that ingest ends.")
@windows_options
@metrics_option
@json_option
@click.pass_obj
def ingest(
    settings: Settings, *, kafka: str | None, policy_file: Path, key_file: Path, to: Listening,
    observations: Path | None, speed: float | None, counts: CounterOptions | None, take_over: bool,
    first_window: Micros | None, last_window: Micros | None, dialect: Dialect,
    metrics: MetricsPort | None, as_json: bool,
) -> None:  # fmt: skip
    """Send observations to Kafka: from live sources until a stop signal, or from a file to its end.

    Counts of people counters are sent as well, from a file or from a topic: each window when it is over.

    --from and --to limit a file to these windows: its sources count as covered from the first window to the end of the
    last one. For live sources give these options to 'tacet worker'.

    Each source has one ingest. While another ingest sends for a source, this one is refused.

    Only the pseudonym key and data keys are needed ('tacet key export FILE ingest TARGET'). In such a file the data key
    of each day is destroyed when the day is over.

    \b
    tacet ingest --kafka broker:9092 --policy policy.toml --key-file ingest.key --udp 0.0.0.0:1162
    """
    policy = read_policy(policy_file)
    bounded = counts is not None or observations is not None
    if not bounded and (first_window is not None or last_window is not None):
        raise click.UsageError("--from, --to: must be used with a file; for live sources give them to 'tacet worker'")
    servers = bootstrap(settings, kafka)
    if counts is None:
        given = chosen_source(settings.model_copy(update={"kafka": servers}), to, observations, dialect)
    else:
        given = counts_alone(counts, *to, observations, dialect=dialect).file or ()
    source: Source = given if not isinstance(given, Path) else FileSource(
        given, speed, *public_range(key_file, policy, first_window, last_window), dialect, counts is not None
    )  # fmt: skip
    if counts is not None and counts.topic is not None:
        windows = on_grid(policy, first_window, up=True), on_grid(policy, last_window, up=False)
        source = TopicSource(servers, counts.topic, *windows)
    with monitor_of("ingest", policy, metrics) as monitor:
        watch_key(monitor, key_file)
        watch_certificates(monitor, kafka=settings.kafka_cert_file, kafka_ca=settings.kafka_ca_file)
        left_out = None if bounded else opt_out_file(policy, settings.opt_outs_file, key_file)
        writer = _SourceWriter(servers, source, policy, key_files.IngestKeys(key_file), monitor, left_out)
        writer.probing = probing(settings, policy, monitor) if not bounded else None
        run_async(monitor.during(_ingest(writer, take_over=take_over, as_json=as_json)))
    writer.report(as_json=as_json)
    problem = shortfall(writer.file.tally) if writer.file is not None and writer.complete else None
    if problem is not None:
        raise problem


class _SourceWriter:
    """Writes one source's observations to Kafka while this ingest has the leases of its sites' sources."""

    def __init__(
        self, kafka: str, source: Source, policy: Policy, keys: key_files.IngestKeys, monitor: Monitor,
        opt_outs: OptOutFile | None,
    ) -> None:  # fmt: skip
        """``opt_outs``: the devices that are left out."""
        self._kafka, self._source, self._policy, self._keys = kafka, source, policy, keys
        self._opt_outs = opt_outs
        self._monitor, self._broker = monitor, BrokerWatch(monitor, kafka)
        self._sink = KafkaSink(kafka, encode=partial(encode_message, vault=keys.vault))
        counted = isinstance(source, TopicSource) or (isinstance(source, FileSource) and source.counts)
        self._pairs = CellRules(policy).pairs if counted else live_pairs(policy)
        self._leases = SourceLeases(kafka, self._pairs)
        self._session: Micros = -1
        self._partitions = 1
        self.file: ObservationFile | CountsFile | None = (
            source.opened(policy, keys.pseudonym) if isinstance(source, FileSource) else None
        )
        self._topic: CountsTopic | None = None
        self._receiver: Receiver | None = None
        self.probing: Probing | None = None
        """Which sources are probed."""
        self.complete = False
        """Whether the file was sent to its end."""

    async def begin(self, *, take_over: bool) -> None:
        """Connect, and acquire the leases of the sources; leave nothing open if that fails."""
        try:
            control = await checked(self._kafka)
            refuse_retired(control, self._keys.ledger)
            await self._sink.start()
            recorded = None if self.file is None else self.file.begin()
            if self.file is None or recorded is not None:
                self._partitions = control.partitions or 1
                self._session = await self._leases.start(self._partitions, session=recorded, take_over=take_over)
        except BaseException:
            await self._leases.stop()
            await self._sink.stop()
            raise

    async def pour(self, stop: asyncio.Event) -> None:
        """Send until ``stop`` is set or the file ends, and disconnect."""
        try:
            polling = [self._broker.poll()] if self._monitor.address is not None else []
            await first_to_end(self._send(stop), self._leases.renew(), self._forget(), *polling)
        finally:
            await self._sink.stop()
            await self._leases.stop()

    async def _send(self, stop: asyncio.Event) -> None:
        if isinstance(self._source, FileSource):
            if self.file is not None:
                self.complete = await pass_file(self.file, self._sink, self._source.speed, stop)
        elif isinstance(self._source, TopicSource):
            behind = await windows_behind(self._kafka, self._policy, self._partitions)
            self._topic = self._source.opened(self._policy, self._session, behind)
            watch_topic(self._monitor, self._topic)
            await self._topic.deliver(self._sink, stop)
        else:
            newest = self._session - 1
            async with receiver(
                self._source,
                self._policy,
                self._keys.pseudonym,
                self._sink,
                newest=newest,
                probing=self.probing,
                opt_outs=self._opt_outs,
            ) as traps:
                self._receiver = traps
                watch_receiver(self._monitor, traps, self._policy)
                watch_secrets(self._monitor, secrets_of(self._source))
                await until_stopped(traps, stop)

    async def _forget(self) -> NoReturn:
        """Destroy data keys of past days; a recording's rows are encrypted under the oldest remaining one."""
        while True:
            let_go(self._keys, wall_clock())
            await asyncio.sleep(FORGET_EVERY)

    def report(self, *, as_json: bool) -> None:
        """Print what has been accepted so far."""
        if self.file is not None:
            report_file(self.file.tally, as_json=as_json)
        elif self._topic is not None:
            report_counts(self._topic.collector, as_json=as_json)
        elif self._receiver is not None:
            report_traps(self._receiver, as_json=as_json)


def let_go(keys: key_files.IngestKeys, now: Micros) -> None:
    """Destroy the data keys of past days; if the file cannot be written, log it and retry later."""
    try:
        keys.forget_before(key_day_of(now - FORGET_AFTER))
    except (OSError, KeyFileError) as error:
        reason = (
            "the key file cannot be written, so a data key outlives its day: make its folder writable to the ingest"
        )
        structlog.get_logger("tacet.ingest").error("data key kept", reason=reason, error=type(error).__name__)


async def _ingest(writer: _SourceWriter, *, take_over: bool, as_json: bool) -> None:
    """Write observations to Kafka; if that does not end in time after a stop signal, end the process."""
    await writer.begin(take_over=take_over)
    async with stop_signals() as stop:
        if not await within(LAST_DRAIN, writer.pour(stop), stop):
            writer.report(as_json=as_json)
            _give_up(
                f"no answer from Kafka for {LAST_DRAIN:.0f} s: what it has not accepted is lost and not acknowledged"
            )


def _give_up(message: str) -> NoReturn:
    """End the process at once: a task that blocks on an unavailable broker would also block its cancellation."""
    logs.report_end(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
