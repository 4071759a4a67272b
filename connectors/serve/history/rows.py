"""Series of released values with bands: single windows, or means.

A mean of a filter's values uses these, revised ones where they exist, and its band is an upper bound. Other means use
noisy values if every window has one, and so does a filter's mean over a day if its band then is narrower; the band is
that of their noise (:mod:`connectors.records.bands`). A mean of estimates of people has the mean of the ends of
their bands, since their errors do not cancel out. Denied windows are counted and enter no mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from connectors.records import record_fields
from connectors.records.bands import AT_MOST, NoiseDistribution, lower_end, mean_half_width, upper_end
from connectors.records.decoding import KINDS
from connectors.serve.history.index import Index
from connectors.serve.history.local_clock import SiteClock
from stream.errors import UsageError
from stream.records import DAY, HOUR, MINUTE, Micros
from stream.schemas import parse_time, rfc3339

Granularity = Literal["5min", "15min", "1h", "1d"]
"""The time that one row covers; a day is a site-local one."""
COLUMNS = (
    "start", "end", "node", "value", "low", "high", "half_width", "kind", "windows", "denied", "revised", "coverage",
    "bounded_to",
)  # fmt: skip
WINDOWS: Granularity = "5min"
"""The granularity of single windows, however long they are."""
_SIZES: dict[Granularity, Micros] = {"15min": 15 * MINUTE, "1h": HOUR, "1d": DAY}
_DECIMALS = 4
_Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """A query for rows of one release's history."""

    audience: str
    release: str
    site: str
    granularity: Granularity
    start: Micros | None = None
    """Only windows that end after this time; None: from the first."""
    end: Micros | None = None
    """Only windows that end at this time or before; None: to the last."""
    nodes: tuple[str, ...] = ()
    """``building``, ``floor:2``, ``zone:2011``; empty: every released node."""
    limit: int = 10_000
    """Rows per page, in [1, 100,000]; an export contains all."""
    after: str | None = None
    """The ``next`` of the previous page."""


class Rows(NamedTuple):
    """Rows of a history, ordered by time and node."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    next: str | None
    """Where the next page starts; None at the end."""


class SeriesQuery(NamedTuple):
    """A query in terms of the index's integers."""

    series: tuple[int, ...]
    ranks: tuple[int, ...]
    """Among several records of a window, the one of the series with the largest rank wins."""
    nodes: tuple[int, ...]
    names: tuple[str, ...]
    """Names of the nodes: building, floors, zones, in the order of their integers."""

    @property
    def first(self) -> tuple[int, ...]:
        """The series of first records, which are not revisions."""
        return tuple(series for series, rank in zip(self.series, self.ranks, strict=True) if not rank % 4)


def resolve_query(cursor: duckdb.DuckDBPyConnection, query: RowsQuery) -> SeriesQuery:
    """Return the query; it has no series or nodes if nothing matching was released."""
    found = cursor.execute(
        "SELECT series, 4 * attempt + CASE revision WHEN '' THEN 0 WHEN '1h' THEN 1 ELSE 2 END FROM series"
        " WHERE audience = ? AND site = ? AND (release = ? OR base = ?)",
        [query.audience, query.site, query.release, query.release],
    ).fetchall()
    series, ranks = (tuple(int(row[place]) for row in found) for place in (0, 1))
    nodes = cursor.execute(
        "SELECT DISTINCT node.node, name FROM named JOIN node USING (node)"
        " WHERE series IN (SELECT unnest($1::INTEGER[])) AND ($3 OR name IN (SELECT unnest($2::VARCHAR[])))",
        [series, list(query.nodes), not query.nodes],
    ).fetchall()
    nodes.sort(key=lambda row: node_order(row[1]))
    return SeriesQuery(series, ranks, tuple(node for node, _ in nodes), tuple(name for _, name in nodes))


