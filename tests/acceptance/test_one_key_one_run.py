"""Two processes with one production key: the second is refused, and a mark that moves ends the first."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.storage.embedded import backup
from connectors.storage.embedded.reader import outboxes, read_outbox, read_state_and_entries
from connectors.storage.embedded.rollback_mark import mark_path
from stream.schemas import parse_record
from tests.acceptance.command_line import run
from tests.acceptance.one_run import TEXT

HALF = 40
"""Messages after which the first windows are released, and more are to come."""


class Run:
    """A run in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def take(self, messages: int) -> str:
        """Let it take so many messages; return what it says then."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{messages}\n")
        self.process.stdin.flush()
        return self.says()

    def end(self) -> int:
        """Let it come to its end; return its exit code."""
        self.process.communicate(timeout=120)
        return self.process.returncode


@contextmanager
def one_run(scenario: Path, store: str, seed: int = 1) -> Iterator[Run]:
    words = [sys.executable, "-m", "tests.acceptance.one_run", str(scenario), store, str(seed)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Run(process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A production key, a store that has released something, and a backup of it that was put back beside it."""
    key_files.create(tmp_path / "key", laboratory=False)
    (tmp_path / "policy.toml").write_text(TEXT)
    with one_run(tmp_path, "store") as first:
        assert (first.says(), first.take(HALF), first.end()) == ("open", "done", 0)
    backup.back_up(tmp_path / "store", tmp_path / "copy")
    assert backup.restore(tmp_path / "copy", tmp_path / "restored", tmp_path / "key", accept_loss=False) == {}
    assert given(tmp_path, "store")
    return tmp_path


def given(scenario: Path, *stores: str) -> Counter[tuple[str, bytes]]:
    """Return every record that audiences of these stores have, by its release id; the same bytes count once."""
    records = {
        value for store in stores for name, _ in outboxes(scenario / store) for _, value in read_outbox(
            scenario / store, name, 0)
    }  # fmt: skip
    return Counter((parse_record(value)["release_id"], b"") for value in records)


def test_a_restored_backup_is_refused_while_the_original_runs_and_nothing_is_released_twice(scenario: Path) -> None:
    with ExitStack() as both:
        first = both.enter_context(one_run(scenario, "store"))
        assert first.says() == "open"
        second = both.enter_context(one_run(scenario, "restored", seed=2))
        output = second.says()
        if output == "open":  # what both would release
            second.take(1_000)
        assert first.take(1_000) == "done"
        second.end()
        assert (first.end(), second.process.returncode) == (0, 1), output
    assert set(given(scenario, "store", "restored").values()) == {1}
    found = re.fullmatch(
        rf"{re.escape(str(scenario / 'key'))}: must be used by one run at a time, but process (\d+) has used it for "
        rf"store {re.escape(str(scenario / 'store'))} since (\S+Z); .* stop the other run first", output,
    )  # fmt: skip
    assert found, output
    assert int(found[1]) == first.process.pid


def test_every_verb_that_releases_or_ends_a_ledger_waits_for_no_run_and_is_refused(scenario: Path) -> None:
    (scenario / "seen.csv").write_text("time,device,access_point,site\n")
    key_files.create(scenario / "new.key", laboratory=False)
    own = ("--key-file", scenario / "key", "--policy", scenario / "policy.toml", "--store", scenario / "restored")
    span = ("--from", "1970-01-01T00:00:00Z", "--to", "1970-01-01T01:00:00Z")
    verbs: list[tuple[str | Path, ...]] = [
        ("run", *own, "--observations", scenario / "seen.csv", *span),
        ("backfill", scenario / "seen.csv", *own, *span),
        ("key", "retire", "--store", scenario / "restored", "--key-file", scenario / "key", "--new-store",
         scenario / "new", "--new-key", scenario / "new.key"),
        ("recover", *own, "--reopen", "dbh"),
    ]  # fmt: skip
    with one_run(scenario, "store") as first:
        assert first.says() == "open"
        for words in verbs:
            done = run(*words)
            used = f"process {first.process.pid} has used it" in done.problem
            assert (words[0], done.code, used) == (words[0], 2, True), done.problem
    assert not (scenario / "new").exists()


def test_a_run_that_was_killed_holds_nothing_back(scenario: Path) -> None:
    with one_run(scenario, "store") as first:
        assert first.says() == "open"
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        with one_run(scenario, "restored") as second:
            assert second.says() == "open"


def test_a_laboratory_key_serves_several_stores_at_once(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=True)
    with ExitStack() as both:
        for store in ("one", "other"):
            assert both.enter_context(one_run(tmp_path, store)).says() == "open"


def moved(scenario: Path) -> None:
    """Move the mark on, as a process that knows of no lock does."""
    document = json.loads(mark_path(scenario / "key").read_text())
    for sites in document["stores"].values():
        for site, (entries, _) in sites.items():
            sites[site] = [entries + 1, "f" * 64]
    mark_path(scenario / "key").write_text(json.dumps(document))


def gone(scenario: Path) -> None:
    mark_path(scenario / "key").unlink()


def unlocked(scenario: Path) -> None:
    """Make the lock free for everybody who comes."""
    mark_path(scenario / "key").with_name("key.mark.lock").unlink()


@pytest.mark.parametrize(
    ("kind", "meanwhile"),
    [
        ("production", moved),
        ("production", gone),
        ("production", unlocked),
        ("laboratory", moved),
        ("laboratory", gone),
    ],
)
def test_a_mark_that_somebody_else_changes_between_two_commits_ends_a_run_before_it_publishes(
    tmp_path: Path, kind: str, meanwhile: Callable[[Path], None]
) -> None:
    key_files.create(tmp_path / "key", laboratory=kind == "laboratory")
    with one_run(tmp_path, "store") as first:
        assert (first.says(), first.take(HALF)) == ("open", "done")
        before = given(tmp_path, "store"), read_state_and_entries(tmp_path / "store")
        meanwhile(tmp_path)
        changed = {path.name: path.read_bytes() for path in tmp_path.glob("key.mark")}
        output = first.take(1_000)
        assert "nothing more is released" in output, output
        first.end()
    assert before == (given(tmp_path, "store"), read_state_and_entries(tmp_path / "store"))
    assert changed == {path.name: path.read_bytes() for path in tmp_path.glob("key.mark")}
