"""The catalogue: which text of which function is made wrong, what promise that breaks, which tests are nearest.

An entry names a function and a text that occurs exactly once in it, so that it survives the moving of code:
where its file no longer has them, the one other file that has both is taken. ``function`` is a dotted name
within its module (``Ledger.enter``), or ``*`` for what stands outside of functions.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = ("stream", "connectors")
ANYWHERE = "*"
STANDARD = "standard"
"""Stands for the file of mutants that none holds: they are made from the syntax."""


class CatalogueError(Exception):
    """An entry that does not say what to do any more."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One entry."""

    name: str
    file: str
    function: str
    old: str
    new: str
    promise: str
    tests: tuple[str, ...]
    catalogue: str
    """The file of the catalogue that holds it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry's text stands now."""

    file: Path
    """Relative to the tree."""
    start: int
    """Of the text, in characters."""


def read_catalogue(folder: Path = FOLDER) -> list[Mutant]:
    """Return all entries in the order of files and lines; CatalogueError where one is not whole."""
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text()).get("mutant", ()):
            try:
                found.append(Mutant(**entry | {"tests": tuple(entry["tests"]), "catalogue": path.name}))
            except (TypeError, KeyError) as error:
                msg = f"{path.name}: entry {entry.get('name', '?')} must have the fields of a mutant: {error}"
                raise CatalogueError(msg) from None
    names = [mutant.name for mutant in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CatalogueError(f"names must be distinct, got {twice[0]} twice")
    return found


def locate(mutant: Mutant, tree: Path) -> Place:
    """Return where the text stands; CatalogueError unless that is one place."""
    named = Path(mutant.file)
    if (tree / named).exists() and (starts := _starts(mutant, tree / named)):
        return Place(named, _only(mutant, starts, mutant.file))
    moved = {path: starts for path in _modules(tree) if (starts := _starts(mutant, path))}
    if len(moved) != 1:
        where = ", ".join(str(path.relative_to(tree)) for path in moved) or "none"
        raise CatalogueError(f"{mutant.name}: {mutant.function} must hold {mutant.old!r} in one file, got {where}")
    ((path, starts),) = moved.items()
    return Place(path.relative_to(tree), _only(mutant, starts, str(path)))


def mutated(mutant: Mutant, text: str, place: Place) -> str:
    """Return a file's text with the entry's wrong in it."""
    return text[: place.start] + mutant.new + text[place.start + len(mutant.old) :]


def _only(mutant: Mutant, starts: list[int], where: str) -> int:
    if len(starts) > 1:
        raise CatalogueError(f"{mutant.name}: {mutant.old!r} must occur once in {mutant.function} of {where}")
    return starts[0]


def _modules(tree: Path) -> Iterator[Path]:
    for source in SOURCES:
        yield from sorted((tree / source).rglob("*.py"))


def _starts(mutant: Mutant, path: Path) -> list[int]:
    text = path.read_text()
    if mutant.old not in text:
        return []
    spans = _spans(text)
    inside = [span for name, spans_of in spans.items() if name == mutant.function for span in spans_of]
    found, start = [], text.find(mutant.old)
    while start >= 0:
        if mutant.function == ANYWHERE:
            stored = not any(low <= start < high for spans_of in spans.values() for low, high in spans_of)
        else:
            stored = any(low <= start and start + len(mutant.old) <= high for low, high in inside)
        found += [start] if stored else []
        start = text.find(mutant.old, start + 1)
    return found


@cache
def _spans(text: str) -> dict[str, list[tuple[int, int]]]:
    """Return, for the dotted name of every function, from which character to which it reaches."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    spans: dict[str, list[tuple[int, int]]] = {}

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, child.name)
                if not isinstance(child, ast.ClassDef):
                    assert child.end_lineno is not None
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    spans.setdefault(".".join(inner), []).append((lines[first - 1], lines[child.end_lineno]))
                visit(child, inner)
            else:
                visit(child, names)

    visit(ast.parse(text), ())
    return spans
