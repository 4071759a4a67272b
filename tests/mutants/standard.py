"""Standard mutants: small wrongs that any code may have, made from its syntax for modules that nobody has gone through.

Those of the catalogue are chosen by hand, each with the promise that it breaks. Standard mutants fill a module up to
the number that each module should have. One that survives either shows a missing test, or is equivalent: it changes
nothing that anybody could notice. A test that is written for one gets an entry in the catalogue. An equivalent one is
listed in ``standard.toml`` with the reason, and is passed over from then on:

    [[equivalent]]
    file = "stream/accounting/ledger.py"
    function = "Ledger.enter"
    line = "if event.key_day <= self.last:"   # without indentation
    fault = "<= -> <"                          # as the runner prints it
    reason = "..."

``[nearest]`` of the same file names the tests of a module that its own tests do not import.

| kind       | wrong                                                                        |
|------------|------------------------------------------------------------------------------|
| compare    | ``<`` for ``<=``, ``==`` for ``!=``, ``in`` for ``not in`` and so on          |
| boundary   | a whole number larger by one                                                 |
| arithmetic | ``+`` for ``-``, ``*`` for ``//``                                            |
| boolean    | ``and`` for ``or``                                                           |
| negation   | ``not`` left out                                                             |
| always     | what an ``if`` asks is true                                                  |
| never      | what an ``if`` asks is not true                                              |
| extreme    | ``min`` for ``max``, ``any`` for ``all``                                     |
| default    | a function returns nothing, zero, or what is empty                           |
| removed    | a call whose result nobody uses, an augmented assignment or a ``raise`` left out |
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from .catalogue import ANYWHERE, FOLDER, SOURCES, STANDARD, Mutant

LIST = FOLDER / "standard.toml"

OTHER = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*"), ast.Mod: ("%", "//"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
"""Operators, as they are written, and the wrong one for each."""
EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
DEFAULTS = {
    "bool": "False", "int": "0", "Micros": "0", "float": "0.0", "str": '""', "bytes": 'b""', "Fraction": "Fraction(0)",
}  # fmt: skip
EMPTY = {
    "list": "[]",
    "dict": "{}",
    "tuple": "()",
    "Mapping": "{}",
    "Sequence": "()",
    "Iterable": "()",
    "Counter": "{}",
}
SPARED_CALLS = ("log.", "logger.", "_log.", "click.echo", "warnings.")
"""What is said to people is tried by tests of texts, not here."""
DECIDING = ast.If | ast.While | ast.IfExp | ast.BoolOp | ast.Compare | ast.Match | ast.Try


@dataclass(frozen=True, slots=True)
class Wrong:
    """One place of a module, and what stands there instead."""

    kind: str
    start: int
    """In bytes."""
    end: int
    new: bytes
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """What is known of one module."""

    file: Path
    """Relative to the tree."""
    decisions: int
    """Places at which it takes one way or another."""
    mutants: tuple[Mutant, ...]


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A standard mutant that changes nothing that anybody could notice."""

    file: str
    function: str
    line: str
    """The text of its line, without indentation."""
    fault: str
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of standard mutants that survived."""

    equivalent: tuple[Equivalent, ...] = ()
    nearest: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The tests of a module, by its file."""


def read_findings(path: Path = LIST) -> Findings:
    """Return what ``standard.toml`` says."""
    read = tomllib.loads(path.read_text())
    tests = {file: tuple(tests) for file, tests in read.get("nearest", {}).items()}
    return Findings(tuple(Equivalent(**each) for each in read.get("equivalent", ())), tests)


def modules(tree: Path, under: tuple[str, ...] = SOURCES, findings: Findings | None = None) -> Iterator[Module]:
    """Yield every module below some folders, or the files named, in order."""
    findings = read_findings() if findings is None else findings
    for name in under:
        path = tree / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield module(file.relative_to(tree), tree, findings)


