"""A store whose files vanish, whose disk is full or whose power fails, and what stays readable in it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.storage.embedded.reader import outboxes, read_outbox, read_topic
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.sqlite_file import StoreError, naming_errors, reading
from connectors.storage.embedded.store import SqliteStore
from stream.engine.outputs import OutputRecord
from stream.errors import AuditError, TacetError
from stream.schemas import AUDIT, LEAKAGE, private_topic
from tests.support.small_building import COUNTS, building, messages, people

POLICY = building(releases=COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0])
LOG = list(messages(people(hours=1, devices=3), POLICY, after=0))
NEEDLE = b"NEEDLE0123456789"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    return tmp_path / "key"


def out(number: int) -> OutputRecord:
    topic = private_topic("board", "plain")
    return OutputRecord(topic, b"dbh", b'{"n":%d}' % number, 1, True, f"dbh/plain/board/{number}")


def everything(folder: Path) -> dict[str, object]:
    boxes = {name: read_outbox(folder, name, 0) for name, _ in outboxes(folder)}
    return boxes | {topic: read_topic(folder, topic) for topic in (AUDIT, LEAKAGE)}


# --- files that go while they are in use ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["store.sqlite", "lock", "private/board.sqlite"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_or_replaced_is_noticed_at_the_next_message_or_commit(
    tmp_path: Path, key: Any, name: Any, replaced: Any
) -> None:
    def work() -> None:
        with embedded(POLICY, key, tmp_path / "store") as runner:
            for message in LOG[:10]:
                runner.process(message)
            path = tmp_path / "store" / name
            copy = shutil.copy(path, tmp_path / "copy")
            path.unlink()
            if replaced:
                Path(copy).rename(path)
            runner.stop()
            runner.process(LOG[10])

    with pytest.raises(TacetError, match=f"{name}: was deleted or replaced while it was in use"):
        work()


def test_a_message_that_comes_when_the_store_is_gone_is_not_taken(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    (tmp_path / "store" / "store.sqlite").unlink()
    with pytest.raises(TacetError, match="deleted or replaced"):
        store.append(b"{}")
    store.close()


def test_a_store_whose_ledger_lacks_an_entry_is_not_run_and_nothing_is_written(tmp_path: Path, key: Any) -> None:
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in LOG:
            runner.process(message)
    with closing(sqlite3.connect(tmp_path / "store" / "store.sqlite")) as store, store:
        assert store.execute("DELETE FROM outputs WHERE topic = ? AND id = 'dbh/1'", (AUDIT,)).rowcount == 1
    before = everything(tmp_path / "store")
    with pytest.raises(AuditError, match="site dbh: entry 1 must be there"), embedded(POLICY, key, tmp_path / "store"):
        pass
    assert everything(tmp_path / "store") == before


@pytest.mark.parametrize(
    "foreign", ["CREATE TABLE more (a)", "CREATE VIEW more AS SELECT 1", "CREATE INDEX more ON outputs (value)"]
)
def test_a_file_that_holds_anything_but_a_stores_tables_is_not_used(tmp_path: Path, foreign: str) -> None:
    SqliteStore(tmp_path / "store").close()
    with closing(sqlite3.connect(tmp_path / "store" / "store.sqlite")) as store:
        store.execute(foreign)
    for use in (SqliteStore, lambda folder: read_topic(folder, AUDIT)):
        with pytest.raises(StoreError, match="must contain the tables of a store and nothing else"):
            use(tmp_path / "store")


def test_a_store_runs_no_function_of_its_schema_and_holds_no_value_of_more_than_256_mib(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "store").close()
    with reading(tmp_path / "store" / "store.sqlite") as store:
        assert store.execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert store.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) == 268_435_456


# --- a disk that is full --------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "said"), [(0, "disk full; nothing is lost"), (1, "SQLite reports SQLITE_IOERR")])
def test_a_failed_write_on_a_full_disk_is_called_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorname = "SQLITE_IOERR_WRITE"
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free))
    with pytest.raises(StoreError, match=said), naming_errors(tmp_path / "store.sqlite"):
        raise failed


def test_a_full_disk_says_so_and_the_run_goes_on_when_there_is_room_again(tmp_path: Path, key: Any) -> None:
    with embedded(POLICY, key, tmp_path / "whole") as runner:
        for message in LOG:
            runner.process(message)
    taken = []

    def until_full() -> None:
        with embedded(POLICY, key, tmp_path / "store") as runner:
            assert isinstance(runner._store, SqliteStore)
            ((pages,),) = runner._store._db.execute("PRAGMA page_count")
            runner._store._db.execute(f"PRAGMA max_page_count = {pages + 4}")
            for message in LOG:
                runner.process(message)
                taken.append(message)

    with pytest.raises(TacetError, match=r"store.sqlite: disk full"):
        until_full()
    assert 0 < len(taken) < len(LOG) - 1
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in LOG[len(taken) :]:
            runner.process(message)
    assert everything(tmp_path / "store") == everything(tmp_path / "whole")


# --- power failures -------------------------------------------------------------------------------------


def test_records_leave_the_store_only_when_their_outbox_is_safe_on_disk(tmp_path: Path) -> None:
    """A power cut may take from an outbox whatever was not synced: the store must still have it."""
    store = SqliteStore(tmp_path / "store")
    for number in range(3):
        store.commit([out(number)], b"state", 0)
        store.deliver()
    store.close()
    for path in (tmp_path / "store" / "private").iterdir():
        path.unlink()
    store = SqliteStore(tmp_path / "store")
    store.deliver()
    store.close()
    assert [value for _, value in read_outbox(tmp_path / "store", "board", 0)] == [out(n).value for n in range(3)]


# --- what is left of what was deleted -------------------------------------------------------------------


def test_nothing_of_a_consumed_message_stays_in_the_files(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    position = store.append(NEEDLE * 20)
    store.commit([], b"state", 0)
    assert NEEDLE in b"".join(path.read_bytes() for path in (tmp_path / "store").glob("store.sqlite*"))
    store.commit([], b"state", position + 1)
    assert NEEDLE not in b"".join(path.read_bytes() for path in (tmp_path / "store").glob("store.sqlite*"))
    store.close()


def test_messages_and_true_counts_lie_in_envelopes(tmp_path: Path, key: Any) -> None:
    policy = building(releases=COUNTS, head="[restricted]\noccupancy = true\n")
    with embedded(policy, key, tmp_path / "store") as runner:
        for message in LOG:
            runner.process(message)
        runner.enqueue(LOG[-1])
    connection = sqlite3.connect(tmp_path / "store" / "store.sqlite")
    stored = connection.execute("SELECT value FROM outputs WHERE topic = 'tacet.occupancy.v1'").fetchall()
    stored += connection.execute("SELECT value FROM observations").fetchall()
    stored += connection.execute("SELECT value FROM state").fetchall()
    connection.close()
    assert len(stored) > 3
    assert all(bytes(value).startswith(b"\x89TACET") for (value,) in stored)
    counts = read_topic(tmp_path / "store", "tacet.occupancy.v1", key_files.FileKeys(key).vault)
    assert counts
    assert all(value.startswith(b'{"v":1') for value in counts)
    assert read_topic(tmp_path / "store", "tacet.occupancy.v1") == []
