"""Cost against size: CPU of the engine for a stretch of a simulated day when one size doubles three times.

Three sizes double, each alone: zones (people grow with the building), devices (the same building, more people
in it), sites (more buildings in one partition). Messages are the connector's own, heartbeats included, and a
snapshot is taken wherever a window closes, as a runner does.
"""

from __future__ import annotations

import gc
from itertools import pairwise

from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.lab.simulator.events import Simulation
from stream.records import MINUTE
from stream.release.validation import Policy
from tests.benchmarks.shared import KEYS, MECHANISMS, Figure, cpu, log, policy, quick, simulations, tell

GOAL = 2.1
HOUR = 60 * MINUTE
RUNS = 1 if quick() else 2
"""The least of so many rounds over all sizes counts: the rest is other processes' doing."""


def main() -> None:
    hours = 1 if quick() else 2
    figures: list[Figure] = []
    for mechanism in MECHANISMS:
        span = 1 if mechanism == "filter" else hours
        figures += doubling("zones", mechanism, {n: simulations(n) for n in (64, 128, 256, 512)}, span)
    figures += doubling("devices", "pegasus", {
        len(one[0].devices): one for one in (simulations(64, scale=scale) for scale in (1, 2, 4, 8))
    }, hours)  # fmt: skip
    figures += doubling("sites", "pegasus", {n: simulations(64, sites=n) for n in (1, 2, 4, 8)}, hours)
    tell(figures)


def doubling(what: str, mechanism: str, sizes: dict[int, list[Simulation]], hours: float) -> list[Figure]:
    """Return the cost at the largest size and the greatest ratio from one size to the next."""
    logs = {size: encoded(buildings, mechanism, hours) for size, buildings in sizes.items()}
    runs = [{size: cost(*made) for size, made in logs.items()} for _ in range(RUNS)]
    costs = {size: min(run[size] for run in runs) for size in sizes}
    ratios = [after / before for before, after in pairwise(costs.values())]
    report = ", ".join(f"{size:,}: {seconds:.3f} s" for size, seconds in costs.items())
    doubled = [after / before for before, after in pairwise(costs)]
    note = f"CPU of {hours:g} h from nine o'clock by {what}: {report}; ratios {', '.join(f'{r:.2f}' for r in ratios)}"
    if max(doubled) > 2.01 or min(doubled) < 1.99:
        note += f" where {what} grow by {', '.join(f'{r:.2f}' for r in doubled)}"
    return [
        Figure(f"{what} doubled, {mechanism}", max(ratios), "times", f"<= {GOAL}", max(ratios) <= GOAL, detail=note)
    ]


def encoded(buildings: list[Simulation], mechanism: str, hours: float) -> tuple[Policy, list[bytes]]:
    """Return the policy and the log of some hours of the day."""
    rules = policy(buildings, mechanism)
    begin = buildings[0].start + 9 * HOUR
    return rules, [encode_message(message) for message in log(buildings, rules, begin, begin + int(hours * HOUR))]


def cost(rules: Policy, values: list[bytes]) -> float:
    """Return the CPU seconds of a new engine for a log."""
    partition = PartitionEngine(rules, KEYS)
    gc.collect()
    return cpu(lambda: feed(partition, values))


def feed(partition: PartitionEngine, values: list[bytes]) -> None:
    """Feed all messages, with a snapshot at each closed window."""
    for offset, value in enumerate(values):
        if any(output.checkpoint for output in partition.process(offset, None, value)):
            partition.snapshot(offset + 1, 0)


if __name__ == "__main__":
    main()
