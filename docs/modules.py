"""Write docs/reference/modules.md: every package and module with what its docstring begins with (``make docs``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/reference/modules.md"
HEAD = """# Modules

`make docs` writes this page from the docstrings. [Architecture](../architecture.md) says what each package is for.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for top in ("tacet", "connectors", "stream"):
        for folder in sorted(path.parent for path in (ROOT / top).rglob("__init__.py")):
            name = folder.relative_to(ROOT).as_posix()
            parts += [f"## {name}\n", f"{_first(folder / '__init__.py')}\n"]
            parts += ["| module | |\n|---|---|", *_rows(folder), ""]
    return "\n".join(parts).rstrip() + "\n"


def _rows(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            link = Path("../..") / path.relative_to(ROOT)
            yield f"| [{path.stem}]({link.as_posix()}) | {_first(path)} |"


def _first(path: Path) -> str:
    """Return the first paragraph of a module's docstring on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(page())
