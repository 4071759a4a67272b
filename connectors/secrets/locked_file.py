"""A small SQLite file of mode 0600, locked by one process."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream.errors import KeyFileError


class LockedFile:
    """The open file; ``close`` releases it.

    ``KeyFileError`` if it cannot be used: the error names the file and a code, never SQLite's own text, which may quote
    the content.
    """

    def __init__(self, path: Path, schema: str, *, whose: str, by: str) -> None:
        """Open or create the file; KeyFileError if others can read it, or another process has locked it.

        ``whose`` names the state's owner ('tacet hooks'), and ``by`` the reason of a lock ('another one listens with
        it').
        """
        self.path, self._whose, self._by = path, whose, by
        with self.usable():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                msg = f"{path}: must be readable by its owner only (chmod 600)"
                raise KeyFileError(msg)
            self.database = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            with self.usable():
                self._hold(schema)
        except KeyFileError:
            self.database.close()
            raise

    def _hold(self, schema: str) -> None:
        for line in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self.database.execute(f"PRAGMA {line}")
        self.database.executescript(schema)
        self.database.execute("BEGIN EXCLUSIVE")  # such a lock is kept until the file is closed
        self.database.execute("COMMIT")

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Turn errors of the file into ``KeyFileError``."""
        try:
            yield
        except OSError as error:
            msg = f"{self.path}: must be a file that can be written: {error.strerror}"
            raise KeyFileError(msg) from None
        except (sqlite3.Error, TypeError, ValueError) as error:
            if isinstance(error, KeyFileError):
                raise
            raise self._unusable(getattr(error, "sqlite_errorname", type(error).__name__)) from None

    def _unusable(self, code: str) -> KeyFileError:
        if code == "SQLITE_BUSY":
            return KeyFileError(f"{self.path}: must be held by one process only, {self._by}")
        if code == "SQLITE_FULL":
            return KeyFileError(f"{self.path}: disk full; free space and start again")
        return KeyFileError(f"{self.path}: must be the complete state of {self._whose}; SQLite reports {code}")

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Yield the database for changes that become durable together, or not at all."""
        with self.usable(), self.database:
            self.database.execute("BEGIN IMMEDIATE")
            yield self.database

    def close(self) -> None:
        """Close and release the file."""
        self.database.close()
