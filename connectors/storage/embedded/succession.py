"""The end of a ledger: its store is closed for good, and a new one begins with what the old one spent.

A key that is lost or stolen cannot go on, and another key on the same store would draw other noise for windows that
were released. So a new key gets a new store. What it must not get is a second budget: sums, habits, days that were
asked and the account go on from the old books, which are readable without any key. Nobody is in the new store.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from connectors import keyfile
from connectors.audit_chains import audit_of, heads_of, parse_entries
from connectors.embedded.backup import becoming
from connectors.embedded.readings import read_earlier, read_identity, read_policies
from connectors.embedded.rollback_mark import MarkFile, read_mark
from connectors.embedded.sqlite_file import connect, naming_errors, transaction
from connectors.embedded.store import SqliteStore
from stream.accounting.audit import Link
from stream.errors import UsageError
from stream.keys import Keys
from stream.policy.document import Policy
from stream.runners.snapshot import successor

_EARLIER = "CREATE TABLE IF NOT EXISTS earlier (seq INTEGER PRIMARY KEY, value BLOB NOT NULL);"


class Retired(NamedTuple):
    """What a ledger has ended with, and what goes on."""

    ledger: str
    """Public id of the new ledger."""
    entries: int
    """How many entries its budgets and its account begin with."""


class _Ending(NamedTuple):
    """What a new ledger takes over."""

    entries: list[bytes]
    snapshot: bytes
    policies: list[bytes]


def retire(old: Path, new: Path, new_key: Path, old_key: Path | None) -> Retired:
    """End a store's ledger and begin another one with what it spent; done again after a crash it goes on.

    Args:
        old: a store that is not running.
        new: folder of the store to be made.
        new_key: a key that nothing was made with.
        old_key: the key of the old store, which is destroyed; None where it is lost.

    Raises:
        UsageError: a folder or key is not what it must be, or the old store has begun another ledger.
        AuditError: the old books are not whole, or (by the mark of the old key) not all that was released.
    """
    keys = keyfile.FileKeys(new_key)
    ending = _end(old, keys, old_key)
    if not new.exists():
        with becoming(new) as made:
            _begin(made, ending)
    elif [bytes(value) for value in read_earlier(new)] != ending.entries:
        msg = f"{new}: must not exist yet; no store is written over"
        raise UsageError(msg)
    MarkFile(new_key, read_identity(new), laboratory=keys.laboratory)
    if old_key is not None:
        keyfile.retire(old_key, keys.ledger)
    return Retired(keys.ledger, len(ending.entries))


def _end(folder: Path, keys: Keys, old_key: Path | None) -> _Ending:
    """Check a store's books and close it for good; return what the next ledger takes over."""
    held = SqliteStore(folder, ended_for=keys.ledger)
    try:
        snapshot, entries = held.snapshot(), list(held.entries())
        _refuse_books(folder, snapshot, entries, old_key)
        _refuse_key(entries, keys)
        if snapshot is None:
            raise UsageError(f"{folder}: must have released something; a new store with a new key needs nothing of it")
        ended = successor(snapshot, keys)
        with closing(connect(folder / "store.sqlite", "")) as store, naming_errors(folder), transaction(store):
            store.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", (keys.ledger,))
        return _Ending([*map(bytes, held.earlier()), *entries], ended, read_policies(folder))
    finally:
        held.close()


def _refuse_books(folder: Path, snapshot: bytes | None, entries: list[bytes], old_key: Path | None) -> None:
    """Raise AuditError unless the books are whole, and by the old key's mark all that was released."""
    mark = {}
    if old_key is not None and not keyfile.is_retired(old_key):
        mark = {site: Link(*link) for site, link in read_mark(old_key, read_identity(folder)).items()}
    audit_of([heads_of(snapshot)], mark).chains(parse_entries(entries))


def _refuse_key(entries: list[bytes], keys: Keys) -> None:
    """Raise UsageError for a key that was the old ledger's, or would hide that something was made in a laboratory."""
    for entry in parse_entries(entries):
        if entry["ledger"] == keys.ledger:
            raise UsageError("--new-key: must be a new key, got that of the ledger which is to end")
        if entry["laboratory"] != keys.laboratory:
            kind = "laboratory" if entry["laboratory"] else "production"
            raise UsageError(f"--new-key: must be a {kind} key, as the old one was")
        return


def _begin(folder: Path, ending: _Ending) -> None:
    store = SqliteStore(folder)
    try:
        store.commit([], ending.snapshot, 0)
        for document in ending.policies:
            store.keep_policy(Policy.from_document(document).version, document)
    finally:
        store.close()
    with closing(connect(folder / "store.sqlite", _EARLIER)) as made, naming_errors(folder), transaction(made):
        made.executemany("INSERT INTO earlier (value) VALUES (?)", ((entry,) for entry in ending.entries))
