"""An audience's side of the embedded store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.storage.embedded.reader import (
    contradicted,
    has_outbox,
    last_number,
    outboxes,
    read_outbox,
    read_published,
    read_snapshot,
    read_state_and_entries,
    read_topic,
    release_at,
    release_names,
    require_store,
)
from connectors.storage.embedded.store import SqliteStore
from stream.engine.outputs import OutputRecord
from stream.errors import UsageError
from stream.schemas import AUDIT, private_topic


def test_an_outbox_that_is_just_being_made_holds_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "public.sqlite").touch(0o600)
    assert read_outbox(tmp_path, "public", 0) == []


def test_a_delivered_record_is_readable_by_its_audience_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    record = OutputRecord(private_topic("public", "occupancy"), b"dbh", b"{}", 300_000, True, "dbh/occupancy/public/t")
    store.commit([record], b"state", 0)
    store.deliver()
    assert read_outbox(tmp_path / "store", "public", 0) == [(1, b"{}")]
    assert read_outbox(tmp_path / "store", "facilities", 0) == []
    store.close()


def test_an_audience_that_was_given_nothing_yet_has_an_empty_outbox(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    store.outboxes.prepare(["facilities"])
    assert [audience for audience, _ in outboxes(tmp_path / "store")] == ["facilities"]
    assert read_outbox(tmp_path / "store", "facilities", 0) == []
    store.close()


def released(release: str, number: int) -> OutputRecord:
    """The record of a window of the audience ``public``."""
    value = f'{{"n": {number}}}'.encode()
    return OutputRecord(private_topic("public", release), b"dbh", value, number, True, f"dbh/{release}/public/{number}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store that has delivered three records of two releases."""
    made = SqliteStore(tmp_path / "store")
    made.commit([released("a", 1), released("b", 2), released("a", 3)], b"state", 0)
    made.deliver()
    yield made
    made.close()


def test_an_outbox_is_read_by_release_from_a_number_on(store: SqliteStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    assert read_outbox(folder, "public", 1) == [(2, b'{"n": 2}'), (3, b'{"n": 3}')]
    assert [number for number, _ in read_outbox(folder, "public", 0, "a")] == [1, 3]
    assert [number for number, _ in read_outbox(folder, "public", 0, most=2)] == [1, 2]
    assert (release_at(folder, "public", 3), release_at(folder, "public", 4)) == ("dbh/a/public/3", None)
    assert (last_number(folder, "public"), last_number(folder, "facilities")) == (3, 0)
    assert release_names(folder, "public") == {"a", "b"}


def test_outboxes_of_audiences_are_listed_and_those_of_roles_are_not(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "store" / "private" / "_account.sqlite").touch()
    assert [audience for audience, _ in outboxes(tmp_path / "store")] == ["public"]
    assert has_outbox(tmp_path / "store", "public")
    assert not has_outbox(tmp_path / "store", "facilities")
    for read in (require_store, lambda folder: has_outbox(folder, "public")):
        with pytest.raises(UsageError, match="must be a store made by 'tacet run'"):
            read(tmp_path)


def test_published_are_delivered_records_and_those_that_wait(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([released("a", 4)], b"later", 0)
    assert set(read_published(tmp_path / "store")) == {f'{{"n": {n}}}'.encode() for n in (1, 2, 3, 4)}
    assert read_snapshot(tmp_path / "store") == (b"later", 0)


def test_other_bytes_of_a_delivered_record_are_named(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([released("a", 3)], b"state", 0)
    assert contradicted(tmp_path / "store") == {}, "the same record again"
    store.commit([released("a", 3)._replace(value=b'{"n": 9}')], b"state", 0)
    assert contradicted(tmp_path / "store") == {"public": "dbh/a/public/3"}


def test_state_and_entries_are_of_one_moment(store: SqliteStore, tmp_path: Path) -> None:
    entries = [OutputRecord(AUDIT, b"dbh", b"%d" % n, n, True, str(n)) for n in (1, 2)]
    store.commit(entries, b"after", 0)
    assert read_state_and_entries(tmp_path / "store") == (b"after", [b"1", b"2"])
    assert read_topic(tmp_path / "store", AUDIT) == [b"1", b"2"]
    assert read_topic(tmp_path / "store", "tacet.leakage.v1") == []


def test_a_store_without_a_state_has_none(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "new").close()
    assert read_snapshot(tmp_path / "new") == (None, 0)
    assert read_state_and_entries(tmp_path / "new") == (None, [])
