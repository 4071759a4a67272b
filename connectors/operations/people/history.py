"""Released history as a calibration reads it: a store, JSON lines, or CSV.

Records say whether they were made with a laboratory key. Rows of a CSV file, as the page exports them, do not: a
model that is made from them counts as a laboratory's.

The noise in values is known only where a value is a count plus noise: with the mechanism ``laplace``, and in CSV rows
of kind ``noise``. Filters and groups estimate counts from noisy ones; their values are used as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from connectors.operations.people.calibration import Evidence, NodeHistory
from connectors.operations.people.estimation import Noise, expected_devices
from connectors.operations.people.truth import GroundTruth
from connectors.sources.recordings.dialect import instants
from connectors.sources.recordings.text_rows import RowCounts, csv_rows, lines_of, open_text
from connectors.storage.embedded.reader import has_outbox, read_outbox
from connectors.subscribe.nodes import node_values
from stream.errors import DataError, UsageError
from stream.mechanisms.noise import std
from stream.policy.counts import LEVELS, CountRelease, Level
from stream.policy.fields import decimal_string
from stream.policy.people import level_of
from stream.policy.sites import Site
from stream.records import EPOCH, JsonObject, Micros
from stream.schemas import parse_record, parse_time

_COLUMNS = ("end", "node", "value")
_ROW = "end must be a time, node one that the release publishes, and value a whole number"
_NORMAL_95 = 1.96


class Released(NamedTuple):
    """A released value."""

    value: int
    coverage: float
    noise: Noise | None
    half_width: float = inf
    """Of the 95 % band, in devices; infinite if none is stated."""


@dataclass(slots=True)
class History:
    """Released values by node and window's end."""

    windows: dict[str, dict[Micros, Released]] = field(default_factory=dict)
    laboratory: bool = False
    left_out: int = 0
    """Records of another mechanism or epsilon, and bad rows."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The release whose history is read, for one audience at a site."""

    name: str
    site: Site
    release: CountRelease
    audience: str

    @property
    def timezone(self) -> ZoneInfo:
        """Time zone of the site."""
        return ZoneInfo(self.site.timezone)

    def floor_of(self, node: str) -> str:
        """Return the floor of a zone; an empty text for other nodes."""
        floors = {f"zone:{zone.id}": zone.floor for zone in self.site.zones}
        return floors.get(node, "")


def from_store(store: Path, of: Subscription) -> History:
    """Return the history in an audience's outbox of an embedded store; UsageError if there is none."""
    if not has_outbox(store, of.audience):
        raise UsageError(f"--audience {of.audience}: must have an outbox in {store}")
    return from_records((parse_record(value) for _, value in read_outbox(store, of.audience, 0, of.release.name)), of)


def from_file(path: Path, of: Subscription, nodes: frozenset[str]) -> History:
    """Return the history in a file: records as JSON lines if its name says so, otherwise rows of CSV."""
    if path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        with open_text(path) as lines:
            whole = (line for line in lines_of(path, lines) if line is not None and line.strip())
            return from_records((parse_record(line.encode()) for line in whole), of)
    return _from_rows(path, of, nodes)


def from_records(records: Iterable[JsonObject], of: Subscription) -> History:
    """Return the history in records; other releases, sites and audiences are skipped.

    Raises:
        DataError: a record is not one of a release.
    """
    found, epsilon = History(), decimal_string(of.release.epsilon[of.audience])
    for record in records:
        try:
            if (record["release"], record["site"], record["audience"]) != (of.release.name, of.name, of.audience):
                continue
            if (record["mechanism"], record["epsilon"]) != (of.release.mechanism, epsilon):
                found.left_out += 1
                continue
            end = parse_time(record["window_end"])
            widths = {each.node: each.half_width for each in node_values(record)}
            for node, value, noise in _nodes(record, of):
                width = widths.get(node)
                stated = inf if width is None else width
                found.windows.setdefault(node, {})[end] = Released(value, record["coverage"], noise, stated)
            found.laboratory = found.laboratory or record["laboratory"] is not False
        except (KeyError, TypeError, ValueError):
            raise DataError("history: must consist of private releases, a field is missing") from None
    return found


def _nodes(record: JsonObject, of: Subscription) -> Iterator[tuple[str, int, Noise | None]]:
    scales = {f"zone:{name}": float(scale) for name, scale in record["noise_scale"].items()}
    kind, plain = record.get("noise", "laplace"), record["mechanism"] == "laplace"
    for name, value in (record["values"] or {}).items():
        yield f"zone:{name}", value, _noise(kind, [scales[f"zone:{name}"]]) if plain else None
    levels, own = record.get("levels") or {}, record.get("levels_noise_scale") or {}
    for name, value in levels.get("floor", {}).items():
        parts = [scale for node, scale in scales.items() if of.floor_of(node) == name]
        given = own.get("floor", {}).get(name)
        yield f"floor:{name}", value, _noise(kind, parts if given is None else [given]) if plain else None
    if "building" in levels:
        given = own.get("building")
        parts = list(scales.values()) if given is None else [given]
        yield "building", levels["building"], _noise(kind, parts) if plain else None


