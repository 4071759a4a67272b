"""run and ingest: observations in, from traps or a file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from connectors import keyfile
from connectors.commands.options import (
    FILE,
    FOLDER,
    NO_DROPS,
    Address,
    F,
    Speed,
    Time,
    bootstrap,
    communities,
    json_option,
    key_option,
    on_grid,
    policy_option,
    print_json,
    progress,
    read_policy,
    run_async,
    tell_drops,
    windows_options,
)
from connectors.ingest import Sink
from connectors.kafka import KafkaSink
from connectors.live import (
    FileSink,
    check_uptime_clock,
    embedded,
    feed_file,
    receiver,
    refuse_older,
    sensing_counters,
    stop_signals,
    until_stopped,
)
from connectors.observations import ObservationFile, Tally, bad_rows
from connectors.snmp.admission import Counters
from connectors.snmp.port import Port
from stream.embedded import Embedded
from stream.pipeline import Options
from stream.policy import Policy
from stream.records import Micros
from stream.settings import Settings

SOURCES = "give either --udp or --observations"


def source_options(function: F) -> F:
    """Add what observations come from: ``--udp`` or ``--observations``, and how fast."""
    for option in (
        click.option("--speed", type=Speed(), default="max", show_default=True, help="For a file: times real time."),
        click.option("--observations", type=FILE, help="Read a file instead of listening."),
        click.option("--udp", type=Address(), help="Listen for SNMP traps on HOST:PORT."),
    ):
        function = option(function)
    return function


@click.command()
@policy_option
@key_option
@click.option("--store", type=FOLDER, required=True, help="Folder of the store; made if missing.")
@source_options
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
@json_option
@click.pass_obj
def run(
    settings: Settings, *, policy_file: Path, key_file: Path, store: Path, udp: tuple[str, int] | None,
    observations: Path | None, speed: float | None, clock: str, start: Micros | None, accept_policy: bool,
    first_window: Micros | None, last_window: Micros | None, as_json: bool,
) -> None:  # fmt: skip
    """Run the whole pipeline in one process, without a broker.

    Listens for traps until it is told to stop (SIGTERM, Ctrl-C), or works through a file and ends. It may be
    killed at any moment: started again with the same arguments it goes on, and releases nothing twice.
    Communities are read from the file that TACET_SNMP_COMMUNITIES_FILE names.
    """
    policy = read_policy(policy_file)
    options = Options(
        first_window=on_grid(policy, first_window, up=True),
        last_window=on_grid(policy, last_window, up=False),
    )
    if (udp is None) == (observations is None):
        raise click.UsageError(SOURCES)
    if clock == "uptime":
        check_uptime_clock(policy, key_file)
        if start is None:
            raise click.UsageError("--clock uptime needs --start")
    if observations is not None:
        with progress("rows") as tick:
            file = ObservationFile(
                observations, policy, keyfile.pseudonym_key(key_file),
                since=options.first_window, until=options.last_window, progress=tick,
            )  # fmt: skip
            file.begin()  # a store that is opened binds its key; what cannot be read is refused before
            with embedded(policy, key_file, store, options, accept_policy=accept_policy) as runner:
                fed = _feed(file, observations, runner, speed)
        _tell_run(fed, as_json=as_json)
        problem = bad_rows(fed.tally) if fed.whole else None
        if problem is not None:
            raise problem
        return
    assert udp is not None  # noqa: S101
    communities(settings)
    Port(udp, 1, lambda: 0).close()
    with embedded(policy, key_file, store, options, accept_policy=accept_policy) as runner:
        counters = _listen(settings, policy, key_file, udp, runner, start if clock == "uptime" else None)
        _tell_traps(counters, as_json=as_json)


@click.command()
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@key_option
@source_options
@json_option
@click.pass_obj
def ingest(
    settings: Settings, *, kafka: str | None, policy_file: Path, key_file: Path, udp: tuple[str, int] | None,
    observations: Path | None, speed: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Send observations to Kafka: from traps until told to stop, or from a file to its end.

    Needs the pseudonym key only ('tacet key export FILE ingest TARGET').
    """
    policy = read_policy(policy_file)
    if (udp is None) == (observations is None):
        raise click.UsageError(SOURCES)
    tally, counters = run_async(
        _ingest(settings, bootstrap(settings, kafka), policy, key_file, udp, observations, speed)
    )
    if tally is not None:
        _tell_file(tally, as_json=as_json)
        problem = bad_rows(tally)
        if problem is not None:
            raise problem
    elif counters is not None:
        _tell_traps(counters, as_json=as_json)


