"""One private SQLite file: opened safely, written in whole transactions, and missed when it is gone."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stream.errors import TacetError

Identity = tuple[int, int]
"""Device and inode of a file."""


class StoreError(TacetError):
    """A file of the store cannot be read or written, or is gone; the message names it and SQLite's code only."""


@contextmanager
def naming_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors, whose texts may quote what a damaged file holds, into ``StoreError``."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # the program's fault, not the file's
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", type(error).__name__)
        if code == "SQLITE_FULL" or (code.startswith("SQLITE_IOERR") and _no_space(path.parent)):
            raise disk_full(path) from None
        msg = f"{path}: must be a file of a store that is whole and can be written, SQLite says {code}"
        raise StoreError(msg) from None
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise disk_full(path) from None


def disk_full(path: Path) -> StoreError:
    """Return the error of a file that cannot grow."""
    return StoreError(f"{path}: disk full; nothing is lost, make room and start again")


def _no_space(folder: Path) -> bool:
    """Whether the file system is full; SQLite reports some of its writes as plain input/output errors."""
    with suppress(OSError):
        return os.statvfs(folder).f_bavail == 0
    return False


def connect(path: Path, schema: str) -> sqlite3.Connection:
    """Open or create a SQLite file with mode 0600, in WAL mode, each commit synced to disk."""
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA busy_timeout = 10000")
    connection.executescript(schema)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK when an exception passes."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # the first error says more
            connection.execute("ROLLBACK")
        raise


def identity(path: Path) -> Identity:
    """Return what tells a file from another of the same name."""
    held = path.stat()
    return held.st_dev, held.st_ino


def refuse_replaced(path: Path, opened: Identity) -> None:
    """Raise StoreError unless a file is still the one that was opened: what is written to it would be lost."""
    try:
        same = identity(path) == opened
    except FileNotFoundError:
        same = False
    if not same:
        msg = f"{path}: must stay while it is in use, but was deleted or replaced; nothing more is released"
        raise StoreError(msg)
