"""The snapshot of a site of 1,000 zones, by mechanism: bytes before and after zstd, and the CPU to make it.

The filter is measured a second time after a week, when its calendar knows every hour; with a tick of an hour, or the
week would take most of an hour to run.
"""

from __future__ import annotations

import gc

from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.engine.snapshot import open_snapshot
from stream.records import DAY, MINUTE, SECOND, Heartbeat
from tests.benchmarks.shared import KEYS, MECHANISMS, SOURCE, Figure, cpu, log, policy, quick, simulations, tell

GOAL_MB = 16 * 1.048576
"""The largest record that the snapshot topic takes."""


REVISED = 'revise = "1h"\n'
"""What is held of an hour comes on top; of a day, about as much again at its end."""


def main() -> None:
    figures: list[Figure] = []
    for mechanism in MECHANISMS:
        figures += measure(mechanism, 15 * MINUTE)
    figures += measure("filter", 15 * MINUTE, max_count=63)
    if not quick():
        figures += measure("filter", 75 * MINUTE, max_count=63, more=REVISED)
        figures += measure("filter", 7 * DAY, tick="1h")
    tell(figures)


def measure(
    mechanism: str, span: int, max_count: int | None = None, tick: str = "5min", more: str = ""
) -> list[Figure]:
    """Feed a teaching day from its late morning on, then take snapshots."""
    days = -(-(span + 10 * 60 * MINUTE) // DAY)
    buildings = simulations(1000, days=days, scale=1.0 if days == 1 else 0.25)
    rules = policy(buildings, mechanism, max_count, tick, more)
    partition, begin = PartitionEngine(rules, KEYS), buildings[0].start + 10 * 60 * MINUTE
    last = begin
    for offset, message in enumerate(log(buildings, rules, begin, begin + span)):
        partition.process(offset, None, encode_message(message))
        last = max(last, message.watermark) if isinstance(message, Heartbeat) else last
    seconds: list[float] = []
    gc.collect()
    for n in range(3):
        partition.process(0, None, encode_message(Heartbeat("site0", SOURCE, begin, last + n * SECOND // 10, 0)))
        seconds.append(cpu(lambda: partition.snapshot(0, 0)))
    snapshot = partition.snapshot(0, 0)
    raw = sum(len(data) for stages in open_snapshot(snapshot)[1].values() for data in stages.values())
    size = len(snapshot) / 1e6
    stages = {name: len(data) for name, data in open_snapshot(snapshot)[1]["site0"].items()}
    note = "raw bytes by stage: " + ", ".join(f"{name} {n:,}" for name, n in stages.items())
    if size > GOAL_MB:
        note += "; fits the embedded store only: lower max_count in the policy for Kafka"
    zones = rules.site["site0"].zones
    title = f"1,000 zones, {mechanism}" + (f" to {max_count}" if max_count else "")
    title += ", an hour revised" if more else ""
    title += f", after {span // DAY} days" if span >= DAY else ""
    devices = f"largest counts {min(z.largest for z in zones)} to {max(z.largest for z in zones)}, two epsilons"
    return [
        Figure(f"{title}: raw", raw / 1e6, "MB", detail=devices if mechanism == "filter" else "", aside=True),
        Figure(f"{title}: zstd", size, "MB", f"<= {GOAL_MB:.1f} MB", size <= GOAL_MB, detail=note),
        Figure(f"{title}: CPU to encode and compress", min(seconds) * 1e3, "ms", aside=True),
    ]


if __name__ == "__main__":
    main()
