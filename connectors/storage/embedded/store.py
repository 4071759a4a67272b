"""The embedded store: one private SQLite file, and outboxes per audience.

The store contains the observations that are not yet consumed, the state, the ledger and everything published except
private records, which move to their audience's outbox. Subscribers open outboxes only; readers of the account and
operators have outboxes of their own (``connectors.storage.embedded.outboxes``).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import orjson

from connectors.secrets.private_files import private_folder
from connectors.storage.embedded.operator_outbox import OperatorOutbox
from connectors.storage.embedded.outboxes import AccountOutbox, Delivery, Outboxes
from connectors.storage.embedded.reader import as_produced, earlier_entries
from connectors.storage.embedded.sqlite_file import (
    STORE,
    connect,
    identity,
    naming_errors,
    refuse_replaced,
    transaction,
)
from stream.encryption import Kind, seal, unseal, version_of
from stream.engine.outputs import OutputRecord
from stream.errors import UsageError
from stream.records import Micros
from stream.release.stage import MECHANISM_VERSION
from stream.schemas import AUDIT, OCCUPANCY, PRESENCE, QUARANTINE, RESTRICTED

_DAY_MS = 86_400_000
_KEPT_MS = {PRESENCE: _DAY_MS, OCCUPANCY: _DAY_MS, QUARANTINE: 7 * _DAY_MS}
"""How long restricted records and operators' records are retained, in event time."""

FORMAT = "1"
"""Version of the store's format."""


