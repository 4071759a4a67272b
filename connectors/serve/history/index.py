"""The history's database: one DuckDB file that can be rebuilt.

``Index`` opens the file, separates readers from the one writer, and keeps DuckDB's memory bounded. ``Numbers`` maps
values that repeat in many rows (series, nodes, laws of noise) to small integers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import duckdb
from numpy.typing import NDArray

from connectors.records.bands import NoiseDistribution
from connectors.records.decoding import Series
from connectors.secrets.private_files import private_folder, sync_folder
from stream.errors import TacetError

FORMAT = 2
"""A file of another format is emptied: its content can be read again from outboxes or topics."""
MEMORY = "256MB"
"""The database's memory limit; more data goes to disk."""
LOG = "512kB"
"""Size of the write-ahead log at which it is merged into the file: until then DuckDB also holds it in memory."""
_LEAST_MEMORY = "1MB"
"""Temporary memory limit that makes DuckDB drop its cache of the file; queries read it again."""
_THREADS = 2
_PATIENCE = 5.0
"""Seconds for which closing waits for readers."""
_SCHEMA = """
CREATE TABLE meta (format INTEGER);
CREATE TABLE position (source VARCHAR, place BIGINT, id VARCHAR);
CREATE TABLE record (seq BIGINT, audience VARCHAR, id VARCHAR, finish BIGINT, body BLOB);
CREATE TABLE series (
    series INTEGER, audience VARCHAR, release VARCHAR, site VARCHAR, base VARCHAR, attempt INTEGER, revision VARCHAR);
CREATE TABLE node (node INTEGER, name VARCHAR);
CREATE TABLE named (series INTEGER, node INTEGER);
CREATE TABLE law (law INTEGER, noise VARCHAR, scale DOUBLE, draws INTEGER);
CREATE TABLE release_window (
    series INTEGER, start BIGINT, finish BIGINT, released BOOLEAN, kind TINYINT, coverage DOUBLE, nano BIGINT,
    by_day BOOLEAN, bounded BIGINT);
CREATE TABLE cell (
    series INTEGER, node INTEGER, start BIGINT, finish BIGINT, value BIGINT, half_width DOUBLE, noisy BIGINT,
    law INTEGER, spread DOUBLE, kind TINYINT, low DOUBLE, high DOUBLE);
CREATE TABLE attribute (
    audience VARCHAR, release VARCHAR, site VARCHAR, finish BIGINT, day VARCHAR, zone VARCHAR, attribute VARCHAR,
    released BOOLEAN, reason VARCHAR, value VARCHAR, nano BIGINT);
"""
_TABLES = frozenset(re.findall(r"CREATE TABLE (\w+)", _SCHEMA))
_OWN = {"meta", "position", "record", "cell"}
"""Tables by which an index of any format is recognised."""


class HistoryError(TacetError):
    """The history's file cannot be opened or written; the message names the file and DuckDB's kind of error."""


class Index:
    """An open database, with one cursor for each reader and one writer at a time."""

    def __init__(self, path: Path | None) -> None:
        """Open a file, or create it with its folder.

        None: in memory; data that exceeds the memory limit goes to a temporary folder until the index is closed.

        Raises:
            UsageError: others can enter its folder.
            HistoryError: another process has it open, or it is not a history database.
        """
        self._name = "history" if path is None else str(path)
        self._scratch = TemporaryDirectory(prefix="tacet-history-")  # mode 0700
        if path is not None:
            private_folder(path.parent)
        with self.naming_errors():
            own = CONFIGURATION | {"temp_directory": self._scratch.name}
            if path is not None and not path.exists():
                _create(path)
            self._db = duckdb.connect(":memory:" if path is None else str(path), config=own)
            self._files: tuple[Path, ...] = () if path is None else (path, path.with_name(f"{path.name}.wal"))
            self._named: list[int] = []
            self._keep_files()
            self._writing, self._counting = threading.Lock(), threading.Condition()
            self._readers = 0
            self._written = list[int]()
            found = self._tables()
            if found and not found >= _OWN:  # another program's database must not be emptied
                self.close()
                raise HistoryError(f"{self._name}: must be a history, but is a database with other contents")
            if not found >= _TABLES or self._db.execute("SELECT format FROM meta").fetchall() != [(FORMAT,)]:
                self._recreate(found)

    def _tables(self) -> set[str]:
        names = "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal"
        return {str(name) for (name,) in self._db.execute(names).fetchall()}

    def _recreate(self, tables: set[str]) -> None:
        """Drop all tables and create the schema in one transaction, which is safe against a kill at any time."""
        self._db.begin()
        for name in tables:
            self._db.execute(f'DROP TABLE "{name}"')
        self._db.execute(_SCHEMA)
        self._db.execute("INSERT INTO meta VALUES (?)", [FORMAT])
        self._db.commit()

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a reader's cursor with a consistent view."""
        with self.naming_errors():
            with self._counting:  # DuckDB refuses a new cursor while it runs a statement
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
        """Yield the writer's cursor. Its changes are committed together, or rolled back if an exception passes."""
        with self._writing, self.reading() as cursor:
            yield cursor
            cursor.commit()
            self._keep_files()
        self._release_cache()

    def _release_cache(self) -> None:
        """Release DuckDB's cache once the added data has been written to the file.

        DuckDB otherwise caches all that it has read or written, up to ``MEMORY``. This runs only while there are no
        readers; else the next commit tries again.
        """
        with suppress(FileNotFoundError), self._counting:
            written = [path.stat().st_mtime_ns for path in self._files[:1]]
            if written != self._written and not self._readers:
                self._written = written
                for limit in (_LEAST_MEMORY, CONFIGURATION["memory_limit"]):
                    with suppress(duckdb.OutOfMemoryException):  # raised if DuckDB cannot free that much
                        self._db.execute(f"SET memory_limit = '{limit}'")

    def _keep_files(self) -> None:
        """Make DuckDB's files readable by the owner only, because copies keep the mode, and their names durable.

        DuckDB syncs no folder. A power cut could take a new write-ahead log away, or bring back that of an earlier
        checkpoint, with which DuckDB opens no file.
        """
        named = []
        for path in self._files:
            with suppress(FileNotFoundError):  # the write-ahead log comes and goes
                path.chmod(0o600)
                named.append(path.stat().st_ino)
        if named != self._named:
            with suppress(FileNotFoundError):  # somebody has removed the folder
                sync_folder(self._files[0].parent)
            self._named = named

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Convert DuckDB's errors, whose texts may quote data, into ``HistoryError``."""
        try:
            yield
        except duckdb.ProgrammingError:
            raise  # an internal error, not one of the file
        except duckdb.Error as error:
            kind = type(error).__name__
            rule = "must be a history that can be written and that no other process has open"
            msg = f"{self._name}: {rule}, got DuckDB's {kind}; a damaged one may be removed: it is built again"
            raise HistoryError(msg) from None

    def close(self) -> None:
        """Close the file when the last reader has finished; the temporary folder is deleted."""
        with self._counting:
            self._counting.wait_for(lambda: not self._readers, _PATIENCE)
            self._db.close()
        self._keep_files()
        self._scratch.cleanup()


