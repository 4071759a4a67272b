"""What has been taken lately, by tag, so that a copy is known after a restart too.

One SQLite file of mode 0600, held by one process. A tag is kept for longer than anything that it stands for could be
taken, and written when what it stands for is durable, before its sender is told so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from connectors.held_file import HeldFile
from connectors.hooks.judging import FURTHEST, OLDEST
from stream.errors import KeyFileError
from stream.records import MINUTE, Micros

KEPT: Micros = OLDEST + FURTHEST + MINUTE
_SCHEMA = "CREATE TABLE IF NOT EXISTS taken (tag BLOB PRIMARY KEY, at INTEGER) WITHOUT ROWID"


class Replays:
    """The open file; ``close`` gives it back. ``KeyFileError`` where it cannot be used."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; KeyFileError where others can read it, or another process holds it."""
        self._file = HeldFile(path, _SCHEMA, whose="'tacet hooks'", by="another 'tacet hooks' uses it")
        try:
            with self._file.usable():
                rows = self._file.database.execute("SELECT tag, at FROM taken ORDER BY at")
                self._taken = OrderedDict[bytes, Micros](rows)
        except KeyFileError:
            self._file.close()
            raise

    def knows(self, tag: bytes) -> bool:
        """Return whether what a tag stands for has been taken."""
        return tag in self._taken

    def keep(self, tags: Iterable[bytes], now: Micros) -> None:
        """Remember tags; when this returns, they outlive a crash. What is too old to come again is forgotten."""
        fresh = dict.fromkeys(tags, now)
        self._taken.update(fresh)
        while self._taken and next(iter(self._taken.values())) < now - KEPT:
            self._taken.popitem(last=False)
        with self._file.changing() as database:
            database.executemany("INSERT OR REPLACE INTO taken VALUES (?, ?)", fresh.items())
            database.execute("DELETE FROM taken WHERE at < ?", (now - KEPT,))

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
