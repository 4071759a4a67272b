"""Services that show metrics, as processes of their own, and what is asked of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.external_programs import program
from tests.support.patience import PATIENCE

TACET = (sys.executable, "-m", "connectors")
T = TypeVar("T")
Sample = tuple[str, frozenset[tuple[str, str]]]


class Watched:
    """A service with ``--metrics``, and what it has logged."""

    def __init__(self, words: Sequence[str | Path], env: Mapping[str, str], program: Sequence[str]) -> None:
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*program, *map(str, words), "--metrics", "127.0.0.1:0"],
            env={**os.environ, "TACET_LOG_JSON": "true", **env},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with contextlib.suppress(ValueError):
                self.lines.append(json.loads(line))

    def told(self, event: str) -> dict[str, Any]:
        """Return the line of an event, when it is there."""
        return until(lambda: [line for line in self.lines if line["event"] == event], f"no {event}", self)[0]

    @property
    def port(self) -> int:
        """Where its metrics are."""
        return int(self.told("metrics")["port"])

    @property
    def udp(self) -> int:
        """Where it takes traps."""
        return int(self.told("listening")["port"])

    def ask(self, path: str) -> tuple[int, str]:
        """Return status and text of a path; (0, "") where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        return 0, ""

    def samples(self) -> dict[Sample, float]:
        """Return everything it shows."""
        families = text_string_to_metric_families(self.ask("/metrics")[1])
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def total(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        return sum(value for (found, _), value in self.samples().items() if found == name)

    def ready(self) -> None:
        """Wait until it says that it is."""
        until(lambda: self.ask("/readyz")[0] == 200, "never ready", self)

    def close(self) -> None:
        """End it without warning."""
        self.process.kill()
        self.process.wait()
        self._reading.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def end(self) -> int:
        """Tell it to stop; return its exit code."""
        self.process.terminate()
        code = self.process.wait(timeout=PATIENCE)
        self._reading.join(PATIENCE)
        return code


def until(found: Callable[[], T], otherwise: str, service: Watched | None = None) -> T:
    """Return what is found, when it is true; fail after a long time, or when the service has ended."""
    patience = time.monotonic() + PATIENCE
    while time.monotonic() < patience:
        if value := found():
            return value
        time.sleep(0.1)
    lines = [] if service is None else service.lines
    pytest.fail(f"{otherwise}: {lines[-5:]}")


@contextlib.contextmanager
def watched(*words: str | Path, env: Mapping[str, str] = {}, program: Sequence[str] = TACET) -> Iterator[Watched]:
    """A service that runs until the end of the block."""
    service = Watched(words, env, program)
    try:
        yield service
    finally:
        service.close()


def checked_by_promtool(service: Watched) -> None:
    """Assert that Prometheus' own tool has nothing to say of what a service shows."""
    tool = program("promtool", "TACET_REQUIRE_PROMETHEUS")
    status, text = service.ask("/metrics")
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (status, done.returncode, done.stdout + done.stderr) == (200, 0, "")
