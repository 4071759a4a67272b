"""Tables of counts: ``time, zone, count`` in, ``time, zone, value, half_width`` out."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from stream.errors import DataError, UsageError
from stream.keys import LaboratoryKeys, subkey
from stream.local_time import slot_of
from stream.mechanisms.counts import Naming, count_mechanism, release_counts
from stream.mechanisms.noise import Ints
from stream.records import MINUTE, Micros
from stream.schemas import parse_time, rfc3339

COLUMNS = ("time", "zone", "count")


@dataclass(frozen=True, slots=True)
class Table:
    """Counts of every zone at every time."""

    times: Ints
    zones: tuple[str, ...]
    counts: Ints


@dataclass(frozen=True, slots=True)
class Made:
    """What a release of a table made."""

    rows: int
    zones: int
    windows: int


def release_file(
    path: Path, out: Path, keys: LaboratoryKeys, *, mechanism: str, smoother: str, calendar: bool,
    epsilon: Fraction, max_count: int | None, timezone: str, progress: Callable[[int], None] | None = None,
) -> Made:  # fmt: skip
    """Release the counts of ``path`` into ``out``.

    Without ``max_count`` the filter's grid ends at each zone's largest *noisy* value: the true maximum never
    sizes it.
    """
    zone = _timezone(timezone)
    table = read_table(path, zone)
    window = int(np.diff(table.times).min()) if len(table.times) > 1 else 5 * MINUTE
    naming = Naming(
        site="table", release=mechanism, zones=table.zones, day_key=lambda day: subkey(keys.day(day), "noise"),
        slot=lambda instant: slot_of(instant, zone), window=window,
    )  # fmt: skip
    settings = {"epsilon": epsilon, "smoother": smoother, "calendar": calendar}
    if max_count is None and mechanism == "filter":
        noisy, _ = release_counts(
            count_mechanism("laplace", epsilon=epsilon, max_counts=[1] * len(table.zones)),
            naming, table.times, table.counts,
        )  # fmt: skip
        largest = [max(20, int(column.max())) for column in noisy.T]
    else:
        largest = [max_count or 1] * len(table.zones)
    stage = count_mechanism(mechanism, max_counts=largest, **settings)  # type: ignore[arg-type]
    values, widths = release_counts(stage, naming, table.times, table.counts, progress)
    _write(out, table, values, widths)
    return Made(table.counts.size, len(table.zones), len(table.times))


def read_table(path: Path, timezone: ZoneInfo) -> Table:
    """Read a table; times without a zone are local to ``timezone``.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: a field is wrong, or a zone has no count at some time; line and field are named.
    """
    cells: dict[tuple[Micros, str], int] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                msg = f"{path}: first line must name the columns {', '.join(COLUMNS)}; {missing[0]} is missing"
                raise UsageError(msg)
            for row in reader:
                time, name, count = _cell(path, reader.line_num, row, timezone)
                if (time, name) in cells:
                    msg = f"{path}: line {reader.line_num}: time and zone must not come twice"
                    raise DataError(msg)
                cells[time, name] = count
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    if not cells:
        msg = f"{path}: must hold at least one row"
        raise DataError(msg)
    times = sorted({time for time, _ in cells})
    zones = tuple(dict.fromkeys(name for _, name in cells))
    if len(cells) != len(times) * len(zones):
        msg = f"{path}: every zone must have a count at every time"
        raise DataError(msg)
    counts = np.array([[cells[time, name] for name in zones] for time in times], dtype=np.int64)
    return Table(np.array(times, dtype=np.int64), zones, counts)


def _cell(path: Path, line: int, row: dict[str, str | None], timezone: ZoneInfo) -> tuple[Micros, str, int]:
    try:
        moment = datetime.fromisoformat(row["time"] or "")
    except ValueError:
        msg = f"{path}: line {line}: time must be an ISO 8601 time"
        raise DataError(msg) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone)
    count = row["count"] or ""
    if not count.isascii() or not count.isdigit():
        msg = f"{path}: line {line}: count must be a whole number of at least 0"
        raise DataError(msg)
    if not row["zone"]:
        msg = f"{path}: line {line}: zone must not be empty"
        raise DataError(msg)
    return parse_time(moment.isoformat()), row["zone"], int(count)


def _timezone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        msg = f"timezone: must be a name such as 'Europe/Berlin', got {name!r}"
        raise UsageError(msg) from None


def _write(out: Path, table: Table, values: Ints, widths: Ints) -> None:
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("time", "zone", "value", "half_width"))
        for row, time in enumerate(table.times):
            text = rfc3339(int(time))
            writer.writerows(
                (text, zone, int(values[row, place]), int(widths[row, place])) for place, zone in enumerate(table.zones)
            )
