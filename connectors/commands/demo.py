"""demo: the whole way in one command, from simulated controllers to private releases and their account."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from connectors import keyfile
from connectors.commands.account import summary
from connectors.commands.day_promises import signed
from connectors.commands.options import FOLDER, Address, json_option, print_json, progress, read_policy, run_async
from connectors.commands.poor import marked_poor
from connectors.commands.serving import serve_here
from connectors.commands.tables import table
from connectors.embedded.readings import read_outbox, read_topic
from connectors.embedded.runner import FileSink, embedded
from connectors.files.replay import refuse_used
from connectors.intake.admission import Counters
from connectors.intake.receiver import Receiver
from connectors.private_folder import private_folder
from connectors.reports.commitments import counted_window
from connectors.reports.quality import Quality, by_level_quality
from connectors.reports.units import unit_rows
from connectors.serve.running import Wanted
from connectors.serve.server import free_port
from connectors.simulation import policy as simulation_policy
from connectors.simulation.traps import TrapSchedule, trap_schedule
from connectors.sources import UdpSource, receiver
from stream.pipeline import Options
from stream.policy.document import CountRelease, Policy
from stream.records import MINUTE, SECOND, Micros
from stream.release.count_plan import ByLevel, CountPlan, by_level
from stream.schemas import LEAKAGE, OCCUPANCY, parse_record
from stream.simulator.events import DAY_SHOWN, simulate

COMMUNITY = b"public"
SPEED = 1900
"""Times real time: a day in about 45 seconds."""
AHEAD = 128
"""Traps under way at most; the smallest receive buffer in use holds twice as many."""
WAITING = 10_000
"""Traps in the receiver's queue at which the controller waits: half of what the queue holds."""
BREATH = 0.005
PORT = 8050
PLAYED = 60.0
"""Times real time at which the day is played into the page."""
STALLED = 10.0
"""Seconds after which a receiver that takes nothing has failed."""


@dataclass(slots=True)
class Demo:
    """What a demo leaves behind."""

    folder: Path
    policy: Policy
    counters: Counters
    sent: int