async def _ingest(
    settings: Settings, kafka: str, policy: Policy, key_file: Path, udp: tuple[str, int] | None,
    observations: Path | None, speed: float | None,
) -> tuple[Tally | None, Counters | None]:  # fmt: skip
    key = keyfile.pseudonym_key(key_file)
    sink = KafkaSink(kafka)
    try:
        await sink.start()
        async with stop_signals() as stop:
            if observations is not None:
                file = ObservationFile(observations, policy, key)
                await feed_file(file, sink, speed, stop)
                return file.tally, None
            assert udp is not None  # noqa: S101
            async with receiver(udp, policy, key, sink, communities(settings)) as made:
                await until_stopped(made, stop)
            return None, made.counters
    finally:
        await sink.stop()


class Fed(NamedTuple):
    """What became of a file."""

    tally: Tally
    dropped: dict[str, int]
    """Rows that sensing dropped in this run, by reason."""
    whole: bool
    """Whether it was fed to its end."""


def _feed(file: ObservationFile, path: Path, runner: Embedded, speed: float | None) -> Fed:
    async def feed() -> bool:
        async with stop_signals() as stop:
            return await feed_file(file, FileSink(runner), speed, stop)

    session = file.begin()
    if session is not None:
        refuse_older(runner, path, session)
    before = sensing_counters(runner)
    whole = run_async(feed())
    counted = sensing_counters(runner) - before
    return Fed(file.tally, {reason: rows for reason, rows in counted.items() if reason not in NO_DROPS}, whole)


def _listen(
    settings: Settings, policy: Policy, key_file: Path, udp: tuple[str, int], sink: Sink, start: Micros | None
) -> Counters:
    async def listen() -> Counters:
        key = keyfile.pseudonym_key(key_file)
        async with stop_signals() as stop:
            async with receiver(udp, policy, key, sink, communities(settings), start=start) as made:
                await until_stopped(made, stop)
            return made.counters

    return run_async(listen())


def _tell_file(tally: Tally, *, as_json: bool) -> None:
    told = {"rows": tally.rows, "bad": tally.bad, "unknown_access_points": tally.unknown_access_points}
    print_json(told) if as_json else click.echo(
        f"{tally.rows:,} rows, {tally.bad:,} bad, {tally.unknown_access_points:,} at unknown access points"
    )


def _tell_run(fed: Fed, *, as_json: bool) -> None:
    tally = fed.tally
    if as_json:
        told = {"rows": tally.rows, "bad": tally.bad, "unknown_access_points": tally.unknown_access_points}
        print_json(told | {"dropped": fed.dropped, "stopped": not fed.whole})
        return
    click.echo(f"{tally.rows:,} rows, {tally.bad:,} bad")
    tell_drops(fed.dropped, tally.unknown_access_points)
    if not fed.whole:
        click.echo("stopped before the end of the file; the same command goes on from here")


def _tell_traps(counters: Counters, *, as_json: bool) -> None:
    dropped = {reason: n for reason, n in counters.dropped.items() if n}
    if as_json:
        print_json(
            {"datagrams": counters.datagrams, "accepted": counters.accepted, "dropped": dropped,
             "kernel_drops": counters.kernel_drops}
        )  # fmt: skip
        return
    click.echo(f"{counters.datagrams:,} datagrams, {counters.accepted:,} accepted")
    for reason, n in sorted(dropped.items()):
        click.echo(f"  {n:>8,}  dropped: {reason.replace('_', ' ')}")
