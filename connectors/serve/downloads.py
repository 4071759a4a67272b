"""File downloads of a history, as CSV and Parquet.

Rows are read a page at a time, while the file is being sent. Each download uses a page of memory and a thread until it
ends, so the number of concurrent downloads is limited.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import anyio.to_thread
import duckdb
from anyio import CancelScope
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from connectors.http.responses import RefusalError
from connectors.serve.access import Principal
from connectors.serve.history_interface import ExportFormat, Rows
from connectors.serve.index import CONFIGURATION, insert_rows

_PIECE = 1 << 16
_SMALL: dict[str, Any] = {"memory_limit": "64MB", "threads": 1}
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


def _cell(entry: Any) -> Any:
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
                yield b""  # yield b""  # lets the server notice a closed connection
            database.table("rows").write_parquet(str(path), compression="zstd")
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


AT_ONCE, OF_ONE, OPEN = 4, 2, 3
"""Concurrent downloads: in total, of one reader, and of all readers without a token. A reader is a token, or the
address of a caller without one."""
RETRY = 10
"""Seconds after which a refused reader may retry."""
_TYPES: dict[ExportFormat, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
Pieces = Generator[bytes, None, None]


class Downloads:
    """The downloads in progress."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, str | None]] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def open(self, who: Principal, name: str, form: ExportFormat, pieces: Pieces) -> Download:
        """Return the response that sends a file. It counts as a download until the file was sent or the connection
        ends.

        Args:
            who: the reader.
            name: of the file, without its ending.
            form: the file format.
            pieces: the file's content, not yet started.

        Raises:
            RefusalError: too many downloads are in progress.
        """
        if len(self) >= AT_ONCE:
            raise RefusalError(503, "format", f"must be json while {AT_ONCE} files are being given", retry=RETRY)
        if self._open[who.reader] >= OF_ONE:
            raise RefusalError(429, "format", f"must be json while {OF_ONE} files are on their way to you", retry=RETRY)
        if who.address is not None and self._without_token() >= OPEN:
            raise RefusalError(503, "format", f"must be json while {OPEN} files are given without a token", retry=RETRY)
        self._open[who.reader] += 1
        return Download(self, who, f"{name}.{form}", _TYPES[form], pieces)

    def _without_token(self) -> int:
        return sum(number for (_, address), number in self._open.items() if address is not None)

    def leave(self, who: Principal) -> None:
        """Remove a finished download."""
        self._open[who.reader] -= 1
        self._open += Counter()  # a Counter's sum drops readers without downloads


class Download(StreamingResponse):
    """The response that sends a file."""

    def __init__(self, among: Downloads, who: Principal, name: str, kind: str, pieces: Pieces) -> None:
        headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
        super().__init__(pieces, media_type=kind, headers=headers)
        self._among, self._who, self._pieces = among, who, pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file. However that ends, the temporary folder is deleted before the download's slot becomes free."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._pieces.close)
            self._among.leave(self._who)
