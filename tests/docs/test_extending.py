"""Who follows docs/extending.md block by block, in a copy of the code, ends with what it promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS, ROOT

COPIED = ("tacet", "connectors", "stream", "pyproject.toml")
STEP = re.compile(r"^```(?:py|text) ((?:into|new|then)\b[^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INTO = re.compile(r"into (\S+) (before|after) (.+)")


def put(text: str, into: Path, side: str, line: str) -> None:
    """Put a block before or after the one line of a file that begins with ``line``."""
    lines = into.read_text().splitlines(keepends=True)
    text += "\n\n" * text.startswith("def ")
    (place,) = [number for number, each in enumerate(lines) if each.startswith(line)]
    lines.insert(place + (side == "after"), text)
    into.write_text("".join(lines))


def run(copy: Path, *words: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def follow(what: str, text: str, copy: Path) -> None:
    if what == "then":
        run(copy, sys.executable, "-W", "error", "-c", text)
    elif what.startswith("new "):
        path = copy / what.removeprefix("new ")
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    else:
        found = INTO.fullmatch(what)
        assert found is not None, what
        put(text, copy / found[1], found[2], found[3])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        path, ignored = ROOT / name, shutil.ignore_patterns("__pycache__")
        shutil.copytree(path, folder / name, ignore=ignored) if path.is_dir() else shutil.copy(path, folder / name)
    return folder


def test_each_block_can_be_followed_and_what_comes_of_it_keeps_to_the_rooms(copy: Path) -> None:
    steps = STEP.findall(DOCUMENTS["docs/extending.md"])
    assert sum(what == "then" for what, _ in steps) >= 2
    for what, text in steps:
        follow(what, text, copy)
    tools = Path(sys.executable).parent
    run(copy, str(tools / "ruff"), "check", ".")
    run(copy, str(tools / "ruff"), "format", "--check", ".")
    run(copy, str(tools / "lint-imports"), "--no-cache")
