"""Replay: a file of observations through the whole pipeline into plain files, with a laboratory key."""

from __future__ import annotations

import csv
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.files.observations import ObservationFile
from connectors.files.shortfall import NO_DROPS, shortfall
from connectors.files.text_rows import Tally
from connectors.private_folder import private_folder
from stream.errors import DataError, UsageError
from stream.keys import Keys
from stream.pipeline import Options, Output, Pipeline, SiteState
from stream.policy.document import Policy
from stream.records import Published
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, PRESENCE, parse_record


@dataclass(slots=True)
class Replayed:
    """What a replay made."""

    tally: Tally
    windows: int = 0
    records: dict[str, int] = field(default_factory=dict)
    """Records by file."""
    refused: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows dropped in sensing, by reason."""


def replay(file: ObservationFile, policy: Policy, keys: Keys, out: Path, options: Options) -> Replayed:
    """Run a file through every site's pipeline and write what comes out under ``out``.

    ``out`` must not hold an earlier replay: two releases of one window side by side would invite a
    comparison that the account does not cover. A replay that fails leaves nothing there.

    Raises:
        UsageError: ``out`` is not a new or empty folder, or the file cannot be read.
        DataError: the file cannot be read to its end, or no window comes of it.
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
        msg = f"no window comes of this file, and nothing was written{why}"
        raise DataError(msg)
    with _whole_or_nothing(out):
        return _write(outputs, out, file.tally, states)


def refuse_used(out: Path) -> None:
    """Raise UsageError unless a folder is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        msg = f"{out}: must be a new or empty folder"
        raise UsageError(msg)


@contextmanager
def _whole_or_nothing(out: Path) -> Iterator[None]:
    """Make a folder; where what is written into it fails, leave things as they were."""
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


def _write(outputs: Iterable[Output], out: Path, tally: Tally, states: dict[str, SiteState]) -> Replayed:
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
        for reason, rows in state.sense.counters.items():
            if reason not in NO_DROPS:
                result.dropped[reason] = result.dropped.get(reason, 0) + rows
    return result


def _file(out: Path, topic: str) -> Path:
    if topic.startswith("tacet.private."):
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
        writer = csv.writer(file)
        if path.name == "presence.csv":
            writer.writerow(columns := ("site", "device", "zone", "start", "end"))
            writer.writerows([record[name] for name in columns] for record in map(_parsed, records))
        else:
            writer.writerow(("window_end", "site", "zone", "count"))
            for record in map(_parsed, records):
                writer.writerows(
                    (record["window_end"], record["site"], zone, count) for zone, count in record["counts"].items()
                )


def _parsed(record: Published) -> dict[str, Any]:
    return parse_record(record.value)
