"""kill -9 at any instant: the embedded runner continues and ends with the bytes of an undisturbed run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.replay import replay
from connectors.sources.snmp.sender import Association, encode_associate, send
from connectors.storage.embedded import outboxes
from connectors.storage.embedded.reader import read_outbox, read_snapshot, read_topic
from connectors.storage.embedded.rollback_mark import MarkFile
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.store import SqliteStore
from stream.encoding import decode_message
from stream.encryption import Kind, Vault, unseal
from stream.engine.snapshot import open_snapshot
from stream.pipeline import Options
from stream.records import MINUTE, ObservationBatch
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, parse_record
from tests.support.hash_chain import verify_chain
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.small_building import (
    ACCESS_POINTS,
    COUNTS,
    EVENING,
    SOURCES,
    Seen,
    mac,
    people,
    policy_text,
    write_csv,
)

RELEASES = (
    COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0]
    + """
[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "2", public = "0.2" }
sensitive = { after = "10:00" }
"""
)
TEXT = policy_text(RELEASES, tick="30min")
POLICY = load_policy(TEXT)
AUDIENCES = [audience.name for audience in POLICY.audience]
TACET = [sys.executable, "-m", "connectors"]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key, a day of observations, and what replay makes of them."""
    folder = tmp_path_factory.mktemp("crash")
    (folder / "policy.toml").write_text(TEXT)
    key_files.create(folder / "key", laboratory=True)
    after_midnight = Seen(EVENING + 1_700 * MINUTE, mac(9), ACCESS_POINTS["a"])
    file = write_csv(folder / "seen.csv", [*people(devices=10), after_midnight])
    key = key_files.pseudonym_key(folder / "key")
    keys = key_files.laboratory_keys(folder / "key")
    replay(ObservationFile(file, POLICY, key), POLICY, keys, folder / "replay", Options())
    return folder


def assert_as_replayed(folder: Path, scenario: Path) -> None:
    """Outboxes, audit and leakage hold replay's bytes, each record once; one charge each; the hash chain is whole."""
    for audience in AUDIENCES:
        stored = [value for _, value in read_outbox(folder, audience, 0)]
        wanted = [
            line
            for path in sorted((scenario / "replay" / "private" / audience).glob("*.jsonl"))
            for line in path.read_bytes().splitlines()
        ]
        assert Counter(stored) == Counter(wanted)
        for release in {parse_record(value)["release"] for value in stored}:
            lines = (scenario / "replay" / "private" / audience / f"{release}.jsonl").read_bytes().splitlines()
            assert [value for value in stored if parse_record(value)["release"] == release] == lines
    audit = read_topic(folder, AUDIT)
    assert audit == (scenario / "replay" / "audit.jsonl").read_bytes().splitlines()
    assert read_topic(folder, LEAKAGE) == (scenario / "replay" / "leakage.jsonl").read_bytes().splitlines()
    entries = [parse_record(value) for value in audit]
    verify_chain(entries, key_files.laboratory_keys(scenario / "key").audit)
    assert set(Counter(entry["release_id"] for entry in entries).values()) == {1}
    assert len(entries) > 250


def command(scenario: Path, folder: Path, *more: str) -> list[str]:
    return [*TACET, "run", "--policy", str(scenario / "policy.toml"), "--key-file", str(scenario / "key"),
            "--store", str(folder), *more]  # fmt: skip


# --- processes ------------------------------------------------------------------------------------------


def run_file(scenario: Path, folder: Path) -> None:
    """What ``tacet run --observations`` does, in this process."""
    key = key_files.pseudonym_key(scenario / "key")
    with embedded(POLICY, scenario / "key", folder) as runner:
        for message in ObservationFile(scenario / "seen.csv", POLICY, key).messages():
            runner.process(message, durable=False)


