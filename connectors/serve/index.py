"""The file of a history: one DuckDB database of its own, made again from outboxes or topics at will."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from connectors.private_folder import private_folder
from stream.errors import TacetError

FORMAT = 1
"""A file of another format is emptied: all that it held is in outboxes or topics."""
MEMORY = "256MB"
"""Most that the database holds in memory; what is more waits on disk."""
LOG = "512kB"
"""Size of the log of what was added at which it goes into the file: until then DuckDB holds it in memory as well."""
_LEAST_MEMORY = "1MB"
"""What is held in memory of the file when what was added has gone into it: what is asked for is read again."""
_THREADS = 2
_PATIENCE = 5.0
"""Seconds for which a file that is to be closed waits for who still reads."""
_SCHEMA = """
CREATE TABLE meta (format INTEGER);
CREATE TABLE position (source VARCHAR, place BIGINT);
CREATE TABLE record (seq BIGINT, audience VARCHAR, id VARCHAR, finish BIGINT, body BLOB);
CREATE TABLE series (
    series INTEGER, audience VARCHAR, release VARCHAR, site VARCHAR, base VARCHAR, attempt INTEGER, revision VARCHAR);
CREATE TABLE node (node INTEGER, name VARCHAR);
CREATE TABLE named (series INTEGER, node INTEGER);
CREATE TABLE law (law INTEGER, noise VARCHAR, scale DOUBLE, draws INTEGER);
CREATE TABLE told (
    series INTEGER, start BIGINT, finish BIGINT, released BOOLEAN, kind TINYINT, coverage DOUBLE, nano BIGINT,
    by_day BOOLEAN);
CREATE TABLE cell (
    series INTEGER, node INTEGER, start BIGINT, finish BIGINT, value BIGINT, half_width DOUBLE, noisy BIGINT,
    law INTEGER, spread DOUBLE, kind TINYINT);
CREATE TABLE attribute (
    audience VARCHAR, release VARCHAR, site VARCHAR, finish BIGINT, day VARCHAR, zone VARCHAR, attribute VARCHAR,
    released BOOLEAN, reason VARCHAR, value VARCHAR, nano BIGINT);
"""
_OWN = {"meta", "position", "record", "told", "cell"}
"""Tables by which an index is known, of whatever format."""


class HistoryError(TacetError):
    """The file of a history cannot be opened or written; the message names it, and DuckDB's kind of error."""


class Index:
    """An open database. Readers have cursors of their own; one writer at a time."""

    def __init__(self, path: Path | None) -> None:
        """Open a file, which is made with its folder where it is missing.

        None: in memory, and what does not fit there, in a folder of its own until it is closed.

        Raises:
            UsageError: others can enter its folder.
            HistoryError: another process has it open, it is no database, or a database of something else.
        """
        self._name = "history" if path is None else str(path)
        self._scratch = TemporaryDirectory(prefix="tacet-history-")  # its owner's alone
        if path is not None:
            private_folder(path.parent)
        with self.naming_errors():
            own = CONFIGURATION | {"temp_directory": self._scratch.name}
            self._db = duckdb.connect(":memory:" if path is None else str(path), config=own)
            self._files = () if path is None else (path, path.with_name(f"{path.name}.wal"))
            self._keep_to_owner()
            self._writing, self._counting = threading.Lock(), threading.Condition()
            self._readers = 0
            self._written = list[int]()
            held = self._tables()
            if held and not held >= _OWN:  # somebody's database, which is not ours to empty
                self.close()
                raise HistoryError(f"{self._name}: must be a history, but is a database that holds something else")
            if not held or self._db.execute("SELECT format FROM meta").fetchall() != [(FORMAT,)]:
                self._begin_anew(held)

    def _tables(self) -> set[str]:
        names = "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal"
        return {str(name) for (name,) in self._db.execute(names).fetchall()}

    def _begin_anew(self, held: set[str]) -> None:
        """Drop what there is, and make what is wanted, or neither: it may be killed at any time."""
        self._db.begin()
        for name in held:
            self._db.execute(f'DROP TABLE "{name}"')
        self._db.execute(_SCHEMA)
        self._db.execute("INSERT INTO meta VALUES (?)", [FORMAT])
        self._db.commit()

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a reader's cursor, for which nothing changes meanwhile."""
        with self.naming_errors():
            with self._counting:  # the database itself refuses who comes while it does something for another
                made = self._db.cursor()
                self._readers += 1
            try:
                with closing(made) as cursor:
                    cursor.begin()
                    yield cursor
            finally:
                with self._counting:
                    self._readers -= 1
                    self._counting.notify_all()

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give the cursor of the one writer: what is done on it is kept together, or nothing where an error passes."""
        with self._writing, self.reading() as cursor:
            yield cursor
            cursor.commit()
            self._keep_to_owner()
        self._let_go()

    def _let_go(self) -> None:
        """Drop what DuckDB has cached of the file, whenever what was added has gone into it.

        It keeps all that it has read or written, up to ``MEMORY``. Nobody reads meanwhile, or it is left for next time.
        """
        with suppress(FileNotFoundError), self._counting:
            written = [path.stat().st_mtime_ns for path in self._files[:1]]
            if written != self._written and not self._readers:
                self._written = written
                for limit in (_LEAST_MEMORY, CONFIGURATION["memory_limit"]):
                    with suppress(duckdb.OutOfMemoryException):  # what it cannot drop it says so
                        self._db.execute(f"SET memory_limit = '{limit}'")

    def _keep_to_owner(self) -> None:
        """Let only the owner read what DuckDB writes, wherever a copy of it may come to lie."""
        for path in self._files:
            with suppress(FileNotFoundError):  # what waits beside the file comes and goes
                path.chmod(0o600)

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Turn DuckDB's errors, whose texts may quote what is in the file, into ``HistoryError``."""
        try:
            yield
        except duckdb.ProgrammingError:
            raise  # the program's fault, not the file's
        except duckdb.Error as error:
            kind = type(error).__name__
            rule = "must be a history that can be written and that no other process has open"
            msg = f"{self._name}: {rule}, DuckDB says {kind}"
            raise HistoryError(msg) from None

    def close(self) -> None:
        """Close the file, when nobody reads any more; what did not fit into memory meanwhile is gone."""
        with self._counting:
            self._counting.wait_for(lambda: not self._readers, _PATIENCE)
            self._db.close()
        self._scratch.cleanup()


CONFIGURATION: dict[str, Any] = {
    "memory_limit": MEMORY, "checkpoint_threshold": LOG, "threads": _THREADS, "autoinstall_known_extensions": False,
    "autoload_known_extensions": False, "allow_community_extensions": False,
}  # fmt: skip


def insert(cursor: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Any]) -> None:
    """Append columns of NumPy arrays of one length to a table; NaN is null there."""
    cursor.register("appended", dict(columns))
    cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM appended")
    cursor.unregister("appended")


def insert_rows(cursor: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Append rows to a table, column by column, which is how DuckDB takes many at once."""
    if rows:
        types = [f"{kind}[]" for (_, kind, *_) in cursor.execute(f"DESCRIBE {table}").fetchall()]
        unnested = ", ".join(f"unnest(?::{kind})" for kind in types)
        cursor.execute(f"INSERT INTO {table} SELECT {unnested}", [list(column) for column in zip(*rows, strict=True)])
