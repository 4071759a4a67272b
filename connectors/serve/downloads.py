"""Files on their way: few at a time, since each holds a page of rows and a thread for as long as it is being taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import anyio.to_thread
from anyio import CancelScope
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from connectors.serve.access import Principal
from connectors.serve.answers import RefusalError
from connectors.serve.contract import ExportFormat

AT_ONCE, OF_ONE = 4, 2
"""Files that are given at a time: in all, and to one reader."""
RETRY = 10
"""Seconds after which somebody who is refused may come again."""
_TYPES: dict[ExportFormat, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
Pieces = Generator[bytes, None, None]


class Downloads:
    """The files that are being given."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def open(self, who: Principal, name: str, form: ExportFormat, pieces: Pieces) -> Download:
        """Return the answer that gives a file; it has its place from now on, until it has been sent or nobody takes it.

        Args:
            who: takes it.
            name: of the file, without its ending.
            form: what kind of file it is.
            pieces: the file, of which nothing has been made yet.

        Raises:
            RefusalError: it is one too many.
        """
        if len(self) >= AT_ONCE:
            raise RefusalError(503, "format", f"must be json while {AT_ONCE} files are being given", retry=RETRY)
        if self._open[who.name] >= OF_ONE:
            raise RefusalError(429, "format", f"must be json while {OF_ONE} files are on their way to you", retry=RETRY)
        self._open[who.name] += 1
        return Download(self, who, f"{name}.{form}", _TYPES[form], pieces)

    def leave(self, who: Principal) -> None:
        """Note that a file is over."""
        self._open[who.name] -= 1
        self._open += Counter()  # who has none is not kept


class Download(StreamingResponse):
    """The answer that carries a file."""

    def __init__(self, among: Downloads, who: Principal, name: str, kind: str, pieces: Pieces) -> None:
        headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
        super().__init__(pieces, media_type=kind, headers=headers)
        self._among, self._who, self._pieces = among, who, pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; whatever ends that, what it lay in is gone before its place is another's."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._pieces.close)
            self._among.leave(self._who)
