"""Read an embedded store beside a runner that may be writing, without writing a byte.

Subscribers open outboxes only. A process that may open the store itself reads the account, the audit chain and the
state.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from connectors.storage.embedded.sqlite_file import reading
from stream.encryption import Kind, Vault, is_encrypted, unseal
from stream.errors import DestroyedKeyError, UsageError
from stream.schemas import AUDIT, RESTRICTED

ACCOUNT_OUTBOX, OPERATOR_OUTBOX = "_account", "_operator"
"""Outboxes of the two roles that are no audience, under names that no audience can have."""


def outboxes(folder: Path) -> list[tuple[str, Path]]:
    """Return the audiences that have an outbox, with their files.

    Outboxes of roles, whose names begin with _, are left out.
    """
    return [(path.stem, path) for path in sorted((folder / "private").glob("[!_]*.sqlite"))]


def has_outbox(folder: Path, audience: str) -> bool:
    """Return whether a store publishes anything for an audience; UsageError if there is no store."""
    if not (folder / "private").is_dir():
        msg = f"{folder}: must be a store made by 'tacet run'"
        raise UsageError(msg)
    return (folder / "private" / f"{audience}.sqlite").exists()


def read_outbox(
    folder: Path, audience: str, after: int, release: str | None = None, *, most: int = -1
) -> list[tuple[int, bytes]]:
    """Return an audience's records after a sequence number, of one release or all, in the order of publication.

    At most ``most`` records are returned, if it is given.
    """
    query = "SELECT seq, value FROM records WHERE seq > ?1 AND (?2 IS NULL OR release = ?2) ORDER BY seq LIMIT ?3"
    return _of_outbox(folder, audience, query, after, release, most)


def release_at(folder: Path, audience: str, number: int) -> str | None:
    """Return the id of the release with a number in an audience's outbox; None if there is none."""
    rows = _of_outbox(folder, audience, "SELECT id FROM records WHERE seq = ?", number)
    return str(rows[0][0]) if rows else None


def last_number(folder: Path, audience: str) -> int:
    """Return the number of an audience's last record, 0 before the first."""
    return max((seq or 0 for (seq,) in _of_outbox(folder, audience, "SELECT max(seq) FROM records")), default=0)


def release_names(folder: Path, audience: str) -> set[str]:
    """Return the names of the releases of which an audience has any record."""
    return {name for (name,) in _of_outbox(folder, audience, "SELECT DISTINCT release FROM records")}


def _of_outbox(folder: Path, audience: str, query: str, *values: int | str | None) -> list[Any]:
    path = folder / "private" / f"{audience}.sqlite"
    if not path.exists():
        return []
    with reading(path) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchall():
            return []  # the file is being created
        return connection.execute(query, values).fetchall()


def read_topic(folder: Path, topic: str, vault: Vault | None = None) -> list[bytes]:
    """Return the store's records of a topic that is not private, for processes that may open the store.

    True stays and counts are returned only if the vault can decrypt them: those of a day whose key is destroyed are
    left out.
    """
    with reading(require_store(folder)) as connection:
        rows = connection.execute("SELECT value FROM outputs WHERE topic = ? ORDER BY seq", (topic,))
        return [record for (value,) in rows if (record := as_produced(topic, value, vault)) is not None]


def read_identity(folder: Path) -> str:
    """Return the id that the store generated when it was created; the mark identifies the store by it."""
    with reading(require_store(folder)) as connection:
        ((name,),) = connection.execute("SELECT value FROM meta WHERE name = 'id'").fetchall()
    return str(name)


def read_mechanisms(folder: Path) -> set[str]:
    """Return the mechanism versions that have worked on the store."""
    with reading(require_store(folder)) as connection:
        rows = connection.execute("SELECT name FROM meta WHERE name LIKE 'mechanisms/%'").fetchall()
    return {str(name).partition("/")[2] for (name,) in rows}


def read_policies(folder: Path) -> list[bytes]:
    """Return the documents of the policies under which the store has released."""
    with reading(require_store(folder)) as connection:
        return [bytes(document) for (document,) in connection.execute("SELECT document FROM policies ORDER BY rowid")]


def read_published(folder: Path) -> list[bytes]:
    """Return every private record of the store's audiences, including those that are not yet in their outboxes."""
    boxes = [audience for audience, _ in outboxes(folder)]
    with reading(require_store(folder)) as connection:
        rows = connection.execute(
            "SELECT value FROM outputs WHERE topic LIKE 'tacet.private.%' ORDER BY seq"
        ).fetchall()
    return [bytes(value) for (value,) in rows] + [value for box in boxes for _, value in read_outbox(folder, box, 0)]


def contradicted(folder: Path) -> dict[str, str]:
    """Return the audiences whose outbox has other bytes of a record that the store is about to publish, with its id."""
    with reading(require_store(folder)) as connection:
        rows = connection.execute(
            "SELECT topic, id, value FROM outputs WHERE topic LIKE 'tacet.private.%' ORDER BY seq"
        ).fetchall()
    found: dict[str, str] = {}
    for topic, identity, value in rows:
        audience = topic.split(".")[2]
        stored = _of_outbox(folder, audience, "SELECT value FROM records WHERE id = ?", identity)
        if stored not in ([], [(value,)]):
            found.setdefault(audience, identity)
    return found


def read_state_and_entries(folder: Path) -> tuple[bytes | None, list[bytes]]:
    """Return the last committed state and the audit entries of the same moment."""
    with reading(require_store(folder)) as connection:
        connection.execute("BEGIN")
        state = connection.execute("SELECT value FROM state").fetchone()
        rows = connection.execute("SELECT value FROM outputs WHERE topic = ? ORDER BY seq", (AUDIT,)).fetchall()
    return (None if state is None else bytes(state[0])), [bytes(value) for (value,) in rows]


def read_earlier(folder: Path) -> list[bytes]:
    """Return the entries of the ledgers that the store's own ledger continues, in order."""
    with reading(require_store(folder)) as connection:
        return earlier_entries(connection)


def earlier_entries(store: sqlite3.Connection) -> list[bytes]:
    """Do the same on an open store. The table exists only if the store began with the charges of another ledger."""
    if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'earlier'").fetchall():
        return []
    return [bytes(value) for (value,) in store.execute("SELECT value FROM earlier ORDER BY seq")]


def read_snapshot(folder: Path) -> tuple[bytes | None, int]:
    """Return the last committed state and the number of messages that are not consumed yet."""
    with reading(require_store(folder)) as connection:
        row = connection.execute("SELECT value FROM state").fetchone()
        ((waiting,),) = connection.execute("SELECT count(*) FROM observations").fetchall()
    return (None if row is None else bytes(row[0])), int(waiting)


def require_store(folder: Path) -> Path:
    """Return the file of a store; UsageError if there is none."""
    path = folder / "store.sqlite"
    if not path.exists():
        msg = f"{folder}: must be a store made by 'tacet run'"
        raise UsageError(msg)
    return path


def as_produced(topic: str, value: bytes, vault: Vault | None = None) -> bytes | None:
    """Return a stored record as it was produced; None if it is missing, or encrypted and its day's key is destroyed."""
    if topic not in RESTRICTED:
        return bytes(value)
    if vault is None and is_encrypted(value):
        return None
    try:
        return unseal(Kind.RESTRICTED, bytes(value), vault)
    except DestroyedKeyError:
        return None
