"""The wheel: built without a network, installed alone, imported and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.documents import ROOT

SOURCES = ("tacet", "connectors", "stream", "pyproject.toml", "README.md", "LICENSE")
FACE = """
import tacet, tacet.leakage, connectors, stream
from tacet import CountRecord, Cursor, subscribe, typed
print(tacet.__file__)
"""


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(path, source / name, ignore=ignored) if path.is_dir() else shutil.copy(path, source / name)
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "-w", source / "made", source, cwd=source)
    (made,) = (source / "made").iterdir()
    return made


def test_the_wheel_has_a_name_of_its_own_and_says_that_it_is_typed(wheel: Path) -> None:
    assert wheel.name.startswith("tacet_occupancy-")
    stored = zipfile.ZipFile(wheel).namelist()
    assert {"tacet/py.typed", "stream/py.typed", "connectors/py.typed"} <= set(stored)
    tops = {name.partition("/")[0] for name in stored if ".dist-info" not in name}
    assert tops == {"tacet", "connectors", "stream"}


def test_the_wheel_has_every_file_of_the_page(wheel: Path) -> None:
    folder = ROOT / "connectors" / "serve" / "static"
    files = {path.relative_to(ROOT).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_the_installed_wheel_is_imported_and_its_command_runs(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=tmp_path
    )
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "what_it_needs.pth").write_text(sysconfig.get_path("purelib") + "\n")  # the project itself is no .pth
    imported = run(python, "-I", "-c", FACE, cwd=tmp_path)
    assert Path(imported.strip()).is_relative_to(packages)
    assert run(home / "bin" / "tacet", "--version", cwd=tmp_path).startswith("tacet, version ")
    assert "--policy" in run(home / "bin" / "tacet", "run", "--help", cwd=tmp_path)
