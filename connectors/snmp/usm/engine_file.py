"""The file in which a receiver of SNMPv3 keeps what it must not forget: clocks, messages taken, its own starts.

One SQLite file of mode 0600, held by one process. What is in it survives a crash of the machine before anything that it
speaks of counts as heard; so a message is taken at most once, whenever the receiver is stopped.
It holds no key and nothing of what a message says: engines, times, and tags that only the keys explain.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from connectors.snmp.usm.engines import LAST_BOOTS, Clock, Engines, Mark
from stream.errors import KeyFileError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS own (engine BLOB NOT NULL, boots INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS clock (
    engine BLOB PRIMARY KEY, boots INTEGER NOT NULL, time INTEGER NOT NULL, at INTEGER NOT NULL, floor INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS taken (
    engine BLOB, boots INTEGER, time INTEGER, mark BLOB, PRIMARY KEY (engine, boots, time, mark)
) WITHOUT ROWID;
"""


class EngineFile:
    """The open file; ``close`` gives it back. Every method raises ``KeyFileError`` where the file cannot be used."""

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
        except sqlite3.Error as error:
            self._database.close()
            raise self._unusable(error) from None

    def _hold(self) -> None:
        for line in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._database.execute(f"PRAGMA {line}")
        self._database.executescript(_SCHEMA)
        self._database.execute("BEGIN EXCLUSIVE")  # taken once, such a lock is held until the end
        self._database.execute("COMMIT")

    def start(self, engine: bytes) -> tuple[bytes, int]:
        """Count a start; return this receiver's own engine and how often it started.

        ``engine`` is what it is called from its first start on.
        """
        try:
            held = self._database.execute("SELECT engine, boots FROM own").fetchone()
            engine, boots = (engine, 0) if held is None else (bytes(held[0]), int(held[1]))
            if boots + 1 >= LAST_BOOTS:
                msg = f"{self._path}: must be replaced, its engine has started as often as one may"
                raise KeyFileError(msg)
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.execute("DELETE FROM own")
                self._database.execute("INSERT INTO own VALUES (?, ?)", (engine, boots + 1))
        except (sqlite3.Error, TypeError, ValueError) as error:
            if isinstance(error, KeyFileError):
                raise
            raise self._unusable(error) from None
        return engine, boots + 1

    def engines(self) -> Engines:
        """Return what was known of all engines when it was last kept."""
        try:
            clocks = {engine: Clock(*rest) for engine, *rest in self._database.execute("SELECT * FROM clock")}
            marks = [Mark(*row) for row in self._database.execute("SELECT * FROM taken ORDER BY engine, time")]
        except (sqlite3.Error, TypeError) as error:
            raise self._unusable(error) from None
        return Engines.remembered(clocks, marks)

    def keep(self, engines: Engines) -> None:
        """Make durable what was taken since the last time; when this returns, it outlives a crash."""
        if not engines.fresh:
            return
        touched = {mark.engine: engines.clocks[mark.engine] for mark in engines.fresh}
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT OR IGNORE INTO taken VALUES (?, ?, ?, ?)", engines.fresh)
                for engine, clock in touched.items():
                    self._database.execute("REPLACE INTO clock VALUES (?, ?, ?, ?, ?)", (engine, *clock))
                    self._database.execute(
                        "DELETE FROM taken WHERE engine = ? AND (boots < ? OR boots = ? AND time < ?)",
                        (engine, clock.boots, clock.boots, clock.floor),
                    )
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        engines.fresh.clear()

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    def _unusable(self, error: Exception) -> KeyFileError:
        """Return the error that names the file and a code, never SQLite's own text, which may quote what is in it."""
        if isinstance(error, OSError):
            return KeyFileError(f"{self._path}: must be a file that can be written: {error.strerror}")
        code = getattr(error, "sqlite_errorname", type(error).__name__)
        if code == "SQLITE_BUSY":
            return KeyFileError(f"{self._path}: must be held by one process only, another one listens with it")
        return KeyFileError(f"{self._path}: must be the whole state of an SNMPv3 receiver, SQLite says {code}")
