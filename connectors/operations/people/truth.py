"""Ground truth: counts of people as CSV; public, or paid for.

Columns are ``time``, ``node`` and ``people``; a node is ``zone:2011``, ``floor:2`` or ``building``. A row belongs to
the window whose end is nearest. Of several rows of a node and window the one nearest to that end is used, and the
earlier one of two that are equally near; which one depends on times only.

**Paid truth.** The unit is one person at one moment: one window. That person is in one zone, on its floor and in the
building, so each of the file's levels gets an equal part of epsilon. ``noised`` adds exact discrete Laplace noise to
every used row before anything else reads it. The result can be written to a file with a column ``epsilon``; reading
that file again costs nothing more.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from connectors.sources.recordings.dialect import instants
from connectors.sources.recordings.text_rows import RowCounts, csv_rows, lines_of, open_text
from stream.errors import DataError, UsageError
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_labels import label
from stream.policy.fields import decimal_string, parse_epsilon
from stream.policy.people import level_of
from stream.records import Micros
from stream.schemas import rfc3339

COLUMNS = ("time", "node", "people")
LARGEST_PEOPLE = 100_000
"""Larger counts count as this."""
_PURPOSE = "people truth"

_TIME = "time must be RFC 3339 with an offset (or local to the site without one), from 1970 to 2254"
_NODE = "node must be one that the release publishes, such as zone:2011, floor:2 or building"
_PEOPLE = "people must be a number of at least 0"
_NOISED = "people must be a whole number, and epsilon that of the first row"


class Moment(NamedTuple):
    """A node at a window's end."""

    node: str
    end: Micros


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Counts of people by node and window."""

    people: Mapping[Moment, float]
    tally: RowCounts
    epsilon: Fraction | None = None
    """Of one person at one moment; None for public counts."""


class _Used(NamedTuple):
    away: int
    time: Micros
    people: float


def read_truth(path: Path, tick: Micros, timezone: ZoneInfo, nodes: frozenset[str]) -> GroundTruth:
    """Read counts of people.

    Args:
        path: the file; compressed if its name ends with ``.gz``.
        tick: length of a window.
        timezone: of times without an offset.
        nodes: the nodes that the release publishes.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: no row is good.
    """
    is_noised = _names_epsilon(path)
    tally, used, epsilons = RowCounts(), dict[Moment, _Used](), set[str]()
    columns = (*COLUMNS, "epsilon") if is_noised else COLUMNS
    with open_text(path) as lines:
        for line, row in csv_rows(path, lines_of(path, lines), columns):
            tally.rows += 1
            problem = row if isinstance(row, str) else _take(row, used, tick, timezone, nodes, noised=is_noised)
            if problem is None and is_noised:
                epsilons.add(row[3])
                problem = _NOISED if len(epsilons) > 1 else None
            if problem is not None:
                tally.note(line, problem)
    if not used:
        raise DataError(f"{path}: must have at least one good row" + "".join(f"\n  {each}" for each in tally.problems))
    return GroundTruth({moment: row.people for moment, row in used.items()}, tally, _epsilon_of(path, epsilons))


def _names_epsilon(path: Path) -> bool:
    with open_text(path) as lines:
        return "epsilon" in (next(iter(lines_of(path, lines)), "") or "").strip().split(",")


def _epsilon_of(path: Path, epsilons: set[str]) -> Fraction | None:
    if not epsilons:
        return None
    try:
        return parse_epsilon(epsilons.pop())
    except ValueError:
        raise UsageError(f"{path}: epsilon must be a decimal number, as 'tacet calibrate --noised' wrote it") from None


def _take(
    row: tuple[str, ...], used: dict[Moment, _Used], tick: Micros, timezone: ZoneInfo, nodes: frozenset[str], *,
    noised: bool,
) -> str | None:  # fmt: skip
    """Use a row if it is the nearest to its window's end; return the rule that it breaks."""
    moments = instants(row[0], timezone)
    if not moments:
        return _TIME
    if row[1] not in nodes:
        return _NODE
    try:
        people = float(row[2])
    except ValueError:
        return _PEOPLE
    if noised:
        if not people.is_integer():
            return _NOISED
    elif not people >= 0:
        return _PEOPLE
    people = min(people, LARGEST_PEOPLE)  # no refusal, which would tell that one person more was there
    time = moments[0]
    end = (time + tick // 2) // tick * tick
    found = _Used(abs(time - end), time, people)
    moment = Moment(row[1], end)
    used[moment] = min(used.get(moment, found), found, key=lambda each: each[:2])
    return None


def noised(truth: GroundTruth, epsilon: Fraction, key: bytes) -> GroundTruth:
    """Return the counts with noise, in whole people; nothing but them may be read afterwards.

    Args:
        truth: true counts.
        epsilon: what one person at one moment costs, over all levels of the file.
        key: a secret of this run.
    """
    levels = len({level_of(moment.node) for moment in truth.people})
    moments = sorted(truth.people)
    counts = np.floor([truth.people[moment] for moment in moments]).astype(np.int64)  # one person changes it by 1
    drawn = counts + discrete_laplace(key, label(_PURPOSE, epsilon), epsilon / levels, len(moments))
    return replace(truth, people=dict(zip(moments, map(float, drawn.tolist()), strict=True)), epsilon=epsilon)


def write_noised(path: Path, truth: GroundTruth) -> None:
    """Write counts with noise, one row for each node and window, with their epsilon."""
    epsilon = decimal_string(truth.epsilon or Fraction(0))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*COLUMNS, "epsilon"))
        for moment in sorted(truth.people, key=lambda each: (each.end, each.node)):
            writer.writerow((rfc3339(moment.end), moment.node, int(truth.people[moment]), epsilon))
