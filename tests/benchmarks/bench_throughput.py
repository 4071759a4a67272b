"""Observations through the engine of one partition: CPU per row in batches of 500, and where it goes.

python -m tests.benchmarks.bench_throughput [--quick] [--json] [--profile]
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
from collections import deque
from dataclasses import replace
from itertools import count, repeat

from connectors.keys.data_keys import DataKeys
from stream.encoding import decode_message, encode_message
from stream.encryption import Vault
from stream.engine.partition import PartitionEngine
from stream.keys import LaboratoryKeys
from stream.records import DAY, SECOND, Heartbeat, Micros, ObservationBatch, Row
from tests.benchmarks.shared import KEYS, SOURCE, Figure, cpu, policy, quick, simulations, tell

ROWS = 500
GOAL = 0.5


def messages(devices: int, rows: int, start: Micros, vault: Vault | None) -> list[bytes]:
    """Return batches of 500 rows at 1,000 rows a second, with a heartbeat every five seconds."""
    points = simulations()[0].building.access_points
    made: list[bytes] = []
    for batch in range(rows // ROWS):
        at = start + batch * ROWS * 1000
        seen = range(batch * ROWS, (batch + 1) * ROWS)
        made.append(encode_message(ObservationBatch("site0", SOURCE, 1, batch, tuple(
            Row(f"{n * 7919 % devices:016x}", points[n * 31 % len(points)], at + (n - seen.start) * 1000) for n in seen
        )), vault))  # fmt: skip
        if (batch + 1) % 10 == 0:
            made.append(encode_message(Heartbeat("site0", SOURCE, 1, at + ROWS * 1000 - SECOND, 0)))
    return made


def main() -> None:
    rows = 200_000 if quick() else 1_000_000
    buildings = simulations()
    rules = policy(buildings)
    vault = DataKeys(buildings[0].start // DAY, bytes(32))
    clear = messages(3000, rows, buildings[0].start, None)
    sealed = messages(3000, rows, buildings[0].start, vault)
    keys = replace(KEYS, vault=vault)

    def feed(values: list[bytes], keys: LaboratoryKeys) -> float:
        partition = PartitionEngine(rules, keys)
        gc.collect()
        return (
            cpu(lambda: deque((partition.process(*each) for each in zip(count(), repeat(None), values)), 0))
            / rows
            * 1e6
        )

    whole, without = feed(sealed, keys), feed(clear, KEYS)
    decode = cpu(lambda: deque((decode_message(value, vault) for value in sealed), 0)) / rows * 1e6
    rate = f"{1e6 / whole:,.0f} rows a second of one core"
    tell([
        Figure("engine, encrypted batches of 500, 64 zones, PeGaSus", whole, "µs a row", f"<= {GOAL:g}", whole <= GOAL,
               rate),
        Figure("of it opening and decoding with its check of every row", decode, "µs a row", aside=True),
        Figure("of it filing rows, windows, releases", whole - decode, "µs a row", aside=True),
        Figure("engine, the same without encryption", without, "µs a row", aside=True),
        Figure("bytes of a row, encrypted", sum(map(len, sealed)) / rows, "bytes"),
    ])  # fmt: skip
    if "--profile" in sys.argv:
        profile(sealed, PartitionEngine(rules, keys))


def profile(values: list[bytes], partition: PartitionEngine) -> None:
    """Print the ten functions that take most, without their callees."""
    with cProfile.Profile() as profiler:
        for offset, value in enumerate(values):
            partition.process(offset, None, value)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(10)


if __name__ == "__main__":
    main()
