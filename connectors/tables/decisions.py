"""Tables for decisions: counts or values by predicate, thresholds, and compound queries over them.

The column of predicates may be called ``zone``.

A decision on a table with a hole in it would decide on 0, so one bad row refuses the file: by line and field, never by
what is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, cast, get_args

import numpy as np

from connectors.sources.recordings.text_rows import csv_rows, fields_of, lines_in_memory, lines_of, open_text
from stream.decisions.compound import Join, Leaf, Tree
from stream.decisions.progressive import Table
from stream.errors import DataError, UsageError
from stream.records import JsonObject

T = TypeVar("T")

LARGEST = 1_000_000_000
"""The largest accepted magnitude of counts and thresholds."""
DECIMAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:e-?[0-9]{1,2})?")

_NAME = "predicate must be a name"
_TWICE = "predicate must appear once"
_CELLS = "cells must be names with | between them, none twice"
_COUNT = f"count must be a whole number from 0 to {LARGEST}"
_NUMBER = f"must be a number of at most {LARGEST} in magnitude"


class Thresholds(NamedTuple):
    """Thresholds in the order of their file."""

    thresholds: dict[str, Fraction]
    alphas: dict[str, Fraction]
    """Empty if the file has no such column."""
    cells: dict[str, frozenset[str]]
    """The cells of each predicate; the predicate itself if the file has no such column."""


def read_counts(path: Path) -> dict[str, int]:
    """Return predicate -> count. The counts are true counts and must not be published.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: a row is bad.
    """
    return _by_predicate(path, ("count",), lambda row: _count(row[0]))


def read_values(path: Path) -> Iterator[tuple[str, Fraction]]:
    """Yield predicate and value of each row; a predicate may have many rows or none. The values must not be published.

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
    """Return predicate -> threshold and, if the file contains them, α and cells; raises what ``read_counts`` does."""
    header = _header(path)
    columns = ("threshold", *(name for name in ("alpha", "cells") if name in header))
    rows = _by_predicate(path, columns, lambda row: _threshold_row(dict(zip(columns, row, strict=True))))
    cells = {name: frozenset({name}) if row.cells is None else row.cells for name, row in rows.items()}
    if len(frozenset().union(*cells.values())) < sum(map(len, cells.values())):
        raise DataError(f"{path}: no cell may be in two predicates, which exclude each other; nothing is decided")
    return Thresholds(
        {name: row.threshold for name, row in rows.items()},
        {name: row.alpha for name, row in rows.items() if row.alpha is not None},
        cells,
    )


class _ThresholdRow(NamedTuple):
    """A row of thresholds; None stands for a column that the file does not have."""

    threshold: Fraction
    alpha: Fraction | None
    cells: frozenset[str] | None


def _threshold_row(texts: Mapping[str, str]) -> _ThresholdRow:
    return _ThresholdRow(
        _decimal("threshold", texts["threshold"]),
        _decimal("alpha", texts["alpha"]) if "alpha" in texts else None,
        _cells(texts["cells"]) if "cells" in texts else None,
    )


