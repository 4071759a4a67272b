"""Rows of a history as files, a page at a time: what is not yet written is not yet read."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import duckdb

from connectors.serve.contract import Rows
from connectors.serve.index import CONFIGURATION, insert_rows

_PIECE = 1 << 16
_SMALL: dict[str, Any] = {"memory_limit": "64MB", "threads": 1}
"""What a file that is being made may hold of the machine, as several are made at a time."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
_TYPES = (
    'start TIMESTAMPTZ, "end" TIMESTAMPTZ, node VARCHAR, value DOUBLE, low DOUBLE, high DOUBLE, half_width DOUBLE,'
    " kind VARCHAR, windows INTEGER, denied INTEGER, revised INTEGER, coverage DOUBLE"
)


def csv_file(pages: Iterable[Rows]) -> Generator[bytes, None, None]:
    """Yield a CSV file (RFC 4180, UTF-8) with a line of names; what is null is empty, a text that a spreadsheet would
    reckon with stands behind an apostrophe."""
    head = True
    for page in pages:
        text = io.StringIO()
        lines = csv.writer(text)
        if head:
            lines.writerow(page.columns)
            head = False
        lines.writerows([_cell(entry) for entry in row] for row in page.rows)
        yield text.getvalue().encode()


def _cell(entry: Any) -> Any:
    if isinstance(entry, str) and entry.startswith(_FORMULA):
        return f"'{entry}"
    return entry


def parquet_file(pages: Iterable[Rows]) -> Generator[bytes, None, None]:
    """Yield a Parquet file; it lies in a folder of its own, outside of memory, until it has been given."""
    with tempfile.TemporaryDirectory(prefix="tacet-") as folder:
        path = Path(folder) / "rows.parquet"
        with duckdb.connect(str(Path(folder) / "rows"), config=CONFIGURATION | _SMALL) as database:
            database.execute(f"CREATE TABLE rows ({_TYPES})")
            for page in pages:
                insert_rows(database, "rows", [tuple(row) for row in page.rows])
                yield b""  # whoever has gone meanwhile is noticed
            database.table("rows").write_parquet(str(path), compression="zstd")
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
