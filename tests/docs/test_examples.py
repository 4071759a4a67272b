"""What is shown to programmers runs as it stands, and a strict type checker has nothing to say about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks
from tests.support.patience import PATIENCE
from tests.support.released_store import count, give

WEEK = ROOT / "docs/examples/week.py"
HOURS = 26
"""Of windows: a local day and a little more."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A building of which a day was released, denied for its first hour."""
    records = []
    for number in range(12 * HOURS):
        people = None if number < 12 else 200 - abs(number - 150)
        width = {"building": 30}
        record = count(number, None if people is None else {}, release="floors")
        levels = {"levels": None if people is None else {"building": people}, "levels_half_width_95": width}
        records.append(record | levels)
    return give(tmp_path / "store", records)


def test_the_example_draws_three_figures_and_says_what_they_show(store: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", WEEK, "--store", store, "--out", tmp_path / "figures", "--timezone", "UTC"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "peak: 200 devices (170 to 230) at Tue 00:30; 312 windows, 12 denied\n"
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert sorted(drawn) == ["day.png", "hours.png", "week.png"]
    assert all(image.startswith(b"\x89PNG") and len(image) > 5000 for image in drawn.values())


def test_a_strict_type_checker_accepts_every_program_in_the_documents(tmp_path: Path) -> None:
    programs = [
        block for block in blocks("python") if "import tacet" in block.text or "from tacet import" in block.text
    ]
    assert len(programs) >= 3
    files = [WEEK]
    for number, block in enumerate(programs):
        files.append(tmp_path / f"program_{number}.py")
        files[-1].write_text(block.text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", *files], cwd=ROOT,
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