def node_order(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Return the sort key of nodes: building, floors, zones; floor 2 before floor 10."""
    level, _, own = name.partition(":")
    parts = [part for part in re.split(r"(\d+)", own) if part]
    return ("building", "floor", "zone").index(level), [
        (0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts
    ]


# --- a page of rows -----------------------------------------------------------------------------------


def page(index: Index, clock: SiteClock, query: RowsQuery) -> Rows:
    """Return the rows of a query after its ``after``; UsageError if that is not from an earlier page."""
    behind, node = behind_page(query.after)
    with index.reading() as cursor:
        what = resolve_query(cursor, query)
        start, end = clip_span(cursor, what.series, max(query.start or 0, behind), query.end)
        if not what.nodes or start >= end:
            return Rows(COLUMNS, [], None)
        span = _Span(start, end, _bucket(clock, query.granularity, start, end))
        most = query.limit // len(what.nodes) + 2
        buckets = _buckets(cursor, what, span, most)
        cells = _cells(cursor, what, span._replace(end=int(buckets["last"][-1])), query.granularity)
        laws = {number: NoiseDistribution(*law) for number, *law in cursor.execute("FROM law").fetchall()}
    bands = (
        _window_bands(cells)
        if query.granularity == WINDOWS
        else _mean_bands(cells, laws, whole_day=query.granularity == "1d")
    )
    shown = _shown(cells | bands, whole=query.granularity == WINDOWS)
    rows = _listed(what.names, _times(clock, query.granularity, buckets), buckets, _places(what, buckets, cells), shown)
    if node:
        rows = [row for row in rows if row[0] != rfc3339(behind) or node_order(row[2]) > node_order(node)]
    if len(rows) > query.limit:
        rows = rows[: query.limit]
        return Rows(COLUMNS, rows, f"{rows[-1][0]}/{rows[-1][2]}")
    return Rows(COLUMNS, rows, f"{rfc3339(int(buckets['last'][-1]))}/" if len(buckets["last"]) == most else None)


def behind_page(after: str | None) -> tuple[Micros, str]:
    """Return the instant after which a page's windows end, and the node after which its first rows start, if any.

    UsageError if ``after`` is not from an earlier page.
    """
    if after is None:
        return 0, ""
    start, _, node = after.partition("/")
    try:
        return parse_time(start), node_order(node) and node if node else ""
    except ValueError:
        raise UsageError(f"after must be the next of the rows before, got {after[:200]!r}") from None


def clip_span(
    cursor: duckdb.DuckDBPyConnection, series: Sequence[int], start: Micros, end: Micros | None
) -> tuple[Micros, Micros]:
    """Return a span of time, clipped to the first and last stored windows."""
    query = "SELECT min(start), max(finish) FROM release_window WHERE series IN (SELECT unnest(?::INTEGER[]))"
    ((first, last),) = cursor.execute(query, [list(series)]).fetchall()
    if first is None:
        return 0, 0
    return max(start, first), last if end is None else min(end, last)


class _Span(NamedTuple):
    """Which windows are read, and how they are grouped."""

    start: Micros
    end: Micros
    """Windows that end after the start, and at the end or before."""
    bucket: str
    """SQL expression, in ``start``, that is equal for the windows of one row."""


def _bucket(clock: SiteClock, granularity: Granularity, start: Micros, end: Micros) -> str:
    if granularity == WINDOWS:
        return "start"
    local, size = f"(start + {local_offset(clock, start, end)})", _SIZES[granularity]
    return f"{local} // {size}" if size == DAY else f"start - {local} % {size}"


def local_offset(clock: SiteClock, start: Micros, end: Micros) -> str:
    """Return an SQL expression of ``start`` for local time minus UTC within a span of time."""
    first, *later = clock.shifts(start, end)
    cases = "".join(f" WHEN start >= {shift.start} THEN {shift.offset}" for shift in reversed(later))
    return f"CASE{cases} ELSE {first.offset} END" if cases else str(first.offset)


def _listing(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _buckets(cursor: duckdb.DuckDBPyConnection, what: SeriesQuery, span: _Span, most: int) -> _Columns:
    """Return a span's first buckets: windows released and denied, coverage, bound of counts, first and last window."""
    return _fetched(cursor.execute(
        f"SELECT {span.bucket} AS bucket, count(*) FILTER (released) AS released,"
        " count(*) FILTER (NOT released) AS denied, avg(coverage) AS coverage, coalesce(min(bounded), 0) AS bounded,"
        " min(start) AS first, max(finish) AS last FROM"
        " (SELECT start, finish, bool_or(released) AS released, max(coverage) AS coverage, min(bounded) AS bounded"
        f" FROM release_window WHERE series IN ({_listing(what.series)})"
        f" AND finish > {span.start} AND finish <= {span.end}"
        f" GROUP BY start, finish) GROUP BY bucket ORDER BY bucket LIMIT {most}"
    ))  # fmt: skip


def _cells(cursor: duckdb.DuckDBPyConnection, what: SeriesQuery, span: _Span, granularity: Granularity) -> _Columns:
    """Return the data of each bucket and node, in no particular order."""
    within = f"finish > {span.start} AND finish <= {span.end} AND node IN ({_listing(what.nodes)})"
    series = what.series
    if granularity == "1d" and _all_noisy(cursor, what, within):
        series = what.first  # a revised record contains no noisy value
    best = f"SELECT *, 0 AS rank FROM cell WHERE series = {series[0]} AND {within}"
    if len(series) > 1:
        of = ", ".join(f"({number}, {rank})" for number, rank in zip(what.series, what.ranks, strict=True))
        best = (
            f"SELECT cell.*, rank FROM cell JOIN (VALUES {of}) AS of(series, rank) USING (series) WHERE"
            f" series IN ({_listing(series)}) AND {within}"
            " QUALIFY row_number() OVER (PARTITION BY node, finish ORDER BY rank DESC) = 1"
        )
    return _fetched(cursor.execute(
        f"SELECT {span.bucket} AS bucket, node, count(*) AS windows, avg(value) AS value,"
        " avg(half_width) AS half_width, avg(low) AS low, avg(high) AS high,"
        " avg(noisy) AS noisy, count(*) FILTER (spread IS NULL) AS loose,"
        " min(law) AS law, max(law) AS last_law, min(kind) AS kind,"
        " sum(CASE WHEN law > 0 OR value != 0 THEN (spread + 1) * (spread + 1) ELSE 0 END) AS squares,"
        " sum(CASE WHEN law = 0 AND value = 0 THEN spread ELSE 0 END) AS sure,"
        f" count(*) FILTER (rank % 4 > 0) AS revised FROM ({best}) GROUP BY ALL"
    ))  # fmt: skip


def _fetched(cursor: duckdb.DuckDBPyConnection) -> _Columns:
    """Return columns as they are, with null numbers as NaN."""
    return {name: np.asarray(np.ma.filled(column, np.nan)) for name, column in cursor.fetchnumpy().items()}


def _all_noisy(cursor: duckdb.DuckDBPyConnection, what: SeriesQuery, within: str) -> bool:
    """Whether every first record of a window contains values whose noise is known."""
    query = f"SELECT count(*), count(*) FILTER (spread IS NULL) FROM cell WHERE series IN ({_listing(what.first)})"
    ((all_of_them, loose),) = cursor.execute(f"{query} AND {within}").fetchall() if what.first else [(0, 0)]
    return bool(all_of_them) and not loose


# --- bands --------------------------------------------------------------------------------------------


def _window_bands(cells: _Columns) -> _Columns:
    """Return single windows' values with the kind of band that their records contain."""
    return {"words": np.array(KINDS, object)[cells["kind"].astype(int)]}


def _mean_bands(cells: _Columns, laws: Mapping[int, NoiseDistribution], *, whole_day: bool) -> _Columns:
    """Return value, half-width and kind of each mean."""
    kinds, alone = cells["kind"].astype(int), cells["windows"] == 1
    known = cells["loose"] == 0
    noise = np.where(known, _noise_half_width(cells, laws, known), np.inf)
    filtered = kinds == KINDS.index("posterior")
    better = np.full(len(kinds), whole_day) & ~alone & (noise < cells["half_width"])
    of_noise = known & (~filtered | better)
    words = np.where(of_noise, KINDS[0], np.where(alone, np.array(KINDS, object)[kinds], AT_MOST))
    return {
        "value": np.where(of_noise, cells["noisy"], cells["value"]),
        "half_width": np.where(of_noise, noise, cells["half_width"]),
        "words": words,
    }


def _noise_half_width(
    cells: _Columns, laws: Mapping[int, NoiseDistribution], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the half-width of the noise in each mean of noisy values; meaningful only where the noise is known."""
    windows, alone = cells["windows"], cells["windows"] == 1
    of_one_law = known & (cells["law"] > 0) & (cells["law"] == cells["last_law"])
    half_width = (cells["sure"] + np.sqrt(cells["squares"])) / windows
    half_width = np.where(alone & ~of_one_law, cells["half_width"], half_width)
    pairs = np.stack([cells["law"], windows])[:, of_one_law]
    distinct, of = np.unique(pairs, axis=1, return_inverse=True)
    half_width[of_one_law] = np.array([mean_half_width(laws[law], n) for law, n in distinct.T.tolist()])[of.ravel()]
    return half_width


# --- rows ---------------------------------------------------------------------------------------------


def _times(clock: SiteClock, granularity: Granularity, buckets: _Columns) -> list[tuple[str, str]]:
    """Return start and end of each bucket."""
    starts = buckets["bucket"].tolist()
    if granularity == WINDOWS:
        spans = list(zip(starts, buckets["last"].tolist(), strict=True))
    elif granularity == "1d":
        spans = [clock.day_span(number) for number in starts]
    else:
        spans = [(start, start + _SIZES[granularity]) for start in starts]
    return [(rfc3339(start), rfc3339(end)) for start, end in spans]


def _places(what: SeriesQuery, buckets: _Columns, cells: _Columns) -> NDArray[np.int64]:
    """Return the index of each cell in the array with every bucket and node in order."""
    number = np.array(what.nodes)
    ascending = np.argsort(number)
    node = ascending[np.searchsorted(number, cells["node"], sorter=ascending)]
    return np.asarray(np.searchsorted(buckets["bucket"], cells["bucket"]) * len(number) + node)


def _shown(cells: _Columns, *, whole: bool) -> list[tuple[Any, ...]]:
    """Return value, low, high, half_width, kind, windows and revised of each cell."""
    value, half_width = cells["value"], cells["half_width"]
    ends = [
        np.where(np.isnan(cells[stated]), end(value, half_width), cells[stated])
        for stated, end in (("low", lower_end), ("high", upper_end))
    ]
    columns = [_rounded(each) for each in (value, *ends, half_width)]
    if whole:
        columns[0] = value.astype(np.int64).tolist()
    words = cells["words"].astype(object)
    words[np.isnan(half_width)] = None
    return list(zip(*columns, words.tolist(), cells["windows"].tolist(), cells["revised"].tolist(), strict=True))


def _rounded(column: NDArray[np.float64]) -> list[float | None]:
    shown = np.round(column, _DECIMALS).astype(object)
    shown[np.isnan(column)] = None
    return list(shown)


def _listed(
    names: Sequence[str], times: Sequence[tuple[str, str]], buckets: _Columns, at: NDArray[np.int64],
    shown: Sequence[tuple[Any, ...]],
) -> list[list[Any]]:  # fmt: skip
    """Return the rows by time and node: every node with a value, and all nodes of a bucket in which every window was
    denied."""
    width = len(names)
    of = np.full(len(times) * width, -1)
    of[at] = np.arange(len(at))
    kept = np.flatnonzero((of >= 0) | np.repeat(buckets["released"] == 0, width))
    denied, coverage = buckets["denied"].tolist(), np.round(buckets["coverage"], _DECIMALS).tolist()
    bounded = [record_fields.bound_text(bound) if bound else None for bound in buckets["bounded"].tolist()]
    rows = []
    for place, cell in zip(kept.tolist(), of[kept].tolist(), strict=True):
        bucket, node = divmod(place, width)
        *values, revised = shown[cell] if cell >= 0 else _NOTHING
        rows.append([*times[bucket], names[node], *values, denied[bucket], revised, coverage[bucket], bounded[bucket]])
    return rows


_NOTHING = (None, None, None, None, None, 0, 0)
"""The cells of a node whose windows were all denied."""
