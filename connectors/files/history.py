"""A restricted history: the true counts and stays that a replay with restricted output wrote."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from stream.errors import DataError, UsageError
from stream.policy.document import Policy
from stream.records import Micros, OccupancyWindow
from stream.schemas import parse_time


@dataclass(frozen=True, slots=True)
class History:
    """A replay's true counts and stays."""

    windows: dict[str, list[OccupancyWindow]]
    """Site -> its windows in order."""
    stays: list[tuple[str, str, str, Micros, Micros]]
    """(site, device, zone, start, end)."""


def read_history(folder: Path, policy: Policy) -> History:
    """Read ``occupancy.csv`` and ``presence.csv`` of a replay made with restricted output.

    Raises:
        UsageError: a file is missing or has other columns.
        DataError: a field is wrong; file, line and field are named, never the value.
    """
    zones = {site: [zone.id for zone in declared.zones] for site, declared in policy.site.items()}
    cells: dict[tuple[str, Micros], dict[str, int]] = defaultdict(dict)
    for place, row in _rows(folder / "occupancy.csv", ("window_end", "site", "zone", "count")):
        site, zone = _known(place, row, zones)
        if not row["count"].isdecimal():
            raise DataError(f"{place}: count must be a whole number of at least 0")
        cells[site, _time(place, row, "window_end")][zone] = int(row["count"])
    windows: dict[str, list[OccupancyWindow]] = defaultdict(list)
    for (site, end), counts in sorted(cells.items()):
        if len(counts) != len(zones[site]):
            raise DataError(f"{folder / 'occupancy.csv'}: every zone of a site must have a count at every window")
        row_of_counts = tuple(counts[zone] for zone in zones[site])
        windows[site].append(OccupancyWindow(site, end, row_of_counts, Fraction(1)))
    stays = []
    for place, row in _rows(folder / "presence.csv", ("site", "device", "zone", "start", "end")):
        site, zone = _known(place, row, zones)
        start, end = _time(place, row, "start"), _time(place, row, "end")
        if not start < end:
            raise DataError(f"{place}: end must be after start")
        stays.append((site, row["device"], zone, start, end))
    return History(dict(windows), stays)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(f"{path}: first line must name {', '.join(columns)}; {missing[0]} is missing")
            for row in reader:
                if any(row[name] is None for name in columns):
                    raise DataError(f"{path}: line {reader.line_num}: must have {len(columns)} fields")
                yield f"{path}: line {reader.line_num}", row
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error}); make it with 'tacet replay --include-restricted'"
        ) from None


def _known(place: str, row: dict[str, str], zones: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    if row["site"] not in zones:
        raise DataError(f"{place}: site must be one of the policy")
    if row["zone"] not in zones[row["site"]]:
        raise DataError(f"{place}: zone must be one of its site in the policy")
    return row["site"], row["zone"]


def _time(place: str, row: dict[str, str], field: str) -> Micros:
    try:
        return parse_time(row[field])
    except ValueError as error:
        raise DataError(f"{place}: {field} {error}") from None
