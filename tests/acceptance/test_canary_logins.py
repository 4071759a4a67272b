"""A login that comes in by RADIUS accounting is found in nothing that a run writes, whatever becomes of its message."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.sources.ingest.logins import LoginNames
from stream.records import Micros
from stream.release.validation import load_policy
from tests.acceptance.command_line import run
from tests.support.day_policies import day_release
from tests.support.patience import PATIENCE
from tests.support.small_building import ACCESS_POINTS, SITE, policy_text
from tests.unit.radius.accounting_requests import SECRET, START, STOP, request

LOGIN, OTHER = "Agnes.Canary@example.org", "bert.canary@example.org"
NEEDLES = ("agnes.canary", "bert.canary", "canary-net")
POLICY = policy_text(
    day_release(), tick="5min",
    site='day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\nothers = "count"\nopt_out = "list"\n',
)  # fmt: skip


def requests() -> Iterator[bytes]:
    """A login that counts, one that opted out, a device without one, an unknown access point, a stop, a forgery."""
    called = ACCESS_POINTS["a"].replace(":", "-") + ":canary-net"
    for number, (user, where, status) in enumerate((
        (LOGIN, called, START), (OTHER, called, START), ("", called, START), (LOGIN, "02-FF-FF-FF-FF-FF", START),
        (LOGIN, called, STOP), (LOGIN, "", START),
    )):  # fmt: skip
        yield request(status, identifier=number, user=user, called=where, secret=SECRET)
    yield request(user=LOGIN, secret=b"wrong")[:-3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "clients.toml").write_text(f'[[client]]\naddress = "127.0.0.1"\nsecrets = ["{SECRET.decode()}"]\n')
    (tmp_path / "clients.toml").chmod(0o600)
    added = run(
        "optout", "add", "--logins", "--key-file", tmp_path / "key", "--file", tmp_path / "opt-outs", given=OTHER
    )
    assert (added.code, added.out) == (0, "added: takes effect with the next day\n")
    return tmp_path


def test_a_login_is_found_in_nothing_that_a_run_writes(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "connectors", "run", "--policy", str(folder / "policy.toml"), "--key-file",
         str(folder / "key"), "--store", str(folder / "store"), "--radius", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
        env=os.environ | {
            "TACET_RADIUS_CLIENTS_FILE": str(folder / "clients.toml"), "TACET_LOG_LEVEL": "debug",
            "TACET_OPT_OUTS_FILE": str(folder / "opt-outs"),
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        report, ports = "", dict[str, int]()
        while len(ports) < 2:
            report += (line := process.stderr.readline())
            assert line, report
            if found := re.search(r"\[info *\] (metrics|listening) .*?port.*?(\d{4,5})", line):
                ports[found[1]] = int(found[2])
        sent = list(requests())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as controller:
            controller.settimeout(PATIENCE)
            for datagram in sent:
                controller.sendto(datagram, ("127.0.0.1", ports["listening"]))
            answers = [controller.recv(4096) for _ in sent[:-1]]
        shown = urllib.request.urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics", timeout=PATIENCE).read().decode()
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert len(answers) == len(sent) - 1, "each genuine request is answered, whoever it is about"
    stored = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    assert b"agnes" not in SECRET
    for needle in (*NEEDLES, *pseudonyms(folder)):
        assert needle.encode() not in stored.lower()
        assert needle not in (report + out + err + shown).lower()
    assert "example.org" not in report + out + err + shown


def pseudonyms(folder: Path) -> Iterator[str]:
    """Yield the login's pseudonyms of these days, which only the encrypted state may hold."""
    policy = load_policy(POLICY)
    key = key_files.pseudonym_key(folder / "key")
    logins = LoginNames.of_site(policy.site[SITE], SITE, key)
    assert logins is not None
    now: Micros = time.time_ns() // 1000
    login = logins.rules.login(LOGIN.encode(), b"")
    assert login is not None
    for day in (-1, 0, 1):
        yield logins.names.name(login, logins.names.epoch(now) + day)
