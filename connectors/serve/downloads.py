"""File downloads of a history.

Each download uses a page of memory and a thread until it ends, so the number of concurrent downloads is limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Literal

from anyio import CancelScope
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from connectors.http.responses import RefusalError
from connectors.runtime.offload import offload
from connectors.serve.access import Principal
from connectors.serve.history.files import ExportFormat
from connectors.serve.reader_limits import DOWNLOADS, Reader

RETRY = 10
"""Seconds after which a refused reader may retry."""
Format = ExportFormat | Literal["html"]
_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet", "html": "text/html; charset=utf-8",
}  # fmt: skip
Pieces = Generator[bytes, None, None]


class Downloads:
    """The downloads in progress."""

    def __init__(self) -> None:
        self._open: Counter[Reader] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def open(self, who: Principal, name: str, form: Format, pieces: Pieces) -> Download:
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
        excess = DOWNLOADS.exceeded(self._open.elements(), who.reader)
        if excess is not None:
            rule = f"must be json until a download ends: there are at most {excess.limit}"
            raise RefusalError(excess.status, "format", rule, retry=RETRY)
        self._open[who.reader] += 1
        return Download(self, who, f"{name}.{form}", _TYPES[form], pieces)

    def leave(self, who: Principal) -> None:
        """Remove a finished download."""
        self._open[who.reader] -= 1
        self._open += Counter()  # the sum of Counters drops readers without downloads


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
                await offload(self._pieces.close)
            self._among.leave(self._who)
