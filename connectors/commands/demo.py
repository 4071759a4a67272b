"""demo: the whole way in one command, from simulated controllers to private releases and their account."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from connectors import keyfile
from connectors.commands.demo_outcome import Demo, outcome, print_outcome
from connectors.commands.options import FOLDER, Address, json_option, print_json, progress, read_policy, run_async
from connectors.commands.serving import serve_here
from connectors.embedded.runner import FileSink, embedded
from connectors.files.replay import refuse_used
from connectors.intake.admission import Counters
from connectors.intake.receiver import Receiver
from connectors.live_sources import UdpSource
from connectors.private_folder import private_folder
from connectors.serve.running import Wanted
from connectors.serve.server import free_port
from connectors.simulation import policy as simulation_policy
from connectors.simulation.traps import TrapSchedule, trap_schedule
from connectors.sources import receiver
from stream.pipeline import Options
from stream.policy.document import Policy
from stream.records import MINUTE, SECOND, Micros
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
    print_json(report) if as_json else print_outcome(report, made)
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
