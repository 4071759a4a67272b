"""Compound questions: a JSON file of ``and``, ``or`` and ``not`` over tables, made into a tree and its tables.

A table has ``counts`` and ``thresholds`` (files, beside this one), ``alpha``, ``operator``, and for sums and means
``aggregate``, ``bounds`` and ``resolution``; what it leaves out is what the command was given. Every operator becomes
``>`` among whole numbers: g >= c is g > c - 1, and g < c is -g > -c.
What is negated goes to its dual: not (g < c) is g >= c, and not (A and B) is (not A) or (not B).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, cast, get_args

import numpy as np

from connectors.files.measures import Aggregate, Measure
from connectors.files.predicates import DECIMAL, Thresholds, read_thresholds
from stream.decisions.compound import Join, Leaf, Tree
from stream.decisions.deciding import Table
from stream.errors import DataError, UsageError

COUNTS = Measure()
Operator = Literal[">", ">=", "<", "<="]
DUALS: dict[Operator, Operator] = {">": "<=", "<=": ">", "<": ">=", ">=": "<"}
_FIELDS = ("counts", "thresholds", "alpha", "operator", "aggregate", "bounds", "resolution")
_DEEPEST = 50
_TOO_DEEP = f"must not be deeper than {_DEEPEST}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a table comes from."""

    counts: Path | None
    thresholds: Path | None
    alpha: Fraction | None
    operator: Operator = ">"
    measure: Measure = COUNTS


class Question(NamedTuple):
    """A tree, and how to read its tables' counts, which nothing but deciding needs."""

    tree: Tree
    predicates: tuple[str, ...]
    cells: tuple[frozenset[str], ...]
    """What each predicate of the first table holds for."""
    tables: Callable[[], dict[str, Table]]


class _Asked(NamedTuple):
    source: Source
    limits: Thresholds
    alphas: tuple[Fraction, ...]
    """In steps of what is compared, and so are the next."""
    compared: Mapping[str, Fraction]


def question(source: Source, path: Path | None = None) -> Question:
    """Return the question of one table, or of the tree in ``path``.

    Raises:
        UsageError: the tree is malformed, or a table has no file or no alpha.
        DataError: thresholds are bad, or not of the same predicates everywhere.
    """
    asked: dict[str, _Asked] = {}
    tree = _Reader(path, source, asked).tree({} if path is None else _read(path), "", negated=False, deep=0)
    first = next(iter(asked.values())).limits
    names = tuple(first.thresholds)
    return Question(
        tree, names, tuple(first.cells.values()), lambda: {place: _table(names, each) for place, each in asked.items()}
    )


class _Reader:
    def __init__(self, path: Path | None, source: Source, asked: dict[str, _Asked]) -> None:
        self.path, self.source, self.asked = path, source, asked

    def tree(self, node: Any, place: str, *, negated: bool, deep: int) -> Tree:
        if not isinstance(node, dict):
            self.refuse(place, "must be an object")
        if deep > _DEEPEST:
            self.refuse(place, _TOO_DEEP)
        for kind in ("and", "or"):
            if kind in node:
                return self.join(kind, node, place, negated=negated, deep=deep)
        if "not" in node:
            self.only(node, ("not",), place)
            return self.tree(node["not"], place, negated=not negated, deep=deep + 1)
        return self.leaf(node, place, negated=negated)

    def join(self, kind: str, node: dict[str, Any], place: str, *, negated: bool, deep: int) -> Tree:
        self.only(node, (kind, "disjoint"), place)
        listed, disjoint = node[kind], node.get("disjoint", False)
        if not isinstance(listed, list) or not listed:
            self.refuse(place, f'"{kind}" must be a list of at least one')
        if not isinstance(disjoint, bool):
            self.refuse(place, '"disjoint" must be true or false')
        parts = [self.tree(each, f"{place}/{i}", negated=negated, deep=deep + 1) for i, each in enumerate(listed)]
        return Join("and" if (kind == "and") != negated else "or", tuple(parts), disjoint)

    def leaf(self, node: dict[str, Any], place: str, *, negated: bool) -> Leaf:
        self.only(node, _FIELDS, place)
        source = self.named(node, place)
        if negated:
            source = replace(source, operator=DUALS[source.operator])
        if source.counts is None or source.thresholds is None:
            self.refuse(place, "must name counts and thresholds where the command is not given them")
        limits = read_thresholds(source.thresholds)
        if not limits.alphas and source.alpha is None:
            self.refuse(place, "alpha must be given, by --alpha or as a column of the thresholds")
        alphas = tuple(limits.alphas.values()) or (cast(Fraction, source.alpha),) * len(limits.thresholds)
        order = {name: alpha / source.measure.step for name, alpha in zip(limits.thresholds, alphas, strict=True)}
        first = next(iter(self.asked.values())).limits.thresholds if self.asked else limits.thresholds
        _same(first.keys(), order.keys())
        inorder = tuple(order[name] for name in first)
        compared = source.measure.limits(limits.thresholds)
        self.asked[place] = _Asked(source, limits, inorder, compared)
        return Leaf(place, inorder, source.measure.sensitivity(limits.thresholds.values()))

    def named(self, node: dict[str, Any], place: str) -> Source:
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

    def measure(self, node: dict[str, Any], place: str) -> Measure:
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

    def only(self, node: dict[str, Any], known: tuple[str, ...], place: str) -> None:
        for name in node:
            if name not in known:
                self.refuse(place, f"unknown entry {json.dumps(name)[:60]}; known beside it are {', '.join(known)}")

    def refuse(self, place: str, rule: str) -> NoReturn:
        where = "decide" if self.path is None else f"{self.path}: {place.lstrip('/') or 'the tree'}"
        raise UsageError(f"{where}: {rule}")


def _read(path: Path) -> Any:
    try:
        text = path.read_text("utf-8-sig")
        return json.loads(text, parse_float=_decimal, parse_constant=_decimal, object_pairs_hook=_once)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UsageError(f"{path}: {_TOO_DEEP}") from None
    except (UnicodeDecodeError, ValueError):
        raise UsageError(f"{path}: must be JSON, in which no object has an entry twice") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made


def _decimal(text: str) -> Fraction:
    if not DECIMAL.fullmatch(text):
        raise ValueError
    return Fraction(text)


def _number(value: object) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool)


def _same(names: Any, others: Any) -> None:
    if names != others:
        raise DataError("counts and thresholds must be of the same predicates; nothing is decided")


def _table(names: tuple[str, ...], asked: _Asked) -> Table:
    """Read a table's counts; as ``>`` among whole numbers."""
    counts = asked.source.measure.read(cast(Path, asked.source.counts), asked.limits.thresholds)
    _same(counts.keys(), asked.limits.thresholds.keys())
    sign = 1 if asked.source.operator in (">", ">=") else -1
    limits = [sign * asked.compared[name] for name in names]
    whole = [floor(each) if asked.source.operator in (">", "<") else ceil(each) - 1 for each in limits]
    return Table(names, sign * np.array([counts[name] for name in names]), np.array(whole), asked.alphas)
