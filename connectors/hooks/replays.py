"""What has been taken lately, by tag, so that a copy is known after a restart too.

One SQLite file of mode 0600, held by one process. A tag is kept for longer than anything that it stands for could be
taken, and written when what it stands for is durable, before its sender is told so.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from connectors.hooks.judging import FURTHEST, OLDEST
from stream.errors import KeyFileError
from stream.records import MINUTE, Micros

KEPT: Micros = OLDEST + FURTHEST + MINUTE


class Replays:
    """The open file; ``close`` gives it back. ``KeyFileError`` where it cannot be used."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; KeyFileError where others can read it, or another process holds it."""
        self._path = path
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                msg = f"{path}: must be readable by its owner only (chmod 600)"
                raise KeyFileError(msg)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from None
        try:
            self._hold()
            rows = self._database.execute("SELECT tag, at FROM taken ORDER BY at")
            self._taken = OrderedDict[bytes, Micros](rows)
        except (sqlite3.Error, ValueError) as error:
            self._database.close()
            raise self._unusable(error) from None

    def _hold(self) -> None:
        for line in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._database.execute(f"PRAGMA {line}")
        self._database.execute("BEGIN EXCLUSIVE")  # taken once, such a lock is held until the end
        self._database.execute("CREATE TABLE IF NOT EXISTS taken (tag BLOB PRIMARY KEY, at INTEGER) WITHOUT ROWID")
        self._database.execute("COMMIT")

    def knows(self, tag: bytes) -> bool:
        """Return whether what a tag stands for has been taken."""
        return tag in self._taken

    def keep(self, tags: Iterable[bytes], now: Micros) -> None:
        """Remember tags; when this returns, they outlive a crash. What is too old to come again is forgotten."""
        fresh = dict.fromkeys(tags, now)
        self._taken.update(fresh)
        while self._taken and next(iter(self._taken.values())) < now - KEPT:
            self._taken.popitem(last=False)
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT OR REPLACE INTO taken VALUES (?, ?)", fresh.items())
                self._database.execute("DELETE FROM taken WHERE at < ?", (now - KEPT,))
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    def _unusable(self, error: Exception) -> KeyFileError:
        if isinstance(error, OSError):
            return KeyFileError(f"{self._path}: must be a file that can be written: {error.strerror}")
        code = getattr(error, "sqlite_errorname", type(error).__name__)
        if code == "SQLITE_BUSY":
            return KeyFileError(f"{self._path}: must be held by one process only, another 'tacet hooks' uses it")
        return KeyFileError(f"{self._path}: must be the whole state of 'tacet hooks', SQLite says {code}")