class SqliteStore:
    """The store in a folder: ``store.sqlite`` and ``private/<audience>.sqlite``."""

    def __init__(self, folder: Path, *, ended_for: str | None = None) -> None:
        """Open or create the store of a folder; ``ended_for`` is the ledger that may continue it after its end."""
        self.outboxes = Outboxes(private_folder(folder) / "private")
        self._lock = _lock(folder)
        self._path = folder / "store.sqlite"
        with naming_errors(self._path):
            self._db = connect(self._path, STORE)
            self.id = self._identity()
            try:
                refuse_later(folder, self._db)
                _refuse_ended(folder, self._db, ended_for)
            except UsageError:
                self._db.close()
                os.close(self._lock)
                raise
            self._opened = {path: identity(path) for path in (self._path, folder / "lock")}
        self.account_outbox = AccountOutbox(folder / "private")
        self.operator_outbox = OperatorOutbox(folder / "private")
        self._delivery = Delivery(self._path, self._db, self.outboxes, self.account_outbox)

    def _identity(self) -> str:
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('id', ?)", (secrets.token_hex(8),))
        ((name,),) = self._db.execute("SELECT value FROM meta WHERE name = 'id'")
        return str(name)

    def _refuse_replaced(self) -> None:
        for path, opened in self._opened.items():
            refuse_replaced(path, opened)
        self.outboxes.refuse_replaced()

    def append(self, value: bytes, stamp: Micros | None = None) -> int:
        """Store one message and its receive time durably; return its position, counting up from 0."""
        self._refuse_replaced()
        row = seal(Kind.MESSAGE, value), stamp
        with naming_errors(self._path):
            cursor = self._db.execute("INSERT INTO observations (value, stamp) VALUES (?, ?)", row)
        return int(cursor.lastrowid or 0) - 1

    def snapshot(self) -> bytes | None:
        """Return the last committed state."""
        with naming_errors(self._path):
            row = self._db.execute("SELECT value FROM state").fetchone()
        return None if row is None else bytes(row[0])

    def pending_messages(self, start: int) -> Iterator[tuple[int, bytes, Micros | None]]:
        """Return the stored messages from position ``start`` on, with their receive times."""
        with naming_errors(self._path):
            rows = self._db.execute(
                "SELECT position - 1, value, stamp FROM observations WHERE position > ? ORDER BY position", (start,)
            ).fetchall()
        return ((position, unseal(Kind.MESSAGE, value), stamp) for position, value, stamp in rows)

    def commit(self, outputs: Sequence[OutputRecord], snapshot: bytes, position: int) -> None:
        """Write outputs and state in one transaction, delete consumed messages, truncate the write-ahead log."""
        self._refuse_replaced()
        with naming_errors(self._path), transaction(self._db):
            self._db.executemany(
                "INSERT INTO outputs (topic, key, value, time, id) VALUES (?, ?, ?, ?, ?)",
                ((out.topic, out.key, _stored_form(out), out.timestamp_ms, out.id) for out in outputs),
            )
            self._db.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (snapshot,))
            self._db.execute("DELETE FROM observations WHERE position <= ?", (position,))
            self._db.execute(
                "DELETE FROM outputs WHERE seq <= ? AND topic LIKE 'tacet.private.%'", (self._delivery.synced,)
            )
            self._expire(max((out.timestamp_ms for out in outputs), default=0))
        with naming_errors(self._path):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def keep_policy(self, version: str, document: bytes) -> None:
        """Store a policy before anything is released under it, for the account.

        The call also records the store's format, and that this mechanism version has worked on it.
        """
        with naming_errors(self._path), transaction(self._db):
            self._db.execute("INSERT OR IGNORE INTO policies VALUES (?, ?)", (version, document))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (FORMAT,))
            self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, '')", (f"mechanisms/{MECHANISM_VERSION}",))

    def _expire(self, now_ms: int) -> None:
        """Delete records whose retention has ended. The retention of records without a time starts now."""
        if now_ms:
            self._db.execute("UPDATE outputs SET time = ? WHERE topic = ? AND time = 0", (now_ms, QUARANTINE))
        self._db.executemany(
            "DELETE FROM outputs WHERE topic = ? AND time < ?",
            ((topic, now_ms - retention) for topic, retention in _KEPT_MS.items()),
        )

    def chain_hash(self, site: str, sequence: int) -> str | None:
        """Return the hash of a committed ledger entry, None if there is none."""
        with naming_errors(self._path):
            row = self._db.execute(
                "SELECT value FROM outputs WHERE topic = ? AND id = ?", (AUDIT, f"{site}/{sequence}")
            ).fetchone()
        return None if row is None else str(orjson.loads(row[0])["hash"])

    def deliver(self) -> None:
        """Move private records to their outboxes, and copy the account.

        Private records are deleted from the store once the outboxes are synced to disk.
        """
        self._delivery.deliver()

    def records(self, topic: str) -> Iterable[tuple[int, bytes]]:
        """Return the committed records of a topic that is not private, as (time in ms, value); none is encrypted."""
        query = "SELECT time, value FROM outputs WHERE topic = ? ORDER BY seq"
        with naming_errors(self._path):
            rows = [(time, as_produced(topic, value)) for time, value in self._db.execute(query, (topic,))]
        return [(time, value) for time, value in rows if value is not None]

    def entries(self) -> Iterator[bytes]:
        """Yield the ledger's entries in order, without loading all of them."""
        with naming_errors(self._path):
            for (value,) in self._db.execute("SELECT value FROM outputs WHERE topic = ? ORDER BY seq", (AUDIT,)):
                yield bytes(value)

    def earlier(self) -> list[bytes]:
        """Return the entries of the ledgers that this one continues, in order."""
        with naming_errors(self._path):
            return earlier_entries(self._db)

    def close(self) -> None:
        """Close every file."""
        self.outboxes.close()
        self.account_outbox.close()
        self.operator_outbox.close()
        self._db.close()
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """Refuse a second runner on the same store: it would release every window a second time."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(f"{folder / 'lock'}: must be a file of its own ({error.strerror})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        msg = f"{folder}: store must not be in use by another process"
        raise UsageError(msg) from None
    return handle


def refuse_later(folder: Path, store: sqlite3.Connection) -> None:
    """Raise UsageError if a later version wrote the store: this version does not know what it must preserve."""
    for (form,) in store.execute("SELECT value FROM meta WHERE name = 'format'"):
        if form != FORMAT:
            msg = f"{folder}: store must be of format {FORMAT}, got {form}; use the version that made it"
            raise UsageError(msg)


def _refuse_ended(folder: Path, store: sqlite3.Connection, follower: str | None) -> None:
    """Raise UsageError if the ledger has ended, unless ``follower`` is the ledger that continues it."""
    for (ledger,) in store.execute("SELECT value FROM meta WHERE name = 'ended'"):
        if ledger != follower:
            msg = (
                f"{folder}: has ended, because its key was retired; use the store of ledger {ledger}, which continues "
                "its budgets"
            )
            raise UsageError(msg)


def _stored_form(output: OutputRecord) -> bytes:
    """Return a record as the store keeps it: true stays and counts in an envelope, unless they already have one."""
    plain = output.topic in RESTRICTED and version_of(output.value) is None
    return seal(Kind.RESTRICTED, output.value) if plain else output.value
