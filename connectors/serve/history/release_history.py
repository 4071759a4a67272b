"""The history of released records: series, days and bands.

The history contains only what its audiences received, byte for byte and in the order of arrival. It can always be
rebuilt from outboxes or topics, so an index in another format is emptied and filled again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from cramjam import zstd
from numpy.typing import NDArray

from connectors.records.decoding import Attribute, Cell, Window, read_record
from connectors.serve.history.aggregates import (
    AttributeRow,
    Forecast,
    LatestRows,
    SpendRow,
    Usual,
    UsualTable,
    attribute_rows,
    forecast_hours,
    latest_rows,
    newest_end,
    spend_rows,
)
from connectors.serve.history.files import ExportFormat, csv_file, parquet_file
from connectors.serve.history.index import Index, Numbers, insert, insert_rows
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.rows import Rows, RowsQuery, behind_page, page
from stream.errors import DataError, FinalityError, UsageError
from stream.records import JsonObject, Micros, ReleaseId
from stream.schemas import parse_record, parse_time

START = "start"
"""Replaces a release id: before the first record."""
_RecordsById = dict[str, tuple[bytes, Window | Attribute]]
"""The record and its decoded content, by release id."""


class ReleaseHistory:
    """Released records of some audiences and sites. Thread-safe."""

    def __init__(self, path: Path | None, clocks: Mapping[str, SiteClock]) -> None:
        """Open an index, or create it.

        Args:
            path: its file, in a folder that only the owner can enter; None: in memory.
            clocks: the clock of each site whose rows are queried.

        Raises:
            UsageError: others can enter the file's folder.
            HistoryError: the file cannot be opened, or another process has it open.
        """
        self._index = Index(path)
        self._clocks = clocks
        self._usual = Usual(self._index)

    # --- adding records -------------------------------------------------------------------------------

    def add(self, records: Sequence[bytes], positions: Mapping[str, int]) -> list[bytes]:
        """Store records in their order, and the position of each source, in one transaction.

        The last of the records is the last one that was read from each of the sources.

        Returns:
            The records that were new, in the same order.

        Raises:
            FinalityError: a stored record has other bytes; nothing is stored.
            DataError: one of them is not a private record; nothing is stored.
        """
        by_id = _read(records)
        with self._index.writing() as cursor:
            for identity in _stored(cursor, by_id):
                del by_id[identity]
            if by_id:
                _insert(cursor, by_id)
            for source, place in positions.items():
                cursor.execute("DELETE FROM position WHERE source = ?", [source])
                cursor.execute("INSERT INTO position VALUES (?, ?, ?)", [source, place, read_record(records[-1])[0]])
        return [value for value, _ in by_id.values()]

    def position(self, source: str) -> int | None:
        """Return the position up to which a source (an outbox, a partition of a topic) was read; None if it was not
        read."""
        with self._index.reading() as cursor:
            row = cursor.execute("SELECT place FROM position WHERE source = ?", [source]).fetchone()
        return None if row is None else int(row[0])

    def last(self, source: str) -> str | None:
        """Return the id of the last record read from a source; None if there is none."""
        with self._index.reading() as cursor:
            row = cursor.execute("SELECT id FROM position WHERE source = ?", [source]).fetchone()
        return None if row is None else str(row[0])

    # --- records as published -------------------------------------------------------------------------

    def since(self, audience: str, after: str, limit: int = 256) -> list[tuple[str, bytes]]:
        """Return (release id, record) of an audience's records after a release id, in the order they were added.

        ``after`` may be ``START``. UsageError if it is not a record of this audience.
        """
        with self._index.reading() as cursor:
            seq = 0 if after == START else _place(cursor, audience, after)
            query = "SELECT id, body FROM record WHERE audience = ? AND seq > ? ORDER BY seq LIMIT ?"
            rows = cursor.execute(query, [audience, seq, limit]).fetchall()
        return [(identity, bytes(zstd.decompress(body))) for identity, body in rows]

    def newest(self, audience: str) -> str:
        """Return the id of the record that was added last; ``START`` if there is none."""
        with self._index.reading() as cursor:
            query = "SELECT id FROM record WHERE audience = ? ORDER BY seq DESC LIMIT 1"
            row = cursor.execute(query, [audience]).fetchone()
        return START if row is None else str(row[0])

    def bodies(self, audience: str, start: Micros, end: Micros) -> Iterator[JsonObject]:
        """Yield an audience's parsed records of windows and days that end after ``start``, at ``end`` or before."""
        with self._index.reading() as cursor:
            query = "SELECT body FROM record WHERE audience = ? AND finish > ? AND finish <= ? ORDER BY seq"
            found = cursor.execute(query, [audience, start, end])
            while rows := found.fetchmany(256):
                yield from (parse_record(bytes(zstd.decompress(body))) for (body,) in rows)

    # --- queries --------------------------------------------------------------------------------------

    def rows(self, query: RowsQuery) -> Rows:
        """Return rows with their bands; UsageError if the site is unknown or ``after`` is not from an earlier page."""
        return page(self._index, self._clock(query.site), query)

    def export(self, query: RowsQuery, form: ExportFormat) -> Generator[bytes, None, None]:
        """Yield a file of all rows, in pieces, with the memory of one page. Raises UsageError like ``rows``, at the
        call."""
        self._clock(query.site)
        behind_page(query.after)
        pages = self._pages(query)
        return csv_file(pages) if form == "csv" else parquet_file(pages)

    def _pages(self, query: RowsQuery) -> Iterator[Rows]:
        after = query.after
        while True:
            rows = self.rows(replace(query, limit=_EXPORTED_AT_ONCE, after=after))
            yield rows
            if (after := rows.next) is None:
                return

    def latest(self, audience: str, site: str) -> LatestRows:
        """Return the rows of each release's newest window, and the newest window of the site."""
        return latest_rows(self._index, self._usual, self._clock(site), audience, site)

    def forecast(self, audience: str, release: str, site: str) -> Forecast:
        """Return the hours to come that a forecast's newest records tell of."""
        return forecast_hours(self._index, audience, release, site)

    def newest_end(self, audience: str, site: str) -> Micros | None:
        """Return the end of a site's newest window; None before the first."""
        return newest_end(self._index, audience, site)

    def usual(self, audience: str, release: str, site: str) -> UsualTable:
        """Return mean, deviation and number by node, class of day and slot, from released values."""
        return self._usual.table(self._clock(site), audience, release, site)

    def attributes(self, audience: str, site: str, first_day: str | None, last_day: str | None) -> list[AttributeRow]:
        """Return the attributes of days: published, withheld, or not queried."""
        return attribute_rows(self._index, audience, site, first_day, last_day)

    def spends(self, audience: str, site: str, first_day: str | None, last_day: str | None) -> list[SpendRow]:
        """Return what each day's releases have cost, by the audience's own records."""
        return spend_rows(self._index, self._clock(site), (audience, site), first_day, last_day)

    def close(self) -> None:
        """Close its file."""
        self._index.close()

    def _clock(self, site: str) -> SiteClock:
        if site not in self._clocks:
            raise UsageError(f"site must be one of {', '.join(self._clocks)}, got {site!r}")
        return self._clocks[site]


