"""What the benchmarks share: a simulated building as policy and log, and how a figure is told.

The log is what the connector itself makes of the building's events: its collapse, its names, its batches of
up to 250 ms, its heartbeats every five seconds. So the costs measured are those of a live site.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from heapq import merge

from connectors.lab.simulation.policy import site_text
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Message, Sighting
from stream.keys import LaboratoryKeys
from stream.lab.simulator.events import Simulation, SimulatorConfig, simulate
from stream.records import Heartbeat, Micros
from stream.release.validation import Policy, load_policy

SOURCE = "127.0.0.1"
KEYS = LaboratoryKeys(b"r" * 32, "0123456789abcdef", b"a" * 32)
BLOCK = 10_000
MECHANISMS = ("laplace", "pegasus", "filter")

RELEASE = """
[[audience]]
name = "facilities"
[[audience]]
name = "public"

[[release]]
name = "occupancy"
query = "count"
mechanism = "{mechanism}"
levels = ["zone", "floor", "building"]
epsilon = {{ facilities = "1", public = "0.1" }}
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    goal: str = ""
    """In words; empty where there is none."""
    met: bool = True
    note: str = ""
    detail: str = ""
    """More about it: printed, and left out of the document."""
    aside: bool = False
    """Whether the figure is printed only."""


def tell(figures: list[Figure]) -> None:
    """Print a benchmark's figures: as JSON for the runner, else as lines."""
    if "--json" in sys.argv:
        print(json.dumps([asdict(figure) for figure in figures]), flush=True)
        return
    for figure in figures:
        print(line(figure), flush=True)


def line(figure: Figure) -> str:
    """Return a figure as one line, its goal beside it."""
    goal = f"goal {figure.goal}" + ("" if figure.met else "   SHORT OF ITS GOAL") if figure.goal else ""
    text = f"  {figure.name:58} {figure.value:10,.3g} {figure.unit:9} {goal}"
    more = ", ".join(filter(None, (figure.note, figure.detail)))
    return text.rstrip() + (f"\n      {more}" if more else "")


def quick() -> bool:
    """Whether a short run was asked for."""
    return "--quick" in sys.argv


def simulations(
    zones: int = 64, *, sites: int = 1, scale: float = 1.0, days: int = 1, seed: int = 1
) -> list[Simulation]:
    """Return one simulated building a site."""
    return [
        simulate(SimulatorConfig(days=days, seed=seed, zones=zones, scale=scale, site=f"site{n}", building=n))
        for n in range(sites)
    ]


def policy(
    buildings: list[Simulation], mechanism: str = "pegasus", max_count: int | None = None, tick: str = "5min",
    more: str = "",
) -> Policy:  # fmt: skip
    """Return a policy under which two audiences read the counts of every zone, floor and building.

    ``max_count`` is each zone's largest count; unless given, it follows from the zone's capacity. ``more`` is added to
    the release.
    """
    sites = "".join(site_text(one, [SOURCE]) for one in buildings)
    sites = sites.replace('\ntick = "5min"', f'\ntick = "{tick}"')
    if max_count is not None:
        sites = sites.replace("\ncapacity =", f"\nmax_count = {max_count}\ncapacity =")
    return load_policy(sites + RELEASE.format(mechanism=mechanism) + more)


def log(
    buildings: list[Simulation], rules: Policy, start: Micros | None = None, end: Micros | None = None
) -> Iterator[Message]:
    """Yield what the connector makes of the events in [start, end), in log order."""
    first = buildings[0].start if start is None else start
    last = buildings[0].end if end is None else end
    ingest = Ingest.of_policy(rules, b"p" * 32)
    state = ingest.initial(first)
    for moment, trap in merge(*(_traps(one, first, last) for one in buildings), key=lambda timed: timed[0]):
        due = ingest.next_due(state)
        while due is not None and due <= moment:
            yield from ingest.poll(state, due)
            due = ingest.next_due(state)
        ingest.observe(state, moment, SOURCE, SOURCE, trap)
    yield from ingest.poll(state, last)
    yield from ingest.drain(state)


def _traps(one: Simulation, first: Micros, last: Micros) -> Iterator[tuple[Micros, Sighting]]:
    clients = [bytes.fromhex(mac.replace(":", "")) for mac in one.devices]
    points = [bytes.fromhex(mac.replace(":", "")) for mac in one.building.access_points]
    low, high = one.time.searchsorted([first, last])
    for at in range(low, high, BLOCK):
        rows = slice(at, min(at + BLOCK, high))
        columns = (one.time[rows].tolist(), one.device[rows].tolist(), one.access_point[rows].tolist())
        for moment, device, point in zip(*columns, strict=True):
            yield moment, Sighting(Kind.ASSOCIATE, clients[device], points[point])


def by_window(rules: Policy, messages: Iterator[Message]) -> Iterator[tuple[list[Message], Heartbeat]]:
    """Cut a site's log at the heartbeats that close a window."""
    site = next(iter(rules.site.values()))
    before: list[Message] = []
    due: int | None = None
    for message in messages:
        if isinstance(message, Heartbeat):
            due = -(-message.watermark // site.tick) * site.tick + site.lateness if due is None else due
            if message.watermark > due:
                yield before, message
                before, due = [], due + site.tick
                continue
        before.append(message)


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process that ``work`` takes; other processes do not disturb it."""
    began = time.process_time()
    work()
    return time.process_time() - began
