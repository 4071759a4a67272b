"""A benchmark that is given up leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.benchmarks import process
from tests.benchmarks.process import VARIABLE, completed, marked
from tests.support.documents import ROOT
from tests.support.patience import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found under /proc")

BENCHMARK = """
import os, signal, subprocess, sys, time
if {stubborn}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
busy = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True)\\nwhile True: pass"
for alone in (False, True):  # in the benchmark's session, and in one of its own, as a broker is
    child = subprocess.Popen([sys.executable, "-c", busy], start_new_session=alone, stdout=subprocess.PIPE)
    child.stdout.readline()
with open({path!r}, "w") as file:
    file.write(os.environ[{variable!r}])
{then}
"""
RUNNER = """
import sys
from tests.benchmarks import __main__ as benchmarks
benchmarks.end_by_signals()
from tests.benchmarks import process
process.GRACE = 0.5
process.completed([sys.executable, "-c", {benchmark!r}], 3600.0)
"""


def benchmark(path: Path, then: str = "time.sleep(3600)", *, stubborn: bool = False) -> str:
    return BENCHMARK.format(path=str(path), variable=VARIABLE, then=then, stubborn=stubborn)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_benchmark_whose_runner_is_stopped_ends_with_all_that_it_has_started(
    tmp_path: Path, ending: signal.Signals, stubborn: bool
) -> None:
    mark = tmp_path / "mark"
    text = RUNNER.format(benchmark=benchmark(mark, stubborn=stubborn))
    runner = subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: mark.exists() and mark.read_text(), "the benchmark to start its children")
        assert len(marked(mark.read_text())) == 3
        runner.send_signal(ending)
        assert runner.wait(PATIENCE) != 0
        assert marked(mark.read_text()) == []
    finally:
        runner.kill()
        for pid in marked(mark.read_text()) if mark.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("then", ["print('[]')", "raise SystemExit(3)"])
def test_a_benchmark_that_ends_leaves_none_of_its_children(tmp_path: Path, then: str) -> None:
    code = 0 if "print" in then else 3
    done = completed([sys.executable, "-c", benchmark(tmp_path / "mark", then)], PATIENCE)
    assert done.returncode == code
    assert done.stdout == ("[]\n" if code == 0 else "")
    assert marked((tmp_path / "mark").read_text()) == []


def test_a_benchmark_that_takes_too_long_ends_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine on which it has not even started its children by then, there is nothing to end."""
    mark = tmp_path / "mark"
    monkeypatch.setattr(process, "GRACE", 0.5)
    with pytest.raises(subprocess.TimeoutExpired):
        completed([sys.executable, "-c", benchmark(mark)], 5.0)
    assert not mark.exists() or marked(mark.read_text()) == []
