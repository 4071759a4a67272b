"""From the heartbeat that closes a window to its records being readable, embedded: p50 and p99, wall clock.

The clock starts when the heartbeat is handed to the runner and stops when another process, which polls the
outboxes like any subscriber, has both audiences' records in hand. In between lie the heartbeat's own durable
row, the window, the releases, the ledger, the state, one synced transaction, the mark, and two outboxes. What
comes before that heartbeat is stored without waiting for the disk, or a run would take hours; the heartbeat's
own transactions wait for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connectors.keys import key_files
from connectors.sources.ingest.sighting import Message
from connectors.storage.embedded.reader import read_outbox
from connectors.storage.embedded.runner import embedded
from stream.mechanisms.filter.learning import PARTS, WHOLE_DAY
from stream.records import DAY, MINUTE, Micros
from stream.release.validation import Policy
from stream.runners.embedded import Embedded
from tests.benchmarks.shared import Figure, by_window, cpu, log, policy, quick, simulations, tell

AUDIENCES = ("facilities", "public")
GOAL = 1.0
PLAN = {(64, "laplace"): 30, (64, "pegasus"): 30, (64, "filter"): 30,
        (1000, "laplace"): 10, (1000, "pegasus"): 10, (1000, "filter"): 10}  # fmt: skip
"""Windows measured by zones and mechanism; with fewer than 100 the p99 is the worst one."""
NEIGHBOURS = 2
"""Processes that keep the machine busy beside the last run."""
WARM_UP = 3
"""Windows not counted: the first ones build tables."""
MORNING: Micros = 9 * 60 * MINUTE
EVENING: Micros = 21 * 60 * MINUTE
"""A day that begins so late is learnt from in fewer windows, each of which learns as much as one of a whole day's."""


