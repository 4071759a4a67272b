"""Runs schedules at both levels: drawn, given or kept ones."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from tests.simulation.port_run import PortRun
from tests.simulation.processes import collected
from tests.simulation.run import Run
from tests.simulation.schedules import (
    Kept,
    Outcome,
    Schedule,
    draw,
)
from tests.simulation.wire_run import WireRun


class Runner(Protocol):
    """Runs schedules at a level."""

    def __call__(self, seed: int, events: Schedule | None = None, within: float | None = None) -> Outcome:
        """Run a schedule, by default the one that the seed draws."""


def _runner(kind: type[Run], level: str) -> Runner:
    def run(seed: int, events: Schedule | None = None, within: float | None = None) -> Outcome:
        with collected(), TemporaryDirectory() as folder:
            return kind(seed, draw(seed, level) if events is None else events, Path(folder), within).run()

    return run


def run_kept(kept: Kept) -> Outcome:
    """Run a kept schedule; what must be said and is not is a problem too."""
    outcome = LEVELS[kept.level](kept.seed, kept.events, kept.within)
    if not any(kept.says in line for line in outcome.lines):
        outcome.problems.append(f"silent: nobody says {kept.says!r}")
    return outcome


LEVELS = {"port": _runner(PortRun, "port"), "wire": _runner(WireRun, "wire")}
"""By name, what runs a schedule at a level."""
