"""SNMPv3 from a file of users, without communities, over restarts."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.sources.snmp.sender import send
from stream.records import SECOND
from tests.acceptance.command_line import tacet
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.small_building import SOURCES, policy_text
from tests.unit.snmp.v3_controller import AUTH, ENGINE, PRIVACY, Controller

USERS = f"""
[[user]]
name = "tacet"
auth_password = "{AUTH}"
privacy_password = "{PRIVACY}"

[[source]]
address = "{SOURCES[0]}"
engines = ["{ENGINE.hex()}"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.toml").write_text(policy_text())
    (tmp_path / "users.toml").write_text(USERS)
    (tmp_path / "users.toml").chmod(0o600)
    tacet("key", "create", tmp_path / "key")
    return tmp_path


def run(folder: Path, *datagrams: bytes) -> Any:
    """Run, send, and end it; return what it counted."""
    port = free_port(socket.SOCK_DGRAM, SOURCES[0])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TACET_")}
    shared: list[str | Path] = [
        "--policy",
        folder / "policy.toml",
        "--key-file",
        folder / "key",
        "--store",
        folder / "store",
    ]
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "connectors",
        "run",
        *shared,
        "--udp",
        f"{SOURCES[0]}:{port}",
        "--json",
    ]
    process = subprocess.Popen(
        words,
        env=environment | {"TACET_SNMP_USERS_FILE": str(folder / "users.toml"), "TACET_LOG_LEVEL": "debug"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        output = ""
        for line in process.stderr:
            output += line
            if "listening" in line:
                break
        asyncio.run(send([(0, datagram) for datagram in datagrams], (SOURCES[0], port), None, source=SOURCES[0]))
        process.send_signal(signal.SIGTERM)
        out, rest = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, output + rest
    assert not any(secret in output + rest + out for secret in (AUTH, PRIVACY, ENGINE.hex()))
    return json.loads(out)


def test_a_recorded_trap_counts_once_however_often_the_run_is_started(folder: Path) -> None:
    now = time.time_ns() // 1000
    sender = Controller(started=now - 1000 * SECOND)
    genuine, old = sender.trap(now), sender.trap(now - 200 * SECOND)
    first, second = run(folder, genuine, old), run(folder, genuine, old)
    assert first["datagrams"] == second["datagrams"] == 2
    received = {reason for reason in first["dropped"] if reason != "not_in_time_window"}
    assert received <= {"unknown_access_point"}, "it went on to the policy, which does not have its access point"
    assert first["dropped"]["not_in_time_window"] == 1
    assert second["dropped"] == {"replayed": 1, "not_in_time_window": 1}
    assert (folder / "users.toml.state").stat().st_mode & 0o777 == 0o600


def test_without_communities_and_users_nothing_is_started(folder: Path) -> None:
    (folder / "users.toml").chmod(0o644)
    with pytest.raises(AssertionError, match="readable by its owner only"):
        run(folder)
