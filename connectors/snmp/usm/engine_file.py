"""The file in which a receiver of SNMPv3 keeps what it must not forget: clocks, messages taken, its own starts.

One SQLite file of mode 0600, held by one process. What is in it survives a crash of the machine before anything that it
speaks of counts as heard; so a message is taken at most once, whenever the receiver is stopped.
It holds no key and nothing of what a message says: engines, times, and tags that only the keys explain.
"""

from __future__ import annotations

from pathlib import Path

from connectors.held_file import HeldFile
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
        self._file = HeldFile(path, _SCHEMA, whose="an SNMPv3 receiver", by="another one listens with it")

    def start(self, engine: bytes) -> tuple[bytes, int]:
        """Count a start; return this receiver's own engine and how often it started.

        ``engine`` is what it is called from its first start on.
        """
        with self._file.usable():
            held = self._file.database.execute("SELECT engine, boots FROM own").fetchone()
            engine, boots = (engine, 0) if held is None else (bytes(held[0]), int(held[1]))
        if boots + 1 >= LAST_BOOTS:
            msg = f"{self._file.path}: must be replaced, its engine has started as often as one may"
            raise KeyFileError(msg)
        with self._file.changing() as database:
            database.execute("DELETE FROM own")
            database.execute("INSERT INTO own VALUES (?, ?)", (engine, boots + 1))
        return engine, boots + 1

    def engines(self) -> Engines:
        """Return what was known of all engines when it was last kept."""
        with self._file.usable():
            database = self._file.database
            clocks = {engine: Clock(*rest) for engine, *rest in database.execute("SELECT * FROM clock")}
            marks = [Mark(*row) for row in database.execute("SELECT * FROM taken ORDER BY engine, time")]
        return Engines.remembered(clocks, marks)

    def keep(self, engines: Engines) -> None:
        """Make durable what was taken since the last time; when this returns, it outlives a crash."""
        if not engines.fresh:
            return
        touched = {mark.engine: engines.clocks[mark.engine] for mark in engines.fresh}
        with self._file.changing() as database:
            database.executemany("INSERT OR IGNORE INTO taken VALUES (?, ?, ?, ?)", engines.fresh)
            for engine, clock in touched.items():
                database.execute("REPLACE INTO clock VALUES (?, ?, ?, ?, ?)", (engine, *clock))
                database.execute(
                    "DELETE FROM taken WHERE engine = ? AND (boots < ? OR boots = ? AND time < ?)",
                    (engine, clock.boots, clock.boots, clock.floor),
                )
        engines.fresh.clear()

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
