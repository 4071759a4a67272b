"""Run a benchmark in a process of its own, and end every process that it has started, whatever ends it.

A benchmark starts brokers, workers and processes that keep the machine busy, some in a session of their own. Each
inherits a variable of the environment, by which it is found under ``/proc``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

VARIABLE = "TACET_BENCHMARK"
GRACE = 20.0
"""Seconds for an interrupted benchmark to end its children itself, and to remove its temporary files."""


def completed(command: Sequence[str], limit: float) -> subprocess.CompletedProcess[str]:
    """Return what a benchmark has printed.

    Raises:
        subprocess.TimeoutExpired: it has not ended within ``limit`` seconds.
    """
    mark = uuid.uuid4().hex
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:  # a pipe ends with the last child that has it
        process = subprocess.Popen(
            command, stdout=out, stderr=errors, env=os.environ | {VARIABLE: mark}, start_new_session=True
        )
        try:
            process.wait(limit)
        finally:
            try:
                _interrupt(process)
            finally:
                _kill(process, mark)
        return subprocess.CompletedProcess(command, process.returncode, _read(out), _read(errors))


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill what is left, and return when it is gone."""
    if process.poll() is None:
        process.kill()
    process.wait()
    while left := marked(mark):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment; one that has ended has no environment."""
    wanted, found = f"{VARIABLE}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
