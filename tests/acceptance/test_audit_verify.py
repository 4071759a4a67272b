"""``tacet audit verify`` and other verbs that read the ledger name and refuse missing or altered entries."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.secrets import private_files
from connectors.storage.embedded.reader import read_topic
from connectors.storage.embedded.runner import opened
from stream.accounting.ledger import chain_hash
from stream.encryption import Kind, seal, unseal
from stream.release.validation import load_policy
from stream.schemas import AUDIT, OCCUPANCY, parse_record
from tests.acceptance.command_line import TIMEOUT, Done, command, run
from tests.support.small_building import COUNTS, SITE, messages, people, policy_text, write_csv

TEXT = policy_text(COUNTS, head="[restricted]\noccupancy = true\n")
SEEN = people(hours=12, devices=4)
Wreck = Callable[[sqlite3.Connection], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key, recording and a store in which half a day has been released."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "policy.toml").write_text(TEXT)
    key_files.create(folder / "key", laboratory=True)
    policy = load_policy(TEXT)
    with opened(policy, folder / "key", folder / "store") as (runner, _):
        for message in messages(SEEN, policy):
            runner.process(message, durable=False)
    write_csv(folder / "rows.csv", SEEN)
    return folder


@pytest.fixture
def scenario(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def change(file: Path, wreck: Wreck) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        wreck(connection)


def rows(connection: sqlite3.Connection) -> list[tuple[int, dict[str, Any]]]:
    stored = connection.execute("SELECT seq, value FROM outputs WHERE topic = ? ORDER BY seq", (AUDIT,))
    return [(seq, orjson.loads(value)) for seq, value in stored.fetchall()]


def delete(which: slice) -> Wreck:
    def wreck(connection: sqlite3.Connection) -> None:
        gone = [(seq,) for seq, _ in rows(connection)[which]]
        connection.executemany("DELETE FROM outputs WHERE seq = ?", gone)

    return wreck


def forge(number: int, **fields: Any) -> Wreck:
    """Alter an entry and make the audit chain fit again from there on, without the audit key."""

    def wreck(connection: sqlite3.Connection) -> None:
        head = None
        for seq, entry in rows(connection)[number:]:
            forged = entry | (fields if head is None else {"previous": head})
            forged["hash"] = head = chain_hash(forged)
            connection.execute("UPDATE outputs SET value = ? WHERE seq = ?", (orjson.dumps(forged), seq))

    return wreck


def verify(scenario: Path, *more: str | Path) -> dict[str, Any]:
    done = run("audit", "verify", "--store", scenario / "store", "--json", *more)
    report: dict[str, Any] = json.loads(done.out)
    assert done.code == (0 if report["ok"] else 2)
    return report


def apart(*verb: str | Path) -> Done:
    """Run a verb that takes signals over in a process of its own."""
    ended = subprocess.run(command(verb), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return Done(ended.returncode, ended.stdout, ended.stderr)


def test_whole_books_are_whole_and_the_heads_are_told(whole: Any) -> None:
    entries = [parse_record(value) for value in read_topic(whole / "store", AUDIT)]
    report = verify(whole, "--key-file", whole / "key")
    head = {"sequence": len(entries), "head": entries[-1]["hash"]}
    assert report == {
        "ok": True, "entries": len(entries), "sites": {SITE: head}, "first_break": None,
        "records": len(entries), "commitments": len(entries), "unchecked": [], "missing": [],
    }  # fmt: skip
    assert len(entries) > 100


def test_without_the_key_it_says_what_was_not_checked(whole: Any) -> None:
    assert verify(whole)["unchecked"] == ["signatures", "head against the mark", "commitments"]
    done = run("audit", "verify", "--store", whole / "store")
    assert "not checked: signatures, head against the mark, commitments" in done.out


@pytest.mark.parametrize(
    ("which", "missing"),
    [(slice(20, None), "entry 20 is missing; the state knows of"), (slice(50, 51), "entry 50 must be there"),
     (slice(0, 1), "entry 0 must be there"), (slice(None), "entry 0 is missing")],
)  # fmt: skip
def test_deleted_entries_are_noticed_by_every_verb_that_reads_the_books(
    scenario: Any, which: Any, missing: Any
) -> None:
    """4,918 of 5,118 rows deleted, and the account of a coalition fell from 51 to 2 in silence."""
    change(scenario / "store" / "store.sqlite", delete(which))
    assert missing in verify(scenario)["first_break"]
    exported = run("audit", "export", "--store", scenario / "store", "--out", scenario / "books")
    assert (exported.code, (scenario / "books").exists()) == (2, False)
    given = ("--policy", scenario / "policy.toml", "--key-file", scenario / "key", "--store", scenario / "store")
    for verb in (
        ("account", "--store", scenario / "store"),
        ("account", "--store", scenario / "store", "--coalition", "public,board"),
        ("backfill", scenario / "rows.csv", *given),
        ("run", "--observations", scenario / "rows.csv", *given),
    ):
        done = apart(*verb) if verb[0] == "run" else run(*verb)
        assert (done.code, missing in done.problem) == (2, True), (verb, done.problem)


def test_an_altered_entry_is_noticed(scenario: Any) -> None:
    def wreck(connection: sqlite3.Connection) -> None:
        seq, entry = rows(connection)[7]
        connection.execute("UPDATE outputs SET value = ? WHERE seq = ?", (orjson.dumps(entry | {"nano": 1}), seq))

    change(scenario / "store" / "store.sqlite", wreck)
    assert "entry 7 must have the hash of its content" in verify(scenario)["first_break"]


def test_a_chain_made_to_fit_again_is_not_the_one_that_the_state_knows(scenario: Any) -> None:
    change(scenario / "store" / "store.sqlite", forge(7, nano=1))
    assert "must be the one that the state knows" in verify(scenario)["first_break"]
    assert (
        "entry 7 must be signed with the audit key" in verify(scenario, "--key-file", scenario / "key")["first_break"]
    )


def test_a_commitment_to_other_counts_is_noticed(scenario: Any) -> None:
    """Whoever changed the counts that were kept, or made the entry from others, is found while the key exists."""

    def wreck(connection: sqlite3.Connection) -> None:
        stored = connection.execute("SELECT seq, value FROM outputs WHERE topic = ? ORDER BY seq", (OCCUPANCY,))
        seq, value = stored.fetchall()[3]
        body = orjson.loads(unseal(Kind.RESTRICTED, value, key_files.FileKeys(scenario / "key").vault))
        body["counts"]["a"] += 1
        sealed = seal(Kind.RESTRICTED, orjson.dumps(body))
        connection.execute("UPDATE outputs SET value = ? WHERE seq = ?", (sealed, seq))

    change(scenario / "store" / "store.sqlite", wreck)
    assert verify(scenario)["ok"]
    report = verify(scenario, "--key-file", scenario / "key")["first_break"]
    assert "must have a commitment to the stored counts" in report


def test_the_head_is_compared_with_the_mark(scenario: Any) -> None:
    mark = scenario / "key.mark"
    document = json.loads(mark.read_text())
    ((store, sites),) = document["stores"].items()
    sites[SITE][0] += 1
    private_files.replace_file(mark, document)
    assert verify(scenario)["ok"]
    assert "the mark knows of" in verify(scenario, "--key-file", scenario / "key")["first_break"]
    private_files.replace_file(mark, {"tacet_mark": 1, "stores": {}, "mechanisms": {}})
    assert f"must list store {store}" in verify(scenario, "--key-file", scenario / "key")["first_break"]


def test_a_record_that_is_gone_is_noticed(scenario: Any) -> None:
    box = scenario / "store" / "private" / "board.sqlite"
    change(box, lambda c: c.execute("DELETE FROM records WHERE seq = 9"))
    change(
        scenario / "store" / "store.sqlite",
        lambda c: c.execute("DELETE FROM outputs WHERE topic LIKE 'tacet.private.%'"),
    )
    found = verify(scenario)
    assert "site dbh: 1 published record(s) of release " in found["first_break"]
    ((site, records),) = [(each["site"], each["records"]) for each in found["missing"]]
    assert (site, records, found["ok"]) == ("dbh", 1, False)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"spend": "0.05"}, "must charge what its record"), ({"epsilon": "9"}, "must charge what its record"),
     ({"reason": "budget"}, "must charge what its record"),
     ({"release_id": "dbh/grouped/board/elsewhere"}, "must have been charged")],
)  # fmt: skip
def test_a_record_that_says_something_else_than_its_charge_is_noticed(scenario: Any, fields: Any, problem: Any) -> None:
    box = scenario / "store" / "private" / "board.sqlite"

    def wreck(connection: sqlite3.Connection) -> None:
        ((value,),) = connection.execute("SELECT value FROM records WHERE seq = 9").fetchall()
        altered = orjson.dumps(orjson.loads(value) | fields)
        connection.execute("UPDATE records SET value = ? WHERE seq = 9", (altered,))

    change(
        scenario / "store" / "store.sqlite",
        lambda c: c.execute("DELETE FROM outputs WHERE topic LIKE 'tacet.private.%'"),
    )
    change(box, wreck)
    assert problem in verify(scenario)["first_break"]


def test_a_record_that_was_never_charged_is_noticed(scenario: Any) -> None:
    def wreck(connection: sqlite3.Connection) -> None:
        ((value,),) = connection.execute("SELECT value FROM records WHERE seq = 9").fetchall()
        more = orjson.dumps(orjson.loads(value) | {"release_id": "dbh/free/board/1"})
        connection.execute(
            "INSERT INTO records (id, release, site, time, value) VALUES ('dbh/free/board/1', 'free', 'dbh', 0, ?)",
            (more,),
        )

    change(scenario / "store" / "private" / "board.sqlite", wreck)
    assert "record dbh/free/board/1 must have been charged" in verify(scenario)["first_break"]


@pytest.mark.parametrize("fields", [{"revises": "dbh/plain/board/never", "spend": "0"}, {"spend": "1"}])
def test_a_record_that_revises_nothing_that_was_charged_or_costs_something_is_noticed(
    scenario: Any, fields: Any
) -> None:
    before = verify(scenario)

    def more(connection: sqlite3.Connection, name: str, changes: dict[str, str]) -> None:
        ((value,),) = connection.execute("SELECT value FROM records WHERE seq = 9").fetchall()
        record = orjson.loads(value)
        altered = record | {"release_id": name, "revises": record["release_id"], "spend": "0"} | changes
        row = (name, altered["release"], orjson.dumps(altered))
        connection.execute("INSERT INTO records (id, release, site, time, value) VALUES (?, ?, 'dbh', 0, ?)", row)

    box = scenario / "store" / "private" / "board.sqlite"
    change(box, lambda connection: more(connection, "dbh/plain-revised/board/1/1h", {}))
    after = verify(scenario)
    assert (after["ok"], after["records"]) == (True, before["records"])
    change(box, lambda connection: more(connection, "dbh/plain-revised/board/2/1h", fields))
    assert "must revise, at no cost, a record that was charged" in verify(scenario)["first_break"]
