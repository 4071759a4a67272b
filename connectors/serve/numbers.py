"""Small numbers for what an index says again and again: series, nodes, laws of noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import duckdb

from connectors.serve.bands import Law
from connectors.serve.index import insert_rows
from connectors.serve.released import Series

_Key = TypeVar("_Key")
NO_LAW = 0


class Numbers:
    """The numbers that an index has given, and those given in one transaction."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Read what the index has given so far."""
        self._cursor = cursor
        read = {name: cursor.execute(f"FROM {name}").fetchall() for name in ("series", "node", "law", "named")}
        self._series = {Series(*fields): int(number) for number, *fields in read["series"]}
        self._nodes = {str(name): int(number) for number, name in read["node"]}
        self._laws = {Law(*fields): int(number) for number, *fields in read["law"]}
        self._named = set(read["named"])
        self._known = {name: len(rows) for name, rows in read.items()}
        self._new_names: list[tuple[int, int]] = []

    def series(self, series: Series) -> int:
        """Return the number of a series."""
        return self._series.setdefault(series, len(self._series) + 1)

    def node(self, name: str) -> int:
        """Return the number of a node."""
        return self._nodes.setdefault(name, len(self._nodes) + 1)

    def law(self, law: Law | None) -> int:
        """Return the number of a law; ``NO_LAW`` for none."""
        return NO_LAW if law is None else self._laws.setdefault(law, len(self._laws) + 1)

    def name(self, series: Series, nodes: Iterable[str]) -> None:
        """Remember that a series has these nodes."""
        for node in nodes:
            pair = (self.series(series), self.node(node))
            if pair not in self._named:
                self._named.add(pair)
                self._new_names.append(pair)

    def save(self) -> None:
        """Write what was given since, in the transaction of the cursor."""
        insert_rows(self._cursor, "series", [(number, *key) for key, number in self._since("series", self._series)])
        insert_rows(self._cursor, "node", [(number, key) for key, number in self._since("node", self._nodes)])
        insert_rows(self._cursor, "law", [(number, *key) for key, number in self._since("law", self._laws)])
        insert_rows(self._cursor, "named", self._new_names)

    def _since(self, table: str, numbers: dict[_Key, int]) -> list[tuple[_Key, int]]:
        return [*numbers.items()][self._known[table] :]
