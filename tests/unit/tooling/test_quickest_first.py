"""Mutants try the quickest tests first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """\
import time


def test_slow():
    time.sleep(0.3)


def test_quick():
    pass
"""


def test_the_second_run_has_the_order_of_durations(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    (tmp_path / "test_two.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    environment = os.environ | {"TACET_TEST_DURATIONS": str(tmp_path / "durations"), "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", ".", "test_two.py"]
    orders = []
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        orders.append([line.split("::")[1].split()[0] for line in done.stdout.splitlines() if "PASSED" in line])
    assert orders == [["test_slow", "test_quick"], ["test_quick", "test_slow"]]