def _by_predicate(path: Path, columns: tuple[str, ...], read: Callable[[list[str]], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for number, predicate, row in _rows(path, columns, in_memory=True):
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


def _rows(path: Path, columns: tuple[str, ...], *, in_memory: bool = False) -> Iterator[tuple[int, str, list[str]]]:
    header = _header(path)
    if any(header.count(name) > 1 for name in ("predicate", "zone", *columns)):
        raise UsageError(f"{path}: first line must name each column once")
    if "predicate" in header and "zone" in header:
        raise UsageError(f"{path}: first line must have a column predicate or zone, not both")
    predicate = "zone" if "zone" in header else "predicate"
    with open_text(path) as file:
        lines = lines_of(path, file)
        for number, row in csv_rows(path, lines_in_memory(path, lines) if in_memory else lines, (predicate, *columns)):
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


Aggregate = Literal["count", "sum", "mean"]


@dataclass(frozen=True, slots=True)
class Measure:
    """The compared quantity. UsageError if bounds or resolution are missing, redundant or inconsistent."""

    aggregate: Aggregate = "count"
    bounds: tuple[Fraction, Fraction] | None = None
    """Every value is clamped to these bounds."""
    resolution: Fraction | None = None
    """The step to which values are rounded; both bounds are multiples of it."""

    def __post_init__(self) -> None:
        if self.aggregate == "count":
            if self.bounds is not None or self.resolution is not None:
                raise UsageError("bounds and resolution go with sums and means, not with counts")
            return
        if self.bounds is None or self.resolution is None:
            raise UsageError(f"a {self.aggregate} must have bounds and a resolution")
        low, high = self.bounds
        if self.resolution <= 0:
            raise UsageError(f"resolution must be above 0, got {float(self.resolution):g}")
        if low >= high:
            raise UsageError(f"bounds must be two numbers, the lower one first, got {float(low):g} and {float(high):g}")
        if any((bound / self.resolution).denominator > 1 for bound in self.bounds):
            raise UsageError(f"bounds must be multiples of the resolution {float(self.resolution):g}")
        if max(abs(low), abs(high)) / self.resolution > LARGEST:
            raise UsageError(f"bounds must be at most {LARGEST} times the resolution")

    @property
    def step(self) -> Fraction:
        """The value of one step in the units of the file."""
        return self.resolution or Fraction(1)

    def sensitivity(self, thresholds: Iterable[Fraction]) -> int:
        """Return by how many steps one row more or less changes the compared quantity at most."""
        if self.bounds is None:
            return 1
        centres = thresholds if self.aggregate == "mean" else [Fraction(0)]
        return max(int(abs(bound - centre) / self.step) for centre in centres for bound in self.bounds)

    def limits(self, thresholds: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """Return, in steps, the threshold of each predicate.

        Raises:
            DataError: the threshold of a mean is not a multiple of the resolution.
        """
        if self.aggregate != "mean":
            return {name: threshold / self.step for name, threshold in thresholds.items()}
        if any((threshold / self.step).denominator > 1 for threshold in thresholds.values()):
            raise DataError(f"thresholds of means must be multiples of the resolution {float(self.step):g}")
        return dict.fromkeys(thresholds, Fraction(0))

    def read(self, path: Path, thresholds: Mapping[str, Fraction]) -> dict[str, int]:
        """Return, in steps, the compared quantity of each predicate, which must not be published.

        Raises:
            UsageError: the file cannot be read or has other columns.
            DataError: a row is bad, or the predicates are not those of the thresholds.
        """
        if self.bounds is None:
            return read_counts(path)
        low, high = self.bounds
        totals = dict.fromkeys(thresholds, 0)
        for name, value in read_values(path):
            if name not in totals:
                raise DataError("values must be of predicates that have a threshold; nothing is decided")
            steps = round(min(max(value, low), high) / self.step)
            totals[name] += steps - (int(thresholds[name] / self.step) if self.aggregate == "mean" else 0)
        return totals


COUNTS = Measure()
Operator = Literal[">", ">=", "<", "<="]
DUALS: dict[Operator, Operator] = {">": "<=", "<=": ">", "<": ">=", ">=": "<"}
_FIELDS = ("counts", "thresholds", "alpha", "operator", "aggregate", "bounds", "resolution")
_DEEPEST = 50
_TOO_DEEP = f"must not be deeper than {_DEEPEST}"


@dataclass(frozen=True, slots=True)
class Source:
    """The files and parameters of a table."""

    counts: Path | None
    thresholds: Path | None
    alpha: Fraction | None
    operator: Operator = ">"
    measure: Measure = COUNTS


class Question(NamedTuple):
    """A tree, and readers for its tables' counts, which only the decision needs."""

    tree: Tree
    predicates: tuple[str, ...]
    cells: tuple[frozenset[str], ...]
    """The cells of each predicate of the first table."""
    tables: Callable[[], dict[str, Table]]


class _TableQuery(NamedTuple):
    source: Source
    limits: Thresholds
    alphas: tuple[Fraction, ...]
    """In steps of the compared quantity, like the next field."""
    compared: Mapping[str, Fraction]


def question(source: Source, path: Path | None = None) -> Question:
    """Return the query of one table, or of the tree in ``path``.

    Raises:
        UsageError: the tree is malformed, or a table has no file or no alpha.
        DataError: thresholds are bad, or the predicates differ between tables.
    """
    queries: dict[str, _TableQuery] = {}
    tree = _Reader(path, source, queries).tree({} if path is None else _read_query(path), "", negated=False, depth=0)
    first = next(iter(queries.values())).limits
    names = tuple(first.thresholds)
    return Question(
        tree,
        names,
        tuple(first.cells.values()),
        lambda: {place: _table(names, each) for place, each in queries.items()},
    )


class _Reader:
    def __init__(self, path: Path | None, source: Source, queries: dict[str, _TableQuery]) -> None:
        self.path, self.source, self.queries = path, source, queries

    def tree(self, node: Any, place: str, *, negated: bool, depth: int) -> Tree:
        if not isinstance(node, dict):
            self.refuse(place, "must be an object")
        if depth > _DEEPEST:
            self.refuse(place, _TOO_DEEP)
        for kind in ("and", "or"):
            if kind in node:
                return self.join(kind, node, place, negated=negated, depth=depth)
        if "not" in node:
            self.only(node, ("not",), place)
            return self.tree(node["not"], place, negated=not negated, depth=depth + 1)
        return self.leaf(node, place, negated=negated)

    def join(self, kind: str, node: JsonObject, place: str, *, negated: bool, depth: int) -> Tree:
        self.only(node, (kind, "disjoint"), place)
        listed, disjoint = node[kind], node.get("disjoint", False)
        if not isinstance(listed, list) or not listed:
            self.refuse(place, f'"{kind}" must be a list of at least one')
        if not isinstance(disjoint, bool):
            self.refuse(place, '"disjoint" must be true or false')
        parts = [self.tree(each, f"{place}/{i}", negated=negated, depth=depth + 1) for i, each in enumerate(listed)]
        return Join("and" if (kind == "and") != negated else "or", tuple(parts), disjoint)

    def leaf(self, node: JsonObject, place: str, *, negated: bool) -> Leaf:
        self.only(node, _FIELDS, place)
        source = self.named(node, place)
        if negated:
            source = replace(source, operator=DUALS[source.operator])
        if source.counts is None or source.thresholds is None:
            self.refuse(place, "must name counts and thresholds that the command does not give")
        limits = read_thresholds(source.thresholds)
        if not limits.alphas and source.alpha is None:
            self.refuse(place, "alpha must be given, by --alpha or as a column of the thresholds")
        alphas = tuple(limits.alphas.values()) or (cast(Fraction, source.alpha),) * len(limits.thresholds)
        order = {name: alpha / source.measure.step for name, alpha in zip(limits.thresholds, alphas, strict=True)}
        first = next(iter(self.queries.values())).limits.thresholds if self.queries else limits.thresholds
        _same(first.keys(), order.keys())
        inorder = tuple(order[name] for name in first)
        compared = source.measure.limits(limits.thresholds)
        self.queries[place] = _TableQuery(source, limits, inorder, compared)
        return Leaf(place, inorder, source.measure.sensitivity(limits.thresholds.values()))

    def named(self, node: JsonObject, place: str) -> Source:
        source = self.source
        for name in ("counts", "thresholds"):
            if name in node:
                if not isinstance(node[name], str) or not node[name] or "\0" in node[name]:
                    self.refuse(place, f'"{name}" must be the name of a file')
                source = replace(source, **{name: cast(Path, self.path).parent / node[name]})
        if "alpha" in node:
            if not _number(node["alpha"]):
                self.refuse(place, '"alpha" must be a number')
            source = replace(source, alpha=Fraction(node["alpha"]))
        if "operator" in node:
            if node["operator"] not in DUALS:
                self.refuse(place, f'"operator" must be one of {", ".join(DUALS)}')
            source = replace(source, operator=node["operator"])
        if {"aggregate", "bounds", "resolution"} & node.keys():
            source = replace(source, measure=self.measure(node, place))
        return source

    def measure(self, node: JsonObject, place: str) -> Measure:
        aggregate, bounds, resolution = (node.get(name) for name in ("aggregate", "bounds", "resolution"))
        if aggregate not in get_args(Aggregate):
            self.refuse(place, f'"aggregate" must be one of {", ".join(get_args(Aggregate))}')
        if bounds is not None and not (isinstance(bounds, list) and len(bounds) == 2 and all(map(_number, bounds))):
            self.refuse(place, '"bounds" must be a list of two numbers')
        if resolution is not None and not _number(resolution):
            self.refuse(place, '"resolution" must be a number')
        try:
            return Measure(
                cast(Aggregate, aggregate),
                None if bounds is None else (Fraction(bounds[0]), Fraction(bounds[1])),
                None if resolution is None else Fraction(resolution),
            )
        except UsageError as error:
            self.refuse(place, str(error))

    def only(self, node: JsonObject, known: tuple[str, ...], place: str) -> None:
        for name in node:
            if name not in known:
                self.refuse(place, f"unknown entry {json.dumps(name)[:60]}; known entries here are {', '.join(known)}")

    def refuse(self, place: str, rule: str) -> NoReturn:
        where = "decide" if self.path is None else f"{self.path}: {place.lstrip('/') or 'the tree'}"
        raise UsageError(f"{where}: {rule}")


def _read_query(path: Path) -> Any:
    try:
        text = path.read_text("utf-8-sig")
        return json.loads(text, parse_float=_decimal_of, parse_constant=_decimal_of, object_pairs_hook=_once)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UsageError(f"{path}: {_TOO_DEEP}") from None
    except (UnicodeDecodeError, ValueError):
        raise UsageError(f"{path}: must be JSON, in which no object has an entry twice") from None


def _once(pairs: list[tuple[str, Any]]) -> JsonObject:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made


def _decimal_of(text: str) -> Fraction:
    if not DECIMAL.fullmatch(text):
        raise ValueError
    return Fraction(text)


def _number(value: object) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _same(names: object, others: object) -> None:
    if names != others:
        raise DataError("counts and thresholds must be of the same predicates; nothing is decided")


def _table(names: tuple[str, ...], query: _TableQuery) -> Table:
    """Read a table's counts, converted to ``>`` on integers."""
    counts = query.source.measure.read(cast(Path, query.source.counts), query.limits.thresholds)
    _same(counts.keys(), query.limits.thresholds.keys())
    sign = 1 if query.source.operator in (">", ">=") else -1
    limits = [sign * query.compared[name] for name in names]
    whole = [floor(each) if query.source.operator in (">", "<") else ceil(each) - 1 for each in limits]
    return Table(names, sign * np.array([counts[name] for name in names]), np.array(whole), query.alphas)
