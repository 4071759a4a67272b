"""Tables of counts: ``time, zone, count`` in, ``time, zone, value, half_width`` out.

A bad row is counted and reported by line and field. Its time is skipped for all zones, like a window that is not
released, because a missing count must not be read as 0.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from connectors.sources.recordings.dialect import instants
from connectors.sources.recordings.text_rows import RowCounts, csv_rows, lines_of, named, open_text
from stream.domains import Purpose
from stream.errors import DataError, UsageError
from stream.keys import LaboratoryKeys, subkey
from stream.local_time import slot_of
from stream.mechanisms.base import Parameters
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.step import LARGEST_CAPACITY
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.mechanisms.registry import ReleaseContext, mechanism_of, release_counts, revised_counts
from stream.policy.counts import Span
from stream.policy.mechanisms import mechanism_named
from stream.records import MINUTE, Micros
from stream.schemas import rfc3339

COLUMNS = ("time", "zone", "count")
LARGEST_COUNT = 1_000_000_000
"""The largest accepted count: sums over zones and groups of windows stay far below 64 bits."""

_TIME = "time must be RFC 3339 with an offset (or local to --timezone without one), from 1970 to 2254"
_ZONE = "zone must be a name"
_COUNT = f"count must be a whole number from 0 to {LARGEST_COUNT}"
_TWICE = "each pair of time and zone must appear once"


@dataclass(frozen=True, slots=True)
class Table:
    """Counts of every zone at every time."""

    times: Ints
    zones: tuple[str, ...]
    counts: Ints
    tally: RowCounts
    left_out: int
    """Times that were skipped because a zone has no count, or two."""


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """The result of releasing a table."""

    rows: int
    zones: int
    windows: int
    bad: int
    """Rows that were skipped."""
    left_out: int
    """Times that were skipped for all zones."""
    problem: DataError | None
    """The error to report about bad rows and skipped times."""


@dataclass(frozen=True, slots=True)
class TableRelease:
    """Parameters of a table's release."""

    mechanism: str
    noise: NoiseParameter
    """Of each time."""
    smoother: str
    """Of a grouper."""
    calendar: bool
    """Whether the filter knows the hours of the week."""
    max_count: int | None
    """The end of the filter's grid; None: each zone's largest *noisy* value, so that no true count determines it."""
    timezone: str
    """Of times without an offset."""
    revise: Span | None = None
    """Revision of the values, an hour after their hour or at the end of their day."""


def release_file(
    path: Path, out: Path, keys: LaboratoryKeys, how: TableRelease, progress: Callable[[int], None] | None = None
) -> ReleasedTable:
    """Release the counts of ``path`` into ``out``."""
    zone, mechanism = _timezone(how.timezone), how.mechanism
    table = read_table(path, zone)
    window = int(np.diff(table.times).min()) if len(table.times) > 1 else 5 * MINUTE
    naming = ReleaseContext(
        site="table", release=mechanism, zones=table.zones,
        day_key=lambda key_day: subkey(keys.noise_key(key_day), Purpose.NOISE),
        slot=lambda instant: slot_of(instant, zone.key), window=window,
    )  # fmt: skip
    if how.max_count is None and mechanism_named(mechanism).largest_count is not None:
        largest = _largest(naming, table, how.noise)
    else:
        largest = [how.max_count or 1] * len(table.zones)
    stage = mechanism_of(mechanism, Parameters(how.noise, tuple(largest), how.smoother, how.calendar))
    if how.revise is None:
        values, widths = release_counts(stage, naming, table.times, table.counts, progress)
    else:
        values, widths = revised_counts(stage, naming, table.times, table.counts, how.revise, progress)
    _write(out, table, values, widths)
    return ReleasedTable(
        table.counts.size, len(table.zones), len(table.times), table.tally.bad, table.left_out, _problem(table)
    )


def _largest(naming: ReleaseContext, table: Table, noise: NoiseParameter) -> list[int]:
    """Return the end of each zone's grid: its largest noisy count, released as by ``laplace``."""
    plain = mechanism_of("laplace", Parameters(noise, (1,) * len(table.zones)))
    noisy, _ = release_counts(plain, naming, table.times, table.counts)
    largest = [max(20, int(column.max())) for column in noisy.T]
    if max(largest) > LARGEST_CAPACITY:
        msg = f"give --max-count: the noisy counts exceed {LARGEST_CAPACITY:,}, the largest count of the filter"
        raise UsageError(msg)
    return largest


def _problem(table: Table) -> DataError | None:
    if not table.tally.bad and not table.left_out:
        return None
    times = "1 time was" if table.left_out == 1 else f"{table.left_out:,} times were"
    times += " left out, at which not every zone has one good count"
    return DataError(f"{named(table.tally)}\n{times}" if table.tally.bad else times)


def read_table(path: Path, timezone: ZoneInfo) -> Table:
    """Read a table; times without an offset are local to ``timezone``.

    If a local time occurs twice for a zone, as when clocks are set back, the second row belongs to the second hour.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: there is no time at which every zone has exactly one good count.
    """
    tally, cells, invalid = RowCounts(), dict[tuple[Micros, str], int](), set[Micros]()
    with open_text(path) as lines:
        for line, row in csv_rows(path, lines_of(path, lines), COLUMNS):
            tally.rows += 1
            if isinstance(row, str):
                tally.note(line, row)
            else:
                _take(_Row(line, *row), timezone, cells, invalid, tally)
    zones = tuple(dict.fromkeys(name for _, name in cells))
    rows = Counter(time for time, _ in cells)
    times = sorted(time for time, count in rows.items() if count == len(zones) and time not in invalid)
    if not times:
        raise DataError(_nothing(path, tally, cells))
    counts = np.array([[cells[time, name] for name in zones] for time in times], dtype=np.int64)
    left_out = len(rows.keys() | invalid) - len(times)
    return Table(np.array(times, dtype=np.int64), zones, counts, tally, left_out)


class _Row(NamedTuple):
    """A line's fields as texts."""

    line: int
    time: str
    zone: str
    number: str


def _take(
    row: _Row, timezone: ZoneInfo, cells: dict[tuple[Micros, str], int], invalid: set[Micros], tally: RowCounts
) -> None:
    """Store a row in its cell; a bad row invalidates its time, if the time is known."""
    moments = instants(row.time, timezone)
    if not moments:
        tally.note(row.line, _TIME)
        return
    time = next((moment for moment in moments if (moment, row.zone) not in cells), moments[0])
    problem = None
    if not row.zone or "\ufffd" in row.zone:
        problem = _ZONE
    elif (count := _count(row.number)) is None:
        problem = _COUNT
    elif (time, row.zone) in cells:
        problem = _TWICE
    else:
        cells[time, row.zone] = count
    if problem is not None:
        tally.note(row.line, problem)
        invalid.update(moments)


def _count(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > len(str(LARGEST_COUNT)):
        return None
    count = int(text)
    return count if count <= LARGEST_COUNT else None


def _nothing(path: Path, tally: RowCounts, cells: Iterable[tuple[Micros, str]]) -> str:
    """Return the reason why no time of a table can be released."""
    if not tally.rows:
        return f"{path}: must have at least one row"
    if tally.bad:
        return f"{path}: no time has one good count of every zone; {named(tally)}"
    rarest = min(Counter(name for _, name in cells).values())
    return f"{path}: every zone must have a count at every time; one zone has {rarest} of them"


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
