"""An audience's side of the embedded store."""

from __future__ import annotations

from pathlib import Path

from connectors.storage.embedded.reader import read_outbox
from connectors.storage.embedded.store import SqliteStore
from stream.engine.outputs import OutputRecord
from stream.schemas import private_topic


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
