"""Runs the tests nearest to each mutant in a copy of the tree, with the mutant in it."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .catalogue import STANDARD, CatalogueError, Mutant, locate, mutated

KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "BROKEN"
TIMEOUT = 600.0
"""Seconds for the nearest tests of one mutant; whoever needs more is not a near test."""
HANGING = 150
"""Seconds after which one test fails: a mutant that makes it hang is found."""
PATIENCE = "60"
"""Seconds for which a test waits for what a mutant may keep from coming."""
COPIED = (
    "stream",
    "connectors",
    "tacet",
    "tests",
    "docs",
    "deploy",
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "LICENSE",
)
_LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "*.pyc.*")
"""Compiled modules come along, but none that another process is just writing; a changed module is compiled anew."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    outcome: str
    seconds: float
    why: str = ""


@contextmanager
def copies(tree: Path, folder: Path, count: int) -> Iterator[queue.Queue[Path]]:
    """Copy what tests need so many times; each user takes a copy and puts it back as it was."""
    free: queue.Queue[Path] = queue.Queue()
    for number in range(count):
        copy = folder / str(number)
        for name in COPIED:
            source = tree / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=_LEFT_OUT)
            elif source.exists():
                copy.mkdir(exist_ok=True)
                shutil.copy2(source, copy / name)
        free.put(copy)
    yield free


def run_tests(copy: Path, tests: Iterable[str], timeout: float) -> tuple[int | None, str]:
    """Run tests in a copy; return pytest's exit code (None: out of time) and the last line of what it said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    command += ["-o", f"timeout={HANGING}", *tests]
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TACET_TEST_PATIENCE": PATIENCE,
        "TACET_TEST_DURATIONS": str(copy / "durations.json"),
    }
    environment.pop("TACET_REQUIRE_KAFKA", None)
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"not done within {timeout:.0f} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (failed or lines or [""])[-1]


def try_mutant(mutant: Mutant, copy: Path) -> Result:
    """Put one mutant into a copy, run its tests, take it out."""
    begun = time.monotonic()
    try:
        place = locate(mutant, copy)
    except CatalogueError as error:
        return Result(mutant, BROKEN, 0.0, str(error))
    path = copy / place.file
    right = path.read_text()
    path.write_text(mutated(mutant, right, place))
    try:
        code, said = run_tests(copy, mutant.tests, TIMEOUT)
    finally:
        path.write_text(right)
    outcomes = {0: SURVIVED, 1: KILLED}
    if mutant.catalogue == STANDARD:  # it is sound, so a file of tests that cannot be imported with it has found it
        outcomes[2] = KILLED
    outcome = outcomes.get(-1 if code is None else code, BROKEN)
    return Result(mutant, outcome, time.monotonic() - begun, said)


def run(
    mutants: Sequence[Mutant],
    tree: Path,
    folder: Path,
    jobs: int,
    tell: Callable[[Result], None],
    *,
    passed: bool = False,
) -> list[Result]:
    """Try every mutant; one whose tests fail without it is broken, for then they show nothing.

    With ``passed`` the tests are known to pass without mutants, and are not run for that.
    """
    with copies(tree, folder, jobs) as free, ThreadPoolExecutor(jobs) as pool:

        def baseline(test: str) -> tuple[str, str | None]:
            with _taken(free) as copy:
                code, said = run_tests(copy, [test], TIMEOUT)
            return test, None if code == 0 else f"fails without it: {said}"

        tests = set() if passed else {test for mutant in mutants for test in mutant.tests}
        failing = dict(pool.map(baseline, sorted(tests)))

        def one(mutant: Mutant) -> Result:
            why = next((said for test in mutant.tests if (said := failing.get(test)) is not None), None)
            if why is None:
                with _taken(free) as copy:
                    result = try_mutant(mutant, copy)
            else:
                result = Result(mutant, BROKEN, 0.0, why)
            tell(result)
            return result

        return list(pool.map(one, mutants))


@contextmanager
def _taken(free: queue.Queue[Path]) -> Iterator[Path]:
    copy = free.get()
    try:
        yield copy
    finally:
        free.put(copy)