def test_a_process_that_is_killed_at_random_instants_ends_as_if_nothing_had_happened(
    scenario: Any, tmp_path: Path
) -> None:
    """Each round is a process of its own, ended by SIGKILL a random while after its first new window."""
    rng, folder = random.Random(11), tmp_path / "store"
    ends = []
    for _ in range(40):
        before, child = _entries(folder), os.fork()
        if child == 0:
            try:
                run_file(scenario, folder)
            except BaseException:
                os._exit(9)
            os._exit(0)
        patience, wanted = time.monotonic() + PATIENCE, before + rng.choice((1, 5, 30))
        while _entries(folder) < wanted and time.monotonic() < patience and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(rng.uniform(0, 0.003))
        time.sleep(rng.uniform(0, 0.02))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            ends.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), _entries(folder) > before))
        if ends[-1:] == [(0, True)] or sum(grown for _, grown in ends) == 12:
            break
    assert {code for code, _ in ends} <= {-signal.SIGKILL, 0}
    assert sum(grown and code == -signal.SIGKILL for code, grown in ends) >= 8
    run_file(scenario, folder)
    assert_as_replayed(folder, scenario)


def test_the_command_is_killed_told_to_stop_and_goes_on(scenario: Any, tmp_path: Path) -> None:
    """The same by ``tacet run`` itself: SIGKILL once, SIGTERM and Ctrl-C once each, and never at the file's end."""
    folder, whole = tmp_path / "store", len((scenario / "replay" / "audit.jsonl").read_bytes().splitlines())
    run = command(scenario, folder, "--observations", str(scenario / "seen.csv"), "--speed", "3000")  # half a minute
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        seen, patience = _entries(folder), time.monotonic() + PATIENCE
        while process.poll() is None and _entries(folder) < seen + 16 and time.monotonic() < patience:
            time.sleep(0.05)
        process.send_signal(number)
        output, report = process.communicate(timeout=PATIENCE)
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0), report
        assert seen + 16 <= _entries(folder) < whole, "the run had time to finish its file"
        assert ("stopped before the end of the file" in output) == (number != signal.SIGKILL)
    run_file(scenario, folder)
    assert_as_replayed(folder, scenario)


def _entries(folder: Path) -> int:
    """How many entries the store's file holds by now, read beside the runner."""
    try:
        return len(read_topic(folder, AUDIT))
    except Exception:
        return 0


# --- each step of a commit ---------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process."""


STEPS = ["before commit", "after commit", "after mark", "half of one outbox", "between outboxes", "after outboxes",
         "in the mark's file", "before the next append"]  # fmt: skip


