"""A recording read and played: rows by column against each row by itself, CPU a row, in one run.

python -m tests.benchmarks.bench_files [--quick] [--json]
"""

from __future__ import annotations

import gc
import hashlib
import random
import tempfile
from pathlib import Path
from time import process_time
from unittest.mock import patch

from connectors.sources.recordings import observations
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.rows import RowColumns
from stream.encoding import encode_message
from stream.records import HOUR
from stream.release.validation import Policy
from stream.schemas import rfc3339
from tests.benchmarks.shared import Figure, policy, quick, simulations, tell

GOAL = 2.0
"""Times by which a row is quicker by column; a floor, for the last measured is told."""


def recording(path: Path, rules: Policy, begin: int, rows: int) -> None:
    """Write eight hours of 4,000 devices that move at random; one row in a thousand is bad."""
    rng, points = random.Random(1), list(rules.access_points().items())
    with path.open("w") as file:
        file.write("time,device,access_point,site\n")
        for number in range(rows):
            time = begin + 8 * HOUR * number // rows
            radio, (site, _) = rng.choice(points)
            device = "nobody" if number % 1000 == 0 else f"a4:00:00:00:{rng.randrange(16):02x}:{rng.randrange(250):02x}"
            file.write(f"{rfc3339(time)},{device},{radio},{site}\n")


def spent(path: Path, rules: Policy, rows: int) -> tuple[float, float]:
    """Return microseconds a row of reading and of playing."""
    gc.collect()
    began = process_time()
    file = ObservationFile(path, rules, bytes(32))
    file.begin()
    read = process_time()
    for _ in file.messages():
        pass
    return (read - began) / rows * 1e6, (process_time() - read) / rows * 1e6


def digest(path: Path, rules: Policy) -> str:
    """Return what all messages of a recording come to."""
    made = hashlib.sha256()
    for message in ObservationFile(path, rules, bytes(32)).messages():
        made.update(encode_message(message))
    return made.hexdigest()


def main() -> None:
    rows = 50_000 if quick() else 400_000
    buildings = simulations()
    rules = policy(buildings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        recording(path, rules, buildings[0].start, rows)
        columns = min((spent(path, rules, rows) for _ in range(3)), key=sum)
        same = digest(path, rules)
        with (
            patch.object(RowColumns, "read", lambda _, each: (None, each)),
            patch.object(observations, "_FEW", 1 << 30),
        ):
            alone = min((spent(path, rules, rows) for _ in range(3)), key=sum)
            assert digest(path, rules) == same, "the same bytes, either way"
    ratio = sum(alone) / sum(columns)
    tell([
        Figure("each row by itself: read, named, sorted", alone[0], "µs a row", aside=True),
        Figure("each row by itself: played", alone[1], "µs a row", aside=True),
        Figure("by column: read, named, sorted", columns[0], "µs a row", detail=f"of {rows:,} rows"),
        Figure("by column: played", columns[1], "µs a row"),
        Figure("each by itself / by column", ratio, "times", f">= {GOAL:g}", ratio >= GOAL),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
