"""Tables by predicate: ``predicate, count`` or ``value``; ``predicate, threshold`` (and ``alpha``), read whole.

A decision on a table with a hole in it would decide on 0, so one bad row refuses the file: by line and field, never by
what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from connectors.files.text_rows import csv_rows, fields_of, lines_of, open_text
from stream.errors import DataError, UsageError

T = TypeVar("T")

LARGEST = 1_000_000_000
"""No count and no threshold is larger in magnitude."""
DECIMAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:e-?[0-9]{1,2})?")

_NAME = "predicate must be a name"
_TWICE = "predicate must come once"
_CELLS = "cells must be names with | between them, none twice"
_COUNT = f"count must be a whole number from 0 to {LARGEST}"
_NUMBER = f"must be a number of at most {LARGEST} in magnitude"


class Thresholds(NamedTuple):
    """A file of thresholds, in its order."""

    thresholds: dict[str, Fraction]
    alphas: dict[str, Fraction]
    """Empty where the file has no such column."""
    cells: dict[str, frozenset[str]]
    """What each predicate holds for; itself where the file has no such column."""


def read_counts(path: Path) -> dict[str, int]:
    """Return predicate -> count; restricted.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: a row is bad.
    """
    return _by_predicate(path, ("count",), lambda row: _count(row[0]))


def read_values(path: Path) -> Iterator[tuple[str, Fraction]]:
    """Yield predicate and value of each row; a predicate may have many, or none. Restricted.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: a row is bad.
    """
    for number, predicate, row in _rows(path, ("value",)):
        try:
            yield predicate, _decimal("value", row[0])
        except ValueError as error:
            raise _bad(path, number, str(error)) from None


def read_thresholds(path: Path) -> Thresholds:
    """Return predicate -> threshold and, where the file says them, α and cells; raises what ``read_counts`` does."""
    header = _header(path)
    columns = ("threshold", *(name for name in ("alpha", "cells") if name in header))
    rows = _by_predicate(path, columns, lambda row: dict(zip(columns, map(_read, columns, row), strict=True)))
    cells = {name: row.get("cells", frozenset({name})) for name, row in rows.items()}
    if len(frozenset().union(*cells.values())) < sum(map(len, cells.values())):
        raise DataError(f"{path}: no cell may be in two predicates, which exclude each other; nothing is decided")
    return Thresholds(
        {name: row["threshold"] for name, row in rows.items()},
        {name: row["alpha"] for name, row in rows.items() if "alpha" in row},
        cells,
    )


def _read(column: str, text: str) -> Any:
    return _cells(text) if column == "cells" else _decimal(column, text)


def _by_predicate(path: Path, columns: tuple[str, ...], read: Callable[[list[str]], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for number, predicate, row in _rows(path, columns):
        if not _is_name(predicate):
            raise _bad(path, number, _NAME)
        if predicate in found:
            raise _bad(path, number, _TWICE)
        try:
            found[predicate] = read(row)
        except ValueError as error:
            raise _bad(path, number, str(error)) from None
    if not found:
        raise DataError(f"{path}: must have at least one row")
    return found


def _header(path: Path) -> list[str]:
    with open_text(path) as lines:
        return fields_of(next(lines_of(path, lines), "") or "") or []


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, str, list[str]]]:
    header = _header(path)
    if any(header.count(name) > 1 for name in ("predicate", *columns)):
        raise UsageError(f"{path}: first line must name each column once")
    with open_text(path) as lines:
        for number, row in csv_rows(path, lines_of(path, lines), ("predicate", *columns)):
            if isinstance(row, str):
                raise _bad(path, number, row)
            yield number, row[0], list(row[1:])


def _bad(path: Path, line: int, rule: str) -> DataError:
    return DataError(f"{path}: line {line}: {rule}; nothing is decided")


def _cells(text: str) -> frozenset[str]:
    names = text.split("|")
    if len(set(names)) < len(names) or not all(map(_is_name, names)):
        raise ValueError(_CELLS)
    return frozenset(names)


def _is_name(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable()


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) > LARGEST:
        raise ValueError(_COUNT)
    return int(text)


def _decimal(name: str, text: str) -> Fraction:
    if not DECIMAL.fullmatch(text) or abs(Fraction(text)) > LARGEST:
        raise ValueError(f"{name} {_NUMBER}")
    return Fraction(text)
