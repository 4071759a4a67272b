"""Disks that are full or read-only: errors name the file, and with room again all goes on as if nothing had been."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.secrets import private_files
from connectors.secrets.locked_file import LockedFile
from connectors.storage.embedded.reader import outboxes, read_outbox, read_topic
from connectors.storage.embedded.rollback_mark import one_run
from connectors.storage.embedded.runner import embedded
from stream.errors import KeyFileError
from stream.records import DAY
from stream.schemas import AUDIT, LEAKAGE
from tests.support.small_building import COUNTS, EVENING, building, messages, people

POLICY = building(releases=COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0], tick="30min")
LOG = list(messages(people(hours=52, devices=2, every=17 * 60_000_000), POLICY))
FULL = OSError(errno.ENOSPC, "No space left on device")


def raises(error: OSError) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


# --- what an error names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "function", "error"),
    [
        (tempfile, "mkstemp", OSError(errno.EROFS, "Read-only file system", "/keys/.key.x7f3")),
        (os, "fsync", FULL),
        (Path, "replace", OSError(errno.EACCES, "Permission denied", "/keys/.key.x7f3", None, "/keys/key")),
    ],
)
def test_a_file_that_cannot_be_replaced_is_named_and_stays_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, function: str, error: OSError
) -> None:
    target = tmp_path / "key"
    target.write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(module, function, raises(error))
        with pytest.raises(OSError, match=error.strerror or "") as reported:
            private_files.replace_file(target, {"a": 1})
    assert str(reported.value) == f"[Errno {error.errno}] {error.strerror}: {str(target)!r}"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("key", "{}")]


def test_a_state_that_does_not_fit_on_its_disk_is_not_called_damaged(tmp_path: Path) -> None:
    file = LockedFile(tmp_path / "state", "CREATE TABLE one (a)", whose="a test", by="another")
    ((pages,),) = file.database.execute("PRAGMA page_count")
    file.database.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(KeyFileError, match="state: disk full; free space and start again"), file.changing() as database:
        database.executemany("INSERT INTO one VALUES (?)", [(bytes(4000),)] * 4)
    assert file.database.execute("SELECT count(*) FROM one").fetchone() == (0,)
    file.close()


def test_a_lock_that_cannot_name_its_owner_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", raises(OSError(*FULL.args)))
    with pytest.raises(OSError, match="No space") as reported, one_run(tmp_path / "key", tmp_path, laboratory=False):
        raise AssertionError("nothing may run")
    assert reported.value.filename == str(tmp_path / "key.mark.lock")


def test_a_lock_is_released_on_a_full_disk_and_hides_no_other_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_that_fails() -> None:
        with one_run(tmp_path / "key", tmp_path, laboratory=False):
            monkeypatch.setattr(os, "pwrite", raises(FULL))
            raise KeyFileError("first")

    with pytest.raises(KeyFileError, match="first"):
        run_that_fails()
    monkeypatch.undo()
    with one_run(tmp_path / "key", tmp_path, laboratory=False) as lock:
        assert lock is not None
        assert lock.is_intact()


# --- a key's folder that fills up, and gets room again --------------------------------------------------


def released(store: Path) -> dict[str, object]:
    boxes = {name: read_outbox(store, name, 0) for name, _ in outboxes(store)}
    return boxes | {topic: read_topic(store, topic) for topic in (AUDIT, LEAKAGE)}


def run(key: Path, store: Path, begin: int) -> tuple[int, OSError | None]:
    """Pass on messages from the one with this number; return how many are stored, and what ended the run too early."""
    stored = begin
    try:
        with embedded(POLICY, key, store) as runner:
            for message in LOG[begin:]:
                stored += 1
                runner.process(message)
    except OSError as error:
        return stored, error
    return stored, None


def test_a_run_whose_keys_folder_is_full_now_and_then_releases_all_once_and_forgets_each_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt ends at the first write of key or mark that finds no room; a new day's key finds none at first."""
    rng = random.Random(1)
    for name in ("whole", "full"):
        (tmp_path / name).mkdir(mode=0o700)
    key_files.create(tmp_path / "whole" / "key", laboratory=False, first_day=EVENING // DAY - 1)
    shutil.copy(tmp_path / "whole" / "key", tmp_path / "full" / "key")
    assert run(tmp_path / "whole" / "key", tmp_path / "whole" / "store", 0) == (len(LOG), None)

    made, room, key = tempfile.mkstemp, [0], tmp_path / "full" / "key"
    waiting = itertools.cycle([True, True, False])

    def mkstemp(*words: Any, **more: Any) -> tuple[int, str]:
        if room[0] == 0 or (more["prefix"] == ".key." and next(waiting)):
            raise OSError(*FULL.args)
        room[0] -= 1
        return made(*words, **more)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    stored, ended, named = 0, 0, set()
    while True:
        room[0] = rng.randrange(40)
        stored, error = run(key, tmp_path / "full" / "store", stored)
        if error is None:
            break
        ended += 1
        named.add(error.filename)
    assert ended > 5
    assert named == {str(key), f"{key}.mark"}
    assert stored == len(LOG)
    assert released(tmp_path / "full" / "store") == released(tmp_path / "whole" / "store")
    documents = [json.loads((tmp_path / name / "key").read_text()) for name in ("full", "whole")]
    assert documents[0]["noise"] == documents[1]["noise"]
    assert documents[0]["noise"]["day"] == EVENING // DAY + 2, "only the day that open windows need"
    assert documents[0]["data"] == documents[1]["data"]

    room[0] = 0
    with pytest.raises(OSError, match="No space"):
        key_files.retire(key, "ledger")
    assert not key_files.is_retired(key)
    assert json.loads(key.read_text()) == documents[0]
    monkeypatch.undo()
    key_files.retire(key, "ledger")
    assert key_files.follower(key) == "ledger"
