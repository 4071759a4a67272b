"""Other people's programs for tests, each on loopback in a folder of its own: Mosquitto, and Prometheus.

A machine without one skips what needs it, with the reason; ``TACET_REQUIRE_MOSQUITTO=1`` and
``TACET_REQUIRE_PROMETHEUS=1`` make that a failure.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.ports import free_port

_BESIDE = "/usr/sbin:/usr/bin:/usr/local/bin"


def program(name: str, setting: str) -> str:
    """Return where a program is."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_BESIDE}")
    if found is None:
        reason = f"no {name} on this machine"
        if os.environ.get(setting) == "1":
            pytest.fail(f"{setting}=1, but {reason}")
        pytest.skip(reason)
    return found


class Running:
    """A program that listens on a port of this machine."""

    def __init__(self, words: Sequence[str | Path], port: int, log: Path) -> None:
        self.port = port
        self._words, self._log = [*map(str, words)], log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; return when its port answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        pytest.fail(f"{self._words[0]} did not start: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """End it without warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def mosquitto(folder: Path, *more: str) -> Running:
    """Return an MQTT broker that keeps nothing over its end; ``more`` are lines of its configuration."""
    path = program("mosquitto", "TACET_REQUIRE_MOSQUITTO")
    port = free_port()
    lines = (f"listener {port} 127.0.0.1", *(more or ("allow_anonymous true",)), "persistence false", "user root")
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    return Running([path, "-c", folder / "mosquitto.conf"], port, folder / "mosquitto.log")


def prometheus(folder: Path, *targets: str, rules: str = "") -> Running:
    """Return a Prometheus that scrapes targets, and tries rules, every second."""
    path = program("prometheus", "TACET_REQUIRE_PROMETHEUS")
    port = free_port()
    (folder / "rules.yml").write_text(rules or "groups: []\n")
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n"
        f"rule_files: ['{folder / 'rules.yml'}']\n"
        f"scrape_configs: [{{job_name: tacet, static_configs: [{{targets: {list(targets)}}}]}}]\n"
    )
    words = [
        path, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    return Running(words, port, folder / "prometheus.log")
