"""With TACET_LOG_JSON every line that a service writes is one JSON object of allowed fields."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.runtime import logs
from tests.acceptance.command_line import POLICY, command
from tests.support.patience import PATIENCE

CLOSED = "127.0.0.1:1"
CANARY = "5c52.1e00.2011 jane"
JSON = {"TACET_LOG_JSON": "true", "TACET_LOG_LEVEL": "debug"}


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TACET_")} | JSON | more


def lines_of(err: str) -> list[dict[str, Any]]:
    """Every line parsed; each must hold listed fields only, and be quoted from us or say that it is withheld."""
    made = [json.loads(line) for line in err.splitlines()]
    for line in made:
        assert set(line) <= logs.FIELDS
        assert line["logger"].partition(".")[0] in logs.OWN or line["event"] == logs.WITHHELD
    return made


def ended(words: Sequence[str | Path], **more: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        command(words), env=environment(**more), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, lines_of(done.stderr)


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    policy, key = tmp_path / "policy.toml", tmp_path / "key"
    policy.write_text(POLICY)
    key_files.create(key, laboratory=True)
    return ["--policy", policy, "--key-file", key]


@pytest.mark.parametrize("service", ["worker", "ingest"])
def test_a_service_that_finds_no_broker_says_so_in_json(service: str, files: list[str | Path]) -> None:
    udp = ["--udp", "127.0.0.1:0"] if service == "ingest" else []
    communities = Path(str(files[1])).with_name("communities")
    communities.touch(mode=0o600)
    communities.write_text("x\n")
    code, lines = ended([service, "--kafka", CLOSED, *files, *udp], TACET_SNMP_COMMUNITIES_FILE=str(communities))
    assert code == 1
    assert CLOSED in lines[-1]["event"]
    assert lines[-1]["level"] == "error"
    assert any(line["event"] == logs.WITHHELD and line["logger"].startswith("aiokafka") for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["worker", "--nonsense"],
        ["policy", "check", "missing.toml"],
        pytest.param(["run", "--policy", "missing.toml"], marks=pytest.mark.long),
    ],
)
def test_a_command_used_wrongly_says_so_in_json(words: list[str]) -> None:
    code, lines = ended(words)
    assert code == 2
    assert len(lines) == 1