@click.command()
@click.option(
    "--dir",
    "folder",
    type=FOLDER,
    help="Where to keep store, policy and key.  [default: a new temporary folder]",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--speed", type=click.FloatRange(1, 5000), default=SPEED, show_default=True, help="Times real time.")
@click.option(
    "--serve/--no-serve", "served", default=None, help="Show the day as a page afterwards.  [default: on a terminal]"
)
@click.option(
    "--listen", type=Address(), help="Where the page is.  [default: a free port of loopback, 8050 if it can be]"
)
@json_option
def demo(
    folder: Path | None, seed: int, speed: float, *, served: bool | None, listen: tuple[str, int] | None, as_json: bool
) -> None:
    """Run one simulated day from SNMP traps to private releases, and say how it went.

    A building of 64 access points is simulated; its controller sends real traps over UDP on loopback; the
    pipeline counts, releases and accounts; the releases are compared with the truth. About a minute. On a terminal it
    then serves the day as a page, into which it plays again, until Ctrl-C.
    """
    made = run_async(play(folder or Path(tempfile.mkdtemp(prefix="tacet-demo-")), seed, speed))
    report = outcome(made)
    print_json(report) if as_json else _print(report, made)
    if is_served(served, terminal=sys.stdin.isatty() and sys.stdout.isatty(), as_json=as_json):
        click.echo("\nThe day as a page, played again 60 times as fast as it was; Ctrl-C ends it.")
        serve_here(shown(made.folder, made.policy, listen))


def is_served(asked: bool | None, *, terminal: bool, as_json: bool) -> bool:
    """Whether a demo ends by serving its day: as one asks, else for people at a terminal."""
    return terminal and not as_json if asked is None else asked


def shown(folder: Path, policy: Policy, listen: tuple[str, int] | None = None) -> Wanted:
    """Return what is served of a demo: everything there is, at the usual port where that is free."""
    audiences = tuple(audience.name for audience in policy.audience)
    return Wanted(
        policy, audiences, folder / "store", account=True, operator=True,
        listen=listen or ("127.0.0.1", free_port(PORT)), play=PLAYED, simulated=True,
    )  # fmt: skip


async def play(folder: Path, seed: int, speed: float) -> Demo:
    """Simulate, listen, send, and drain.

    Raises:
        UsageError: the folder is not a new or empty one; a policy or key that is there is somebody's.
    """
    refuse_used(folder)
    private_folder(folder)
    simulation = simulate(replace(DAY_SHOWN, seed=seed))
    policy_file, key_file = folder / "policy.toml", folder / "key"
    policy_file.write_text(simulation_policy.policy_text(simulation))
    keyfile.create(key_file, laboratory=True)
    policy = read_policy(policy_file)
    key = keyfile.pseudonym_key(key_file)
    with embedded(policy, key_file, folder / "store", Options(occupancy=True)) as runner:
        # A simulated day has nothing to lose: what no window holds yet is not kept, so that a slow disk can follow.
        sink = FileSink(runner, asyncio.Event())
        source = UdpSource(("127.0.0.1", 0), (COMMUNITY,), start=simulation.start)
        async with receiver([source], policy, key, sink) as listening:
            _listened_before(listening, policy, simulation.start)
            with progress("windows released", 288) as tick:
                traps = trap_schedule(simulation, [], seed, 1)
                sent = await _send(traps, listening, speed, lambda: tick(runner.partition.counters.windows))
    return Demo(folder, policy, listening.counters, sent)


def _listened_before(listening: Receiver, policy: Policy, start: Micros) -> None:
    """Let the connector vouch also for the window at whose end the simulated day begins: nobody was there yet."""
    for site in policy.site.values():
        for source in site.sources:
            listening.state.simulated[source] = start - site.tick - MINUTE


async def _send(traps: TrapSchedule, listening: Receiver, speed: float, tick: Callable[[], None]) -> int:
    """Send a day's traps on time, but never far ahead of the receiver; return how many were sent.

    A controller would not wait. Here a day passes in seconds, and a busy machine must not lose part of it.
    """
    loop = asyncio.get_running_loop()
    begun, heard, taken, sent = loop.time(), loop.time(), (0, 0), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as controller:
        for trap in traps:
            due = begun + (trap.time - traps.simulation.start) / SECOND / speed
            while loop.time() < due - BREATH or _behind(listening.counters, sent):
                await asyncio.sleep(BREATH)
                tick()
                moved = listening.counters.datagrams, listening.counters.waiting
                if moved != taken or loop.time() < due:
                    heard, taken = loop.time(), moved
                elif loop.time() - heard > STALLED:
                    return sent
            controller.sendto(trap.data, listening.address)
            sent += 1
    return sent


def _behind(counters: Counters, sent: int) -> bool:
    """Whether too many traps are under way to the receiver, or in its queue."""
    return sent - counters.datagrams >= AHEAD or counters.waiting >= WAITING


def outcome(made: Demo) -> dict[str, Any]:
    """Return the summary as one object."""
    store = made.folder / "store"
    truth = {
        record["window_end"]: record
        for record in map(parse_record, read_topic(store, OCCUPANCY, keyfile.FileKeys(made.folder / "key").vault))
    }
    releases = {
        audience.name: [parse_record(value) for _, value in read_outbox(store, audience.name, 0)]
        for audience in made.policy.audience
    }
    exact = _exact(made.policy, truth)
    counts = {name: _errors(records, exact) for name, records in releases.items()}
    account = summary([parse_record(value) for value in read_topic(store, LEAKAGE)])
    return {
        "traps": {
            "sent": made.sent,
            "received": made.counters.datagrams,
            "observations": made.counters.accepted,
            "dropped": {reason: n for reason, n in made.counters.dropped.items() if n},
            "kernel_drops": made.counters.kernel_drops,
        },
        "windows": max(row["released"] + row["refused"] for row in counts.values()),
        "counts": counts,
        "attributes": {name: _attributes(records) for name, records in releases.items()},
        "account": account["sites"],
        "promises": [line.strip() for line in signed(made.policy)],
    }


Exact = dict[tuple[str, str], ByLevel]
"""Release and window -> what exact counts would have told, which a laboratory alone keeps, and for a day."""


def _exact(policy: Policy, truth: dict[str, dict[str, Any]]) -> Exact:
    """Return what exact counts would have told: bounded ones, where a release counts those."""
    [(site, place)] = policy.site.items()
    plans = [CountPlan(policy, release, site) for release in policy.release if isinstance(release, CountRelease)]
    windows = {end: counted_window(place, site, record) for end, record in truth.items()}
    return {(plan.release.name, end): plan.truth(window) for plan in plans for end, window in windows.items()}


def _errors(records: list[dict[str, Any]], exact: Exact) -> dict[str, Any]:
    """Compare an audience's counts with the exact ones, which its one count release would have told."""
    counts = [record for record in records if "values" in record]
    released = [record for record in counts if record["released"]]
    known = [(exact[at], record) for record in released if (at := (record["release"], record["window_end"])) in exact]
    told = [by_level(record["values"], record.get("levels")) for _, record in known]
    levels = by_level_quality([row for row, _ in known], told)
    first = next(iter(levels.values()), None)
    return {
        "releases": sorted({record["release"] for record in released}),
        "released": len(released),
        "refused": len(counts) - len(released),
        "mean_count": None if first is None else round(first.mean, 2),
        "mean_error": None if first is None else round(first.error, 2),
        "mean_error_building": round(levels["building"].error, 2) if "building" in levels else None,
        "worse_than_zero": first is not None and first.worse_than_zero,
        "levels": {
            level: {name: round(figure, 2) for name, figure in q._asdict().items()} for level, q in levels.items()
        },
    }


def _attributes(records: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    report: dict[str, dict[str, int]] = {}
    for record in records:
        if "attribute" in record:
            row = report.setdefault(record["attribute"], {"shown": 0, "not_shown": 0})
            row["shown" if record["released"] else "not_shown"] += 1
    return report


def _print(report: dict[str, Any], made: Demo) -> None:
    console, traps = Console(highlight=False), report["traps"]
    dropped = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in traps["dropped"].items()) or "none"
    console.print("[bold]One simulated day, from traps to private releases[/bold]\n")
    for name, words in (
        ("Traps", f"{traps['sent']:,} sent, {traps['received']:,} received, {traps['observations']:,} accepted"),
        ("Dropped", f"{dropped}; lost by the kernel: {traps['kernel_drops']:,}"),
        ("Windows", f"{report['windows']} of five minutes, each released once, empty ones included\n"),
    ):
        console.print(f"{name:<10}{words}")
    _print_counts(console, report["counts"])
    attributes = table("Attributes of the offices' day", ("audience", "attribute"), ("shown", "not shown"))
    for name, rows in report["attributes"].items():
        for attribute, row in rows.items():
            attributes.add_row(name, attribute, str(row["shown"]), str(row["not_shown"]))
    console.print(attributes)
    _print_spend(console, report)
    for line in report["promises"]:
        console.print(f"{line}\n")
    console.print(f"Everything is in {made.folder}. Look further:", soft_wrap=True)
    for line in (
        f"tacet subscribe --store {made.folder}/store --audience facilities --from-start --until-end",
        f"tacet account --store {made.folder}/store",
        f"tacet policy show {made.folder}/policy.toml",
    ):
        console.print(f"  {line}", soft_wrap=True)


def _print_counts(console: Console, report: dict[str, dict[str, Any]]) -> None:
    columns = ("windows\nreleased", "mean true\ncount", "mean\nerror", "error of\nthe median")
    counts = table("Counts, against what an exact count would have said", ("audience", "release", "level"), columns)
    poor = []
    for name, row in report.items():
        release, windows = ", ".join(row["releases"]), f"{row['released']} of {row['released'] + row['refused']}"
        for level, figures in row["levels"].items():
            expected = Quality(**figures)
            shown = (str(figure) for figure in (expected.mean, expected.error, expected.median))
            counts.add_row(name, release, level, windows, *shown)
            if expected.poor:
                poor.append(marked_poor(release, name, level, expected))
    console.print(counts)
    for line in poor:
        console.print(line)


def _print_spend(console: Console, report: dict[str, Any]) -> None:
    for site, account in report["account"].items():
        last = account["last"]
        readers = {**last["audiences"], "all together": last["coalition"]}
        spent = table(f"Spent at {site}, in epsilons", ("what is protected",), tuple(readers))
        for row in unit_rows(list(readers.values()), ("presence_tuple", "observation", "device_total", "person_total")):
            spent.add_row(*row)
        console.print(spent)
