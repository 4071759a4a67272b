"""run: the whole pipeline in one process, from traps or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from connectors.cli.options import (
    FOLDER,
    MetricsPort,
    Time,
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
from connectors.cli.output import progress
from connectors.cli.source_options import (
    CounterOptions,
    FeedSummary,
    Listening,
    chosen_source,
    counts_alone,
    counts_options,
    probing,
    report_counts,
    report_run,
    report_traps,
    source_options,
)
from connectors.keys import key_files
from connectors.keys.opt_outs import OptOutFile
from connectors.monitoring.monitor import Monitor
from connectors.operations.monitoring.watches import (
    watch_embedded,
    watch_key,
    watch_receiver,
    watch_secrets,
    watch_store,
    watch_topic,
)
from connectors.runtime.clock import CLOCK_STEP, wall_clock
from connectors.runtime.signals import stop_signals
from connectors.sources.counters.files import CountsFile
from connectors.sources.counters.topic import CountsTopic
from connectors.sources.ingest.listeners import Port
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.live import (
    Live,
    Probing,
    RadiusSource,
    UdpSource,
    check_uptime_clock,
    opt_out_file,
    receiver,
    secrets_of,
    until_stopped,
    uptime_start,
)
from connectors.sources.recorded import FileSource, TopicSource, pass_file
from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.storage.embedded.operator_outbox import ReceivedTraps
from connectors.storage.embedded.runner import (
    FileSink,
    LiveSink,
    newest_session,
    next_windows,
    opened,
    refuse_clock_behind,
    refuse_older,
    sensing_counters,
)
from connectors.storage.embedded.store import SqliteStore
from stream.pipeline import Options
from stream.records import Micros
from stream.release.validation import Policy
from stream.runners.embedded import Embedded
from stream.sensing.state import dropped_rows
from stream.settings import Settings

OpenRunner = Callable[..., AbstractContextManager[tuple[Embedded, SqliteStore]]]
"""Opens the store with its runner; takes ``clock``, which stamps live messages with their receive time."""


@click.command()
@policy_option
@key_option
@click.option("--store", type=FOLDER, required=True, help="Folder of the store; created if missing.")
@source_options
@counts_options
@click.option("--kafka", help="With --topic or --telegraf: bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@dialect_options
@click.option(
    "--clock",
    type=click.Choice(["wall", "uptime"]),
    default="wall",
    show_default=True,
    help="Source of event time; uptime, for laboratories only, is the controllers' sysUpTime.",
)
@click.option("--start", type=Time(), help="With --clock uptime: the time of uptime 0.")
@click.option("--accept-policy", is_flag=True, help="Start a changed policy with the next window.")
@windows_options
@metrics_option
@json_option
@click.pass_obj
def run(
    settings: Settings, *, policy_file: Path, key_file: Path, store: Path, to: Listening,
    observations: Path | None, speed: float | None,
    clock: str, start: Micros | None, accept_policy: bool, first_window: Micros | None,
    last_window: Micros | None, counts: CounterOptions | None, kafka: str | None, dialect: Dialect,
    metrics: MetricsPort | None, as_json: bool,
) -> None:  # fmt: skip
    """Run the whole pipeline in one process, without a broker.

    The source is live (traps, RADIUS accounting, webhooks, or a topic of counts) or a file. A live source is read until
    SIGTERM or Ctrl-C, a file to its end. Under a production key a file needs --from and --to; otherwise its rows would
    decide which windows are released. The process may be killed at any moment: started again with the same arguments,
    it resumes and releases nothing twice.

    Credentials are read from files that environment variables name: TACET_SNMP_COMMUNITIES_FILE (communities),
    TACET_SNMP_USERS_FILE (SNMPv3 users), TACET_RADIUS_CLIENTS_FILE (RADIUS clients and their secrets).

    \b
    tacet run --policy policy.toml --key-file key --store store --udp 0.0.0.0:1162
    """
    policy = read_policy(policy_file)
    source: Path | Live | TopicSource
    if counts is None:
        settings = settings.model_copy(update={"kafka": kafka or settings.kafka})
        source = chosen_source(settings, to, observations, dialect, start if clock == "uptime" else None)
    else:
        source = _counts_source(settings, counts_alone(counts, *to, observations, dialect=dialect), kafka)
    if isinstance(source, Path):
        windows = public_range(key_file, policy, first_window, last_window)
    else:
        windows = on_grid(policy, first_window, up=True), on_grid(policy, last_window, up=False)
    if clock == "uptime":
        check_uptime_clock(policy, key_file)
        if start is None:
            raise click.UsageError("--clock uptime needs --start")
    options = Options(first_window=windows[0], last_window=windows[1])
    open_runner = partial(opened, policy, key_file, store, options, accept_policy=accept_policy)
    listens = not isinstance(source, Path | TopicSource)
    left_out = opt_out_file(policy, settings.opt_outs_file, key_file) if listens else None
    with monitor_of("run", policy, metrics) as monitor:
        setup = _RunSetup(policy, key_files.pseudonym_key(key_file), open_runner, store, monitor, left_out)
        watch_key(monitor, key_file)
        if isinstance(source, Path):
            _run_file(FileSource(source, speed, *windows, dialect, counts is not None), setup, as_json=as_json)
        elif isinstance(source, TopicSource):
            _run_topic(source._replace(since=windows[0], until=windows[1]), setup, as_json=as_json)
        else:
            _run_live(source, probing(settings, policy, monitor), setup, as_json=as_json)


def _counts_source(settings: Settings, counts: CounterOptions, kafka: str | None) -> Path | TopicSource:
    if counts.file is not None:
        return counts.file
    return TopicSource(bootstrap(settings, kafka), counts.topic or "")


@dataclass(frozen=True, slots=True)
class _RunSetup:
    """The policy, store and keys of a run, with its monitor."""

    policy: Policy
    key: bytes
    """Names devices."""
    open_runner: OpenRunner
    folder: Path
    monitor: Monitor
    opt_outs: OptOutFile | None = None
    """The devices that are left out."""

    @contextmanager
    def opened(self, *, clock: Callable[[], Micros] | None, live: bool) -> Iterator[tuple[Embedded, SqliteStore]]:
        """Open the store with its monitor."""
        with self.open_runner(clock=clock) as (runner, store):
            watch_store(self.monitor, self.folder)
            watch_embedded(self.monitor, runner, self.policy, live=live)
            yield runner, store


def _run_file(source: FileSource, setup: _RunSetup, *, as_json: bool) -> None:
    with progress("rows") as advance:
        file = source.opened(setup.policy, setup.key, advance)
        file.begin()  # opening a store binds its key, so an unreadable file is refused first
        with setup.opened(clock=None, live=False) as (runner, _):
            summary = _process_file(file, source, runner, setup.monitor)
    report_run(summary, as_json=as_json)
    problem = shortfall(summary.tally, summary.dropped) if summary.whole else None
    if problem is not None:
        raise problem


def _process_file(
    file: ObservationFile | CountsFile, source: FileSource, runner: Embedded, monitor: Monitor
) -> FeedSummary:
    async def feed() -> bool:
        async with stop_signals() as stop:
            return await pass_file(file, FileSink(runner, stop), source.speed, stop)

    session = file.begin()
    if session is not None:
        refuse_older(runner, source.path, session)
    before = sensing_counters(runner)
    whole = run_async(monitor.during(feed()))
    counters = sensing_counters(runner) - before
    return FeedSummary(file.tally, dropped_rows(counters), whole)


def _run_live(live: Live, probes: Probing | None, setup: _RunSetup, *, as_json: bool) -> None:
    for source in live:
        if isinstance(source, UdpSource | RadiusSource):
            Port(source.address, 1, lambda: 0).close()
    simulated = uptime_start(live) is not None  # simulated times are independent of this machine's clock
    with setup.opened(clock=None if simulated else wall_clock, live=not simulated) as (runner, store):
        if not simulated:
            refuse_clock_behind(runner, wall_clock(), CLOCK_STEP)
        traps = run_async(setup.monitor.during(_listen(live, probes, setup, runner, store)))
    report_traps(traps, as_json=as_json)


def _run_topic(source: TopicSource, setup: _RunSetup, *, as_json: bool) -> None:
    with setup.opened(clock=wall_clock, live=True) as (runner, _):
        refuse_clock_behind(runner, wall_clock(), CLOCK_STEP)
        topic = source.opened(setup.policy, max(wall_clock(), newest_session(runner) + 1), next_windows(runner))
        watch_topic(setup.monitor, topic)
        run_async(setup.monitor.during(_gather(topic, runner)))
    report_counts(topic.collector, as_json=as_json)


async def _gather(topic: CountsTopic, runner: Embedded) -> None:
    async with stop_signals() as stop:
        await topic.deliver(LiveSink(runner, stop), stop)


async def _listen(
    live: Live, probes: Probing | None, setup: _RunSetup, runner: Embedded, store: SqliteStore
) -> Receiver:
    policy, newest = setup.policy, newest_session(runner)
    async with stop_signals() as stop:
        async with receiver(
            live, policy, setup.key, LiveSink(runner, stop), newest=newest, probing=probes, opt_outs=setup.opt_outs
        ) as traps:
            watch_receiver(setup.monitor, traps, policy, simulated=uptime_start(live) is not None)
            store.operator_outbox.count_traps(lambda: _received(traps))
            watch_secrets(setup.monitor, secrets_of(live))
            await until_stopped(traps, stop)
        return traps


def _received(traps: Receiver) -> ReceivedTraps:
    counters = traps.counters
    return ReceivedTraps(
        traps.clock.now(), counters.datagrams, counters.accepted, dict(counters.dropped), counters.kernel_drops
    )