_EXPORTED_AT_ONCE = 20_000


def _read(records: Sequence[bytes]) -> _RecordsById:
    """Return records by release id, the first of each; FinalityError if two with one id differ."""
    by_id: _RecordsById = {}
    for value in records:
        identity, content = read_record(value)
        if by_id.setdefault(identity, (value, content))[0] != value:
            raise _differs(identity)
    return by_id


def _stored(cursor: duckdb.DuckDBPyConnection, by_id: _RecordsById) -> list[str]:
    """Return which of these records are stored already; FinalityError if one of them differs."""
    if not by_id:
        return []
    ends = [content.end for _, content in by_id.values()]
    query = "SELECT id, body FROM record WHERE finish BETWEEN ? AND ? AND id IN (SELECT unnest(?::VARCHAR[]))"
    found = cursor.execute(query, [min(ends), max(ends), list(by_id)]).fetchall()
    for identity, body in found:
        if bytes(zstd.decompress(body)) != by_id[identity][0]:
            raise _differs(identity)
    return [identity for identity, _ in found]


def _insert(cursor: duckdb.DuckDBPyConnection, by_id: _RecordsById) -> None:
    """Append records, in their order."""
    ((last,),) = cursor.execute("SELECT coalesce(max(seq), 0) FROM record").fetchall()
    rows = [
        (last + place, ReleaseId.parse(identity).audience, identity, content.end, bytes(zstd.compress(value, level=3)))
        for place, (identity, (value, content)) in enumerate(by_id.items(), 1)
    ]
    insert_rows(cursor, "record", rows)
    insert_rows(cursor, "attribute", [content for _, content in by_id.values() if isinstance(content, Attribute)])
    _insert_windows(cursor, [content for _, content in by_id.values() if isinstance(content, Window)])