def module(file: Path, tree: Path, findings: Findings = Findings()) -> Module:
    """Return a module's decisions and its standard mutants but equivalent ones, in the order of their places."""
    text = (tree / file).read_bytes()
    parsed = ast.parse(text)
    decisions = sum(isinstance(node, DECIDING) for node in ast.walk(parsed))
    tests = findings.nearest.get(str(file)) or nearest(file, tree)
    known = {(each.function, each.line, each.fault) for each in findings.equivalent if each.file == str(file)}
    lines = text.decode().splitlines()
    made: dict[str, Mutant] = {}
    for wrong in _wrongs(text, parsed):
        mutant = _mutant(wrong, text, parsed, file, tests)
        if mutant is not None and (mutant.function, lines[wrong.line - 1].strip(), mutant.promise) not in known:
            made.setdefault(mutant.name, mutant)
    return Module(file, decisions, tuple(made.values()))


def some_of(module: Module, count: int) -> list[Mutant]:
    """Return so many mutants of a module: of each function one, then of each a second, and so on."""
    turns: dict[str, int] = {}
    order = []
    for place, mutant in enumerate(module.mutants):
        turns[mutant.function] = turns.get(mutant.function, 0) + 1
        order.append((turns[mutant.function], place, mutant))
    chosen = sorted(order, key=lambda each: each[:2])[:count]
    return [mutant for _, _, mutant in sorted(chosen, key=lambda each: each[1])]


def nearest(file: Path, tree: Path, most: int = 4) -> tuple[str, ...]:
    """Return the tests that name a module: those of units first, then the shortest; none where no test does."""
    dotted = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    found = [(_KINDS.get(kind, 9), length, test) for test, kind, length, named in _tests(tree) if dotted in named]
    return tuple(test for _, _, test in sorted(found)[:most])


def quickest(tests: Iterable[str]) -> tuple[str, ...]:
    """Return tests in the order in which they should run: those of units first."""
    return tuple(sorted(tests, key=lambda test: (_KINDS.get(test.split("/")[1], 9), test)))


_KINDS = {"unit": 0, "laws": 1, "statistical": 2, "docs": 3}
_IMPORT = re.compile(r"^\s*(?:from (\S+) import (\([^)]*\)|[^\n]*)|import ([^\n]+))", re.MULTILINE)


@cache
def _tests(tree: Path) -> tuple[tuple[str, str, int, frozenset[str]], ...]:
    """Return of each file of tests its path, kind and length, and what it imports."""
    found = []
    for path in sorted((tree / "tests").rglob("test_*.py")):
        text, named = path.read_text(), set[str]()
        for parent, names, whole in _IMPORT.findall(text):
            named |= {
                parent,
                *(f"{parent}.{name}" for name in re.findall(r"\w+", names)),
                *re.findall(r"[\w.]+", whole),
            }
        relative = path.relative_to(tree)
        found.append((str(relative), relative.parts[1], len(text), frozenset(named)))
    return tuple(found)


# --- the wrongs of a module ---------------------------------------------------------------------------------


