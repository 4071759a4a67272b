"""The embedded store: one SQLite file that only its owner can read, and one outbox file per audience.

The store holds observations not yet consumed, the state, the ledger and everything published except
private records, which move to their audience's outbox. Subscribers open outboxes only; for readers of the account
and operators there are boxes of their own (``role_boxes``).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import orjson

from connectors.embedded.outboxes import Given, Outboxes
from connectors.embedded.readings import as_given, earlier_entries
from connectors.embedded.role_boxes import AccountBox, Kept, OperatorBox
from connectors.embedded.sqlite_file import connect, identity, naming_errors, refuse_replaced, transaction
from connectors.private_folder import private_folder
from stream.envelope import Kind, seal, unseal, version_of
from stream.errors import UsageError
from stream.records import Micros
from stream.release.stage import MECHANISMS
from stream.runners.emitted import Emitted
from stream.runners.snapshot import is_current, upgraded
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, PRESENCE, QUARANTINE, RESTRICTED

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS observations (
    position INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL, stamp INTEGER);
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS policies (version TEXT PRIMARY KEY, document BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS outputs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, key BLOB NOT NULL,
    value BLOB NOT NULL, time INTEGER NOT NULL, id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_topic ON outputs (topic, id);
"""

_DAY_MS = 86_400_000
_KEPT_MS = {PRESENCE: _DAY_MS, OCCUPANCY: _DAY_MS, QUARANTINE: 7 * _DAY_MS}
"""How long restricted and operators' records are kept, in event time."""

FORMAT = "2"
"""Form of the store; 1, which did not say so, had no envelopes and kept no policies."""

_AT_ONCE = 2000
"""Account records copied at a time."""
SYNC_EVERY = 12
"""Windows after which the outboxes are written through to disk."""


