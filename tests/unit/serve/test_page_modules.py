"""The page's JavaScript modules import each other without circles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import connectors.serve

STATIC = Path(connectors.serve.__file__).parent / "static"
VENDOR = STATIC / "vendor"
IMPORT = re.compile(r"""(?:\bfrom|\bimport\s*\(|\bimport)\s*["'](\.[^"']+)["']""")
"""A module that another one imports, at its start or when it is needed."""


def imports(folder: Path) -> dict[str, list[str]]:
    """Return, for each module of a folder, the modules that it imports."""
    found = {}
    for path in sorted(folder.rglob("*.js")):
        if VENDOR not in path.parents:
            wanted = [(path.parent / name).resolve() for name in IMPORT.findall(path.read_text())]
            found[path.relative_to(folder).as_posix()] = [each.relative_to(folder).as_posix() for each in wanted]
    return found


def circle(modules: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the modules of a circle in the order in which they import each other; nothing if there is none."""
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in done:
            for other in modules.get(module, ()):
                if found := search(other, [*path, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in modules if (found := search(module, []))), [])


def test_no_module_of_the_page_imports_itself_through_others() -> None:
    modules = imports(STATIC.resolve())
    assert len(modules) > 20
    assert circle(modules) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.js": 'import { b } from "./b.js";', "b.js": 'const a = () => import("./a.js");'},
         ["a.js", "b.js", "a.js"]),
        ({"a.js": 'import "./pages/b.js";', "pages/b.js": "export { c } from '../a.js';"},
         ["a.js", "pages/b.js", "a.js"]),
        ({"a.js": 'import { b } from "./b.js";', "b.js": ""}, []),
    ],
    ids=["needed later", "in a folder", "none"],
)  # fmt: skip
def test_a_circle_is_found(tmp_path: Path, files: dict[str, str], expected: list[str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert circle(imports(tmp_path.resolve())) == expected
