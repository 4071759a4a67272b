"""hooks and run as processes: the one receives, the other stores; how both end, and what they report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from connectors.keys import key_files
from connectors.sources.cloud.decoders import SIGNATURE
from tests.acceptance.command_line import POLICY, command, run
from tests.support.patience import PATIENCE
from tests.unit.hooks.cloud_requests import FILE, join, now, octets, signature


def started(*words: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def ended(process: subprocess.Popen[str]) -> str:
    process.terminate()
    output, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complaints
    return output


def hooks_file(folder: Path) -> dict[str, str]:
    path = folder / "hooks.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    return os.environ | {"TACET_HOOKS_FILE": str(path)}


def test_what_is_sent_to_one_process_is_stored_by_the_other(tmp_path: Path) -> None:
    policy, key, socket = tmp_path / "policy", tmp_path / "key", tmp_path / "socket"
    policy.write_text(re.sub(r"sources = \[.*?\]", 'sources = ["cloud:mist"]', POLICY, count=1))
    key_files.create(key, laboratory=True)
    env = hooks_file(tmp_path)
    taking = started(
        "run", "--policy", str(policy), "--key-file", str(key), "--store", str(tmp_path / "store"), "--hooks",
        str(socket), "--json", env=env,
    )  # fmt: skip
    hooks = started("hooks", "--to", str(socket), "--listen", "127.0.0.1:0", "--json", env=env)
    assert hooks.stdout is not None
    address = hooks.stdout.readline().strip()
    assert address.endswith("/hooks/mist")
    body = octets(join(now(), ap="020000000e01"))
    deadline = time.monotonic() + PATIENCE
    while httpx.post(address, content=body, headers={SIGNATURE: signature(body)}, trust_env=False).status_code != 200:
        assert time.monotonic() < deadline, "the ingest was never found"
        time.sleep(0.2)
    assert httpx.post(address, content=body, headers={SIGNATURE: "0" * 64}, trust_env=False).status_code == 401
    reported = json.loads(ended(hooks).splitlines()[-1])
    assert (reported["taken"], reported["rows"], reported["refused"]["bad_signature"]) == (1, 1, 1)
    stored = json.loads(ended(taking))
    assert (stored["datagrams"], stored["accepted"]) == (1, 1)
    assert not socket.exists()


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--listen", "0.0.0.0:0"), "--tls-cert: must be given"),
        ((), "--listen: must be given"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "a.pem"), "--tls-cert: must be used with --tls-key"),
    ],
)
def test_what_does_not_fit_is_one_line_and_exit_code_2(
    words: tuple[str, ...], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACET_HOOKS_FILE", hooks_file(tmp_path)["TACET_HOOKS_FILE"])
    done = run("hooks", "--to", tmp_path / "socket", *words)
    assert (done.code, rule in done.problem) == (2, True), done.problem
