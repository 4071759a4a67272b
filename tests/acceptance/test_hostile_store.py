"""A manipulated store in a backup: nothing in it is executed, and it is not restored."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.operations.recovery.store import store_obstacles
from connectors.storage.embedded.backup import CONTENTS, _digest
from connectors.storage.embedded.reader import read_outbox, read_state_and_entries, read_topic
from connectors.storage.embedded.runner import opened
from connectors.storage.embedded.sqlite_file import StoreError
from connectors.storage.embedded.store import SqliteStore
from stream.release.validation import load_policy
from stream.schemas import AUDIT
from tests.acceptance.command_line import Done, run
from tests.support.small_building import COUNTS, messages, people, policy_text

TEXT = policy_text(COUNTS)
VIEW = "ALTER TABLE outputs RENAME TO held; CREATE VIEW outputs AS SELECT seq, topic, key, value, time, id FROM held"
ENDLESS = (
    "ALTER TABLE outputs RENAME TO held; CREATE VIEW outputs AS WITH RECURSIVE more(seq) AS "
    "(SELECT 1 UNION ALL SELECT seq + 1 FROM more) SELECT seq, 'tacet.audit.v1' AS topic, x'' AS key, "
    "zeroblob(1 << 20) AS value, 0 AS time, '' AS id FROM more"
)
HOSTILE = {
    "a trigger": "CREATE TRIGGER gone AFTER INSERT ON outputs BEGIN DELETE FROM outputs; END",
    "a trigger before": "CREATE TRIGGER other BEFORE DELETE ON observations BEGIN SELECT RAISE(IGNORE); END",
    "a view": VIEW,
    "an endless view": ENDLESS,
    "a computed column": "ALTER TABLE state ADD COLUMN more AS (zeroblob(1000000000))",
    "an index of an expression": "CREATE INDEX odd ON outputs (length(zeroblob(length(value))))",
    "a table more": "CREATE TABLE more (a)",
    "another column": "ALTER TABLE meta ADD COLUMN more TEXT DEFAULT 'x'",
    "a table fewer": "DROP TABLE policies; CREATE TABLE policies (version TEXT PRIMARY KEY, document)",
    "a table that calls itself SQLite's": "PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES "
    "('view', 'sqlite_stat9', 'sqlite_stat9', 0, 'CREATE VIEW sqlite_stat9 AS SELECT 1')",
    "a schema written over": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'value BLOB NOT "
    "NULL', 'value BLOB NOT NULL CHECK (length(value) > 9)') WHERE name = 'outputs'",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    policy = load_policy(TEXT)
    key_files.create(folder / "key", laboratory=False)
    with opened(policy, folder / "key", folder / "store") as (runner, _):
        for message in messages(people(hours=1.5, devices=3), policy):
            runner.process(message, durable=False)
    assert run("store", "backup", "--store", folder / "store", "--out", folder / "backup").code == 0
    return folder


@pytest.fixture
def altered(whole: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return what alters a file of a copied backup by SQL, with digests that fit."""
    shutil.copytree(whole, tmp_path / "scenario")

    def alter(script: str, name: str = "store.sqlite") -> Path:
        backup = tmp_path / "scenario" / "backup"
        with closing(sqlite3.connect(backup / name)) as store:
            store.executescript(script)
        seal(backup)
        return tmp_path / "scenario"

    return alter


def seal(backup: Path) -> None:
    document = json.loads((backup / CONTENTS).read_text())
    document["files"] = {name: _digest(backup / name) for name in document["files"]}
    (backup / CONTENTS).write_text(json.dumps(document))


def restored(scenario: Path) -> Done:
    return run(
        "store",
        "restore",
        scenario / "backup",
        "--store",
        scenario / "again",
        "--key-file",
        scenario / "key",
        "--accept-loss",
    )


def test_the_same_backup_is_put_back_where_nobody_has_altered_it(altered: Callable[..., Path]) -> None:
    scenario = altered("SELECT 1")
    done = restored(scenario)
    assert (done.code, (scenario / "again/store.sqlite").exists()) == (0, True), done.problem


@pytest.mark.parametrize("name", HOSTILE)
def test_a_backup_with_anything_but_the_tables_of_a_store_is_not_put_back(
    altered: Callable[..., Path], name: str
) -> None:
    scenario = altered(HOSTILE[name])
    done = restored(scenario)
    assert done.code != 0
    assert not (scenario / "again").exists()
    assert "must contain the tables of a store and nothing else" in done.problem
    assert "zeroblob" not in done.problem


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_reads_or_runs_such_a_store(altered: Callable[..., Path], name: str) -> None:
    """Not a run, a report or an account, wherever it came from."""
    store = altered(HOSTILE[name]) / "backup"
    for read in (
        lambda: SqliteStore(store), lambda: read_state_and_entries(store), lambda: read_topic(store, AUDIT),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="tables of a store"):
            read()


def test_recovery_says_that_such_a_store_is_not_used(altered: Callable[..., Path]) -> None:
    scenario = altered(HOSTILE["a trigger"])
    findings = store_obstacles(scenario / "backup", scenario / "key", load_policy(TEXT))
    assert any("must contain the tables of a store" in str(finding) for finding in findings)


@pytest.mark.parametrize("name", ["a trigger", "a view"])
def test_an_outbox_is_looked_at_in_the_same_way(altered: Callable[..., Path], name: str) -> None:
    script = {
        "a trigger": "CREATE TRIGGER other AFTER INSERT ON records BEGIN UPDATE records SET value = x''; END",
        "a view": "ALTER TABLE records RENAME TO held; CREATE VIEW records AS SELECT * FROM held",
    }[name]
    scenario = altered(script, "private/facilities.sqlite")
    assert restored(scenario).code != 0
    assert not (scenario / "again").exists()
    with pytest.raises(StoreError, match="tables of a store"):
        read_outbox(scenario / "backup", "facilities", 0)


def test_a_value_that_no_store_has_is_not_read(altered: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.storage.embedded.sqlite_file.LARGEST_VALUE", 1 << 20)
    scenario = altered("UPDATE state SET value = zeroblob(1 << 22)")
    with pytest.raises(StoreError, match=r"SQLITE_TOOBIG|must be a complete, writable file of a store"):
        read_state_and_entries(scenario / "backup")
    assert restored(scenario).code != 0
    assert not (scenario / "again").exists()


@pytest.mark.parametrize("name", ["store.sqlite", "private/facilities.sqlite"])
def test_a_damaged_file_is_not_put_back_whatever_its_digest_says(altered: Callable[..., Path], name: str) -> None:
    scenario = altered("SELECT 1")
    file = scenario / "backup" / name
    content = bytearray(file.read_bytes())
    for place in range(4096 * 2, len(content), 4096):  # the head of each page behind the schema's
        content[place : place + 12] = b"\xff" * 12
    file.write_bytes(content)
    seal(scenario / "backup")
    done = restored(scenario)
    assert done.code != 0
    assert f"{name}: must be a complete" in done.problem
    assert not (scenario / "again").exists()


def test_a_link_in_a_backup_is_not_followed(altered: Callable[..., Path], tmp_path: Path) -> None:
    scenario = altered("SELECT 1")
    file = scenario / "backup" / "private" / "facilities.sqlite"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    done = restored(scenario)
    assert done.code != 0
    assert "must be unchanged since the backup was made" in done.problem
    assert not (scenario / "again").exists()
