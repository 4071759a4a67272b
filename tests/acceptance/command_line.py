"""Run the real command line, in a process of its own or in this one, on two small buildings."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connectors.cli.main import main
from tests.support.patience import PATIENCE

TIMEOUT = PATIENCE

POLICY = """
[site.east]
sources = ["127.0.0.1"]
working_hours = ["00:00", "24:00"]
[[site.east.zones]]
id = "hall"
floor = "0"
kind = "open"
capacity = 4
access_points = ["02:00:00:00:0e:01"]
[[site.east.zones]]
id = "loft"
floor = "1"
kind = "open"
capacity = 4
access_points = ["02:00:00:00:0e:02"]

[site.west]
sources = ["127.0.0.1"]
[[site.west.zones]]
id = "hall"
kind = "open"
capacity = 4
access_points = ["02:00:00:00:0f:01"]

[[audience]]
name = "facilities"
[[audience]]
name = "public"

[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
levels = ["zone", "floor", "building"]
epsilon = { facilities = "2", public = "0.5" }
daily_budget = { public = "2" }
"""

OBSERVATIONS = """\
time,device,access_point,site
2026-03-02T10:02:00Z,00:00:5e:00:53:01,02:00:00:00:0e:01,east
2026-03-02T10:04:00Z,00:00:5e:00:53:02,02:00:00:00:0e:01,east
2026-03-02T10:07:00Z,00:00:5e:00:53:03,02:00:00:00:0f:01,west
2026-03-02T10:08:30Z,00:00:5e:00:53:01,02:00:00:00:0e:02,east
2026-03-02T10:31:00Z,00:00:5e:00:53:03,02:00:00:00:0f:01,west
"""

TICKS = tuple(f"2026-03-02T10:{minute:02d}:00Z" for minute in range(5, 45, 5))
"""The first tick after the first row, up to the last one that is over 10 min 30 s after the last row."""

PRESENT = {
    ("east", "hall"): (2, 1),
    ("east", "loft"): (0, 1, 1),
    ("west", "hall"): (0, 1, 1, 0, 0, 0, 1, 1),
}
"""True counts at the ticks, from the first one on; 0 afterwards."""


def tacet(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run one command to its end; the exit code must be the one expected."""
    done = subprocess.run(command(arguments), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == code, f"exit code {done.returncode}: {done.stderr or done.stdout}"
    return done


def here(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run one command to its end as :func:`tacet` does, but in this process, where nothing has to be started for it."""
    done = run(*arguments)
    assert done.code == code, f"exit code {done.code}: {done.problem or done.out}"
    return subprocess.CompletedProcess(arguments, done.code, done.out, done.problem)


def together(*commands: Sequence[str | Path]) -> list[str]:
    """Run several commands at the same time; all must end well. Return what they printed."""
    started = [
        subprocess.Popen(command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for arguments in commands
    ]
    ended = [(process, *process.communicate(timeout=TIMEOUT)) for process in started]
    for process, _, problem in ended:
        assert process.returncode == 0, problem
    return [printed for _, printed, _ in ended]


def command(arguments: Sequence[str | Path]) -> list[str]:
    """Return the words that start ``tacet`` with these arguments."""
    return [sys.executable, "-m", "connectors", *map(str, arguments)]


def pin(key: Path) -> None:
    """Give a fresh laboratory key known roots: what is shown and what is withheld is the same in every run."""
    document = json.loads(key.read_text())
    known = {name: hashlib.sha256(f"{name} of these tests".encode()).hexdigest() for name in ("noise", "pseudonym")}
    document |= {"noise": {"root": known["noise"]}, "pseudonym": known["pseudonym"]}
    key.write_text(json.dumps(document))


class Done(NamedTuple):
    code: int
    out: str
    problem: str

    @property
    def answer(self) -> Any:
        """What a command with ``--json`` has printed, on one line."""
        assert self.code == 0, self.problem
        assert self.out.count("\n") == 1
        return json.loads(self.out)


def run(*arguments: str | Path, given: str = "") -> Done:
    """Run the command's ``main`` here, ``given`` on its standard input: what it prints, and its exit code."""
    out, problem = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(problem):
        patch.setattr(sys, "argv", ["tacet", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8"))
        for module, name in ((threading, "excepthook"), (sys, "unraisablehook"), (warnings, "showwarning")):
            patch.setattr(module, name, getattr(module, name))  # the command replaces it; it is given back
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    printed = []
    for stream in (out, problem):
        stream.seek(0)
        printed.append(stream.read())
    return Done(code, *printed)
