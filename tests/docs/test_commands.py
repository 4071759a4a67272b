"""What the documents tell a reader to type is run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.documents import DOCUMENTS, ROOT, Block, blocks

GUIDE = "docs/guide.md"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run(script: str, folder: Path) -> str:
    """Run lines of shell with ``tacet`` on the path; return what they print."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=os.environ | {"PATH": PATH}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which every command of the guide has been run, and what they printed."""
    folder = tmp_path_factory.mktemp("guide")
    return folder, run("\n".join(block.text for block in blocks("sh", GUIDE)), folder)


def test_the_guide_leads_to_releases_that_a_subscriber_reads(guided: tuple[Path, str]) -> None:
    _, printed = guided
    assert re.search('"release_id":"dbh/(office-day|floors)/public/', printed)


@contextmanager
def grounded(block: Block, guided: Path, folder: Path) -> Iterator[Path]:
    """Give the folder in which a block is run: the guide's, where the block says so, or an empty one."""
    assert block.ground in {"", "after guide.md"}
    yield guided if block.ground else folder


OTHERS = [block for block in blocks("sh") if block.document != GUIDE]


@pytest.mark.parametrize("block", OTHERS, ids=lambda block: block.document)
def test_shell_commands_run_as_they_stand(block: Block, guided: tuple[Path, str], tmp_path: Path) -> None:
    with grounded(block, guided[0], tmp_path) as folder:
        run(block.text, folder)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.document)
def test_python_runs_as_it_stands(block: Block, guided: tuple[Path, str], tmp_path: Path) -> None:
    with grounded(block, guided[0], tmp_path) as folder:
        (folder / "program.py").write_text(block.text)
        printed = run("python -W error program.py", folder)
    if "subscribe(" in block.text:
        assert re.match(r"20[-0-9:TZ]+ \{", printed)


def test_some_commands_are_run() -> None:
    assert sum(block.text.count("tacet ") for block in blocks("sh")) >= 16


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for text in DOCUMENTS.values():
        assert set(re.findall(r"`?make ([a-z]+)", text)) <= targets | {"up"}
