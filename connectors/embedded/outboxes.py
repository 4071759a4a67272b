"""The outboxes of an embedded store: one SQLite file per audience, all that its subscribers open.

A release lies in its outbox once, for ever: another text under its name is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from connectors.embedded.sqlite_file import Identity, connect, identity, naming_errors, refuse_replaced, transaction
from connectors.private_folder import private_folder
from stream.errors import FinalityError
from stream.records import ReleaseId

_OUTBOX = """
CREATE TABLE IF NOT EXISTS records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, release TEXT NOT NULL,
    site TEXT NOT NULL, time INTEGER NOT NULL, value BLOB NOT NULL);
"""


class Given(NamedTuple):
    """A private record as its outbox keeps it."""

    id: str
    release: str
    site: str
    time: int
    """Event time in ms."""
    value: bytes


class Outboxes:
    """The outboxes in a folder: ``<audience>.sqlite``, each made or opened when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)
        self._boxes: dict[str, sqlite3.Connection] = {}
        self._opened: dict[Path, Identity] = {}

    def prepare(self, audiences: Iterable[str]) -> None:
        """Make the outboxes of audiences that have none yet: who has none is no audience of this store."""
        for audience in audiences:
            self._box(audience)

    def refuse_replaced(self) -> None:
        """Raise StoreError where an opened outbox is gone or another file has its name."""
        for path, opened in self._opened.items():
            refuse_replaced(path, opened)

    def give(self, audience: str, records: Sequence[Given]) -> None:
        """Add records in one transaction; those that are there stay, FinalityError where one would differ."""
        box = self._box(audience)
        with naming_errors(self._path(audience)), transaction(box):
            for record in records:
                _put(box, record)

    def sync(self) -> bool:
        """Write all through to disk; False where a reader has kept one from it, which is then done next time."""
        with naming_errors(self._folder):
            results = [box.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone() for box in self._boxes.values()]
        return all(not busy and pages == written for busy, pages, written in results)

    def record(self, release_id: str) -> bytes | None:
        """Return a record that was given; None where there is none."""
        box = self._box(ReleaseId.parse(release_id).audience)
        with naming_errors(self._folder):
            row = box.execute("SELECT value FROM records WHERE id = ?", (release_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def close(self) -> None:
        """Close every file."""
        for box in self._boxes.values():
            box.close()

    def _path(self, audience: str) -> Path:
        return self._folder / f"{audience}.sqlite"

    def _box(self, audience: str) -> sqlite3.Connection:
        if audience not in self._boxes:
            path = self._path(audience)
            with naming_errors(path):
                box = connect(path, _OUTBOX)
                box.execute("PRAGMA synchronous = NORMAL")  # the store still holds what a power cut may take
                self._opened[path] = identity(path)
            self._boxes[audience] = box
        return self._boxes[audience]


def _put(box: sqlite3.Connection, record: Given) -> None:
    held = box.execute("SELECT value FROM records WHERE id = ?", (record.id,)).fetchone()
    if held is None:
        box.execute("INSERT INTO records (id, release, site, time, value) VALUES (?, ?, ?, ?, ?)", record)
    elif bytes(held[0]) != record.value:
        msg = f"release {record.id}: was published and would now differ; nothing is released"
        raise FinalityError(msg)
