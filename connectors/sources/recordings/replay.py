"""Replay: a file of observations through the pipeline into plain files.

``read_history`` reads the true counts and stays back that a replay with restricted output wrote.
"""

from __future__ import annotations

import csv
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from connectors.secrets.private_files import private_folder
from connectors.sources.recordings.observations import ObservationFile, shortfall
from connectors.sources.recordings.text_rows import RowCounts, csv_rows, lines_of, open_text
from stream.errors import DataError, UsageError
from stream.keys import Keys
from stream.pipeline import Options, Output, Pipeline, SiteState
from stream.records import Micros, OccupancyWindow, Published
from stream.release.validation import Policy
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, PRESENCE, is_private, parse_record, parse_time
from stream.sensing.state import dropped_rows


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    tally: RowCounts
    windows: int = 0
    records: dict[str, int] = field(default_factory=dict)
    """Number of records by file."""
    refused: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows dropped in sensing, by reason."""


def replay(file: ObservationFile, policy: Policy, keys: Keys, out: Path, options: Options) -> Replayed:
    """Run a file through every site's pipeline and write the outputs under ``out``.

    ``out`` must not contain an earlier replay: two releases of one window side by side would allow a comparison that
    the account does not cover. A replay that fails leaves nothing there.

    Raises:
        UsageError: ``out`` is not a new or empty folder, or the file cannot be read.
        DataError: the file cannot be read to its end, or no window follows from it.
    """
    refuse_used(out)
    pipelines = {site: Pipeline(policy, site, keys, options) for site in policy.site}
    states = {site: pipeline.initial() for site, pipeline in pipelines.items()}
    outputs: list[Output] = []
    for message in file.messages():
        states[message.site], made = pipelines[message.site].step(states[message.site], message)
        outputs += made
    for site, pipeline in pipelines.items():
        outputs += pipeline.finish(states[site])
    if not outputs:
        problem = shortfall(file.tally)
        why = "" if problem is None else f": {problem}"
        msg = f"the file contains no window; nothing was written{why}"
        raise DataError(msg)
    with _all_or_nothing(out):
        return _write(outputs, out, file.tally, states)


def refuse_used(out: Path) -> None:
    """Raise UsageError unless a folder is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        msg = f"{out}: must be a new or empty folder"
        raise UsageError(msg)


@contextmanager
def _all_or_nothing(out: Path) -> Iterator[None]:
    """Create a folder; if writing into it fails, restore the earlier situation."""
    new = not out.exists()
    private_folder(out)
    try:
        yield
    except BaseException:
        for path in out.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if new:
            out.rmdir()
        raise


def _write(outputs: Iterable[Output], out: Path, tally: RowCounts, states: dict[str, SiteState]) -> Replayed:
    files: dict[Path, list[Published]] = defaultdict(list)
    private_folder(out / "private")
    for output in outputs:
        if isinstance(output, Published):
            files[_file(out, output.topic)].append(output)
    result = Replayed(tally)
    for path, records in files.items():
        records.sort(key=lambda record: (record.time, record.key))
        private_folder(path.parent)
        (_write_csv if path.suffix == ".csv" else _write_jsonl)(path, records)
        result.records[str(path.relative_to(out))] = len(records)
    audit = files.get(out / "audit.jsonl", [])
    result.windows = len({(record.key, record.time) for record in audit})
    result.refused = sum(parse_record(record.value)["outcome"] != "released" for record in audit)
    for state in states.values():
        for reason, rows in dropped_rows(state.occupancy.counters).items():
            result.dropped[reason] = result.dropped.get(reason, 0) + rows
    return result


def _file(out: Path, topic: str) -> Path:
    if is_private(topic):
        _, _, audience, release, _ = topic.split(".")
        return out / "private" / audience / f"{release}.jsonl"
    names = {
        LEAKAGE: "leakage.jsonl",
        AUDIT: "audit.jsonl",
        PRESENCE: "presence.csv",
        OCCUPANCY: "occupancy.csv",
    }
    return out / names[topic]


def _write_jsonl(path: Path, records: list[Published]) -> None:
    path.write_bytes(b"".join(record.value + b"\n" for record in records))
    path.chmod(0o600)


def _write_csv(path: Path, records: list[Published]) -> None:
    with path.open("w", newline="") as file:
        path.chmod(0o600)
        writer, bodies = csv.writer(file), (parse_record(record.value) for record in records)
        if path.name == "presence.csv":
            writer.writerow(columns := ("site", "device", "zone", "start", "end"))
            writer.writerows([body[name] for name in columns] for body in bodies)
        else:
            writer.writerow(("window_end", "site", "zone", "count"))
            for body in bodies:
                writer.writerows(
                    (body["window_end"], body["site"], zone, count) for zone, count in body["counts"].items()
                )


# --- restricted output ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestrictedHistory:
    """A replay's true counts and stays."""

    windows: dict[str, list[OccupancyWindow]]
    """Site -> its windows in order."""
    stays: list[tuple[str, str, str, Micros, Micros]]
    """(site, device, zone, start, end)."""


def read_history(folder: Path, policy: Policy) -> RestrictedHistory:
    """Read ``occupancy.csv`` and ``presence.csv`` of a replay with restricted output.

    Raises:
        UsageError: a file is missing or has other columns.
        DataError: a field is wrong; file, line and field are named, never the value.
    """
    zones = {site: [zone.id for zone in declared.zones] for site, declared in policy.site.items()}
    cells: dict[tuple[str, Micros], dict[str, int]] = defaultdict(dict)
    for place, row in _rows(folder / "occupancy.csv", ("window_end", "site", "zone", "count")):
        site, zone = _known(place, row, zones)
        if not row["count"].isdecimal() or len(row["count"]) > 12:
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
    return RestrictedHistory(dict(windows), stays)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    if not path.is_file():
        raise UsageError(f"{path}: cannot be read; make it with 'tacet replay --include-restricted'")
    with open_text(path) as file:
        for number, row in csv_rows(path, lines_of(path, file), columns):
            if isinstance(row, str):
                raise DataError(f"{path}: line {number}: {row}")
            yield f"{path}: line {number}", dict(zip(columns, row, strict=True))


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
