"""run: the whole pipeline in one process, from traps or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from connectors import keyfile
from connectors.commands.choosing import (
    Counts,
    Listening,
    alone,
    chosen,
    counts_options,
    dialect_options,
    probing,
    source_options,
)
from connectors.commands.options import (
    FOLDER,
    Time,
    bootstrap,
    json_option,
    key_option,
    on_grid,
    policy_option,
    progress,
    public_range,
    read_policy,
    run_async,
    windows_options,
)
from connectors.commands.summaries import Fed, report_counts, report_run, report_traps
from connectors.commands.watching import (
    metrics_option,
    monitor_of,
    watch_embedded,
    watch_key,
    watch_receiver,
    watch_secrets,
    watch_store,
    watch_topic,
)
from connectors.counters.topic import CountsTopic
from connectors.embedded.runner import (
    FileSink,
    LiveSink,
    newest_session,
    next_windows,
    opened,
    refuse_clock_behind,
    refuse_older,
    sensing_counters,
)
from connectors.embedded.store import SqliteStore
from connectors.files.counted import CountsFile
from connectors.files.dialect import Dialect
from connectors.files.observations import ObservationFile
from connectors.files.shortfall import NO_DROPS, shortfall
from connectors.intake.clock import CLOCK_STEP, wall_clock
from connectors.intake.port import Port
from connectors.intake.receiver import Receiver
from connectors.live_sources import Live, RadiusSource, UdpSource, secrets_of, uptime_start
from connectors.monitoring.monitor import Monitor
from connectors.signals import stop_signals
from connectors.sources import (
    FileSource,
    Probing,
    TopicSource,
    check_uptime_clock,
    feed_file,
    receiver,
    until_stopped,
)
from stream.pipeline import Options
from stream.policy.document import Policy
from stream.records import Micros
from stream.runners.embedded import Embedded
from stream.settings import Settings

Home = Callable[..., AbstractContextManager[tuple[Embedded, SqliteStore]]]
"""Opens the store with its runner; takes ``clock``, which stamps live messages with their receive time."""


@click.command()
@policy_option
@key_option
@click.option("--store", type=FOLDER, required=True, help="Folder of the store; made if missing.")
@source_options
@counts_options
@click.option("--kafka", help="With --topic, --telegraf: bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@dialect_options
@click.option(
    "--clock",
    type=click.Choice(["wall", "uptime"]),
    default="wall",
    show_default=True,
    help="uptime: laboratory only, event time from the controllers' sysUpTime.",
)
@click.option("--start", type=Time(), help="With --clock uptime: what uptime 0 stands for.")
@click.option("--accept-policy", is_flag=True, help="Let a changed policy begin with the next window.")
@windows_options
@metrics_option
@json_option
@click.pass_obj
def run(
    settings: Settings, *, policy_file: Path, key_file: Path, store: Path, to: Listening,
    observations: Path | None, speed: float | None,
    clock: str, start: Micros | None, accept_policy: bool, first_window: Micros | None,
    last_window: Micros | None, counts: Counts | None, kafka: str | None, dialect: Dialect,
    metrics: tuple[str, int] | None, as_json: bool,
) -> None:  # fmt: skip
    """Run the whole pipeline in one process, without a broker.

    Listens for traps and accounting, or reads counts from a topic, until it is told to stop (SIGTERM, Ctrl-C), or works
    through a file, of observations or of counts, and ends; under a production key a file needs --from and --to, so that
    no row decides which windows are released. It may be killed at any moment: started again with the same arguments it
    goes on, and releases nothing twice.
    Communities are read from the file that TACET_SNMP_COMMUNITIES_FILE names, users of SNMPv3 from the one of
    TACET_SNMP_USERS_FILE, clients of RADIUS and their secrets from the one of TACET_RADIUS_CLIENTS_FILE.
    """
    policy = read_policy(policy_file)
    given: Path | Live | TopicSource
    if counts is None:
        settings = settings.model_copy(update={"kafka": kafka or settings.kafka})
        given = chosen(settings, to, observations, dialect, start if clock == "uptime" else None)
    else:
        given = _counted(settings, alone(counts, *to, observations, dialect=dialect), kafka)
    if isinstance(given, Path):
        windows = public_range(key_file, policy, first_window, last_window)
    else:
        windows = on_grid(policy, first_window, up=True), on_grid(policy, last_window, up=False)
    if clock == "uptime":
        check_uptime_clock(policy, key_file)
        if start is None:
            raise click.UsageError("--clock uptime needs --start")
    options = Options(first_window=windows[0], last_window=windows[1])
    home = partial(opened, policy, key_file, store, options, accept_policy=accept_policy)
    with monitor_of("run", policy, metrics) as monitor:
        building = _Building(policy, keyfile.pseudonym_key(key_file), home, store, monitor)
        watch_key(monitor, key_file)
        if isinstance(given, Path):
            _run_file(FileSource(given, speed, *windows, dialect, counts is not None), building, as_json=as_json)
        elif isinstance(given, TopicSource):
            _run_topic(given._replace(since=windows[0], until=windows[1]), building, as_json=as_json)
        else:
            _run_live(given, probing(settings, policy, monitor), building, as_json=as_json)


def _counted(settings: Settings, counts: Counts, kafka: str | None) -> Path | TopicSource:
    if counts.file is not None:
        return counts.file
    return TopicSource(bootstrap(settings, kafka), counts.topic or "")


@dataclass(frozen=True, slots=True)
class _Building:
    """What is run, and who watches it."""

    policy: Policy
    key: bytes
    """Names devices."""
    home: Home
    folder: Path
    monitor: Monitor

    @contextmanager
    def opened(self, *, clock: Callable[[], Micros] | None, live: bool) -> Iterator[tuple[Embedded, SqliteStore]]:
        """Open the store, watched."""
        with self.home(clock=clock) as (runner, store):
            watch_store(self.monitor, self.folder)
            watch_embedded(self.monitor, runner, self.policy, live=live)
            yield runner, store


def _run_file(source: FileSource, building: _Building, *, as_json: bool) -> None:
    with progress("rows") as tick:
        file = source.opened(building.policy, building.key, tick)
        file.begin()  # a store that is opened binds its key; what cannot be read is refused before
        with building.opened(clock=None, live=False) as (runner, _):
            fed = _feed(file, source, runner, building.monitor)
    report_run(fed, as_json=as_json)
    problem = shortfall(fed.tally, fed.dropped) if fed.whole else None
    if problem is not None:
        raise problem


def _feed(file: ObservationFile | CountsFile, source: FileSource, runner: Embedded, monitor: Monitor) -> Fed:
    async def feed() -> bool:
        async with stop_signals() as stop:
            return await feed_file(file, FileSink(runner, stop), source.speed, stop)

    session = file.begin()
    if session is not None:
        refuse_older(runner, source.path, session)
    before = sensing_counters(runner)
    whole = run_async(monitor.during(feed()))
    counted = sensing_counters(runner) - before
    return Fed(file.tally, {reason: rows for reason, rows in counted.items() if reason not in NO_DROPS}, whole)


def _run_live(live: Live, asking: Probing | None, building: _Building, *, as_json: bool) -> None:
    for source in live:
        if isinstance(source, UdpSource | RadiusSource):
            Port(source.address, 1, lambda: 0).close()
    simulated = uptime_start(live) is not None  # simulated times have nothing to do with this machine's
    with building.opened(clock=None if simulated else wall_clock, live=not simulated) as (runner, _):
        if not simulated:
            refuse_clock_behind(runner, wall_clock(), CLOCK_STEP)
        made = run_async(building.monitor.during(_listen(live, asking, building, runner)))
    report_traps(made, as_json=as_json)


def _run_topic(source: TopicSource, building: _Building, *, as_json: bool) -> None:
    with building.opened(clock=wall_clock, live=True) as (runner, _):
        refuse_clock_behind(runner, wall_clock(), CLOCK_STEP)
        topic = source.opened(building.policy, max(wall_clock(), newest_session(runner) + 1), next_windows(runner))
        watch_topic(building.monitor, topic)
        run_async(building.monitor.during(_gather(topic, runner)))
    report_counts(topic.gathering, as_json=as_json)


async def _gather(topic: CountsTopic, runner: Embedded) -> None:
    async with stop_signals() as stop:
        await topic.pour(LiveSink(runner, stop), stop)


async def _listen(live: Live, asking: Probing | None, building: _Building, runner: Embedded) -> Receiver:
    policy, newest = building.policy, newest_session(runner)
    async with stop_signals() as stop:
        async with receiver(live, policy, building.key, LiveSink(runner, stop), newest=newest, probing=asking) as made:
            watch_receiver(building.monitor, made, policy, simulated=uptime_start(live) is not None)
            watch_secrets(building.monitor, secrets_of(live))
            await until_stopped(made, stop)
        return made
