"""The shape of the code: how long functions, classes and parameter lists may be, and how far a window walks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from stream.pipeline import Pipeline
from stream.policy.document import load_policy
from stream.schemas import CountRecord
from tests.core_ground import SITE, laboratory, messages, people, policy_text

ROOT = Path(__file__).parents[2]
SOURCES = ("stream", "connectors", "tacet")
LINES, METHODS, PARAMETERS = 60, 12, 7
MODULE = 300
FUNCTIONS, FILES = 12, 6
EXCEPTIONS = {
    "stream/runners/partition.py Partition.__init__": "six of eight are choices of a start, by keyword",
    "connectors/subscriber.py subscribe": "the public function: home, key, topic and place to begin, by keyword",
}
"""Where the limits do not hold, and why."""
COMMANDS = "connectors/commands/"
"""Verbs have as many parameters as options."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def named(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Yield every class and function of a tree with its dotted name."""
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, ast.ClassDef | Function):
            inner = f"{name}.{node.name}".lstrip(".")
            yield inner, node
        yield from named(node, inner)


def parameters(node: Function) -> list[str]:
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in {"self", "cls"}]


def too_large() -> Iterator[str]:
    """Yield the modules, classes (by public methods) and functions (by lines and parameters) over their limits."""
    for path, tree in modules():
        if len((ROOT / path).read_text().splitlines()) > MODULE:
            yield path
        for name, node in named(tree, ""):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, Function) and not each.name.startswith("_")]
                large = len(methods) > METHODS
            else:
                listed = 0 if path.startswith(COMMANDS) else len(parameters(node))
                large = (node.end_lineno or 0) - node.lineno >= LINES or listed > PARAMETERS
            if large:
                yield f"{path} {name}"


def test_modules_functions_classes_and_parameter_lists_are_small_but_for_named_exceptions() -> None:
    assert sorted(set(too_large())) == sorted(EXCEPTIONS)


LAPLACE = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { board = "1" }
"""


def test_a_window_comes_to_its_record_within_twelve_functions_in_six_files() -> None:
    """What stands on the stack, of this project, from ``Pipeline.step`` down to the bytes of a count record.

    Counted are the functions that are entered and not yet left when ``CountRecord.to_bytes`` is called: those that
    somebody reads who follows a window from the one to the other. What they call and come back from is aside.
    """
    pipeline = Pipeline(load_policy(policy_text(releases=LAPLACE)), SITE, laboratory())
    walks: list[set[tuple[str, str]]] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        caller = frame.f_back
        if (
            event == "call"
            and frame.f_code.co_name == "to_bytes"
            and isinstance(frame.f_locals.get("self"), CountRecord)
        ):
            walk = {place_of(frame)}
            while caller is not None and ("stream/pipeline.py", "Pipeline.step") not in walk:
                walk |= {place_of(caller)} if (ROOT / "stream").as_posix() in caller.f_code.co_filename else set()
                caller = caller.f_back
            walks.append(walk)

    state = pipeline.initial()
    for message in messages(people()[:200], load_policy(policy_text(releases=LAPLACE))):
        sys.setprofile(watch)
        try:
            pipeline.step(state, message)
        finally:
            sys.setprofile(None)
        if walks:
            break
    assert walks
    for walk in walks:
        assert ("stream/pipeline.py", "Pipeline.step") in walk
        assert len(walk) <= FUNCTIONS, sorted(walk)
        assert len({file for file, _ in walk}) <= FILES, sorted(walk)


def place_of(frame: FrameType) -> tuple[str, str]:
    """Return file and function of a frame; comprehensions belong to the function that they stand in."""
    name = frame.f_code.co_qualname.split(".<locals>")[0]
    return Path(frame.f_code.co_filename).relative_to(ROOT).as_posix(), name
