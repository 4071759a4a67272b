"""All benchmarks, one after the other, as one report: each figure from one run, its goal beside it.

    python -m tests.benchmarks [--quick] [--page FILE] [NAME ...]

NAME picks benchmarks, such as ``latency`` or ``traps``. Each runs in a process of its own. A figure short of
its goal is printed as it is; it fails nothing. A benchmark that cannot run says why. One that takes too long, or that
Ctrl-C ends, ends with every process that it has started. With ``--page`` the figures replace those of the same
benchmarks in a document; sections of other benchmarks stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.page import update
from tests.benchmarks.process import completed
from tests.benchmarks.shared import Figure, line, quick

EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit)\b")
LIMIT = 300.0
"""Seconds after which a benchmark is given up."""
ALL = 1140.0
"""Seconds after which no more is measured: 18 of the 20 minutes of ``make bench``; the page has the rest."""


def figures(report: list[dict[str, Any]]) -> list[Figure]:
    """Return what a benchmark told in this report's own form."""
    return [Figure(**shown) for shown in report]


def traps(report: dict[str, Any]) -> list[Figure]:
    """Return the figures of the trap receivers."""
    lost, ratio, goal = report["lost"], report["ratio"], report["goal"]
    return [
        Figure("pysnmp", report["pysnmp_us"], "µs CPU", note="a trap, at 1,000 a second"),
        Figure("own receiver", report["own_us_at_40000"], "µs CPU", note="a trap, at 40,000 a second"),
        Figure("pysnmp / own", ratio, "times", f">= {goal}", ratio >= goal),
        Figure("lost at 40,000 a second", lost, "traps", "0", lost == 0,
               f"of {report['offered']:,.0f}, offered at {report['offered_per_s']:,.0f} a second"),
    ]  # fmt: skip


def noise(report: dict[str, Any]) -> list[Figure]:
    """Return the figures of the noise draws."""
    return [
        Figure("OpenDP, vector", report["opendp_vector_us"], "µs a draw", aside=True),
        Figure("own, bulk", report["own_bulk_us"], "µs a draw", aside=True),
        Figure("own, 64 zones a label", report["own_window_us"], "µs a draw"),
        Figure("OpenDP / own", report["ratio"], "times", f">= {report['goal']}", report["ratio"] >= report["goal"]),
        Figure("OpenDP, vector, Gaussian", report["gaussian_opendp_vector_us"], "µs a draw", aside=True),
        Figure("own, bulk, Gaussian", report["gaussian_own_bulk_us"], "µs a draw", aside=True),
        Figure("OpenDP / own, Gaussian", report["gaussian_ratio"], "times", f">= {report['gaussian_goal']}",
               report["gaussian_ratio"] >= report["gaussian_goal"]),
    ]  # fmt: skip


def kafka(report: dict[str, Any]) -> list[Figure]:
    """Return the figures of the contenders on a real Kafka."""
    shown = [
        Figure(
            name, result["rate"], "rows/s", detail=f"CPU {result['cpu'] / result['observations'] * 1e6:.2f} µs a row"
        )
        for name, result in report["results"].items()
    ]
    ratios, goals = report["ratios"], report["goals"]
    return shown + [
        Figure(f"worker (faust) / {name}", ratio, "times", f">= {goals[name]:g}", ratio >= goals[name])
        for name, ratio in ratios.items()
    ]


BENCHMARKS: dict[str, tuple[str, Callable[[Any], list[Figure]]]] = {
    "traps": ("Trap receiver against pysnmp", traps),
    "noise": ("Noise draws against OpenDP", noise),
    "kafka": ("Observations a second on a real Kafka", kafka),
    "throughput": ("Observations through the engine", figures),
    "files": ("A recording read and played (CPU)", figures),
    "latency": ("Heartbeat to readable record, embedded (wall clock)", figures),
    "latency_kafka": ("Heartbeat to readable record, Kafka (wall clock)", figures),
    "filter": ("A tick of the filter against its plain form (CPU)", figures),
    "changes": ("Errors of a whole day's counts with noise on changes", figures),
    "scaling": ("Cost against size (CPU)", figures),
    "snapshot": ("Snapshot of 1,000 zones", figures),
    "serve": ("200 event streams and 50 history queries a second (wall clock)", figures),
    "memory": ("Memory over four simulated days", figures),
    "decisions": ("Threshold decisions on 10,000 predicates (CPU)", figures),
    "history": ("A month of the service's history (CPU)", figures),
    "attack": ("An attacker's beliefs, beside Table 4.1 of the thesis (CPU)", figures),
}


def end_by_signals() -> None:
    """Let a signal that would end this process at once end the running benchmark, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def main() -> None:
    end_by_signals()
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="short runs")
    parser.add_argument("--page", type=Path, help="document to update with the figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    options = parser.parse_args()
    wanted = options.names or list(BENCHMARKS)
    if unknown := sorted(set(wanted) - set(BENCHMARKS)):
        raise SystemExit(f"no such benchmark: {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(machine, flush=True)
    short, until = [], time.monotonic() + ALL
    for name in wanted:
        title, load = BENCHMARKS[name][0], os.getloadavg()[0]
        measured = run(name, until)
        short += [f"{title}: {figure.name}" for figure in measured if not figure.met]
        if measured and options.page:
            update(options.page, title, f"{machine}; load {load:.1f}.", measured)
    print(f"\nShort of their goal: {len(short)}" + "".join(f"\n  {name}" for name in short))


def run(name: str, until: float) -> list[Figure]:
    """Run one benchmark in its own process and print what it told; give it up at ``until`` of the monotonic clock."""
    title, read = BENCHMARKS[name]
    print(f"\n{title}", flush=True)
    began, load = time.monotonic(), os.getloadavg()[0]
    command = [sys.executable, "-m", f"tests.benchmarks.bench_{name}", "--json", *(["--quick"] if quick() else [])]
    limit = min(LIMIT, until - began)
    if limit <= 0:
        print(f"  not measured: {ALL / 60:.0f} minutes are over")
        return []
    try:
        done = completed(command, limit)
    except subprocess.TimeoutExpired:
        print(f"  given up after {limit:.0f} s")
        return []
    shown = [text for text in done.stdout.splitlines() if text[:1] in ("{", "[")]
    if done.returncode or not shown:
        print(f"  could not run: {reason(done.stderr)}")
        return []
    measured = read(json.loads(shown[-1]))
    for figure in measured:
        print(line(figure))
    print(f"  ({time.monotonic() - began:.0f} s; machine load before it {load:.1f})", flush=True)
    return measured


def reason(errors: str) -> str:
    """Return the line of a child's error output that says most: the last exception, else the last line."""
    lines = errors.strip().splitlines() or ["no output"]
    return next((text for text in reversed(lines) if EXCEPTION.match(text)), lines[-1])[:300]


if __name__ == "__main__":
    main()
