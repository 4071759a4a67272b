"""End a ledger: close its store for good, and begin a new store with what the old one spent.

A lost or stolen key cannot be used further, and another key on the same store would draw other noise for windows that
were already released. So a new key gets a new store. It must not get a second budget: sums, habits, queried days and
the
account continue from the old ledger and audit log, which are readable without any key. The new store contains no data
about people.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from connectors.keys import key_files
from connectors.storage.audit_chains import audit_of, heads_of, parse_entries
from connectors.storage.embedded.backup import becoming
from connectors.storage.embedded.reader import read_earlier, read_identity, read_policies
from connectors.storage.embedded.rollback_mark import MarkFile, one_run, read_mark
from connectors.storage.embedded.sqlite_file import EARLIER, connect, naming_errors, transaction
from connectors.storage.embedded.store import SqliteStore
from stream.accounting.audit import ChainLink
from stream.engine.snapshot import successor
from stream.errors import UsageError
from stream.keys import Keys
from stream.policy.document import PolicyDocument


class Retired(NamedTuple):
    """The result of ending a ledger."""

    ledger: str
    """Public id of the new ledger."""
    entries: int
    """How many entries the new ledger's budgets and account begin with."""


class _Ending(NamedTuple):
    """The state that a new ledger inherits."""

    entries: list[bytes]
    snapshot: bytes
    policies: list[bytes]


def retire(old: Path, new: Path, new_key: Path, old_key: Path | None) -> Retired:
    """End a store's ledger and begin another one with its charges; a repeated call after a crash resumes.

    Args:
        old: a store that is not running.
        new: folder of the store to create.
        new_key: a key that was never used.
        old_key: the key of the old store, which is destroyed; None if it is lost.

    Raises:
        UsageError: a folder or key is not suitable, the old store has begun another ledger, or a run uses one of the
            keys.
        AuditError: the old ledger or audit log is not whole, or (by the mark of the old key) lacks released entries.
    """
    keys = key_files.FileKeys(new_key)
    with ExitStack() as held:
        held.enter_context(one_run(new_key, new, laboratory=keys.laboratory))
        if old_key is not None and not key_files.is_retired(old_key) and not old_key.samefile(new_key):
            held.enter_context(one_run(old_key, old, laboratory=key_files.is_laboratory(old_key)))
        return _retire(old, new, new_key, old_key, keys)


def _retire(old: Path, new: Path, new_key: Path, old_key: Path | None, keys: key_files.FileKeys) -> Retired:
    ending = _end(old, keys, old_key)
    if not new.exists():
        with becoming(new) as made:
            _begin(made, ending)
    elif [bytes(value) for value in read_earlier(new)] != ending.entries:
        msg = f"{new}: must not exist yet; no store is written over"
        raise UsageError(msg)
    MarkFile(new_key, read_identity(new), laboratory=keys.laboratory)
    if old_key is not None:
        key_files.retire(old_key, keys.ledger)
    return Retired(keys.ledger, len(ending.entries))


def _end(folder: Path, keys: Keys, old_key: Path | None) -> _Ending:
    """Verify a store's ledger and close it for good; return what the next ledger inherits."""
    held = SqliteStore(folder, ended_for=keys.ledger)
    try:
        snapshot, entries = held.snapshot(), list(held.entries())
        _check_ledger(folder, snapshot, entries, old_key)
        _refuse_key(entries, keys)
        if snapshot is None:
            raise UsageError(f"{folder}: must have released something; a new store with a new key needs nothing of it")
        ended = successor(snapshot, keys)
        with closing(connect(folder / "store.sqlite", "")) as store, naming_errors(folder), transaction(store):
            store.execute("INSERT OR REPLACE INTO meta VALUES ('ended', ?)", (keys.ledger,))
        return _Ending([*map(bytes, held.earlier()), *entries], ended, read_policies(folder))
    finally:
        held.close()


def _check_ledger(folder: Path, snapshot: bytes | None, entries: list[bytes], old_key: Path | None) -> None:
    """Raise AuditError unless the ledger is whole and, by the old key's mark, includes everything that was released."""
    mark = {}
    if old_key is not None and not key_files.is_retired(old_key):
        mark = {site: ChainLink(*link) for site, link in read_mark(old_key, read_identity(folder)).items()}
    audit_of([heads_of(snapshot)], mark).chains(parse_entries(entries))


def _refuse_key(entries: list[bytes], keys: Keys) -> None:
    """Raise UsageError for the old ledger's key, or for one that would hide that a laboratory key was used."""
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
            store.keep_policy(PolicyDocument.from_document(document).version, document)
    finally:
        store.close()
    with closing(connect(folder / "store.sqlite", EARLIER)) as made, naming_errors(folder), transaction(made):
        made.executemany("INSERT INTO earlier (value) VALUES (?)", ((entry,) for entry in ending.entries))
