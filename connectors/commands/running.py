"""run and ingest: observations in, from traps or a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from connectors import keyfile, logs
from connectors.commands.options import (
    FILE,
    FOLDER,
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
    public_range,
    read_policy,
    run_async,
    tell_drops,
    windows_options,
)
from connectors.embedded.runner import (
    FileSink,
    LiveSink,
    embedded,
    newest_session,
    refuse_clock_behind,
    refuse_older,
    sensing_counters,
)
from connectors.files.observations import NO_DROPS, ObservationFile, shortfall
from connectors.files.text_rows import Tally
from connectors.kafka.claims import Claims
from connectors.kafka.client import KafkaSink
from connectors.kafka.control import checked
from connectors.signals import stop_signals, within
from connectors.snmp.clock import CLOCK_STEP, wall_clock
from connectors.snmp.ingest import UNKNOWN_ACCESS_POINT, Ingest, most_unknown
from connectors.snmp.port import Port
from connectors.snmp.receiver import Receiver
from connectors.sources import check_uptime_clock, feed_file, receiver, until_stopped
from stream.pipeline import Options
from stream.policy.document import Policy
from stream.records import Micros
from stream.runners.embedded import Embedded
from stream.settings import Settings

SOURCES = "give either --udp or --observations"
LAST_DRAIN = 8.0
"""Seconds in which an ingest that is told to stop brings out what it holds; a broker may never answer."""


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

    Listens for traps until it is told to stop (SIGTERM, Ctrl-C), or works through a file and ends; under a
    production key a file needs --from and --to, so that no row decides which windows are released. It may be
    killed at any moment: started again with the same arguments it goes on, and releases nothing twice.
    Communities are read from the file that TACET_SNMP_COMMUNITIES_FILE names.
    """
    policy = read_policy(policy_file)
    if (udp is None) == (observations is None):
        raise click.UsageError(SOURCES)
    if observations is not None:
        windows = public_range(key_file, policy, first_window, last_window)
    else:
        windows = on_grid(policy, first_window, up=True), on_grid(policy, last_window, up=False)
    options = Options(first_window=windows[0], last_window=windows[1])
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
        problem = shortfall(fed.tally, fed.dropped) if fed.whole else None
        if problem is not None:
            raise problem
        return
    assert udp is not None  # noqa: S101
    communities(settings)
    Port(udp, 1, lambda: 0).close()
    stamps = wall_clock if clock == "wall" else None  # simulated times have nothing to do with it
    with embedded(policy, key_file, store, options, accept_policy=accept_policy, clock=stamps) as runner:
        if clock == "wall":
            refuse_clock_behind(runner, wall_clock(), CLOCK_STEP)
        made = _listen(settings, policy, key_file, udp, runner, start if clock == "uptime" else None)
    _tell_traps(made, as_json=as_json)


@click.command()
@click.option("--kafka", help="Bootstrap servers, HOST:PORT.  [env: TACET_KAFKA]")
@policy_option
@key_option
@source_options
@click.option("--take-over", is_flag=True, help="Send for sources although another ingest does; that one ends.")
@windows_options
@json_option
@click.pass_obj
def ingest(
    settings: Settings, *, kafka: str | None, policy_file: Path, key_file: Path, udp: tuple[str, int] | None,
    observations: Path | None, speed: float | None, take_over: bool, first_window: Micros | None,
    last_window: Micros | None, as_json: bool,
) -> None:  # fmt: skip
    """Send observations to Kafka: from traps until told to stop, or from a file to its end.

    With --from and --to a file stands for these windows only: its sources are heard of from the first on, and
    until the last one is closed. Live traps have no such bounds; 'tacet worker' has.

    A source has one ingest: while another one sends for it, this one is refused.

    Needs the pseudonym key only ('tacet key export FILE ingest TARGET').
    """
    policy = read_policy(policy_file)
    if (udp is None) == (observations is None):
        raise click.UsageError(SOURCES)
    if udp is not None and (first_window is not None or last_window is not None):
        raise click.UsageError("--from, --to: must go with --observations; for live traps give them to 'tacet worker'")
    windows = (None, None) if udp is not None else public_range(key_file, policy, first_window, last_window)
    servers = bootstrap(settings, kafka)
    poured = run_async(
        _ingest(
            settings, servers, policy, key_file, udp, observations, speed, windows, take_over=take_over, as_json=as_json
        )
    )
    _tell(poured, as_json=as_json)
    problem = shortfall(poured.file.tally) if poured.file is not None and poured.whole else None
    if problem is not None:
        raise problem


@dataclass(slots=True)
class _Poured:
    """Where an ingest's observations come from: one of the two, once it has begun."""

    file: ObservationFile | None = None
    receiver: Receiver | None = None
    whole: bool = False
    """Whether the file was sent to its end."""


