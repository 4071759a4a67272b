"""One private SQLite file: opened safely, written in whole transactions, and checked for replacement.

A store may be restored from a backup that others could write. A trigger, a view or a computed column in it would run
when the file is read or written. Therefore ``refuse_foreign`` compares the schema of a file with the known ones before
any other statement runs on it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from stream.errors import TacetError, UsageError

# Schemas of the store's files
STORE = """
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
EARLIER = "CREATE TABLE IF NOT EXISTS earlier (seq INTEGER PRIMARY KEY, value BLOB NOT NULL);"
"""An additional table in a store that continues another ledger."""
RECORDS = """
CREATE TABLE IF NOT EXISTS records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, release TEXT NOT NULL,
    site TEXT NOT NULL, time INTEGER NOT NULL, value BLOB NOT NULL);
"""
"""The schema of an outbox."""
LARGEST_VALUE = 1 << 28
"""Maximum size of one value in bytes; the state of a very large site has a tenth of it."""


class StoreError(TacetError):
    """A file of the store cannot be read or written, or is gone; the text contains its name and SQLite's code only."""


def _statements(schema: str) -> frozenset[str]:
    return frozenset(_plain(each) for each in schema.split(";") if each.strip())


def _plain(statement: str) -> str:
    """Return a statement in the form that is compared: SQLite preserves blanks and drops ``IF NOT EXISTS``."""
    return "".join(statement.replace("IF NOT EXISTS ", "").split())


_KNOWN = _statements(STORE + EARLIER + RECORDS) | {_plain(STORE.split(";")[1].replace(", stamp INTEGER", ""))}
"""The last one belongs to a store of the first version."""


def refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if a file of a store contains anything but the known tables; nothing in it is run."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    for kind, sql in connection.execute("SELECT type, sql FROM sqlite_master"):
        internal = sql is None and kind == "index"  # SQLite's own index of a primary key or UNIQUE
        sequence = kind == "table" and sql == "CREATE TABLE sqlite_sequence(name,seq)"
        if not (internal or sequence or (isinstance(sql, str) and _plain(sql) in _KNOWN)):
            msg = (
                f"{path}: must contain the tables of a store and nothing else; it may have been altered, and is not "
                "used"
            )
            raise StoreError(msg)


Identity = tuple[int, int]
"""Device and inode of a file."""


@contextmanager
def naming_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ``StoreError``: their texts may quote the content of a damaged file."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # an error of the program, not of the file
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", type(error).__name__)
        if code == "SQLITE_FULL" or (code.startswith("SQLITE_IOERR") and _no_space(path.parent)):
            raise disk_full(path) from None
        msg = f"{path}: must be a complete, writable file of a store; SQLite reports {code}"
        raise StoreError(msg) from None
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise disk_full(path) from None


def disk_full(path: Path) -> StoreError:
    """Return the error for a file that cannot grow."""
    return StoreError(f"{path}: disk full; nothing is lost; free space and start again")


def _no_space(folder: Path) -> bool:
    """Return whether the file system is full. SQLite reports some failed writes as plain input/output errors."""
    with suppress(OSError):
        return os.statvfs(folder).f_bavail == 0
    return False


def connect(path: Path, schema: str) -> sqlite3.Connection:
    """Open or create a SQLite file with mode 0600, in WAL mode, each commit synced to disk; UsageError for a link."""
    if path.is_symlink():
        raise UsageError(f"{path}: must be a file of its own, not a symbolic link")
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        refuse_foreign(connection, path)
    except BaseException:
        connection.close()
        raise
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA busy_timeout = 10000")
    connection.executescript(schema)
    return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection to a file of a store; ``StoreError`` if the file is not one."""
    with naming_errors(path), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        refuse_foreign(connection, path)
        yield connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK if an exception is raised."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # the first error is the informative one
            connection.execute("ROLLBACK")
        raise


def identity(path: Path) -> Identity:
    """Return a value that distinguishes a file from another of the same name."""
    status = path.stat()
    return status.st_dev, status.st_ino


def refuse_replaced(path: Path, opened: Identity) -> None:
    """Raise StoreError unless a file is still the one that was opened: writes to a replaced file would be lost."""
    try:
        same = identity(path) == opened
    except FileNotFoundError:
        same = False
    if not same:
        msg = f"{path}: was deleted or replaced while it was in use; nothing more is released"
        raise StoreError(msg)
