"""The service's history: 90 days of 64 zones, a month's queries, memory that does not grow.

Records are those of a filter with noisy values, floors and building, as the release stage writes them; the plain way
beside it reads the month's records from an outbox and takes the means in Python.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import orjson

from connectors.serve.history.files import ExportFormat
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.history.rows import RowsQuery
from stream.records import DAY, MINUTE, Micros
from stream.schemas import parse_time, rfc3339
from tests.benchmarks.shared import Figure, cpu, quick, tell

GOAL_MS = 300.0
EXPORTING = 192.0
"""MB that making a file may add to the process, however long its time."""
GROWTH = 128.0
"""MB that half of the records may add to the process, beyond what the other half has taken."""
TICK, ZONES, FLOORS = 5 * MINUTE, 64, 6
START = parse_time("2026-01-01T08:00:00Z")
AT_ONCE = 288
NAMES = [f"{2000 + place}" for place in range(ZONES)]


def record(end: Micros, rng: np.random.Generator) -> bytes:
    counts = rng.poisson(8, ZONES)
    noisy = (counts + np.rint(rng.laplace(0, 10, ZONES))).astype(int).tolist()
    floors = {str(floor): int(sum(noisy[floor::FLOORS])) for floor in range(FLOORS)}
    return orjson.dumps({
        "v": 1, "release_id": f"dbh/occupancy/public/{rfc3339(end)}", "site": "dbh", "audience": "public",
        "release": "occupancy", "window_start": rfc3339(end - TICK), "window_end": rfc3339(end),
        "values": dict(zip(NAMES, counts.tolist(), strict=True)),
        "levels": {"floor": floors, "building": sum(noisy)}, "released": True, "reason": None, "mechanism": "filter",
        "epsilon": "0.1", "spend": "0.1", "noise_scale": dict.fromkeys(NAMES, 10.0),
        "half_width_95": dict.fromkeys(NAMES, 7.0), "half_width_kind": "posterior",
        "levels_half_width_95": {"floor": dict.fromkeys(floors, 70), "building": 448},
        "noisy": dict(zip(NAMES, noisy, strict=True)), "levels_noisy": {"floor": floors, "building": sum(noisy)},
        "levels_draws": {"floor": dict.fromkeys(floors, ZONES // FLOORS), "building": ZONES},
        "coverage": 1.0, "policy_version": "0123456789abcdef", "laboratory": True,
    })  # fmt: skip


def peak() -> float:
    """Return the most memory that this process has had resident, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    days = 40 if quick() else 90
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "index" / "history.duckdb"
        kept = ReleaseHistory(path, {"dbh": SiteClock("America/Los_Angeles")})
        box = sqlite3.connect(Path(name) / "outbox.sqlite", isolation_level=None)
        box.execute("CREATE TABLE records (time INTEGER PRIMARY KEY, value BLOB)")
        figures = [*filled(kept, box, days), *asked(kept, box, START + days * DAY, days), *exported(kept)]
        tell([*figures, Figure("the file", path.stat().st_size / 2**20, "MB", aside=True)])
        kept.close()
        box.close()


def filled(kept: ReleaseHistory, box: sqlite3.Connection, days: int) -> list[Figure]:
    """Add so many days; the last month of them to an outbox too."""
    rng, stored = np.random.default_rng(1), list[float]()

    def fill() -> None:
        for day in range(days):
            ends = [START + day * DAY + n * TICK for n in range(1, AT_ONCE + 1)]
            records = [record(end, rng) for end in ends]
            kept.add(records, {"outbox:public": (day + 1) * AT_ONCE})
            if day >= days - 31:
                box.executemany("INSERT INTO records VALUES (?, ?)", zip(ends, records, strict=True))
            if day + 1 in {days // 2, days}:
                stored.append(peak())

    added = cpu(fill)
    half, whole = stored
    return [
        Figure("a day of 64 zones added", 1000 * added / days, "ms CPU", detail="records made included"),
        Figure(f"resident with {days} days", whole, "MB", f"<= {GROWTH:.0f} more than with half of them",
               whole - half <= GROWTH, detail=f"{half:.0f} MB with half of them"),
    ]  # fmt: skip


def asked(kept: ReleaseHistory, box: sqlite3.Connection, end: Micros, days: int) -> list[Figure]:
    """Ask for the last month, in several ways, and for what is latest."""
    month = RowsQuery("public", "occupancy", "dbh", "1h", start=end - 30 * DAY, end=end, limit=100_000)
    zone = replace(month, nodes=("zone:2011",))
    queries = {
        "a month by the hour, every zone": month,
        "a month by the day, every zone": replace(month, granularity="1d"),
        "a month by the quarter of an hour, one zone": replace(zone, granularity="15min"),
        "a month of windows, one zone": replace(zone, granularity="5min"),
        "a page of a month of windows, every zone": replace(month, granularity="5min", limit=10_000),
    }
    figures = []
    for words, query in queries.items():
        rows = len(kept.rows(query).rows)
        spent = 1000 * min(cpu(partial(kept.rows, query)) for _ in range(5))
        figures.append(
            Figure(words, spent, "ms CPU", f"< {GOAL_MS:.0f}", spent < GOAL_MS, detail=f"of {days} days; {rows} rows")
        )
    plain = 1000 * cpu(partial(by_hand, box, end - 30 * DAY))
    kept.usual("public", "occupancy", "dbh")
    latest = 1000 * min(cpu(partial(kept.latest, "public", "dbh")) for _ in range(5))
    return [
        *figures,
        Figure("the same month by the hour, read from an outbox", plain, "ms CPU", aside=True),
        Figure("the latest windows, with what is usual", latest, "ms CPU", "< 100", latest < 100),
    ]


def exported(kept: ReleaseHistory) -> list[Figure]:
    """Export all days, in both forms."""
    year = RowsQuery("public", "occupancy", "dbh", "5min", end=START + 365 * DAY)
    figures = []
    for form in get_args(ExportFormat):
        before = peak()
        size = sum(len(piece) for piece in kept.export(year, form))
        grown, size_of = peak() - before, f"{size / 2**20:.0f} MB, 64 zones; memory of the whole process at its most"
        figures.append(
            Figure(f"all days as {form} take", grown, "MB", f"<= {EXPORTING:.0f}", grown <= EXPORTING, detail=size_of)
        )
    return figures


def by_hand(box: sqlite3.Connection, start: Micros) -> dict[tuple[int, str], float]:
    """Take means by the hour of what an outbox holds."""
    sums: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for time, value in box.execute("SELECT time, value FROM records WHERE time > ?", (start,)):
        for zone, noisy in orjson.loads(value)["noisy"].items():
            sums[time // (12 * TICK), zone].append(noisy)
    return {key: sum(values) / len(values) for key, values in sums.items()}


if __name__ == "__main__":
    main()