def _create(path: Path) -> None:
    """Create an empty database that has its name only when it is whole: DuckDB cannot open what a power cut leaves."""
    begun = path.with_name(f".{path.name}.new")
    begun.unlink(missing_ok=True)
    duckdb.connect(str(begun), config=CONFIGURATION).close()
    begun.chmod(0o600)
    begun.replace(path)
    sync_folder(path.parent)


CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {  # the type that DuckDB takes
    "memory_limit": MEMORY, "checkpoint_threshold": LOG, "threads": _THREADS, "autoinstall_known_extensions": False,
    "autoload_known_extensions": False, "allow_community_extensions": False,
}  # fmt: skip


def insert(cursor: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Append columns (NumPy arrays of one length) to a table; NaN becomes null."""
    cursor.register("appended", dict(columns))
    cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM appended")
    cursor.unregister("appended")


def insert_rows(cursor: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Append rows to a table by columns, which is DuckDB's fast way."""
    if rows:
        types = [f"{kind}[]" for (_, kind, *_) in cursor.execute(f"DESCRIBE {table}").fetchall()]
        unnested = ", ".join(f"unnest(?::{kind})" for kind in types)
        cursor.execute(f"INSERT INTO {table} SELECT {unnested}", [list(column) for column in zip(*rows, strict=True)])


_Key = TypeVar("_Key")
NO_LAW = 0


class Numbers:
    """The integers that the index has assigned, and those assigned in the current transaction."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Read the integers that were assigned before."""
        self._cursor = cursor
        read = {name: cursor.execute(f"FROM {name}").fetchall() for name in ("series", "node", "law", "named")}
        self._series = {Series(*fields): int(number) for number, *fields in read["series"]}
        self._nodes = {str(name): int(number) for number, name in read["node"]}
        self._laws = {NoiseDistribution(*fields): int(number) for number, *fields in read["law"]}
        self._named = set(read["named"])
        self._known = {name: len(rows) for name, rows in read.items()}
        self._new_names: list[tuple[int, int]] = []

    def series(self, series: Series) -> int:
        """Return the integer of a series."""
        return self._series.setdefault(series, len(self._series) + 1)

    def node(self, name: str) -> int:
        """Return the integer of a node."""
        return self._nodes.setdefault(name, len(self._nodes) + 1)

    def distribution(self, distribution: NoiseDistribution | None) -> int:
        """Return the integer of a law; ``NO_LAW`` for none."""
        return NO_LAW if distribution is None else self._laws.setdefault(distribution, len(self._laws) + 1)

    def name(self, series: Series, nodes: Iterable[str]) -> None:
        """Record that a series has these nodes."""
        for node in nodes:
            pair = (self.series(series), self.node(node))
            if pair not in self._named:
                self._named.add(pair)
                self._new_names.append(pair)

    def save(self) -> None:
        """Write the new integers, in the cursor's transaction."""
        insert_rows(self._cursor, "series", [(number, *key) for key, number in self._since("series", self._series)])
        insert_rows(self._cursor, "node", [(number, key) for key, number in self._since("node", self._nodes)])
        insert_rows(self._cursor, "law", [(number, *key) for key, number in self._since("law", self._laws)])
        insert_rows(self._cursor, "named", self._new_names)

    def _since(self, table: str, numbers: dict[_Key, int]) -> list[tuple[_Key, int]]:
        return [*numbers.items()][self._known[table] :]
