"""Installing: from the checkout, each library by its hash. Nothing is installed by a name that others may take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.documents import ROOT

TEXTS = sorted(
    path
    for pattern in (
        "*.md", "Makefile", "*.yml", "docs/**/*", "deploy/**/*", ".ci/*", "connectors/**/*.py", "stream/**/*.py",
        "tacet/**/*.py",
    )
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix not in {".png", ".svg", ".pyc", ".gz"}
)  # fmt: skip
INSTALL = re.compile(
    r"(?:\bpip[\w.]*\"?|\$\$pip|pip\[@\]\}\"|\bpipx|\buv|\bpoetry|\bconda|\buvx)"
    r"\s+(?:pip )?(?:install|add|tool|wheel)\b.*"
)
OURS = re.compile(
    r"(?<![\w/.-])tacet(?:[-_]occupancy)?(?:\[[\w,]+\])?(?:[=~<>!]=?[\w.]+)?(?=[\s'\"`);]|$)", re.IGNORECASE
)
"""The name alone, as an index knows it: no path, no file, no folder."""
CHECKED = ("--require-hashes", "--no-index", "--no-deps")
ELSEWHERE = {
    "connectors/keys/data_keys.py": "names the wheel of a library, for who built their own",
    "Makefile": "uv, which makes the locks and is in nothing that runs",
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands(path: Path) -> list[str]:
    return [found[0] for found in INSTALL.finditer(path.read_text(errors="replace"))]


@pytest.mark.parametrize("line", [
    "pip install tacet-occupancy", "/opt/tacet/bin/pip install tacet_occupancy[sinks]==1.0", "uv add tacet",
    "pip install 'tacet'", "uv pip install Tacet-Occupancy",
])  # fmt: skip
def test_a_name_of_an_index_is_seen(line: str) -> None:
    (found,) = INSTALL.findall(line)
    assert OURS.search(found)


@pytest.mark.parametrize(
    "line", ["deploy/install /opt/tacet", "pip install --no-index ./tacet_occupancy-0.1.0-py3-none-any.whl"]
)
def test_a_file_or_a_folder_is_none(line: str) -> None:
    assert not [found for found in INSTALL.findall(line) if OURS.search(found)]


def test_nothing_is_installed_from_an_index_by_our_name() -> None:
    assert len(TEXTS) > 300
    wrong = [(relative(path), line) for path in TEXTS for line in commands(path) if OURS.search(line)]
    output = [
        (relative(path), found[0])
        for path in TEXTS
        for found in re.finditer(
            r"(?i)(?:install|needs?)[\s`'\"]{1,4}tacet[-_]occupancy\S*|tacet[-_]occupancy\[[^\s]*",
            path.read_text(errors="replace"),
        )
    ]
    assert wrong + output == []


def test_what_is_installed_is_checked_by_its_hash_or_comes_from_the_checkout() -> None:
    free = {relative(path) for path in TEXTS for line in commands(path) if not any(word in line for word in CHECKED)}
    assert free == set(ELSEWHERE)


def test_the_script_installs_the_checkout_into_an_environment_of_its_own(tmp_path: Path) -> None:
    """Without a network: the lock is empty, and what it would bring is found where the tests run."""
    tree, home = tmp_path / "tree", tmp_path / "env"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("tacet", "stream", "connectors"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    (tree / "deploy").mkdir()
    shutil.copy(ROOT / "deploy/install", tree / "deploy/install")
    for name in ("requirements-runtime.lock", "requirements-extras.lock"):
        (tree / name).write_text("# nothing\n")
    before = sorted(path.relative_to(tree) for path in tree.rglob("*"))
    environment = os.environ | {
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PYTHON": sys.executable,
        "PIP_NO_INDEX": "1",
    }
    words: list[str | Path] = [tree / "deploy/install", home, "--extras"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tacet, version ")
    where = "import connectors, sys; print(connectors.__file__)"
    found = subprocess.run(
        [home / "bin/python", "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(tree.parent)
    assert (next(home.glob("lib/python*/site-packages")) / "connectors/cli/main.py").exists()
    assert sorted(path.relative_to(tree) for path in tree.rglob("*")) == before, "the checkout stays as it was"


def test_the_script_takes_libraries_by_hash_only() -> None:
    text = (ROOT / "deploy/install").read_text()
    (first, *rest) = [line for line in text.splitlines() if '"${pip[@]}"' in line]
    assert '--require-hashes -r "$lock"' in first
    assert "--only-binary :all:" in first
    assert all("--no-index" in line and "--no-deps" in line for line in rest)


@pytest.mark.parametrize("words", [[], ["--extras"], ["a", "b"], ["a", "--extras", "c"]])
def test_the_script_says_how_it_is_used(words: list[str]) -> None:
    done = subprocess.run([ROOT / "deploy/install", *words], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, "deploy/install ENVIRONMENT" in done.stderr) == (2, True)
