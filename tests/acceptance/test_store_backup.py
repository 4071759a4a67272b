"""``tacet store backup | restore``: a running store is copied consistently and cannot be set back unnoticed."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import threading
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.storage.embedded import backup
from connectors.storage.embedded.reader import outboxes, read_outbox
from connectors.storage.embedded.runner import opened
from stream.errors import UsageError
from stream.release.validation import load_policy
from tests.acceptance.command_line import Done, run
from tests.support.small_building import COUNTS, SITE, messages, people, policy_text

TEXT = policy_text(COUNTS)
MESSAGES = list(messages(people(hours=3, devices=4), load_policy(TEXT)))


def go_on(folder: Path, part: slice, store: str = "store") -> None:
    with opened(load_policy(TEXT), folder / "key", folder / store) as (runner, _):
        for message in MESSAGES[part]:
            runner.process(message, durable=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a production key and a store; ``early`` is a backup after half of it, ``late`` one of all."""
    folder = tmp_path_factory.mktemp("backup")
    key_files.create(folder / "key", laboratory=False)
    for part, name in ((slice(None, len(MESSAGES) // 2), "early"), (slice(len(MESSAGES) // 2, None), "late")):
        go_on(folder, part)
        assert run("store", "backup", "--store", folder / "store", "--out", folder / name).code == 0
    return folder


@pytest.fixture
def scenario(made: Path, tmp_path: Path) -> Path:
    """A copy of it whose store is gone."""
    shutil.copytree(made, tmp_path / "copy")
    (tmp_path / "copy" / "store").rename(tmp_path / "copy" / "lost")
    return tmp_path / "copy"


def restore(scenario: Path, name: str, *more: str) -> Done:
    return run(
        "store", "restore", scenario / name, "--store", scenario / "store", "--key-file", scenario / "key", *more
    )


def verified(scenario: Path, store: str = "store") -> Any:
    return run("audit", "verify", "--store", scenario / store, "--key-file", scenario / "key", "--json").answer


def given(folder: Path) -> dict[str, list[tuple[int, bytes]]]:
    return {audience: read_outbox(folder, audience, 0) for audience, _ in outboxes(folder)}


def test_a_backup_as_new_as_the_mark_is_put_back_and_is_the_same_store(scenario: Path) -> None:
    done = restore(scenario, "late")
    assert (done.code, done.out) == (0, f"{scenario / 'store'}: restored\n")
    assert verified(scenario) == verified(scenario, "lost")
    assert given(scenario / "store") == given(scenario / "lost") != {}
    go_on(scenario, slice(0, 0))


def test_an_older_backup_is_refused_since_something_newer_was_released(scenario: Path) -> None:
    done = restore(scenario, "early")
    lost = run("audit", "verify", "--store", scenario / "lost", "--json").answer["sites"][SITE]["sequence"]
    lost -= run("audit", "verify", "--store", scenario / "early", "--json").answer["sites"][SITE]["sequence"]
    assert lost > 0
    assert (done.code, f"{lost} newer ledger entries of site {SITE} were published" in done.problem) == (2, True)
    assert not (scenario / "store").exists()


def test_with_accepted_loss_it_is_there_for_its_account_and_the_run_still_notices(scenario: Path) -> None:
    """Going on with other observations would release the same windows with other noise."""
    assert "newer ledger entries are lost" in restore(scenario, "early", "--accept-loss").out
    assert run("account", "--store", scenario / "store").code == 0
    assert "the store was set back" in run("recover", "--store", scenario / "store", "--key-file", scenario / "key").out
    with pytest.raises(Exception, match="the store was set back"):
        go_on(scenario, slice(-1, None))
    go_on(scenario, slice(len(MESSAGES) // 2, None))
    assert verified(scenario)["sites"] == verified(scenario, "lost")["sites"]


def test_a_store_that_is_there_is_never_written_over(scenario: Path) -> None:
    (scenario / "lost").rename(scenario / "store")
    before = given(scenario / "store")
    for done in (restore(scenario, "late"), restore(scenario, "early", "--accept-loss")):
        assert (done.code, "must not exist yet" in done.problem) == (2, True)
    assert (
        "must not exist yet"
        in run("store", "backup", "--store", scenario / "store", "--out", scenario / "early").problem
    )
    assert given(scenario / "store") == before


def test_another_key_puts_nothing_back(scenario: Path) -> None:
    key_files.create(scenario / "other", laboratory=False)
    done = run("store", "restore", scenario / "late", "--store", scenario / "store", "--key-file", scenario / "other")
    assert (done.code, "must list store" in done.problem, (scenario / "store").exists()) == (2, True, False)


@pytest.mark.parametrize("name", ["store.sqlite", "private/board.sqlite", "more"])
def test_a_backup_that_was_altered_is_refused(scenario: Path, name: str) -> None:
    if name == "more":
        shutil.copy(scenario / "late/store.sqlite", scenario / "late/private/more.sqlite")
    else:
        with (scenario / "late" / name).open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"!")
    done = restore(scenario, "late")
    assert (done.code, "must" in done.problem, (scenario / "store").exists()) == (2, True, False)


def test_the_mark_of_another_history_is_noticed(scenario: Path) -> None:
    """As long as the backup, and not the one that it knows."""
    mark = scenario / "key.mark"
    head = verified(scenario, "lost")["sites"][SITE]["head"]
    mark.write_text(mark.read_text().replace(head, "f" * 64))
    done = restore(scenario, "late")
    assert (done.code, "must be the one that the mark knows" in done.problem) == (2, True)


def test_a_backup_holds_no_key_whatever_lies_in_the_store(scenario: Path) -> None:
    (scenario / "lost").rename(scenario / "store")
    for place in (scenario / "store", scenario / "store" / "private"):
        shutil.copy(scenario / "key", place / "key")
        shutil.copy(scenario / "key", place / "key.json")
        shutil.copy(scenario / "key.mark", place / "key.mark")
    run("store", "backup", "--store", scenario / "store", "--out", scenario / "new")
    stored = {
        path.relative_to(scenario / "new").as_posix(): path for path in (scenario / "new").rglob("*") if path.is_file()
    }
    assert {name for name in stored if not name.startswith("private/")} == {"store.sqlite", backup.CONTENTS}
    assert all(path.suffix == ".sqlite" or path.name == "_sites.json" for name, path in stored.items() if "/" in name)
    secrets = set(re.findall(r"[0-9a-f]{64}", (scenario / "key").read_text()))
    assert len(secrets) >= 3
    content = b"".join(path.read_bytes() for path in stored.values())
    assert not any(secret.encode() in content or bytes.fromhex(secret) in content for secret in secrets)


def test_only_its_owner_can_open_a_backup(scenario: Path) -> None:
    for path in (scenario / "late", *(scenario / "late").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_backup_made_while_windows_close_charges_all_that_its_outboxes_hold(scenario: Path) -> None:
    """Copies beside a run that never pauses: each is whole, or is not made. The last is made when nothing comes."""
    whole: list[Path] = []
    stop = threading.Event()

    def copy() -> None:
        last = False
        while not last:
            last, out = stop.is_set(), scenario / f"copy-{len(whole)}"
            with suppress(UsageError):
                backup.back_up(scenario / "running", out)
                whole.append(out)

    key_files.create(scenario / "second", laboratory=True)
    policy = load_policy(TEXT)
    with opened(policy, scenario / "second", scenario / "running") as (runner, _):
        thread = threading.Thread(target=copy)
        thread.start()
        for message in MESSAGES:
            runner.process(message)
        stop.set()
        thread.join()
    assert whole
    for out in whole:
        assert run("audit", "verify", "--store", out, "--json").answer["ok"]


def test_a_window_closed_between_store_and_outboxes_begins_the_copy_anew(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scenario / "lost").rename(scenario / "store")
    copies: list[str] = []
    plain = backup._copy_database

    def copied(source: Path, target: Path) -> None:
        plain(source, target)
        copies.append(source.name)
        if source.name == "store.sqlite" and copies.count(source.name) == 1:
            with closing(sqlite3.connect(source)) as store:
                store.execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'outputs'")
                store.commit()

    monkeypatch.setattr(backup, "_copy_database", copied)
    monkeypatch.setitem(backup._COPY, ".sqlite", copied)
    backup.back_up(scenario / "store", scenario / "new")
    assert copies.count("store.sqlite") == 2
    numbers = count()
    monkeypatch.setattr(backup, "_written", lambda path: (next(numbers), path))
    with pytest.raises(ValueError, match="changes faster than it can be copied"):
        backup.back_up(scenario / "store", scenario / "newer")
    assert not (scenario / "newer").exists()
