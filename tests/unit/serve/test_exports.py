"""Exports: the rows as files that a spreadsheet opens without running anything."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connectors.serve.history.files import csv_file
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.history.rows import COLUMNS, Rows
from stream.errors import UsageError
from tests.unit.serve.released_history import MONDAY, TICK, asked, history, window


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> tuple[ReleaseHistory, Rows]:
    monkeypatch.setattr("connectors.serve.history.release_history._EXPORTED_AT_ONCE", 7)  # several pages
    kept = history()
    kept.add([window(MONDAY + n * TICK, {"2011": n - 9, "2065": 1} if n != 4 else None) for n in range(1, 21)], {})
    return kept, kept.rows(asked(limit=1000))


def test_a_csv_file_holds_all_rows_in_their_order(rows: tuple[ReleaseHistory, Rows]) -> None:
    kept, whole = rows
    text = b"".join(kept.export(asked(limit=2), "csv")).decode()
    head, *lines = csv.reader(io.StringIO(text))
    assert tuple(head) == COLUMNS
    assert lines == [["" if entry is None else str(entry) for entry in row] for row in whole.rows]
    assert ",-8," in text, "a negative number stays a number"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_evaluate_is_quoted(begin: str) -> None:
    page = Rows(("node", "value"), [[f"{begin}SUM(A1)", -3], ["zone:=1", -2.5]], None)
    [_, first, second] = csv.reader(io.StringIO(b"".join(csv_file([page])).decode(), newline=""))
    assert first == [f"'{begin}SUM(A1)", "-3"]
    assert second == ["zone:=1", "-2.5"]


def test_a_parquet_file_holds_all_rows_with_their_types(rows: tuple[ReleaseHistory, Rows], tmp_path: Path) -> None:
    kept, whole = rows
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"".join(kept.export(asked(), "parquet")))
    with duckdb.connect() as database:
        table = database.read_parquet(str(path))
        types = dict(zip(table.columns, map(str, table.types), strict=True))
        stored = table.project(
            "strftime(start AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ'), node, value, kind, denied"
        ).fetchall()
    assert types["start"] == "TIMESTAMP WITH TIME ZONE"
    assert types["value"] == "DOUBLE"
    assert stored == [(row[0], row[2], row[3], row[7], row[9]) for row in whole.rows]


def test_an_export_is_created_while_it_is_read(rows: tuple[ReleaseHistory, Rows]) -> None:
    kept, whole = rows
    pieces = list(kept.export(asked(), "csv"))
    assert len(pieces) >= len(whole.rows) // 7, "a page at a time"


@pytest.mark.parametrize("more", [{"site": "other"}, {"after": "yesterday"}])
def test_an_export_of_what_does_not_exist_is_refused_before_it_begins(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be"):
        history().export(asked(**more), "csv")