async def _ingest(
    settings: Settings, kafka: str, policy: Policy, key_file: Path, udp: tuple[str, int] | None,
    observations: Path | None, speed: float | None, windows: tuple[Micros | None, Micros | None], *, take_over: bool,
    as_json: bool,
) -> _Poured:  # fmt: skip
    """Pour observations into Kafka; where that does not end in time after a stop signal, end the process."""
    key = keyfile.pseudonym_key(key_file)
    sink, poured = KafkaSink(kafka), _Poured()
    claims = Claims(kafka, Ingest.of_policy(policy, key).pairs)
    if observations is not None:
        since, until = windows
        poured.file = ObservationFile(observations, policy, key, since=since, until=until)
    session: Micros = -1

    async def send(stop: asyncio.Event) -> None:
        if poured.file is not None:
            poured.whole = await feed_file(poured.file, sink, speed, stop)
            return
        assert udp is not None  # noqa: S101
        async with receiver(udp, policy, key, sink, communities(settings), newest=session - 1) as made:
            poured.receiver = made
            await until_stopped(made, stop)

    async def pour(stop: asyncio.Event) -> None:
        try:
            await _while_held(claims, send(stop))
        finally:
            await sink.stop()
            await claims.stop()

    try:
        control = await checked(kafka)
        await sink.start()
        recorded = None if poured.file is None else poured.file.begin()
        if poured.file is None or recorded is not None:
            session = await claims.start(control.partitions or 1, session=recorded, take_over=take_over)
    except BaseException:
        await claims.stop()
        await sink.stop()
        raise
    async with stop_signals() as stop:
        if not await within(LAST_DRAIN, pour(stop), stop):
            _tell(poured, as_json=as_json)
            _give_up(f"no answer from Kafka for {LAST_DRAIN:.0f} s: what it has not taken is lost, informs unanswered")
    return poured


async def _while_held(claims: Claims, sending: Coroutine[Any, Any, None]) -> None:
    """Send for as long as the sources are this ingest's; raise what ended that."""
    tasks = [asyncio.create_task(sending), asyncio.create_task(claims.keep())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _give_up(message: str) -> NoReturn:
    """End the process at once: what hangs on a broker that is away would hang on when it is cancelled, too."""
    logs.last_word(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


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
            return await feed_file(file, FileSink(runner, stop), speed, stop)

    session = file.begin()
    if session is not None:
        refuse_older(runner, path, session)
    before = sensing_counters(runner)
    whole = run_async(feed())
    counted = sensing_counters(runner) - before
    return Fed(file.tally, {reason: rows for reason, rows in counted.items() if reason not in NO_DROPS}, whole)


def _listen(
    settings: Settings, policy: Policy, key_file: Path, udp: tuple[str, int], runner: Embedded, start: Micros | None
) -> Receiver:
    async def listen() -> Receiver:
        key, newest = keyfile.pseudonym_key(key_file), newest_session(runner)
        async with stop_signals() as stop:
            sink = LiveSink(runner, stop)
            async with receiver(udp, policy, key, sink, communities(settings), start=start, newest=newest) as made:
                await until_stopped(made, stop)
            return made

    return run_async(listen())


def _tell(poured: _Poured, *, as_json: bool) -> None:
    if poured.file is not None:
        _tell_file(poured.file.tally, as_json=as_json)
    elif poured.receiver is not None:
        _tell_traps(poured.receiver, as_json=as_json)


def _tell_file(tally: Tally, *, as_json: bool) -> None:
    if as_json:
        print_json(_figures(tally))
        return
    click.echo(f"{tally.rows:,} rows, {tally.bad:,} bad")
    tell_drops({}, tally.unknown_access_points, tally.outside)


def _tell_run(fed: Fed, *, as_json: bool) -> None:
    if as_json:
        print_json(_figures(fed.tally) | {"dropped": fed.dropped, "stopped": not fed.whole})
        return
    click.echo(f"{fed.tally.rows:,} rows, {fed.tally.bad:,} bad")
    tell_drops(fed.dropped, fed.tally.unknown_access_points, fed.tally.outside)
    if not fed.whole:
        click.echo("stopped before the end of the file; the same command goes on from here")


def _figures(tally: Tally) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in ("rows", "bad", "unknown_access_points", "outside")}


def _tell_traps(made: Receiver, *, as_json: bool) -> None:
    counters, state = made.counters, made.state
    dropped = {reason: n for reason, n in counters.dropped.items() if n}
    unknown = most_unknown(state)
    others = dropped.get(UNKNOWN_ACCESS_POINT, 0) - sum(unknown.values())
    if as_json:
        print_json(
            {"datagrams": counters.datagrams, "accepted": counters.accepted, "dropped": dropped,
             "waiting": counters.waiting, "kernel_drops": counters.kernel_drops,
             "informs_answered": counters.informs_answered, "answers_unsent": counters.answers_unsent,
             "locally_administered": state.locally_administered, "unknown_access_points": unknown,
             "traps_of_other_unknown_access_points": others, "shut_sites": sorted(state.shut)}
        )  # fmt: skip
        return
    click.echo(f"{counters.datagrams:,} datagrams, {counters.accepted:,} accepted")
    for reason, n in sorted(dropped.items()):
        click.echo(f"  {n:>8,}  dropped: {reason.replace('_', ' ')}")
        if reason == UNKNOWN_ACCESS_POINT:
            _tell_unknown(unknown, others)
    for n, what in (
        (counters.waiting, "still in the queue"),
        (counters.kernel_drops, "lost in the kernel, beside these"),
        (state.locally_administered, "sightings of locally administered addresses"),
        (counters.informs_answered, "informs answered"),
        (counters.answers_unsent, "answers that could not be sent"),
    ):
        if n:
            click.echo(f"  {n:>8,}  {what}")
    for site in sorted(state.shut):
        click.echo(f"site {site} is shut: it had more devices than max_devices")


def _tell_unknown(unknown: dict[str, int], others: int) -> None:
    """List access points that the policy lacks: equipment of the network, never a client."""
    for name, n in unknown.items():
        click.echo(f"  {n:>12,}  {name}")
    if others:
        click.echo(f"  {others:>12,}  at others")