def _insert_windows(cursor: duckdb.DuckDBPyConnection, windows: Sequence[Window]) -> None:
    numbers = Numbers(cursor)
    for window in windows:
        numbers.name(window.series, window.nodes)
    insert_rows(cursor, "release_window", [(numbers.series(window.series), *_window_row(window)) for window in windows])
    cells = [(numbers.series(window.series), window, cell) for window in windows for cell in window.cells]
    if cells:
        insert(cursor, "cell", _columns(numbers, cells))
    numbers.save()


def _window_row(window: Window) -> tuple[object, ...]:
    return (
        window.start, window.end, window.released, window.kind, window.coverage, window.nano, window.by_day,
        window.bounded,
    )  # fmt: skip


def _columns(numbers: Numbers, cells: list[tuple[int, Window, Cell]]) -> dict[str, NDArray[Any]]:
    return {
        "series": np.array([series for series, _, _ in cells], np.int32),
        "node": np.array([numbers.node(cell.node) for _, _, cell in cells], np.int32),
        "start": np.array([window.start for _, window, _ in cells], np.int64),
        "finish": np.array([window.end for _, window, _ in cells], np.int64),
        "value": np.array([cell.value for _, _, cell in cells], np.int64),
        "half_width": np.array([cell.half_width for _, _, cell in cells]),
        "noisy": np.array([cell.noisy for _, _, cell in cells], np.int64),
        "law": np.array([numbers.distribution(cell.noise) for _, _, cell in cells], np.int32),
        "spread": np.array([cell.spread for _, _, cell in cells]),
        "kind": np.array([window.kind for _, window, _ in cells], np.int8),
        "low": np.array([cell.low for _, _, cell in cells]),
        "high": np.array([cell.high for _, _, cell in cells]),
    }


def _differs(identity: str) -> FinalityError:
    return FinalityError(f"release {identity}: is in the history with other content; nothing is added")


def _place(cursor: duckdb.DuckDBPyConnection, audience: str, identity: str) -> int:
    """Return the position of an audience's record; UsageError if there is none."""
    try:
        where = ReleaseId.parse(identity).where.split("/")
        end = parse_time(where[0]) if len(where) < 3 else None
    except (DataError, ValueError):
        where, end = [], None
    query = "SELECT seq FROM record WHERE id = $1 AND audience = $2 AND ($3 IS NULL OR finish = $3)"
    row = cursor.execute(query, [identity, audience, end]).fetchone() if where else None
    if row is None:
        raise UsageError(f"after must be the id of a release of audience {audience}, got {identity[:200]!r}")
    return int(row[0])