class Faults:
    """Ends the run at one step of the n-th commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, commits: int) -> None:
        self.left = commits
        self.step = step
        self.patch = monkeypatch
        wraps = {
            "before commit": (SqliteStore, "commit", True), "after commit": (SqliteStore, "commit", False),
            "after mark": (MarkFile, "advance", False), "after outboxes": (SqliteStore, "deliver", False),
            "in the mark's file": (MarkFile, "_write", True), "before the next append": (SqliteStore, "append", True),
        }  # fmt: skip
        if step in wraps:
            self.wrap(*wraps[step])
        else:
            self.in_outbox(every=step == "half of one outbox")

    def due(self) -> bool:
        self.left -= 1
        return self.left == 0

    def wrap(self, owner: Any, name: str, before: bool) -> None:
        real = getattr(owner, name)

        def call(*args: Any) -> Any:
            due = self.due()
            if due and before:
                raise Killed
            made = real(*args)
            if due:
                raise Killed
            return made

        self.patch.setattr(owner, name, call)

    def in_outbox(self, *, every: bool) -> None:
        real = outboxes._put
        boxes: list[Any] = []

        def put(box: Any, row: Any) -> None:
            if (every or (boxes and boxes[-1] is not box)) and self.due():
                raise Killed
            boxes.append(box)
            real(box, row)

        self.patch.setattr(outboxes, "_put", put)


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_ends_between_any_two_steps_of_a_commit_goes_on_alike(
    scenario: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Any
) -> None:
    folder = tmp_path / "store"
    file, key = scenario / "seen.csv", key_files.pseudonym_key(scenario / "key")
    rng, ended = random.Random(STEPS.index(step)), 0
    for _ in range(3):
        with monkeypatch.context() as patch:
            Faults(patch, step, rng.randrange(1, 40))
            try:
                with embedded(POLICY, scenario / "key", folder) as runner:
                    for message in ObservationFile(file, POLICY, key).messages():
                        runner.process(message, durable=step.startswith("before"))
            except Killed:
                ended += 1
    assert ended >= 2
    with embedded(POLICY, scenario / "key", folder) as runner:
        for message in ObservationFile(file, POLICY, key).messages():
            runner.process(message, durable=False)
    assert_as_replayed(folder, scenario)


# --- traps ---------------------------------------------------------------------------------------------------


@pytest.fixture
def listening(scenario: Path, tmp_path: Path) -> Iterator[Any]:
    """Start, and start again, a run on one UDP port."""
    (tmp_path / "communities").write_text("crashes\n")
    (tmp_path / "communities").chmod(0o600)
    port = free_port(socket.SOCK_DGRAM)
    environment = os.environ | {"TACET_SNMP_COMMUNITIES_FILE": str(tmp_path / "communities")}
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            command(scenario, tmp_path / "store", "--udp", f"127.0.0.1:{port}"),
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if "listening" in line:
                return process, port
        raise AssertionError("the run did not start")

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


def test_no_trap_that_was_appended_is_lost_when_a_listening_run_is_killed(
    scenario: Path, listening: Any, tmp_path: Path
) -> None:
    folder, kept, vault = tmp_path / "store", 0, key_files.FileKeys(scenario / "key").vault
    for number, end in enumerate((signal.SIGKILL, signal.SIGTERM)):
        process, port = listening()
        assert _rows(folder, vault) == kept
        datagrams = [(n, association(200 * number + n)) for n in range(200)]
        asyncio.run(send(datagrams, ("127.0.0.1", port), None, source=SOURCES[0], max_rate=5000))
        patience = time.monotonic() + PATIENCE
        while _rows(folder, vault) < kept + 200 and time.monotonic() < patience:
            time.sleep(0.01)
        process.send_signal(end)
        process.communicate(timeout=PATIENCE)
        kept += 200
        assert _rows(folder, vault) == kept, "every row is in the table or in the state"
    assert process.returncode == 0
    assert _counted(folder, vault) == kept, "a clean end leaves nothing waiting"


def association(number: int) -> bytes:
    client, radio = (bytes.fromhex(text.replace(":", "")) for text in (mac(number), ACCESS_POINTS["abcd"[number % 4]]))
    return encode_associate(Association(client, radio), community=b"crashes", uptime=number)


def _waiting(folder: Path) -> list[tuple[int, bytes]]:
    with sqlite3.connect(f"file:{folder / 'store.sqlite'}?mode=ro", uri=True, timeout=PATIENCE) as connection:
        rows = connection.execute("SELECT position, value FROM observations ORDER BY position").fetchall()
    return [(position, unseal(Kind.MESSAGE, value)) for position, value in rows]


def _counted(folder: Path, vault: Vault) -> int:
    """Rows that the state has seen."""
    snapshot, _ = read_snapshot(folder)
    if snapshot is None:
        return 0
    text = open_snapshot(snapshot, vault)[1]["dbh"]["sense"].decode()
    found = re.search(r'\["rows",(\d+)\]', text)
    return int(found[1]) if found else 0


def _rows(folder: Path, vault: Vault) -> int:
    """Rows that are in the state or wait for it."""
    if not (folder / "store.sqlite").exists():
        return 0
    messages = (decode_message(value, vault)[0] for _, value in _waiting(folder))
    return _counted(folder, vault) + sum(len(each.rows) for each in messages if isinstance(each, ObservationBatch))