def _wrongs(text: bytes, parsed: ast.Module) -> Iterator[Wrong]:
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def begin(node: ast.AST) -> int:
        return int(lines[node.lineno - 1] + node.col_offset)  # type: ignore[attr-defined]

    def end(node: ast.AST) -> int:
        return int(lines[node.end_lineno - 1] + node.end_col_offset)  # type: ignore[attr-defined]

    def between(kind: str, operator: type[ast.AST], left: ast.AST, right: ast.AST) -> Iterator[Wrong]:
        if operator in OTHER:
            old, new = OTHER[operator]
            pattern = rb"\s+".join(re.escape(word).encode() for word in old.split())
            pattern = rb"\b" + pattern + rb"\b" if old[0].isalpha() else pattern
            gap = text[end(left) : begin(right)]
            if (found := re.search(pattern, gap)) is not None:
                at = end(left) + found.start()
                yield Wrong(kind, at, end(left) + found.end(), new.encode(), left.end_lineno)  # type: ignore[attr-defined]

    def instead(kind: str, node: ast.AST, new: str) -> Wrong:
        return Wrong(kind, begin(node), end(node), new.encode(), node.lineno)  # type: ignore[attr-defined]

    def of_node(node: ast.AST, returns: str) -> Iterator[Wrong]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
                    yield from between("compare", type(operator), left, right)
            case ast.BinOp():
                if not (_is_text(node.left) or _is_text(node.right)):
                    yield from between("arithmetic", type(node.op), node.left, node.right)
            case ast.BoolOp():
                yield from between("boolean", type(node.op), node.values[0], node.values[1])
            case ast.UnaryOp(op=ast.Not()):
                yield instead("negation", node, f"({text[begin(node.operand) : end(node.operand)].decode()})")
            case ast.Constant() if type(node.value) is int:
                yield instead("boundary", node, str(node.value + 1))
            case ast.If() | ast.IfExp():
                yield instead("always", node.test, "True")
                if ast.unparse(node.test) != "TYPE_CHECKING":  # which is false while a program runs
                    yield instead("never", node.test, "False")
            case ast.Call(func=ast.Name(id=name) as called) if name in EXTREMES:
                yield instead("extreme", called, EXTREMES[name])
            case ast.Return(value=ast.expr() as value):
                default = _default(returns)
                if ast.unparse(value) not in (default, "None"):
                    yield instead("default", value, default)
            case ast.Expr(value=ast.Call() as call) if not ast.unparse(call.func).startswith(SPARED_CALLS):
                yield instead("removed", node, "pass")
            case ast.AugAssign() | ast.Raise(exc=ast.expr()):
                yield instead("removed", node, "pass")

    def visit(node: ast.AST, returns: str) -> Iterator[Wrong]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Assert):
                    continue
                inner = returns
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    inner = "" if child.returns is None else ast.unparse(child.returns)
                yield from of_node(child, inner)
                yield from visit(child, inner)

    found = {(wrong.start, wrong.end, wrong.new): wrong for wrong in visit(parsed, "")}
    yield from sorted(found.values(), key=lambda wrong: (wrong.start, wrong.end, wrong.new))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _default(returns: str) -> str:
    """Return what a function of a return type gives that does nothing."""
    if "None" in returns.split(" | "):
        return "None"
    return DEFAULTS.get(returns) or EMPTY.get(returns.partition("[")[0], "None")


# --- as entries of a catalogue ------------------------------------------------------------------------------


def _mutant(wrong: Wrong, text: bytes, parsed: ast.Module, file: Path, tests: tuple[str, ...]) -> Mutant | None:
    """Return a wrong as an entry that names a whole function or statement; None where that would not be one place."""
    name, start, end = _around(wrong, text, parsed)
    old = text[start:end].decode()
    new = (text[start : wrong.start] + wrong.new + text[wrong.end : end]).decode()
    if old == new or text.count(old.encode()) != 1 or not _parses(new, start - text.rfind(b"\n", 0, start) - 1):
        return None
    column = wrong.start - text.rfind(b"\n", 0, wrong.start)
    shown = " ".join(text[wrong.start : wrong.end].decode().split())
    promise = f"{shown[:60]} -> {wrong.new.decode()[:60]}"
    return Mutant(f"{file}:{wrong.line}.{column}-{wrong.kind}", str(file), name, old, new, promise, tests, STANDARD)


def _around(wrong: Wrong, text: bytes, parsed: ast.Module) -> tuple[str, int, int]:
    """Return the innermost function that holds a place, or the statement outside of functions; and its span."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = (ANYWHERE, wrong.start, wrong.end)

    def visit(node: ast.AST, names: tuple[str, ...], in_function: bool) -> None:
        nonlocal found
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt):
                visit(child, names, in_function)
                continue
            assert child.end_lineno is not None
            start, end = lines[child.lineno - 1] + child.col_offset, lines[child.end_lineno - 1]
            assert child.end_col_offset is not None
            end += child.end_col_offset
            if not start <= wrong.start < end:
                continue
            inner = names
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, child.name)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found = (".".join(inner), start, end)
                visit(child, inner, True)
            else:
                if not in_function and not isinstance(child, ast.ClassDef):
                    found = (ANYWHERE, start, end)
                visit(child, inner, in_function)

    visit(parsed, (), False)
    return found


def _parses(statement: str, indent: int) -> bool:
    try:
        ast.parse(f"async def _():\n {' ' * indent}{statement}" if indent else statement)
    except SyntaxError:
        return False
    return True