class SqliteStore:
    """The store in a folder: ``store.sqlite`` and ``private/<audience>.sqlite``."""

    def __init__(self, folder: Path, *, ended_for: str | None = None) -> None:
        """Open or make the store of a folder; ``ended_for`` is the ledger that may follow on it where it has ended."""
        self.outboxes = Outboxes(private_folder(folder) / "private")
        self._lock = _lock(folder)
        self._path = folder / "store.sqlite"
        self._delivered = self._synced = self._deliveries = 0
        with naming_errors(self._path):
            self._db = connect(self._path, _SCHEMA)
            self._add_stamps()
            self.id = self._identity()
            try:
                refuse_later(folder, self._db)
                _refuse_ended(folder, self._db, ended_for)
            except UsageError:
                self._db.close()
                os.close(self._lock)
                raise
            self._opened = {path: identity(path) for path in (self._path, folder / "lock")}
        self.account_box, self.operator_box = AccountBox(folder / "private"), OperatorBox(folder / "private")
        self._accounted = self._account_given()

    def _add_stamps(self) -> None:
        """Bring a store of the first version up to date: its messages have no receive time."""
        if "stamp" not in {name for _, name, *_ in self._db.execute("PRAGMA table_info(observations)")}:
            self._db.execute("ALTER TABLE observations ADD COLUMN stamp INTEGER")

    def _identity(self) -> str:
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('id', ?)", (secrets.token_hex(8),))
        ((name,),) = self._db.execute("SELECT value FROM meta WHERE name = 'id'")
        return str(name)

    def _refuse_replaced(self) -> None:
        for path, opened in self._opened.items():
            refuse_replaced(path, opened)
        self.outboxes.refuse_replaced()

    def append(self, value: bytes, stamp: Micros | None = None) -> int:
        """Keep one message and its receive time durably; return its position, counting up from 0."""
        self._refuse_replaced()
        row = seal(Kind.MESSAGE, value), stamp
        with naming_errors(self._path):
            cursor = self._db.execute("INSERT INTO observations (value, stamp) VALUES (?, ?)", row)
        return int(cursor.lastrowid or 0) - 1

    def snapshot(self) -> bytes | None:
        """Return the last committed state, upgraded where that was agreed to."""
        held = self._held()
        return upgraded(held) if held is not None and self._upgrade() == MECHANISMS else held

    def _held(self) -> bytes | None:
        with naming_errors(self._path):
            row = self._db.execute("SELECT value FROM state").fetchone()
        return None if row is None else bytes(row[0])

    def _upgrade(self) -> str | None:
        """Return the mechanism version that may go on with a state of the one before."""
        with naming_errors(self._path):
            row = self._db.execute("SELECT value FROM meta WHERE name = 'upgrade'").fetchone()
        return None if row is None else str(row[0])

    def waiting(self, start: int) -> Iterator[tuple[int, bytes, Micros | None]]:
        """Return the messages kept at ``start`` and later, with their receive times."""
        with naming_errors(self._path):
            rows = self._db.execute(
                "SELECT position - 1, value, stamp FROM observations WHERE position > ? ORDER BY position", (start,)
            ).fetchall()
        return ((position, unseal(Kind.MESSAGE, value), stamp) for position, value, stamp in rows)

    def commit(self, outputs: Sequence[Emitted], snapshot: bytes, position: int) -> None:
        """Write outputs and state in one transaction, delete consumed messages, cut the log file."""
        self._refuse_replaced()
        with naming_errors(self._path), transaction(self._db):
            self._db.executemany(
                "INSERT INTO outputs (topic, key, value, time, id) VALUES (?, ?, ?, ?, ?)",
                ((out.topic, out.key, _as_kept(out), out.timestamp_ms, out.id) for out in outputs),
            )
            self._db.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (snapshot,))
            self._db.execute("DELETE FROM observations WHERE position <= ?", (position,))
            self._db.execute("DELETE FROM outputs WHERE seq <= ? AND topic LIKE 'tacet.private.%'", (self._synced,))
            self._expire(max((out.timestamp_ms for out in outputs), default=0))
        with naming_errors(self._path):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def keep_policy(self, version: str, document: bytes) -> None:
        """Keep a policy under which releases are about to be made, for their account; the store is ours from now."""
        with naming_errors(self._path), transaction(self._db):
            self._db.execute("INSERT OR IGNORE INTO policies VALUES (?, ?)", (version, document))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (FORMAT,))

    def upgrade(self) -> bool:
        """Let the present mechanism version go on with the state; False where it may already.

        The state stays as it is until the next run has released something: what the version before has to finish,
        which shows when the mark is at hand, it still can.
        """
        held = self._held()
        if held is None or is_current(held) or self._upgrade() == MECHANISMS:
            return False
        upgraded(held)  # refused here where it cannot be
        with naming_errors(self._path), transaction(self._db):
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('upgrade', ?)", (MECHANISMS,))
        return True

    def _expire(self, now_ms: int) -> None:
        """Let go of what has been kept for long enough; what came before there was a time counts from now on."""
        if now_ms:
            self._db.execute("UPDATE outputs SET time = ? WHERE topic = ? AND time = 0", (now_ms, QUARANTINE))
        self._db.executemany(
            "DELETE FROM outputs WHERE topic = ? AND time < ?",
            ((topic, now_ms - kept) for topic, kept in _KEPT_MS.items()),
        )

    def chain_hash(self, site: str, sequence: int) -> str | None:
        """Return the hash of a committed ledger entry, None where there is none."""
        with naming_errors(self._path):
            row = self._db.execute(
                "SELECT value FROM outputs WHERE topic = ? AND id = ?", (AUDIT, f"{site}/{sequence}")
            ).fetchone()
        return None if row is None else str(orjson.loads(row[0])["hash"])

    def deliver(self) -> None:
        """Move private records to their outboxes; they leave the store once the outboxes are safe on disk."""
        with naming_errors(self._path):
            rows = self._db.execute(
                "SELECT seq, topic, key, value, time, id FROM outputs "
                "WHERE seq > ? AND topic LIKE 'tacet.private.%' ORDER BY seq",
                (self._delivered,),
            ).fetchall()
        for audience in sorted({_audience(row[1]) for row in rows}):
            given = [row for row in rows if _audience(row[1]) == audience]
            self.outboxes.give(
                audience,
                [
                    Given(name, topic.split(".")[3], key.decode(), time, value)
                    for _, topic, key, value, time, name in given
                ],
            )
        self._delivered = rows[-1][0] if rows else self._delivered
        self._deliver_account()
        self._deliveries += 1
        if self._deliveries % SYNC_EVERY == 0 and self.outboxes.sync():
            self._synced = self._delivered

    def _account_given(self) -> int:
        """Return up to which of its records the account's box is filled; it holds none that the store has not."""
        with naming_errors(self._path):
            query = "SELECT coalesce(max(seq), 0) FROM outputs WHERE topic = ?"
            ((last,),) = self._db.execute(query, (LEAKAGE,)).fetchall()
        self.account_box.forget_behind(int(last))
        return self.account_box.last()

    def _deliver_account(self) -> None:
        """Copy what is new of the account to its box."""
        query = "SELECT seq, key, time, value FROM outputs WHERE seq > ? AND +topic = ? ORDER BY seq LIMIT ?"
        while True:
            with naming_errors(self._path):
                rows = self._db.execute(query, (self._accounted, LEAKAGE, _AT_ONCE)).fetchall()
            if not rows:
                return
            self.account_box.give(Kept(seq, bytes(key).decode(), time, bytes(value)) for seq, key, time, value in rows)
            self._accounted = rows[-1][0]

    def records(self, topic: str) -> Iterable[tuple[int, bytes]]:
        """Return what was committed to a topic that is not private, as (time in ms, value); nothing encrypted."""
        query = "SELECT time, value FROM outputs WHERE topic = ? ORDER BY seq"
        with naming_errors(self._path):
            rows = [(time, as_given(topic, value)) for time, value in self._db.execute(query, (topic,))]
        return [(time, value) for time, value in rows if value is not None]

    def entries(self) -> Iterator[bytes]:
        """Yield the ledger's entries in order, without holding all of them."""
        with naming_errors(self._path):
            for (value,) in self._db.execute("SELECT value FROM outputs WHERE topic = ? ORDER BY seq", (AUDIT,)):
                yield bytes(value)

    def earlier(self) -> list[bytes]:
        """Return the entries of ledgers that this one goes on from, in order."""
        with naming_errors(self._path):
            return earlier_entries(self._db)

    def close(self) -> None:
        """Close every file."""
        self.outboxes.close()
        self.account_box.close()
        self.operator_box.close()
        self._db.close()
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """Refuse a second runner on the same store: it would release every window next to the first."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        msg = f"{folder}: store must not be in use by another process"
        raise UsageError(msg) from None
    return handle


def refuse_later(folder: Path, store: sqlite3.Connection) -> None:
    """Raise UsageError where a later version made the store: this one would not know what it must keep."""
    for (form,) in store.execute("SELECT value FROM meta WHERE name = 'format'"):
        if form not in {"1", FORMAT}:
            msg = f"{folder}: store must be of format 1 or {FORMAT}, got {form}; use the version that made it"
            raise UsageError(msg)


def _refuse_ended(folder: Path, store: sqlite3.Connection, follower: str | None) -> None:
    """Raise UsageError where the ledger has ended, unless it is this follower that takes it over."""
    for (ledger,) in store.execute("SELECT value FROM meta WHERE name = 'ended'"):
        if ledger != follower:
            msg = f"{folder}: has ended, its key was retired; ledger {ledger} goes on with what was spent"
            raise UsageError(msg)


def _as_kept(output: Emitted) -> bytes:
    """Return a record as the store keeps it: true stays and counts in an envelope, which most come in."""
    plain = output.topic in RESTRICTED and version_of(output.value) == 1
    return seal(Kind.RESTRICTED, output.value) if plain else output.value


def _audience(topic: str) -> str:
    return topic.split(".")[2]