def _noise(kind: str, scales: list[float]) -> Noise | None:
    """Return the law of a sum of independent noises with these scales."""
    if not scales:
        return None
    if kind == "gaussian":
        return Noise("gaussian", sqrt(sum(scale**2 for scale in scales)))
    variance = sum(std(Fraction(1) / Fraction(scale)) ** 2 for scale in scales)
    return Noise("laplace" if len(scales) == 1 else "gaussian", sqrt(variance))


def _from_rows(path: Path, of: Subscription, nodes: frozenset[str]) -> History:
    found, tally = History(laboratory=True), RowCounts()
    columns = (*_COLUMNS, *(name for name in ("half_width", "kind", "coverage") if name in _header(path)))
    with open_text(path) as lines:
        for line, row in csv_rows(path, lines_of(path, lines), columns):
            tally.rows += 1
            fields = {} if isinstance(row, str) else dict(zip(columns, row, strict=True))
            if fields.get("value") == "" and fields.get("node") in nodes:
                continue  # a denied window
            try:
                [end, *_] = instants(fields["end"], of.timezone)
                coverage = float(fields.get("coverage") or 1)
                width = float(fields.get("half_width", "0") or inf)  # without the column the counts have no noise
                released = Released(int(fields["value"]), coverage, _noise_of_row(fields), width)
                if fields["node"] not in nodes or not width >= 0:
                    raise ValueError
            except (KeyError, ValueError):
                tally.note(line, _ROW)
                continue
            found.windows.setdefault(fields["node"], {})[end] = released
    found.left_out = tally.bad
    if not found.windows:
        raise DataError(f"{path}: must have at least one good row" + "".join(f"\n  {each}" for each in tally.problems))
    return found


def _header(path: Path) -> list[str]:
    with open_text(path) as lines:
        return (next(iter(lines_of(path, lines)), "") or "").strip().split(",")


def _noise_of_row(fields: Mapping[str, str]) -> Noise | None:
    width = fields.get("half_width")
    if not width or fields.get("kind") != "noise":
        return None
    return Noise("gaussian", float(width) / _NORMAL_95)


# --- windows with people ------------------------------------------------------------------------------


def node_histories(history: History, of: Subscription) -> dict[str, NodeHistory]:
    """Return each node's released values in the order of time."""
    found = {}
    for node, windows in history.windows.items():
        ends = sorted(windows)
        values = np.array([windows[end].value for end in ends], dtype=np.int64)
        days = np.array([_local(end, of)[0] for end in ends], dtype=np.int64)
        found[node] = NodeHistory(values, days, windows[ends[-1]].noise)
    return found


def evidence(
    history: History, histories: Mapping[str, NodeHistory], truth: GroundTruth, of: Subscription
) -> dict[Level, Evidence]:
    """Return the windows that have both a released value and a count of people, by level."""
    expected = {node: expected_devices(each.values, each.noise) for node, each in histories.items()}
    rows: dict[Level, list[tuple[Any, ...]]] = {}
    names: dict[Level, dict[str, int]] = {}
    for moment, people in sorted(truth.people.items()):
        released = history.windows.get(moment.node, {}).get(moment.end)
        if released is None:
            continue
        level = level_of(moment.node)
        known = names.setdefault(level, {})
        number = known.setdefault(moment.node, len(known))
        day, hour = _local(moment.end, of)
        devices = expected[moment.node][released.value]
        row = (number, day, hour, released.value, devices, people, released.coverage, released.half_width)
        rows.setdefault(level, []).append(row)
    return {level: _evidence(tuple(names[level]), rows[level], of) for level in LEVELS if level in rows}


def _evidence(nodes: tuple[str, ...], rows: list[tuple[Any, ...]], of: Subscription) -> Evidence:
    columns = list(zip(*rows, strict=True))
    node, days, hours, released = (np.array(column, dtype=np.int64) for column in columns[:4])
    devices, people, coverage, half_widths = (np.array(column, dtype=np.float64) for column in columns[4:])
    floors = tuple(map(of.floor_of, nodes))
    return Evidence(nodes, node, days, hours, released, devices, people, coverage, floors, half_widths)


def _local(end: Micros, of: Subscription) -> tuple[int, int]:
    """Return the number of the site-local day of an instant, and its hour."""
    local = (EPOCH + timedelta(microseconds=end)).astimezone(of.timezone)
    return (local.date() - EPOCH.date()).days, local.hour
