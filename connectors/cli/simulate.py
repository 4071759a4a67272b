"""simulate: simulate a building, and write or send its observations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TextIO

import click

from connectors.cli.options import NEW_FILE, Address, Speed, json_option, run_async
from connectors.cli.output import print_json, progress, working
from connectors.lab.simulation import files as simulation
from connectors.lab.simulation import policy as simulation_policy
from connectors.lab.simulation.faults import parse_faults
from connectors.lab.simulation.traps import send_schedule, trap_schedule
from stream.errors import UsageError
from stream.lab.simulator.events import Simulation, SimulatorConfig
from stream.lab.simulator.events import simulate as run_simulation
from stream.lab.simulator.radio import Heard
from stream.records import JsonObject

FIRST_START, LAST_START = date(1970, 1, 2), date(2240, 1, 1)
"""First days of a simulation whose times all lie between 1970 and 2255, in any time zone."""
WRITERS: Mapping[str, Callable[[Simulation, TextIO, simulation.Progress], int]] = {
    "csv": simulation.write_csv,
    "jsonl": simulation.write_jsonl,
    "snmptrapd": simulation.write_snmptrapd,
}
"""Format -> its writer."""


@click.command()
@click.option("--days", type=click.IntRange(1, 3660), default=1, show_default=True, help="Days to simulate.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed gives the same building."
)
@click.option(
    "--zones", type=click.IntRange(1, 4095), default=64, show_default=True, help="Zones, with one access point each."
)
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="First day.  [default: 2018-02-01]")
@click.option("--timezone", default="America/Los_Angeles", show_default=True, help="Time zone of the building.")
@click.option("--site", default="dbh", show_default=True, help="Name of the site.")
@click.option(
    "--scale", type=float, default=1.0, show_default=True, help="Number of people, relative to the real building."
)
@click.option(
    "--always-on", type=click.IntRange(0), default=0, show_default=True, help="Number of devices that never leave."
)
@click.option(
    "--heard",
    type=click.Choice([str(heard) for heard in Heard]),
    default=str(Heard.OFTEN),
    show_default=True,
    help="How often a device that stays is heard: every few minutes, about every half hour, or only when it roams.",
)
@click.option("--out", type=NEW_FILE, help="Write observations to this file.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl", "snmptrapd"]),
    default="csv",
    show_default=True,
    help="Format of the file.",
)
@click.option("--truth", type=NEW_FILE, help="Also write all true visits.")
@click.option("--policy-out", type=NEW_FILE, help="Also write a policy for this building.")
@click.option("--udp", type=Address(), help="Send the observations as SNMP traps to HOST:PORT.")
@click.option("--community", default="public", show_default=True, help="SNMP community of the traps.")
@click.option("--speed", type=Speed(), default="max", show_default=True, help="How many times real time, or max.")
@click.option(
    "--faults",
    default="",
    help="Faults of the traps: duplicates,reordering,loss,reboot,unknown-ap,wrong-community,flood,…",
)
@click.option("--controllers", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of controllers.")
@json_option
def simulate(
    *, days: int, seed: int, zones: int, start: datetime | None, timezone: str, site: str, scale: float, always_on: int,
    heard: str, out: Path | None, form: str, truth: Path | None, policy_out: Path | None, udp: tuple[str, int] | None,
    community: str, speed: float | None, faults: str, controllers: int, as_json: bool,
) -> None:  # fmt: skip
    """Simulate a building: people with phones, classrooms, offices, and 64 access points.

    The model is calibrated to published figures of a real building (36,000 devices and 3.9 million events in 89 days).
    --always-on adds devices that are seen every few minutes, such as printers; the demo uses --scale 0.45
    --always-on 75. Write the observations to a file, send them as SNMP traps, or both. With --heard seldom or roams,
    people sit still, controllers also report who leaves, and the policy counts sessions; traps alone carry this.

    \b
    tacet simulate --scale 0.45 --always-on 75 --out observations.csv --policy-out policy.toml
    tacet simulate --udp 127.0.0.1:1162 --speed 60
    """
    if start is not None and not FIRST_START <= start.date() <= LAST_START:
        msg = f"--start: must be from {FIRST_START} to {LAST_START}, got {start.date()}"
        raise UsageError(msg)
    chosen = parse_faults([name for name in faults.split(",") if name])
    if out is not None and heard != Heard.OFTEN:
        msg = f"--heard: must be often with --out, because a file of observations has no departures, got {heard}"
        raise UsageError(msg)
    config = SimulatorConfig(
        days=days, seed=seed, zones=zones, timezone=timezone, site=site, scale=scale, always_on=always_on,
        heard=Heard(heard),
    )  # fmt: skip
    if start is not None:
        config = replace(config, start=start.date())
    with working("simulating"):
        building = run_simulation(config)
    report: JsonObject = {"events": len(building.time), "devices": len(building.devices)}
    if out is not None:
        with _new_file(out, len(building.time)) as (file, advance):
            WRITERS[form](building, file, advance)
    if truth is not None:
        with _new_file(truth) as (file, _):
            simulation.write_truth(building, file)
    if policy_out is not None:
        policy_out.write_text(simulation_policy.policy_text(building))
    if udp is not None:
        faulty = [str(fault) for fault in chosen]
        schedule = trap_schedule(building, faulty, seed, controllers, community=community.encode())
        with progress("sending traps", len(schedule)) as advance:
            report["sent"] = run_async(send_schedule(schedule, udp, speed, advance))
        report["traps"] = dict(schedule.counts)
    if as_json:
        print_json(report)
    else:
        click.echo(f"{len(building.time):,} events of {len(building.devices):,} devices over {days} day(s)")


@contextmanager
def _new_file(path: Path, total: int | None = None) -> Iterator[tuple[TextIO, Callable[..., None]]]:
    """Open a file to write, and show the progress."""
    with path.open("w", newline="") as file, progress(f"writing {path.name}", total) as advance:
        yield file, advance
