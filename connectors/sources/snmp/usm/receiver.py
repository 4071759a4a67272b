"""A receiver's SNMPv3 state: the verifier, and its replay file.

The file (``EngineFile``) contains the clocks of engines, the accepted messages, and this receiver's own starts. It is
one SQLite file of mode 0600, locked by one process. It is durable before any message that it describes counts; so a
message is accepted at most once, whenever the receiver is stopped. It contains no key and nothing of a message's
content: only engines, times, and tags that mean nothing without the keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from connectors.secrets.locked_file import LockedFile
from connectors.sources.snmp.usm.engines import LAST_BOOTS, Clock, Engines, Mark
from connectors.sources.snmp.usm.users import Users
from connectors.sources.snmp.usm.verifier import OwnEngine, UsmVerifier
from stream.errors import KeyFileError
from stream.records import Micros

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
    """The open file; ``close`` releases it. Every method raises ``KeyFileError`` if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; KeyFileError if others can read it, or another process has locked it."""
        self._file = LockedFile(path, _SCHEMA, whose="an SNMPv3 receiver", by="another process uses it")

    def start(self, engine: bytes) -> tuple[bytes, int]:
        """Count a start; return this receiver's own engine and its number of starts.

        ``engine`` is its identifier from the first start on.
        """
        with self._file.usable():
            stored = self._file.database.execute("SELECT engine, boots FROM own").fetchone()
            engine, boots = (engine, 0) if stored is None else (bytes(stored[0]), int(stored[1]))
        if boots + 1 >= LAST_BOOTS:
            msg = f"{self._file.path}: must be replaced: its engine has reached the largest number of starts"
            raise KeyFileError(msg)
        with self._file.changing() as database:
            database.execute("DELETE FROM own")
            database.execute("INSERT INTO own VALUES (?, ?)", (engine, boots + 1))
        return engine, boots + 1

    def engines(self) -> Engines:
        """Return the state of all engines at the last write."""
        with self._file.usable():
            database = self._file.database
            clocks = {engine: Clock(*rest) for engine, *rest in database.execute("SELECT * FROM clock")}
            marks = [Mark(*row) for row in database.execute("SELECT * FROM taken ORDER BY engine, time")]
        return Engines.remembered(clocks, marks)

    def keep(self, engines: Engines) -> None:
        """Write everything since the last call durably; it survives a crash after this returns."""
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
        """Close and release the file."""
        self._file.close()


_PREFIX = bytes.fromhex("8000000005")
"""Prefix of an engine without a vendor, identified by octets of its own (RFC 3411, SnmpEngineID)."""


@dataclass(frozen=True, slots=True)
class V3Files:
    """The users of SNMPv3, and the file of the replay protection."""

    users: Users
    state: Path


class ReplayStorage(Protocol):
    """Stores the replay protection."""

    def keep(self, engines: Engines) -> None:
        """Write everything since the last call durably."""


class NoStorage:
    """Storage that ends with the process."""

    def keep(self, engines: Engines) -> None:
        """Do nothing."""
        engines.fresh.clear()


@dataclass(frozen=True, slots=True)
class V3:
    """The verifier and the storage of its replay protection."""

    verifier: UsmVerifier
    file: ReplayStorage

    def keep(self) -> None:
        """Write the replay protection durably; no received message may count before."""
        self.file.keep(self.verifier.engines)


def without_storage(users: Users, now: Micros) -> V3:
    """Return a verifier from ``now`` on that stores nothing: a copy of an older trap counts as new."""
    own = OwnEngine(_PREFIX + secrets.token_bytes(12), 1, now)
    return V3(UsmVerifier(users, own, Engines(), secrets.randbits(64)), NoStorage())


@contextmanager
def listening(files: V3Files, now: Micros) -> Iterator[V3]:
    """Lock the file while listening; this start, at ``now``, is counted in it first."""
    file = EngineFile(files.state)
    try:
        engine, boots = file.start(_PREFIX + secrets.token_bytes(12))
        yield V3(UsmVerifier(files.users, OwnEngine(engine, boots, now), file.engines(), secrets.randbits(64)), file)
    finally:
        file.close()
