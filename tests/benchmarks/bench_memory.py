"""Resident memory of the embedded runner over some simulated days of a building with 64 access points.

Connector, engine, ledger, store, outboxes and mark live in one process, as in ``tacet run``; counts of the
public zones by PeGaSus for two audiences, attributes of the offices' days. What is kept for ever is kept on
disk; the store lies in memory-backed files where there are such, so that a day does not take minutes.
"""

from __future__ import annotations

import gc
import os
import tempfile
import tracemalloc
from pathlib import Path

from connectors.keys import key_files
from connectors.lab.simulation.policy import policy_text
from connectors.storage.embedded.runner import embedded
from stream.records import DAY, Heartbeat
from stream.release.validation import load_policy
from tests.benchmarks.shared import SOURCE, Figure, cpu, log, quick, simulations, tell

GOAL = 1.02
SHARED_MEMORY = Path("/dev/shm")
TRACE = "--trace" in os.environ.get("TACET_BENCH", "")
"""TACET_BENCH=--trace also lists where memory was taken between the end of the second day and the last."""


def main() -> None:
    days = 2 if quick() else 4
    buildings = simulations(64, days=days)
    rules = load_policy(policy_text(buildings[0], [SOURCE]))
    stored: list[float] = []

    def run() -> None:
        with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as name:
            folder = Path(name)
            key_files.create(folder / "key", laboratory=True)
            with embedded(rules, folder / "key", folder / "store") as runner:
                end = buildings[0].start + DAY
                for message in log(buildings, rules):
                    runner.process(message)
                    if isinstance(message, Heartbeat) and message.watermark >= end - 2_000_000:
                        stored.append(resident())
                        _trace(len(stored), days)
                        end += DAY

    seconds = cpu(run)
    by_day = ", ".join(f"{megabytes:.1f}" for megabytes in stored)
    growth = stored[-1] / stored[0]
    tell([
        Figure(f"resident after {days} days, 64 zones", stored[-1], "MB", detail=f"at the end of each day: {by_day}"),
        Figure(f"against the end of the first day ({days} days)", growth, "times", f"<= {GOAL}", growth <= GOAL,
               detail=f"CPU of the whole, connector and disk included: {seconds / days:.1f} s a day"),
    ])  # fmt: skip


def resident() -> float:
    """Return this process' resident memory in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


_second: list[tracemalloc.Snapshot] = []


def _trace(day: int, days: int) -> None:
    if not TRACE:
        return
    if day == 1:
        tracemalloc.start()
    elif day == 2:
        _second.append(tracemalloc.take_snapshot())
    elif day == days:
        for line in tracemalloc.take_snapshot().compare_to(_second[0], "lineno")[:15]:
            print(line)


if __name__ == "__main__":
    main()
