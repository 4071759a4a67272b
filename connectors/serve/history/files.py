"""Files of a history's rows, as CSV and Parquet, read page by page."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Literal

import duckdb

from connectors.serve.history.index import CONFIGURATION, insert_rows
from connectors.serve.history.rows import Rows

ExportFormat = Literal["csv", "parquet"]
_PIECE = 1 << 16
"""Bytes that are read of a Parquet file at a time."""
_SMALL: dict[str, str | int] = {"memory_limit": "64MB", "threads": 1}
"""Limits for the database that writes a file, as several are written at a time."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a spreadsheet formula begins."""
_COLUMN_TYPES = (
    'start TIMESTAMPTZ, "end" TIMESTAMPTZ, node VARCHAR, value DOUBLE, low DOUBLE, high DOUBLE, half_width DOUBLE,'
    " kind VARCHAR, windows INTEGER, denied INTEGER, revised INTEGER, coverage DOUBLE,"
    " bounded_to VARCHAR"
)


def csv_file(pages: Iterable[Rows]) -> Generator[bytes, None, None]:
    """Yield a CSV file (RFC 4180, UTF-8) with a header. Null is empty; a text that a spreadsheet would evaluate as a
    formula is prefixed with an apostrophe."""
    head = True
    for page in pages:
        text = io.StringIO()
        lines = csv.writer(text)
        if head:
            lines.writerow(page.columns)
            head = False
        lines.writerows([_cell(entry) for entry in row] for row in page.rows)
        yield text.getvalue().encode()


def _cell(entry: object) -> object:
    if isinstance(entry, str) and entry.startswith(_FORMULA):
        return f"'{entry}"
    return entry


def parquet_file(pages: Iterable[Rows]) -> Generator[bytes, None, None]:
    """Yield a Parquet file. It is written to a temporary folder, not to memory, and deleted after it was sent."""
    with tempfile.TemporaryDirectory(prefix="tacet-") as folder:
        path = Path(folder) / "rows.parquet"
        with duckdb.connect(str(Path(folder) / "rows"), config=CONFIGURATION | _SMALL) as database:
            database.execute(f"CREATE TABLE rows ({_COLUMN_TYPES})")
            for page in pages:
                insert_rows(database, "rows", [tuple(row) for row in page.rows])
                yield b""  # lets the server notice a closed connection
            database.table("rows").write_parquet(str(path), compression="zstd")
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