def main() -> None:
    if sys.argv[1:2] == ["--reader"]:
        read(Path(sys.argv[2]))
        return
    figures: list[Figure] = []
    for (zones, mechanism), windows in PLAN.items():
        figures += measure(zones, mechanism, max(5, windows // 10) if quick() else windows)
    figures += measure(1000, "filter", 5 if quick() else 10, max_count=63)
    with busy():
        figures += measure(1000, "filter", 5 if quick() else 10, beside=f" beside {NEIGHBOURS} busy processes")
    if not quick():
        figures += night()
    tell(figures)


@contextmanager
def busy() -> Iterator[None]:
    """Keep processes running that do nothing but compute."""
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NEIGHBOURS)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def night() -> list[Figure]:
    """Measure the windows with which a filter learns from a day, the first but for one left out.

    That one has to learn itself: before it nobody knows that a day is over. All others find it done.
    """
    day = (DAY - EVENING) // (5 * MINUTE)
    learning = PARTS // max(1, WHOLE_DAY // day)
    title = f" that learns from {day} windows"
    return measure(1000, "filter", learning - 1, beside=title, since=EVENING, warm_up=day + 1)


def measure(
    zones: int, mechanism: str, windows: int, *, max_count: int | None = None, beside: str = "",
    since: Micros = MORNING, warm_up: int = WARM_UP,
) -> list[Figure]:  # fmt: skip
    """Run a busy day from nine o'clock on (or ``since``) until so many windows have been measured."""
    buildings = simulations(zones)
    rules = policy(buildings, mechanism, max_count)
    begin = buildings[0].start + since
    messages = log(buildings, rules, begin, begin + (windows + warm_up + 2) * 5 * MINUTE)
    with tempfile.TemporaryDirectory(prefix="tacet-bench-") as name:
        folder = Path(name)
        key_files.create(folder / "key", laboratory=True)
        with embedded(rules, folder / "key", folder / "store") as runner, reader(folder / "store") as seen:
            started, parts = drive(runner, rules, messages, windows + warm_up)
            visible = seen(len(started))
        state = (folder / "store" / "store.sqlite").stat().st_size
    taken = sorted(max(ends) - start for start, ends in list(zip(started, visible, strict=True))[warm_up:])
    p50, p99 = taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    mean = {part: sum(times[warm_up:]) / windows * 1e3 for part, times in parts.items()}
    spent = ", ".join(f"{part} {ms:.0f}" for part, ms in mean.items() if part != "CPU")
    note = f"{windows} windows, mean ms: CPU {mean['CPU']:.0f}; wall: {spent}; store at the end {state / 1e6:.1f} MB"
    title = f"embedded, {zones:,} zones, {mechanism}" + (f" to {max_count}" if max_count else "") + beside
    return [
        Figure(f"{title}: p50", p50, "s", aside=True),
        Figure(f"{title}: p99", p99, "s", f"< {GOAL:g} s", p99 < GOAL, detail=note),
    ]


def drive(
    runner: Embedded, rules: Policy, messages: Iterator[Message], windows: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Hand messages to the runner; return when each closing heartbeat was, and what its parts took."""
    store: Any = runner._store
    parts: dict[str, list[float]] = defaultdict(list)
    started: list[float] = []
    for before, closing in by_window(rules, messages):
        store._db.execute("PRAGMA synchronous = OFF")
        for message in before:
            runner.process(message)
        store._db.execute("PRAGMA synchronous = FULL")
        closed = runner.partition.counters.windows
        with timed(runner, parts):
            started.append(time.monotonic())
            parts["CPU"].append(cpu(lambda: runner.process(closing)))  # noqa: B023
        assert runner.partition.counters.windows == closed + 1
        if len(started) == windows:
            break
    return started, parts


@contextmanager
def timed(runner: Embedded, parts: dict[str, list[float]]) -> Iterator[None]:
    """Measure the parts of what one heartbeat sets off."""
    methods = {
        "durable row": runner._store.append, "stages": runner.partition.process_in_steps,
        "state": runner.partition.snapshot, "transaction": runner._store.commit,
        "mark": runner._mark.advance, "outboxes": runner._store.deliver,
    }  # fmt: skip
    owners = {part: (getattr(method, "__self__"), method.__name__) for part, method in methods.items()}  # noqa: B009
    for part, method in methods.items():
        setattr(*owners[part], _timed(method, parts[part]))
    try:
        yield
    finally:
        for owner, name in owners.values():
            delattr(owner, name)


def _timed(call: Any, times: list[float]) -> Any:
    """Return a function that calls another and adds how long it took, in seconds; of a generator, until its end."""

    def measured(*arguments: Any) -> Any:
        began = time.monotonic()
        result = call(*arguments)
        if isinstance(result, Iterator):
            result = list(result)
        times.append(time.monotonic() - began)
        return result

    return measured


# --- the subscriber ---------------------------------------------------------------------------------------


def read(store: Path) -> None:
    """Poll the outboxes and tell when each record was seen, until standard input closes."""
    os.set_blocking(0, False)
    after = dict.fromkeys(AUDIENCES, 0)
    print("ready", flush=True)
    while sys.stdin.buffer.read(1) is None:
        for audience in AUDIENCES:
            for sequence, _ in read_outbox(store, audience, after[audience]):
                print(audience, time.monotonic(), flush=True)
                after[audience] = sequence
        time.sleep(0.001)


@contextmanager
def reader(store: Path) -> Iterator[Any]:
    """Give a function that returns, for each of the first ``n`` windows, when its records were seen."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_latency", "--reader", str(store)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    lines = child.stdout
    assert lines is not None
    lines.readline()  # it is ready
    times: dict[str, list[float]] = defaultdict(list)

    def seen(n: int) -> list[tuple[float, ...]]:
        while min(len(times[audience]) for audience in AUDIENCES) < n:
            audience, moment = lines.readline().split()
            times[audience].append(float(moment))
        return list(zip(*(times[audience][:n] for audience in AUDIENCES), strict=True))

    try:
        yield seen
    finally:
        child.stdin.close()
        child.wait(10)


if __name__ == "__main__":
    main()
